//! The mean of all models in the middle of a run: exact, the same at every node, without an effect
//! on the rounds.

use std::collections::BTreeMap;

use crate::{
    properties::ALL,
    statistics::{NODES, mean_of, run},
};
use gradvine::{
    drive::{Elapsed, Observer},
    gossip::{RoundDone, plan},
    sim,
    units::NodeId,
};

/// The models and the means of each round that has any.
#[derive(Default)]
struct Seen {
    models: BTreeMap<u64, Vec<Vec<f32>>>,
    means: BTreeMap<u64, Vec<Vec<f32>>>,
}

impl Observer for Seen {
    fn round(&mut self, _node: NodeId, _elapsed: Elapsed, done: RoundDone) {
        let rounds = done.round.0 + 1;
        self.models.entry(rounds).or_default().extend(done.model);
        if let Some(mean) = done.mean {
            self.means.entry(rounds).or_default().push(mean);
        }
    }
}

#[test]
fn the_mean_is_exact_and_the_same_at_all_nodes() {
    for (rule, compressor) in &*ALL {
        let without = run(rule, compressor, "run.evaluate_every = 1");
        if plan::is_asynchronous(&*without.design.rule.plan) {
            continue;
        }
        let mut seen = Seen::default();
        let with = run(rule, compressor, "run.evaluate_every = 1\nrun.mean_every = 7");
        let ended = sim::run(with.specs, &mut seen).unwrap();
        assert_eq!(seen.means.keys().copied().collect::<Vec<_>>(), [7, 14, 21, 28], "{rule}");
        for (rounds, means) in &seen.means {
            let models: Vec<&[f32]> = seen.models[rounds].iter().map(Vec::as_slice).collect();
            assert_eq!((means.len(), models.len()), (NODES, NODES));
            assert!(means.iter().all(|one| *one == means[0]), "{rule}, round {rounds}");
            for (k, one) in means[0].iter().map(|one| f64::from(*one)).enumerate() {
                let all = models.iter().map(|model| f64::from(model[k])).collect();
                let other = mean_of(&without.design, all);
                let away = (one - other).abs();
                assert!(away <= 1e-6 * one.abs().max(1.0), "{rule}: {one}, expected {other}");
            }
        }
        let expected = sim::run(without.specs, &mut Seen::default()).unwrap();
        for (one, other) in ended.iter().zip(&expected) {
            assert_eq!((&one.model, &one.mean), (&other.model, &other.mean), "{rule}");
        }
    }
}
