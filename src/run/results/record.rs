//! The record that a node sends at the end, and which every node reads, so that all write the same
//! summary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    digest,
    drive::{Conclusion, Elapsed},
    gossip::{LinkTraffic, OwnModel, Traffic},
    learn::{Counts, Evaluation},
    run::{Design, arithmetic},
    vector,
};

/// The maximum number of links in a record: all nodes' records travel to every node.
pub(crate) const MOST_LINKS: usize = 64;

/// The maximum number of classes that a record counts.
pub const MOST_CLASSES: usize = 4096;

/// The maximum number of a program's measures in a record.
pub(crate) const MOST_MEASURES: usize = 64;

/// The maximum length of a measure's name, in bytes.
pub(crate) const MEASURE_NAME: usize = 64;

/// The maximum number of rows of all nodes together: larger whole numbers are not exact in `f64`.
/// The maximum number of rows of a node.
pub(crate) const MOST_ROWS: u64 = 1 << 53;

/// The record at the end: a node's work, and the quality of its model and of the mean on its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closing {
    /// Rounds that this node has done.
    pub rounds: u64,
    /// Rounds in which it did not take part.
    pub missed: Vec<u64>,
    /// How often its program was started again.
    #[serde(default, skip_serializing_if = "is_none")]
    pub restarts: u64,
    /// SHA-256 of the model's little-endian bytes, in hexadecimal.
    pub digest: String,
    /// The same of the mean of all models; `None` if the run ended before it was formed.
    pub mean: Option<String>,
    /// The training rows of its shard.
    pub rows: u64,
    /// Rows per class, if there are classes. Empty if there are more than [`MOST_CLASSES`].
    pub classes: Vec<u64>,
    /// f_i at the mean of all models; NaN if it is not finite.
    #[serde(with = "or_nan")]
    pub train_loss_of_mean: f64,
    /// |x_i - mean|^2; NaN if it is not finite.
    #[serde(with = "or_nan")]
    pub distance_squared: f64,
    /// Its own model on its test rows.
    pub test: Option<Score>,
    /// The mean model on its test rows.
    pub test_of_mean: Option<Score>,
    /// Counts of its own model's predictions for its test rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// The same of the mean model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts_of_mean: Option<Counts>,
    /// The mean of each target of the shard, if numbers are predicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<f64>,
    /// Hash of the arithmetic self-test, in hexadecimal.
    pub arithmetic: String,
    /// Bytes sent for the rule: payload, wire, dense.
    pub bytes: [u64; 3],
    /// Seconds since the node's start.
    pub time_s: f64,
    /// The part of them spent on gradients.
    pub computing_s: f64,
    /// Bytes sent for the rule to each neighbour: its number, payload, wire. Empty if there are
    /// more than `MOST_LINKS`.
    pub links: Vec<[u64; 3]>,
    /// Measures of the program, of its own model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, f64>,
    /// The same of the mean model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measures_of_mean: BTreeMap<String, f64>,
}

/// An evaluation on a number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The number of rows that were evaluated.
    pub rows: u64,
    /// Mean loss; NaN if it is not finite.
    #[serde(with = "or_nan")]
    pub loss: f64,
    /// Rows classified correctly, if there are classes.
    pub correct: Option<u64>,
}

impl Score {
    /// The share of rows classified correctly.
    pub fn accuracy(&self) -> Option<f64> {
        self.correct.map(|correct| correct as f64 / self.rows as f64)
    }

    /// The score on all these rows together; `None` without any.
    pub(crate) fn merged(scores: &[Score]) -> Option<Score> {
        let [first, rest @ ..] = scores else { return None };
        if rest.is_empty() {
            return Some(*first);
        }
        let rows = scores.iter().fold(0u64, |rows, score| rows.saturating_add(score.rows));
        let correct =
            scores.iter().try_fold(0u64, |sum, score| Some(sum.saturating_add(score.correct?)));
        let loss = scores.iter().map(|score| score.loss * score.rows as f64).sum::<f64>();
        Some(Score { rows, loss: loss / rows as f64, correct })
    }
}

impl From<Evaluation> for Score {
    fn from(evaluation: Evaluation) -> Score {
        Score { rows: evaluation.rows, loss: evaluation.loss, correct: evaluation.correct }
    }
}

/// Checks a score and the counts of the same rows.
fn check_score(
    score: Option<Score>,
    counts: Option<&Counts>,
    outputs: usize,
) -> Result<(), String> {
    let Some(score) = score else {
        return counts.map_or(Ok(()), |_| Err("counts without a score".into()));
    };
    let most = score.rows.min(MOST_ROWS);
    if most == 0 || most < score.rows || score.correct.is_some_and(|correct| correct > most) {
        return Err(format!("a score of {:?} right answers in {} rows", score.correct, score.rows));
    }
    counts.map_or(Ok(()), |counts| counts.check(outputs, score.rows))
}

/// Whether a count is 0.
pub(crate) fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Closing {
    /// Encodes the record.
    ///
    /// # Panics
    /// Never: the record serialises.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record serialises")
    }

    /// Decodes the record.
    ///
    /// # Errors
    /// If they are not such a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Closing, String> {
        if bytes.is_empty() {
            return Err("it is empty".into());
        }
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// The record of a run that ended before the mean was formed.
    pub(crate) fn early(own: &OwnModel, elapsed: Elapsed, rows: u64, classes: Vec<u64>) -> Closing {
        let conclusion = Conclusion::new(own, &[], elapsed);
        Closing { mean: None, classes: Closing::classes(classes), ..Closing::of(&conclusion, rows) }
    }

    /// The values that a driver knows, without the models' quality.
    pub fn of(conclusion: &Conclusion<'_>, rows: u64) -> Closing {
        let Conclusion { model, mean, elapsed, .. } = conclusion;
        let same = mean.len() == model.len();
        Closing {
            rounds: conclusion.rounds.0,
            missed: Vec::new(),
            restarts: conclusion.restarts,
            digest: digest::of_model(model),
            mean: Some(digest::of_model(mean)),
            rows,
            classes: Vec::new(),
            train_loss_of_mean: f64::NAN,
            distance_squared: if same { vector::distance_squared(model, mean) } else { f64::NAN },
            test: None,
            test_of_mean: None,
            counts: None,
            counts_of_mean: None,
            targets: Vec::new(),
            arithmetic: arithmetic::name(),
            bytes: Closing::traffic(conclusion.traffic),
            time_s: elapsed.time.seconds(),
            computing_s: elapsed.computing.seconds(),
            links: Closing::links(conclusion.links),
            measures: BTreeMap::new(),
            measures_of_mean: BTreeMap::new(),
        }
    }

    /// Checks that a node of this run can have made this record: it may come from another node.
    ///
    /// # Errors
    /// The value that is impossible, and the accepted ones.
    pub(crate) fn check(&self, design: &Design) -> Result<(), String> {
        let rounds = design.experiment.run.rounds;
        if self.rounds > rounds || self.missed.len() as u64 > rounds {
            return Err(format!(
                "{} rounds, of which {} missed: the run has {rounds}",
                self.rounds,
                self.missed.len()
            ));
        }
        for (key, digest) in [("digest", Some(&self.digest)), ("mean", self.mean.as_ref())] {
            if digest.is_some_and(|digest| digest::unhex(digest).is_none()) {
                return Err(format!("{key}: this is not a SHA-256 in 64 hexadecimal digits"));
            }
        }
        let outputs = design.outputs;
        let scored = [(self.test, &self.counts), (self.test_of_mean, &self.counts_of_mean)];
        for (score, counts) in scored {
            check_score(score, counts.as_ref(), outputs)?;
        }
        if self.targets.len() > outputs || self.targets.iter().any(|mean| !mean.is_finite()) {
            return Err(format!(
                "the means of {} targets: at most {outputs} finite ones are accepted",
                self.targets.len()
            ));
        }
        if self.classes.len() > outputs.max(1) || self.links.len() > MOST_LINKS {
            return Err(format!(
                "{} classes and {} links: at most {outputs} and {MOST_LINKS} are accepted",
                self.classes.len(),
                self.links.len()
            ));
        }
        for measures in [&self.measures, &self.measures_of_mean] {
            let long = measures.keys().any(|name| name.len() > MEASURE_NAME);
            if long || measures.len() > MOST_MEASURES {
                return Err(format!(
                    "{} measures: at most {MOST_MEASURES} with names of {MEASURE_NAME} bytes are \
                     accepted",
                    measures.len()
                ));
            }
        }
        if !(self.time_s.is_finite()
            && self.computing_s.is_finite()
            && self.time_s >= 0.0
            && self.computing_s >= 0.0)
        {
            return Err(format!("{} s, of them {} s computing", self.time_s, self.computing_s));
        }
        Ok(())
    }

    /// The node's traffic as recorded.
    pub fn traffic(traffic: Traffic) -> [u64; 3] {
        [traffic.payload, traffic.wire, traffic.dense]
    }

    /// The rows of each class.
    pub fn classes(rows: Vec<u64>) -> Vec<u64> {
        if rows.len() > MOST_CLASSES { Vec::new() } else { rows }
    }

    /// The traffic in the form of `links`.
    pub fn links(links: &[LinkTraffic]) -> Vec<[u64; 3]> {
        if links.len() > MOST_LINKS {
            return Vec::new();
        }
        links.iter().map(|link| [u64::from(link.to.0), link.payload, link.wire]).collect()
    }
}

/// Numbers of a run that may diverge: JSON can write NaN and infinities only as `null`.
pub(crate) mod or_nan {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(x: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        x.is_finite().then_some(*x).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::arithmetic;

    #[test]
    fn a_record_of_a_diverging_run_comes_back() {
        let closing = Closing {
            rounds: 3,
            missed: Vec::new(),
            restarts: 2,
            digest: "0".repeat(64),
            mean: Some("1".repeat(64)),
            rows: 5,
            classes: vec![2, 3],
            train_loss_of_mean: f64::INFINITY,
            distance_squared: 0.1,
            test: Some(Score { rows: 2, loss: f64::NAN, correct: Some(1) }),
            test_of_mean: None,
            counts: None,
            counts_of_mean: None,
            targets: Vec::new(),
            arithmetic: arithmetic::name(),
            bytes: [1, 2, 3],
            time_s: 0.5,
            computing_s: 0.4,
            links: Vec::new(),
            measures: Default::default(),
            measures_of_mean: Default::default(),
        };
        let back = Closing::from_bytes(&closing.to_bytes()).unwrap();
        assert!(back.train_loss_of_mean.is_nan() && back.test.unwrap().loss.is_nan());
        assert_eq!((back.distance_squared, back.classes), (0.1, vec![2, 3]));
        assert!(Closing::from_bytes(b"{}").unwrap_err().contains("missing field"));
    }
}
