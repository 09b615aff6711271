//! What a node says of itself: before round 0, and at the end. Of the first the root makes one; the
//! others every node reads, so all write the same summary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    data::{Dataset, Moments},
    digest,
    drive::{Conclusion, Elapsed},
    gossip::{LinkTraffic, OwnModel, Traffic},
    learn::Evaluation,
    run::{Design, arithmetic},
    vector,
};

/// Records list what went over each link up to this many: all nodes' records travel to every node.
pub const MOST_LINKS: usize = 64;

/// Measures of a program's own in a record, at most.
pub const MOST_MEASURES: usize = 64;

/// Bytes of the name of such a measure, at most.
pub const MEASURE_NAME: usize = 64;

/// Rows of all nodes together that can be counted: as many whole numbers are exact in `f64`.
const MOST_ROWS: u64 = 1 << 53;

/// Before round 0: how many rows, and their sums where features are to be standardised.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// Rows of the shard.
    pub rows: u64,
    /// Sums over the shard; `None` where scaling is not asked for.
    pub moments: Option<Moments>,
}

impl Opening {
    /// Of a node's rows, with their sums if they are wanted.
    pub fn of(data: &Dataset, sums: bool) -> Opening {
        Opening { rows: data.rows() as u64, moments: sums.then(|| Moments::of(data)) }
    }

    /// Adds what another node says of its rows. Order matters to the last bit: ascending.
    ///
    /// # Panics
    /// If only one of them has sums, or they are of another number of features.
    pub fn merge(&mut self, other: &Opening) {
        self.rows = self.rows.saturating_add(other.rows).min(MOST_ROWS);
        match (&mut self.moments, &other.moments) {
            (Some(moments), Some(other)) => moments.merge(other),
            (None, None) => (),
            _ => panic!("sums of some rows only"),
        }
    }

    /// The size of [`Opening::to_bytes`] for this many features, with sums or without.
    pub fn byte_len(inputs: usize, sums: bool) -> usize {
        let moments = if sums { inputs.saturating_mul(16).saturating_add(8) } else { 0 };
        moments.saturating_add(8)
    }

    /// As bytes: the number of rows, then the sums.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.rows.to_le_bytes().to_vec();
        if let Some(moments) = &self.moments {
            bytes.extend(moments.to_bytes());
        }
        bytes
    }

    /// From bytes, for data of this many features, with sums or without.
    ///
    /// # Errors
    /// If they are cut short, have no sums where they are wanted or have some where not, or sums of
    /// another number of features, or none that data can have, or of more rows than can be counted.
    pub fn from_bytes(bytes: &[u8], inputs: usize, sums: bool) -> Result<Opening, String> {
        let (rows, rest) = bytes.split_first_chunk::<8>().ok_or("a setup record is cut short")?;
        let moments = match (sums, rest.is_empty()) {
            (false, true) => None,
            (true, false) => {
                Some(Moments::from_bytes(rest, inputs).map_err(|error| error.to_string())?)
            }
            (true, true) => {
                return Err("it has no sums, though features are to be standardised".into());
            }
            (false, false) => return Err("it has sums, though none are asked for".into()),
        };
        let rows = u64::from_le_bytes(*rows);
        if rows > MOST_ROWS {
            return Err(format!("{rows} rows, at most {MOST_ROWS} can be counted"));
        }
        Ok(Opening { rows, moments })
    }
}

/// What the setup records of all nodes make together, in node order.
///
/// # Errors
/// If one of them is wrong; see [`Opening::from_bytes`].
pub fn merge(records: &[&[u8]], inputs: usize, sums: bool) -> Result<Vec<u8>, String> {
    let mut all: Option<Opening> = None;
    for record in records {
        let opening = Opening::from_bytes(record, inputs, sums)?;
        match &mut all {
            Some(all) => all.merge(&opening),
            None => all = Some(opening),
        }
    }
    Ok(all.expect("a run has nodes").to_bytes())
}

/// At the end: what a node did and what its model and the mean are worth on its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closing {
    /// Rounds done.
    pub rounds: u64,
    /// Rounds in which it did not take part.
    pub missed: Vec<u64>,
    /// SHA-256 of the model's little-endian bytes, in hexadecimal.
    pub digest: String,
    /// The same of the mean of all models; `None` where the run ended before it was formed.
    pub mean: Option<String>,
    /// Rows of the shard.
    pub rows: u64,
    /// Rows per class, where there are classes.
    pub classes: Vec<u64>,
    /// f_i at the mean of all models; NaN where it is not finite.
    #[serde(with = "or_nan")]
    pub train_loss_of_mean: f64,
    /// |x_i - mean|^2; NaN where it is not finite.
    #[serde(with = "or_nan")]
    pub distance_squared: f64,
    /// Its own model on its test rows.
    pub test: Option<Score>,
    /// The mean model on its test rows.
    pub test_of_mean: Option<Score>,
    /// Hash of the arithmetic self-test, in hexadecimal.
    pub arithmetic: String,
    /// Bytes sent for the rule: payload, wire, dense.
    pub bytes: [u64; 3],
    /// Seconds since its start.
    pub time_s: f64,
    /// Of these, how many it computed gradients.
    pub computing_s: f64,
    /// Sent for the rule to each neighbour: its number, payload, wire. Empty where there are more
    /// than [`MOST_LINKS`].
    pub links: Vec<[u64; 3]>,
    /// Measures of a program's own, of its own model.
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
    /// How many rows.
    pub rows: u64,
    /// Mean loss; NaN where it is not finite.
    #[serde(with = "or_nan")]
    pub loss: f64,
    /// Right answers, where there are classes.
    pub correct: Option<u64>,
}

impl Score {
    /// Right answers per row.
    pub fn accuracy(&self) -> Option<f64> {
        self.correct.map(|correct| correct as f64 / self.rows as f64)
    }
}

impl From<Evaluation> for Score {
    fn from(evaluation: Evaluation) -> Score {
        Score { rows: evaluation.rows, loss: evaluation.loss, correct: evaluation.correct }
    }
}

impl Closing {
    /// As bytes.
    ///
    /// # Panics
    /// Never: the record serialises.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record serialises")
    }

    /// From bytes.
    ///
    /// # Errors
    /// If they are not such a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Closing, String> {
        if bytes.is_empty() {
            return Err("it is empty".into());
        }
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Of a run that ended before the mean was formed.
    pub fn early(own: &OwnModel, elapsed: Elapsed, rows: u64, classes: Vec<u64>) -> Closing {
        let conclusion = Conclusion::new(own, &[], elapsed);
        Closing { mean: None, classes, ..Closing::of(&conclusion, rows) }
    }

    /// What a driver knows of a run; what the models are worth is not known.
    pub fn of(conclusion: &Conclusion<'_>, rows: u64) -> Closing {
        let Conclusion { model, mean, elapsed, .. } = conclusion;
        let same = mean.len() == model.len();
        Closing {
            rounds: conclusion.rounds.0,
            missed: Vec::new(),
            digest: digest::of_model(model),
            mean: Some(digest::of_model(mean)),
            rows,
            classes: Vec::new(),
            train_loss_of_mean: f64::NAN,
            distance_squared: if same { vector::distance_squared(model, mean) } else { f64::NAN },
            test: None,
            test_of_mean: None,
            arithmetic: arithmetic::name(),
            bytes: Closing::traffic(conclusion.traffic),
            time_s: elapsed.time.seconds(),
            computing_s: elapsed.computing.seconds(),
            links: Closing::links(conclusion.links),
            measures: BTreeMap::new(),
            measures_of_mean: BTreeMap::new(),
        }
    }

    /// Whether this can be what a node of this run has done: another node may have sent it.
    ///
    /// # Errors
    /// Which part of it cannot be, and what would be accepted.
    pub fn check(&self, design: &Design) -> Result<(), String> {
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
                return Err(format!("{key}: this is no SHA-256 in 64 hexadecimal digits"));
            }
        }
        for score in [self.test, self.test_of_mean].iter().flatten() {
            if score.rows == 0 || score.correct.is_some_and(|correct| correct > score.rows) {
                return Err(format!(
                    "a score of {:?} right answers in {} rows",
                    score.correct, score.rows
                ));
            }
        }
        let outputs = design.outputs;
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

    /// The bytes of a node's traffic as recorded.
    pub fn traffic(traffic: Traffic) -> [u64; 3] {
        [traffic.payload, traffic.wire, traffic.dense]
    }

    /// The same by neighbour.
    pub fn links(links: &[LinkTraffic]) -> Vec<[u64; 3]> {
        if links.len() > MOST_LINKS {
            return Vec::new();
        }
        links.iter().map(|link| [u64::from(link.to.0), link.payload, link.wire]).collect()
    }
}

/// Numbers of a run that is about to diverge: JSON has no word for NaN and infinities but `null`.
pub(crate) mod or_nan {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(x: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        x.is_finite().then_some(*x).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
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
            digest: "0".repeat(64),
            mean: Some("1".repeat(64)),
            rows: 5,
            classes: vec![2, 3],
            train_loss_of_mean: f64::INFINITY,
            distance_squared: 0.1,
            test: Some(Score { rows: 2, loss: f64::NAN, correct: Some(1) }),
            test_of_mean: None,
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
