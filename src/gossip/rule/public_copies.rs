//! Gossip on public copies: CHOCO's consensus step, for every rule that mixes what it sends by
//! compressed differences.
//!
//! ```text
//! q_i = C(h_i - hh_i);  hh_i += q_i at every holder;  h_i += sum_j gamma_ij W_ij (hh_j - hh_i)
//! ```
//! A rule is a [`Movement`]: what it does with a model before this step and after it.
//!
//! gamma_ij is one number, or `measured`: min(gamma_i, gamma_j), where gamma_i is the default step
//! ([`steps`]) at the contraction that node i has measured, delta_i = 1 - sum |d - C(d)|^2 / sum
//! |d|^2 over its differences d, older rounds with a tenth less weight each. gamma_ij = gamma_ji,
//! so that the terms cancel in the mean of the models, as those of one gamma do; and (gamma_ij
//! W_ij) is the matrix of links of another symmetric, doubly stochastic W. A node sends gamma_i, 8
//! bytes, while it computes its gradient; it comes from the rounds before, and from nominal delta
//! in the first.

use std::fmt;

use serde::{Deserializer, Serializer, de};

use super::prelude::*;
use crate::{compress::Malformed, mixing::Topology};

/// The share of the sums of older rounds that a round keeps.
const KEPT: f64 = 0.9;

/// The constant of a gossip step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum GossipStep {
    /// One number for all links.
    Number(f64),
    /// By the measured contraction.
    Measured,
}

const MEASURED: &str = "measured";

impl Serialize for GossipStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            GossipStep::Number(number) => serializer.serialize_f64(*number),
            GossipStep::Measured => serializer.serialize_str(MEASURED),
        }
    }
}

impl<'de> Deserialize<'de> for GossipStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GossipStep, D::Error> {
        struct Step;
        impl de::Visitor<'_> for Step {
            type Value = GossipStep;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number above 0, or \"{MEASURED}\"")
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<GossipStep, E> {
                Ok(GossipStep::Number(number))
            }

            fn visit_i64<E: de::Error>(self, whole: i64) -> Result<GossipStep, E> {
                Ok(GossipStep::Number(whole as f64))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<GossipStep, E> {
                match word {
                    MEASURED => Ok(GossipStep::Measured),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(Step)
    }
}

/// How the copies of all nodes are mixed, with the step resolved.
pub(super) struct Mixing {
    topology: Arc<Topology>,
    /// What the experiment records.
    pub step: GossipStep,
    /// The step, or that at nominal delta.
    pub at_first: f64,
    /// Measured only: the step at a contraction.
    at: Arc<dyn Fn(f64) -> f64 + Send + Sync>,
}

impl Mixing {
    /// Resolves the constant `key`; `at` is the step at a measured contraction. Without a value it
    /// is `default`.
    ///
    /// # Errors
    /// If it is a number that is not above 0.
    pub(super) fn resolve(
        key: &str,
        step: Option<GossipStep>,
        default: impl FnOnce() -> f64,
        at: impl Fn(f64) -> f64 + Send + Sync + 'static,
        setting: &Setting<'_>,
    ) -> Result<Mixing, ConfigError> {
        let (step, at_first) = match step {
            Some(GossipStep::Measured) => (GossipStep::Measured, at(steps::expected(setting))),
            number => {
                let number =
                    if let Some(GossipStep::Number(number)) = number { number } else { default() };
                let number = nine_digits(positive(key, number)?);
                (GossipStep::Number(number), number)
            }
        };
        let topology = Arc::clone(setting.topology);
        Ok(Mixing { topology, step, at_first, at: Arc::new(at) })
    }

    /// The plan: the frames of models after the gradient, and those of measured steps before it.
    pub(super) fn after_gradient(&self, setting: &Setting<'_>) -> Gossip {
        const STEPS: &[Step] = &[
            Step::Launch(0),
            Step::Gradient,
            Step::Join,
            Step::Launch(1),
            Step::Land { flight: 0, lag: 0 },
            Step::Land { flight: 1, lag: 0 },
        ];
        match self.step {
            GossipStep::Number(_) => Gossip::after_gradient(setting.topology, setting.compressed()),
            GossipStep::Measured => {
                let formats = vec![Format::Doubles(1), setting.compressed()];
                Gossip::of_steps(setting.topology, STEPS, formats)
            }
        }
    }

    /// The rule of one node, whose model has `len` numbers.
    pub(super) fn rule<M: Movement>(&self, node: NodeId, len: usize, movement: M) -> OnCopies<M> {
        let copies = Replicas::new(&self.topology, node, &vec![0.0; len]);
        let number = self.at_first as f32;
        let off_diagonal = number * copies.row.off_diagonal();
        let weights: Vec<f32> = copies.row.weights.iter().map(|w| number * w).collect();
        let measured = (self.step == GossipStep::Measured).then(|| Measured {
            at: Arc::clone(&self.at),
            all: 0.0,
            lost: 0.0,
            own: self.at_first,
        });
        OnCopies { copies, weights, off_diagonal, measured, movement }
    }
}

/// What a rule does with its model beside the consensus step.
pub(super) trait Movement: Send {
    /// Takes the update; what is in `local.x` afterwards is sent.
    fn gradient(&mut self, local: &mut Local, step: f32);

    /// Moves the model when the frames are there, before it is mixed.
    fn arrived(&mut self, _local: &mut Local) {}

    fn mixed(&mut self, _x: &[f32]) {}

    fn state(&mut self, _visitor: &mut dyn Visitor) {}

    /// The names of the own copy and of a neighbour's.
    fn names(&self) -> [&'static str; 2];
}

/// A rule that mixes by public copies.
pub(super) struct OnCopies<M> {
    /// hh_i and hh_j.
    copies: Replicas,
    /// gamma_ij W_ij.
    weights: Vec<f32>,
    /// The sum of `weights`.
    off_diagonal: f32,
    measured: Option<Measured>,
    movement: M,
}

/// The contraction that a node has measured.
struct Measured {
    at: Arc<dyn Fn(f64) -> f64 + Send + Sync>,
    /// sum |d|^2.
    all: f64,
    /// sum |d - C(d)|^2.
    lost: f64,
    /// gamma_i of this round.
    own: f64,
}

impl Measured {
    /// Counts a difference, of which `left` was not sent.
    fn count(&mut self, all: f64, left: f64) {
        self.all = KEPT * self.all + all;
        self.lost = KEPT * self.lost + left;
    }

    /// gamma_i of the next round.
    fn turn(&mut self) {
        if self.all > 0.0 && self.all.is_finite() {
            self.own = (self.at)(1.0 - self.lost / self.all);
        }
    }
}

impl<M> OnCopies<M> {
    /// Whether the flight carries steps, not models.
    fn is_of_steps(&self, flight: u8) -> bool {
        self.measured.is_some() && flight == 0
    }
}

impl<M: Movement> Party for OnCopies<M> {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if self.is_of_steps(at.flight) {
            let measured = self.measured.as_mut().expect("it has a flight");
            measured.turn();
            out.doubles(&[measured.own]);
            return Ok(());
        }
        vector::difference(&local.x, &self.copies.own, &mut local.update);
        out.vector(&local.update)
    }

    fn sent(&mut self, local: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        if self.is_of_steps(at.flight) {
            return;
        }
        own.add_into(1.0, &mut self.copies.own);
        if let Some(measured) = &mut self.measured {
            let all = vector::norm_squared(&local.update);
            own.add_into(-1.0, &mut local.update);
            measured.count(all, vector::norm_squared(&local.update));
        }
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        (!self.is_of_steps(at.flight)).then(|| (1.0, self.copies.of_mut(from)))
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let Some(measured) = self.measured.as_ref().filter(|_| at.flight == 0) else {
            p.add_into(1.0, self.copies.of_mut(from));
            return Ok(());
        };
        let Payload::Doubles(bytes) = p else {
            panic!("{p:?} is not a double: the rule and its plan disagree")
        };
        let theirs = bytes.first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes));
        if !(theirs > 0.0 && theirs <= 1.0) {
            return Err(Malformed(format!("the gossip step {theirs}: it is above 0, at most 1")));
        }
        let place = self.copies.row.place(from);
        self.weights[place] = theirs.min(measured.own) as f32 * self.copies.row.weights[place];
        Ok(())
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&self.copies)
    }
}

impl<M: Movement> Rule for OnCopies<M> {
    fn gradient(&mut self, local: &mut Local, _: Round, step: f32) {
        self.movement.gradient(local, step);
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        if self.is_of_steps(at.flight) {
            self.off_diagonal = self.weights.iter().sum();
            return;
        }
        self.movement.arrived(local);
        let off_diagonal = self.off_diagonal;
        self.copies.sum_into(&mut local.x, &self.weights, |x, own| x - off_diagonal * own);
        self.movement.mixed(&local.x);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        self.movement.state(visitor);
        if let Some(measured) = &mut self.measured {
            visitor.number("sum |d|^2", &mut measured.all);
            visitor.number("sum |d - C(d)|^2", &mut measured.lost);
            visitor.number("gamma", &mut measured.own);
        }
        let [own, theirs] = self.movement.names();
        self.copies.state(visitor, own, theirs);
    }
}
