//! Byzantine nodes, and nodes that refuse long vectors.

use std::slice::from_ref;

use common::{Run, difference, widen};
use gradvine::{
    drive::{Ended, NoopObserver, RunError},
    gossip::{Byzantine, Failure},
    sim,
    units::NodeId,
};

use crate::properties::{ALL, home};

const PLAIN: &str = "kind = 'identity'";
const BYZANTINE: usize = 2;

/// The models of a run in which one node is Byzantine, and all refuse vectors longer than
/// `max_norm`.
fn ended(
    run: &Run,
    byzantine: Option<Byzantine>,
    max_norm: Option<f64>,
) -> Result<Vec<Vec<f32>>, (NodeId, Failure)> {
    let mut specs = run.specs();
    specs.iter_mut().for_each(|spec| spec.config.max_norm = max_norm);
    specs[BYZANTINE].config.byzantine = byzantine;
    match sim::run(specs, &mut NoopObserver) {
        Ok(ended) => Ok(ended.into_iter().map(|ended| ended.model).collect()),
        Err(RunError::Failed { node, failure }) => Err((node, failure)),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_liar_changes_what_its_neighbours_get_and_nothing_else() {
    let mut run = Run::new("ring:5", "kind = 'd-psgd'\norder = 'cta'", PLAIN);
    (run.same_start, run.rounds) = (false, 1);
    let honest = ended(&run, None, None).unwrap();
    for (byzantine, factor) in [(Byzantine::Scaled(-1.0), -1.0), (Byzantine::Scaled(10.0), 10.0)] {
        let lying = ended(&run, Some(byzantine), None).unwrap();
        let w = run.topology.matrix().dense();
        // x_i' = sum_j W_ij x_j - lr g_i(x_i) with factor x_j for the Byzantine node's x_j.
        let expected: Vec<Vec<f64>> = (0..5)
            .map(|i| {
                let weight = if i == BYZANTINE { 0.0 } else { w[i][BYZANTINE] * (factor - 1.0) };
                let change = run.start(BYZANTINE).into_iter().map(|x| weight * f64::from(x));
                honest[i].iter().zip(change).map(|(x, c)| f64::from(*x) + c).collect()
            })
            .collect();
        assert!(difference(&expected, &lying) < 1e-6, "{byzantine:?}");
    }
}

#[test]
fn random_lies_have_their_deviation_and_are_the_same_in_each_run() {
    let mut run = Run::new("complete:3", "kind = 'd-psgd'\norder = 'cta'", PLAIN).wide(4000);
    (run.same_start, run.rounds) = (false, 1);
    let lying = ended(&run, Some(Byzantine::Random(5.0)), None).unwrap();
    assert_eq!(lying, ended(&run, Some(Byzantine::Random(5.0)), None).unwrap());
    let honest = ended(&run, None, None).unwrap();
    let start = run.start(BYZANTINE);
    // (x_0' - its value of honest nodes) / W_0l + x_l is what was sent.
    let sent = |k: usize| 3.0 * f64::from(lying[0][k] - honest[0][k]) + f64::from(start[k]);
    let mean = (0..4000).map(sent).sum::<f64>() / 4000.0;
    let square = (0..4000).map(|k| sent(k).powi(2)).sum::<f64>() / 4000.0;
    assert!(mean.abs() < 0.4 && (square.sqrt() - 5.0).abs() < 0.3, "{mean} {square}");
}

#[test]
fn copies_of_a_liar_stay_what_it_sent() {
    for (rule, compressor) in &*ALL {
        let mut run = Run::new(&format!("{}:8", home(rule)), rule, compressor);
        run.rounds = 40;
        let lying = ended(&run, Some(Byzantine::Scaled(0.5)), None);
        match lying {
            Ok(lying) => {
                let honest = ended(&run, None, None).unwrap();
                // Rules that send codes or entries of their own are not changed.
                let changed = difference(&widen(&lying), &honest) > 0.0;
                let own = ["moniqua", "g-top-k", "dgc", "sketched-sgd"];
                let has_own = own.iter().any(|name| rule.contains(name));
                assert!(changed || has_own, "{rule}: nothing has changed");
            }
            Err((_, failure)) => {
                // Nodes that must all have the same model find out that they have not.
                let keeps_copies =
                    ["dcd", "ecd", "choco", "beer"].iter().any(|name| rule.contains(name));
                let found = !keeps_copies && matches!(failure, Failure::Replica { .. });
                let diverged = matches!(failure, Failure::Diverged { .. } | Failure::Loss { .. });
                assert!(found || diverged, "{rule}: {failure}");
            }
        }
    }
}

#[test]
fn a_clipped_liar_moves_its_neighbours_by_the_radius_at_most() {
    let run = |tau: f64| {
        let rule = format!("kind = 'clipped-gossip'\ntau = {tau:?}");
        let mut run = Run::new("complete:6", &rule, PLAIN);
        run.rounds = 1;
        run
    };
    for tau in [0.1, 1.0, 10.0] {
        let honest = ended(&run(tau), None, None).unwrap();
        let lying = ended(&run(tau), Some(Byzantine::Scaled(-1e6)), None).unwrap();
        for (node, (a, b)) in honest.iter().zip(&lying).enumerate().filter(|(i, _)| *i != BYZANTINE)
        {
            let moved = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
            // The honest vector moved it by at most w tau, the wrong one by w tau the other way.
            assert!(moved > 0.0 && moved <= 2.0 * tau / 6.0 * 1.001, "{node}: {moved} at {tau}");
        }
    }
}

#[test]
fn a_trimmed_mean_lies_between_honest_values_whatever_one_node_sends() {
    let mut run = Run::new("complete:5", "kind = 'trimmed-mean'", PLAIN);
    (run.same_start, run.rounds, run.step) = (false, 1, 1e-12);
    for byzantine in [Byzantine::Scaled(-1e30), Byzantine::Scaled(1e30), Byzantine::Random(1e20)] {
        let lying = ended(&run, Some(byzantine), None).unwrap();
        let honest = |node: &usize| *node != BYZANTINE;
        for node in (0..5).filter(honest) {
            for (k, x) in lying[node].iter().enumerate() {
                let values = (0..5).filter(honest).map(|j| run.start(j)[k]);
                let least = values.clone().fold(f32::MAX, f32::min) - 1e-6;
                let most = values.fold(f32::MIN, f32::max) + 1e-6;
                assert!((least..=most).contains(x), "node {node}: {x} at {k}");
            }
        }
    }
}

/// The mean at the end, of what each node gives: with `liars` without the extremes of each
/// coordinate, else of all.
#[test]
fn a_mean_that_withstands_liars_leaves_out_the_extremes_of_each_coordinate() {
    for (topology, liars, out) in [
        ("path:5", Some(1), 1),
        ("star:9", Some(1), 2),
        ("ring:6", Some(2), 2),
        ("complete:3", Some(4), 1),
        ("ring:6", None, 0),
    ] {
        let run = Run::new(topology, "kind = 'd-psgd'", PLAIN);
        let mut specs = run.specs();
        specs.iter_mut().for_each(|spec| spec.config.liars = liars);
        specs[BYZANTINE].config.byzantine = Some(Byzantine::Scaled(-3.0));
        let ended = sim::run(specs, &mut NoopObserver).unwrap();
        let expected: Vec<f64> = (0..ended[0].mean.len())
            .map(|k| {
                let factor = |node: usize| if node == BYZANTINE { -3.0 } else { 1.0 };
                let given = |(node, one): (usize, &Ended)| factor(node) * f64::from(one.model[k]);
                let mut all: Vec<f64> = ended.iter().enumerate().map(given).collect();
                all.sort_by(f64::total_cmp);
                let kept = &all[out..all.len() - out];
                kept.iter().sum::<f64>() / kept.len() as f64
            })
            .collect();
        for one in &ended {
            assert_eq!(one.mean, ended[0].mean, "{topology}");
            let away = difference(from_ref(&expected), from_ref(&one.mean));
            assert!(away < 1e-6, "{topology}: {away}");
        }
    }
}

#[test]
fn a_vector_above_the_norm_ends_the_run_and_names_its_sender() {
    for (rule, compressor) in [
        ("kind = 'd-psgd'", PLAIN),
        ("kind = 'dcd'", "kind = 'min-max'\nbits = 4"),
        ("kind = 'choco'", "kind = 'top-k'\nk = 4"),
        ("kind = 'ad-psgd'", PLAIN),
        ("kind = 'swarm'", PLAIN),
    ] {
        let run = Run::new("ring:5", rule, compressor);
        let unlimited = ended(&run, None, None).unwrap();
        assert_eq!(ended(&run, None, Some(1e6)).unwrap(), unlimited, "{rule}");
        let (node, failure) = ended(&run, Some(Byzantine::Scaled(1e8)), Some(1e6)).unwrap_err();
        assert!([1, 3].contains(&node.index()), "{rule}: {node}");
        let Failure::Peer { peer, reason } = &failure else { panic!("{rule}: {failure}") };
        assert_eq!(peer.index(), BYZANTINE, "{rule}");
        assert!(reason.contains("above robust.max_norm = 1000000"), "{reason}");
    }
}
