//! The mean of models: a sum on the way up or, to withstand wrong models, each model by itself.
//!
//! A sum hides what a node has given. One member dictates the mean by its own model, so nothing is
//! lost if it can change the sum, too. A rule that withstands wrong models needs another mean: each
//! model travels with its signature, up to the root and down to all. Each node forms per coordinate
//! the mean without the greatest and the smallest values. So no node moves it out of the range of
//! the others, the root neither.
//!
//! The mean of `trimmed-mean` (BRIDGE-T) between neighbours is of the same kind.
//! DIFFERENCE: `clipped-gossip` clips differences to its own model. The mean must be the same at
//! all nodes, which have no model in common, so it is trimmed, too.

use super::{
    averaging::Averaging,
    plan::TreePlan,
    signed::{Signed, unsigned},
};
use crate::{
    compress::{Malformed, Payload},
    digest,
    gossip::{
        party::{Encoded, Local, Party, Received, Writer},
        plan::At,
    },
    units::NodeId,
    vector::update,
};

/// What comes up the tree.
#[derive(Debug)]
enum Gathered {
    Sum(Vec<f64>),
    Each(Signed),
}

/// Forms the mean of the models of some nodes.
#[derive(Debug)]
pub struct Mean {
    height: u16,
    root: bool,
    len: usize,
    averaging: Averaging,
    gathered: Gathered,
    mean: Vec<f32>,
}

impl Mean {
    /// Starts with this node's own model of `len` numbers; it gives none if it is `None`.
    pub(crate) fn new(
        plan: &TreePlan,
        averaging: &Averaging,
        node: NodeId,
        len: usize,
        own: Option<&[f32]>,
    ) -> Mean {
        let gathered = match averaging.liars {
            None => {
                let own = own.map(|own| own.iter().map(|&x| f64::from(x)).collect());
                Gathered::Sum(own.unwrap_or_else(|| vec![0.0; len]))
            }
            Some(_) => {
                let own = own.unwrap_or_default().iter().flat_map(|x| x.to_le_bytes()).collect();
                Gathered::Each(Signed::new(plan, node, own, &averaging.signatures))
            }
        };
        let mut mean = Mean {
            height: plan.height(),
            root: plan.is_root(node),
            len,
            averaging: averaging.clone(),
            gathered,
            mean: Vec::new(),
        };
        if mean.height == 0 {
            mean.form();
        }
        mean
    }

    /// The mean, once the flight has landed.
    pub(crate) fn into_mean(self) -> Vec<f32> {
        self.mean
    }

    fn form(&mut self) {
        self.mean = match &mut self.gathered {
            Gathered::Sum(sum) => {
                let models = self.averaging.givers.count() as f64;
                std::mem::take(sum).into_iter().map(|sum| (sum / models) as f32).collect()
            }
            Gathered::Each(records) => {
                let models = records.held().map(|model| model.as_chunks().0);
                let models: Vec<&[[u8; 4]]> = models.filter(|all| !all.is_empty()).collect();
                let at = |i: usize, k: usize| f32::from_le_bytes(models[i][k]);
                self.averaging.mean((models.len(), self.len), at)
            }
        };
    }
}

/// Checks the model of a node, of `len` numbers, or that it gives none.
fn check(averaging: &Averaging, len: usize, node: NodeId, model: &[u8]) -> Received {
    let gives = averaging.givers.contains(node);
    let length = if gives { 4 * len } else { 0 };
    let wrong = |what: String| Err(Malformed(format!("the model of node {node}: {what}")));
    if model.len() != length {
        return wrong(format!("{} bytes where {length} belong", model.len()));
    }
    if let Some(expected) = averaging.digest.as_ref().filter(|_| gives) {
        let found = digest::of_bytes(model);
        if found != *expected {
            return wrong(format!("its SHA-256 is {found}, and the run names {expected}"));
        }
    }
    let mut numbers = model.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x));
    match numbers.find(|number| !number.is_finite()) {
        Some(number) => wrong(format!("it has the number {number}")),
        None => Ok(()),
    }
}

impl Party for Mean {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        match &mut self.gathered {
            Gathered::Each(models) if models.travel_in(at) => models.outgoing(local, at, out),
            Gathered::Sum(sum) if at.exchange < self.height => {
                out.doubles(sum);
                *sum = Vec::new();
                Ok(())
            }
            _ => out.vector(&self.mean),
        }
    }

    fn received(
        &mut self,
        _: &mut Local,
        at: &At,
        from: NodeId,
        payload: &Payload<'_>,
    ) -> Received {
        match (payload, &mut self.gathered) {
            (Payload::Doubles(bytes), Gathered::Sum(sum)) => {
                update(sum, bytes.as_chunks().0, |sum, x| *sum += f64::from_le_bytes(*x));
            }
            (Payload::Records(bytes), Gathered::Each(models)) => {
                let theirs = models.parse(bytes)?;
                for (node, model) in unsigned(&theirs) {
                    check(&self.averaging, self.len, node, model)?;
                }
                if models.take(at, from, theirs)? {
                    self.form();
                }
            }
            (Payload::Floats(bytes), _) => {
                self.mean =
                    bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
            }
            (other, _) => unreachable!("the plan carries models and means, not {other:?}"),
        }
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        if self.root && at.exchange + 1 == self.height {
            self.form();
        }
    }
}
