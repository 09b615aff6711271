//! How stages of training have ended at sites, and from which of these models a next one begins.

use std::collections::BTreeMap;

use gradvine::{
    config::ConfigError,
    data::{Missing, Scale},
    experiment::Experiment,
    net::Keypair,
};
use serde::{Deserialize, Serialize};

use crate::{
    document::{Member, Version},
    sign::{About, id, is_signed, sign},
    text::LONGEST_KEY,
};

/// The most bytes of the constants of a model.
pub(crate) const LONGEST_CONSTANTS: usize = 1 << 20;

/// What was done with the features before training, which a model needs: all that the end of a
/// stage may set in the experiment of the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// The scale of the features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// The scale of the predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_scale: Option<Scale>,
    /// What missing values become, by the names of columns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fills: BTreeMap<String, f64>,
}

impl Constants {
    /// The text that a site signs.
    ///
    /// # Errors
    /// Never, with numbers that are finite.
    pub fn to_text(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError::at("data", error.to_string()))
    }

    fn of_text(text: &str) -> Option<Constants> {
        let known = Some(text).filter(|text| text.len() <= LONGEST_CONSTANTS);
        let constants: Constants = known.and_then(|text| toml::from_str(text).ok())?;
        let is_scale = |scale: &Option<Scale>| {
            scale.as_ref().is_none_or(|scale| {
                scale.mean.len() == scale.deviation.len()
                    && scale.mean.iter().all(|mean| mean.is_finite())
                    && scale.deviation.iter().all(|one| one.is_finite() && *one > 0.0)
            })
        };
        let is_right = is_scale(&constants.scale)
            && is_scale(&constants.target_scale)
            && constants.fills.values().all(|fill| fill.is_finite());
        is_right.then_some(constants)
    }

    /// Puts them into an experiment: a fill only where the agreed schema leaves it to the rows.
    fn put(&self, experiment: &mut Experiment) {
        let data = &mut experiment.data;
        if self.scale.is_some() {
            data.scale.clone_from(&self.scale);
        }
        if self.target_scale.is_some() {
            data.target_scale.clone_from(&self.target_scale);
        }
        for column in data.schema.iter_mut().flat_map(|schema| &mut schema.columns) {
            let is_open = matches!(column.missing, Missing::Mean | Missing::Median);
            if let Some(fill) = self.fills.get(&column.name).filter(|_| is_open) {
                column.missing = Missing::Value(*fill);
            }
        }
    }
}

/// How a stage of training has ended at a site, and what a next stage takes from it.
///
/// A stage that was replaced before the site began it ends there too: without rounds, with the
/// model of the stage before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageEnd {
    /// The id of the run.
    pub run: String,
    /// The site that says so.
    pub site: String,
    /// The number of the version that the stage began with.
    pub stage: u64,
    /// The digest of that version.
    pub begins: String,
    /// The rounds of all stages so far.
    pub rounds: u64,
    /// The stage that its newest model is of; none if no rounds were done yet.
    pub model: Option<u64>,
    /// Whether that is the mean of all sites. Otherwise the stage was cut off, as a site was gone,
    /// and it is this site's own.
    pub mean: bool,
    /// The digest of the model.
    pub digest: String,
    /// The [`Constants`] of the model.
    pub constants: String,
    /// Signed by the site.
    pub signature: String,
}

impl StageEnd {
    fn words(&self) -> Vec<u8> {
        let model = (self.model, self.mean, &self.digest, &self.constants);
        let words = (&self.run, &self.site, self.stage, &self.begins, self.rounds, model);
        serde_json::to_vec(&words).expect("texts serialise")
    }

    /// The name under which sites list what they know.
    pub(crate) fn id(&self) -> String {
        id("end", &self.words())
    }

    /// The record, signed.
    #[must_use]
    pub(crate) fn signed(self, key: &Keypair) -> StageEnd {
        StageEnd { signature: sign(key, About::Ends, &self.words()), ..self }
    }

    /// Whether it is of a stage of this history, and by a site that is a member still, with the key
    /// that it had.
    pub(crate) fn is_of(&self, history: &[Version]) -> bool {
        let peer = |version: &Version| version.run.member(&self.site).map(|one| one.peer.clone());
        let begins = history.iter().find(|version| version.run.number == self.stage);
        let begins = begins.filter(|one| one.run.started && one.run.digest() == self.begins);
        begins.and_then(peer).is_some_and(|key| history.last().and_then(peer) == Some(key))
    }

    /// Whether such a member has signed it, and what it says is within the bounds of the run.
    pub(crate) fn is_valid(&self, history: &[Version]) -> bool {
        let newest = history.last().map(|version| &version.run);
        let Some(run) = newest.filter(|run| run.id == self.run && self.is_of(history)) else {
            return false;
        };
        let is_its =
            |member: &Member| is_signed(&member.peer, About::Ends, &self.words(), &self.signature);
        run.member(&self.site).is_some_and(is_its)
            && Constants::of_text(&self.constants).is_some()
            && self.is_within(history)
    }

    /// Whether the rounds and the stage of the model are some that the run can have had.
    fn is_within(&self, history: &[Version]) -> bool {
        let Some(model) = self.model else {
            return self.rounds == 0 && !self.mean && self.digest.is_empty();
        };
        let is_digest = !self.digest.is_empty()
            && self.digest.len() <= LONGEST_KEY
            && self.digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let begins = history.iter().find(|version| version.run.number == model);
        let begins = begins.filter(|one| one.run.started && model <= self.stage && is_digest);
        begins.is_some_and(|begins| {
            let experiment = Experiment::parse(&begins.run.experiment, &[]);
            experiment.is_ok_and(|one| (1..=one.run.rounds).contains(&self.rounds))
        })
    }

    /// Whether two sites have the same results.
    fn is_like(&self, other: &StageEnd) -> bool {
        let of = |end: &StageEnd| (end.rounds, end.model, end.mean, end.digest.clone());
        of(self) == of(other) && self.constants == other.constants
    }

    /// The experiment with this model: its digest, which all compare, and what it needs.
    ///
    /// # Errors
    /// If the experiment does not fit the model.
    pub(crate) fn experiment(&self, text: &str, left: u64) -> Result<Experiment, ConfigError> {
        let mut experiment = Experiment::parse(text, &[format!("run.rounds={left}")])?;
        if self.model.is_none() {
            return Ok(experiment);
        }
        Constants::of_text(&self.constants).unwrap_or_default().put(&mut experiment);
        let init = [
            format!("model.init=from:{}", self.site),
            // Nobody accepts other values than those that were signed.
            format!("model.init_digest=\"{}\"", self.digest),
        ];
        Experiment::parse(&experiment.to_toml(), &init)
    }
}

/// The end with whose model all begin, and whether that is a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen<'a> {
    pub end: &'a StageEnd,
    /// Whether more than half have this mean.
    pub agreed: bool,
}

/// The end whose model all begin with, of those of all sites that took part.
///
/// A mean counts that more than half have. Else the stage was cut off: then it is a model of the
/// stage, and with the constants, that most name. Of these it is the one with the most rounds that
/// half of the sites have done or more, so that fewer than half decide nothing by what they claim.
/// Of several it is the one that most have, and of several sites the first one's.
pub(crate) fn chosen<'a>(ends: &[&'a StageEnd]) -> Option<Chosen<'a>> {
    let alike = |end: &StageEnd| ends.iter().filter(|other| end.is_like(other)).count();
    let agreed = ends.iter().find(|end| end.mean && 2 * alike(end) > ends.len());
    if let Some(end) = agreed {
        return Some(Chosen { end, agreed: true });
    }
    let with_model: Vec<&StageEnd> =
        ends.iter().filter(|end| end.model.is_some()).copied().collect();
    let group = |end: &StageEnd| (end.model, end.constants.clone());
    let size = |end: &StageEnd| with_model.iter().filter(|one| group(one) == group(end)).count();
    let first = |best: Option<&'a StageEnd>, end: &'a StageEnd| match best {
        Some(best) if (size(best), best.model) >= (size(end), end.model) => Some(best),
        _ => Some(end),
    };
    let most = with_model.iter().copied().fold(None, first)?;
    let mut of_most: Vec<&StageEnd> =
        with_model.into_iter().filter(|one| group(one) == group(most)).collect();
    let mut rounds: Vec<u64> = of_most.iter().map(|end| end.rounds).collect();
    rounds.sort_unstable_by(|a, b| b.cmp(a));
    let half = rounds[rounds.len().div_ceil(2) - 1];
    of_most.retain(|end| end.rounds == half);
    let first = |best: Option<&'a StageEnd>, end: &'a StageEnd| match best {
        Some(best) if alike(best) >= alike(end) => Some(best),
        _ => Some(end),
    };
    let end = of_most.into_iter().fold(None, first)?;
    Some(Chosen { end, agreed: false })
}
