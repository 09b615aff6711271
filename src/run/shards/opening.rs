//! What each node tells before round 0: the number of its rows, and sums over them.

use crate::{
    config::ConfigError,
    data::{Dataset, GapSums, Missing, Moments, Schema, Target},
    experiment::Experiment,
    gossip::{rule, tree::SETUP_LIMIT},
    units::NodeId,
};

use crate::run::results::record::MOST_ROWS;

/// What the nodes of a run exchange before round 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    /// The number of features of each row.
    pub(crate) inputs: usize,
    /// Whether the sums of features and of their squares are among them.
    pub(crate) moments: bool,
    /// The features whose missing values become what all nodes decide.
    pub(crate) gaps: Vec<(usize, Missing)>,
    /// Whether the scale of the features follows from the sums.
    pub(crate) standardize: bool,
    /// The number of predicted numbers whose scale follows from their sums; 0 for none.
    pub(crate) targets: usize,
    /// How many nodes may send wrong sums, if the constants must withstand them.
    pub(crate) byzantine: Option<usize>,
}

impl Sums {
    /// Those of an experiment with so many features and outputs.
    pub(crate) fn of(experiment: &Experiment, inputs: usize, outputs: usize) -> Sums {
        let data = &experiment.data;
        let gaps = data.schema.as_ref().map(Schema::agreed).unwrap_or_default();
        let standardize = data.standardize && data.scale.is_none();
        let is_given = data.target_scale.is_some() || !experiment.model.scales_targets();
        let targets = if is_given { 0 } else { outputs };
        let moments = standardize || !gaps.is_empty();
        Sums { inputs, moments, gaps, standardize, targets, byzantine: byzantine(experiment) }
    }

    /// Checks that they can be exchanged.
    ///
    /// # Errors
    /// If the record is too long.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let record = Opening::byte_len(self);
        if record <= SETUP_LIMIT {
            return Ok(());
        }
        let problem = format!(
            "the sums of {} features make a record of {record} bytes, a run takes at most \
             {SETUP_LIMIT}: scale the data beforehand and set it to false, or give data.scale",
            self.inputs
        );
        Err(ConfigError::new("data.standardize", true, problem))
    }

    pub(crate) fn are_some(&self) -> bool {
        self.moments || self.targets > 0
    }
}

/// How many nodes may send wrong sums; `None` if the run is not to withstand any.
fn byzantine(experiment: &Experiment) -> Option<usize> {
    let simulated = simulated(experiment);
    withstands(experiment).or((simulated > 0).then_some(simulated))
}

/// How many nodes send wrong vectors in a simulation.
fn simulated(experiment: &Experiment) -> usize {
    experiment.network.liars.iter().map(|some| some.nodes.len()).sum()
}

/// How many nodes may give a wrong model, if the rule is to withstand any.
pub(crate) fn withstands(experiment: &Experiment) -> Option<usize> {
    let rule = rule::of(experiment.registries.rules, &experiment.rule);
    rule.filter(|rule| rule.defends)?;
    let of_rule = experiment.rule.get("liars").and_then(toml::Value::as_integer).unwrap_or(1);
    Some(simulated(experiment).max(usize::try_from(of_rule).unwrap_or(1)))
}

/// The record before round 0: the number of rows, and their sums if features are to be
/// standardised or missing values to be filled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opening {
    /// The node whose rows these are; 0 in a record without sums.
    pub(crate) node: NodeId,
    /// The training rows of its shard.
    pub(crate) rows: u64,
    /// Sums over the shard; `None` if none are needed.
    pub(crate) moments: Option<Moments>,
    /// Missing values, in the order of [`Sums::gaps`].
    pub(crate) gaps: Vec<GapSums>,
    /// Sums of the predicted numbers; `None` if none are needed.
    pub(crate) targets: Option<Moments>,
}

impl Opening {
    /// The record of a node's rows, with these sums.
    ///
    /// # Panics
    /// If the data was read with another schema.
    pub(crate) fn of(node: NodeId, data: &Dataset, sums: &Sums) -> Opening {
        assert_eq!(data.gaps.len(), sums.gaps.len(), "missing values of another schema");
        let gaps = data.gaps.iter().zip(&sums.gaps);
        let targets = match &data.target {
            Target::Values(values) if sums.targets > 0 => Some(Moments::over(values.view())),
            _ => None,
        };
        Opening {
            node,
            rows: data.rows() as u64,
            moments: sums.moments.then(|| Moments::of(data)),
            gaps: gaps.map(|(gaps, (_, missing))| GapSums::of(data, gaps, *missing)).collect(),
            targets,
        }
    }

    /// The record of a program's own rows.
    pub(crate) fn of_rows(rows: u64) -> Opening {
        Opening { node: NodeId(0), rows, moments: None, gaps: Vec::new(), targets: None }
    }

    /// The maximum length of [`Opening::to_bytes`] with these sums.
    pub(crate) fn byte_len(sums: &Sums) -> usize {
        let moments = if sums.moments { Moments::byte_len(sums.inputs) } else { 0 };
        let targets = if sums.targets > 0 { Moments::byte_len(sums.targets) } else { 0 };
        let gaps: usize = sums.gaps.iter().map(|(_, missing)| GapSums::byte_len(*missing)).sum();
        let node = if sums.are_some() { 4 } else { 0 };
        moments.saturating_add(targets).saturating_add(8 + node).saturating_add(gaps)
    }

    /// Encodes the record: the number of rows, the node if there are sums, then missing values,
    /// then the sums of predicted numbers and of features.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.rows.to_le_bytes().to_vec();
        if self.moments.is_some() || self.targets.is_some() {
            bytes.extend(self.node.0.to_le_bytes());
        }
        bytes.extend(self.gaps.iter().flat_map(GapSums::to_bytes));
        bytes.extend(self.targets.iter().flat_map(Moments::to_bytes));
        bytes.extend(self.moments.iter().flat_map(Moments::to_bytes));
        bytes
    }

    /// Decodes the record, with these sums.
    ///
    /// # Errors
    /// If it is cut short, lacks expected sums or has unexpected ones, has sums of another number
    /// of features or sums that no data can have, or counts too many rows.
    pub(crate) fn from_bytes(bytes: &[u8], sums: &Sums) -> Result<Opening, String> {
        let (rows, mut rest) =
            bytes.split_first_chunk::<8>().ok_or("a setup record is cut short")?;
        let rows = u64::from_le_bytes(*rows);
        if rows > MOST_ROWS {
            return Err(format!("{rows} rows, at most {MOST_ROWS} can be counted"));
        }
        let mut node = NodeId(0);
        if sums.are_some() {
            let (own, after) = rest.split_first_chunk::<4>().ok_or("it has no sums")?;
            (node, rest) = (NodeId(u32::from_le_bytes(*own)), after);
        }
        let mut gaps = Vec::with_capacity(sums.gaps.len());
        for (_, missing) in &sums.gaps {
            let (one, after) = GapSums::from_bytes(rest, *missing, rows)?;
            gaps.push(one);
            rest = after;
        }
        let mut moments = |columns: Option<usize>| {
            let Some(columns) = columns else { return Ok(None) };
            let Some((own, after)) = rest.split_at_checked(Moments::byte_len(columns)) else {
                return Err("it has no sums, though features are to be standardised".to_string());
            };
            rest = after;
            Moments::from_bytes(own, columns).map(Some).map_err(|error| error.to_string())
        };
        let targets = moments(Some(sums.targets).filter(|targets| *targets > 0))?;
        let moments = moments(sums.moments.then_some(sums.inputs))?;
        if !rest.is_empty() {
            return Err("it has sums, though none are asked for".into());
        }
        Ok(Opening { node, rows, moments, gaps, targets })
    }

    /// Adds another node's record. For equal bits, add them in ascending order.
    pub(super) fn merge(&mut self, other: &Opening) {
        self.rows = self.rows.saturating_add(other.rows).min(MOST_ROWS);
        self.gaps.iter_mut().zip(&other.gaps).for_each(|(gaps, other)| gaps.merge(other));
        let pairs = [(&mut self.moments, &other.moments), (&mut self.targets, &other.targets)];
        for (moments, other) in pairs {
            if let (Some(moments), Some(other)) = (moments, other) {
                moments.merge(other);
            }
        }
    }

    /// What missing values become by these sums; NaN where there is no value.
    pub(crate) fn fills(&self, sums: &Sums) -> Vec<f32> {
        let Some(moments) = &self.moments else { return Vec::new() };
        let fill = |(gaps, (feature, _)): (&GapSums, &(usize, Missing))| {
            gaps.fill(self.rows, moments.sum(*feature)).unwrap_or(f32::NAN)
        };
        self.gaps.iter().zip(&sums.gaps).map(fill).collect()
    }

    /// Puts these numbers in the place of missing values.
    pub(crate) fn fill(&mut self, fills: &[f32], sums: &Sums) {
        let Some(moments) = &mut self.moments else { return };
        for ((gaps, (feature, _)), fill) in self.gaps.iter().zip(&sums.gaps).zip(fills) {
            if fill.is_finite() {
                moments.fill(*feature, gaps.missing as f64, *fill);
            }
        }
    }
}
