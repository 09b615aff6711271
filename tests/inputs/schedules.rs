//! Topologies that change from round to round: their matrices, their rates, and which rules follow
//! them.

use common::{Run, consensus};
use gradvine::{
    gossip::rule::RULES,
    mixing::{Schedule, Topology, schedule},
    units::{NodeId, Round},
};

type Matrix = Vec<Vec<f64>>;

fn make(name: &str, spec: &str) -> (Schedule, Topology) {
    let topology = Topology::parse(spec, 1).unwrap();
    (Schedule::new(name, &topology, 1).unwrap(), topology)
}

fn dense(schedule: &Schedule, t: u64) -> Matrix {
    schedule.mix(Round(t)).dense()
}

fn times(a: &Matrix, b: &Matrix) -> Matrix {
    let entry = |row: &[f64], k: usize| row.iter().zip(b).map(|(a, b)| a * b[k]).sum();
    a.iter().map(|row| (0..b[0].len()).map(|k| entry(row, k)).collect()).collect()
}

/// `W_(t-1) ... W_0`.
fn product(schedule: &Schedule, t: u64) -> Matrix {
    (1..t).fold(dense(schedule, 0), |product, t| times(&dense(schedule, t), &product))
}

/// The largest difference of an entry from 1 / n.
fn from_j(product: &Matrix) -> f64 {
    let n = product.len() as f64;
    product.iter().flatten().map(|x| (x - 1.0 / n).abs()).fold(0.0, f64::max)
}

#[test]
fn every_round_is_doubly_stochastic_and_on_the_links() {
    for n in 1..=40 {
        for recipe in &schedule::REGISTRY {
            if recipe.number.is_some_and(|(_, peers)| peers >= n) {
                continue;
            }
            let (schedule, topology) = make(&recipe.example(), &format!("complete:{n}"));
            let most = match recipe.number {
                _ if schedule.is_static() => n,
                number => number.map_or(1, |(_, peers)| peers),
            };
            for t in 0..schedule.period().min(50) {
                let w = dense(&schedule, t);
                for i in 0..n as usize {
                    let column: f64 = w.iter().map(|row| row[i]).sum();
                    assert!(
                        (w[i].iter().sum::<f64>() - 1.0).abs() < 1e-12,
                        "{} of {n}, round {t}",
                        recipe.name
                    );
                    assert!(
                        (column - 1.0).abs() < 1e-12 && w[i].iter().all(|&w| w >= 0.0),
                        "{} of {n}",
                        recipe.name
                    );
                    let turn = schedule.turn(Round(t), NodeId::from(i));
                    assert!(
                        turn.to
                            .iter()
                            .chain(turn.from)
                            .all(|j| topology.neighbours(NodeId::from(i)).contains(j))
                    );
                    assert!(
                        turn.to
                            .iter()
                            .all(|&j| schedule.turn(Round(t), j).from.contains(&NodeId::from(i)))
                    );
                    assert!(
                        turn.to.len() as u64 <= most && turn.from.len() as u64 <= most,
                        "{} of {n}: {most} peers",
                        recipe.name
                    );
                }
            }
        }
    }
}

#[test]
fn base_2_agrees_exactly_after_a_period_for_any_number_of_nodes() {
    for n in 1..=40usize {
        let (schedule, _) = make("base-2", &format!("complete:{n}"));
        let period = schedule.period();
        assert!(from_j(&product(&schedule, period)) < 1e-12, "{n} nodes");
        assert!(
            n == 1 || from_j(&product(&schedule, period - 1)) > 1e-3 || period == 1,
            "{n} nodes: no round too many"
        );
        assert!(!schedule.is_directed(), "{n} nodes: symmetric");
    }
    for (n, rounds) in [
        (2, 1),
        (3, 3),
        (4, 2),
        (5, 5),
        (6, 5),
        (7, 5),
        (8, 3),
        (9, 7),
        (13, 7),
        (21, 9),
        (25, 9),
        (33, 11),
    ] {
        assert_eq!(make("base-2", &format!("complete:{n}")).0.period(), rounds, "{n} nodes");
    }
    // The matrices do not commute: with two rounds in each other's place they do not agree.
    let (schedule, _) = make("base-2", "complete:5");
    let swapped =
        [2, 0, 1, 3, 4].iter().fold(None, |product: Option<Matrix>, &t| {
            Some(product.map_or_else(
                || dense(&schedule, t),
                |product| times(&dense(&schedule, t), &product),
            ))
        });
    assert!(from_j(&swapped.unwrap()) > 1e-3);
}

#[test]
fn one_peer_exponential_agrees_exactly_if_and_only_if_n_is_a_power_of_two() {
    for n in 2..=40usize {
        let (schedule, _) = make("one-peer-exponential", &format!("exponential:{n}"));
        assert_eq!(schedule.period(), u64::from(n.next_power_of_two().ilog2()), "{n} nodes");
        let away = from_j(&product(&schedule, schedule.period()));
        assert_eq!(away < 1e-12, n.is_power_of_two(), "{n} nodes: {away:e}");
        assert_eq!(schedule.is_directed(), n > 2);
    }
    // Node i sends to i + 2^k and receives from i - 2^k.
    let turn = |t, node| {
        let (schedule, _) = make("one-peer-exponential", "exponential:6");
        let turn = schedule.turn(Round(t), NodeId(node));
        (turn.own, turn.from.to_vec(), turn.weights.to_vec(), turn.to.to_vec())
    };
    assert_eq!(turn(0, 0), (0.5, vec![NodeId(5)], vec![0.5], vec![NodeId(1)]));
    assert_eq!(turn(5, 1), (0.5, vec![NodeId(3)], vec![0.5], vec![NodeId(5)]));
}

#[test]
fn random_matchings_are_maximal_seeded_and_use_every_link() {
    for spec in ["ring:9", "star:6", "torus:3x3", "path:2", "complete:5", "complete:1"] {
        let topology = Topology::parse(spec, 1).unwrap();
        let drawn = |seed| Schedule::new("random-matching", &topology, seed).unwrap();
        let (schedule, again, other) = (drawn(1), drawn(1), drawn(2));
        let mut met = std::collections::BTreeSet::new();
        for t in (0..schedule.period()).map(Round) {
            assert_eq!(schedule.mix(t), again.mix(t), "{spec}");
            let free = |node| schedule.turn(t, node).from.is_empty();
            assert!(
                topology.edges().all(|(a, b)| !(free(a) && free(b))),
                "{spec}, round {t}: not maximal"
            );
            met.extend(schedule.mix(t).arcs());
            assert!(schedule.mix(t).arcs().all(|(i, j)| schedule.mix(t).weight(i, j) == 0.5));
        }
        assert_eq!(met.len(), 2 * topology.links(), "{spec}: all links");
        let differs = (0..schedule.period()).any(|t| schedule.mix(Round(t)) != other.mix(Round(t)));
        assert_eq!(differs, topology.links() > 1, "{spec}: another seed, other pairs");
    }
}

#[test]
fn a_topology_without_the_links_is_refused_with_one_that_has_them() {
    let refused = |name: &str, spec: &str| {
        Schedule::new(name, &Topology::parse(spec, 1).unwrap(), 1).unwrap_err().to_string()
    };
    assert_eq!(
        refused("one-peer-exponential", "ring:6"),
        "topology.schedule = \"one-peer-exponential\": needs the link 0 - 4, which `ring-6` \
         lacks: use exponential:6 or complete:6"
    );
    assert!(
        refused("base-2", "ring:7").ends_with(
            "needs the link 0 - 2, which `ring-7` lacks: use exponential:7 or complete:7"
        )
    );
    assert!(
        refused("daily", "ring:4")
            .contains("expected one of static, one-peer-exponential, base-2, random-matching")
    );
    assert!(refused("epidemic:2", "ring:8").contains("needs the link"));
    for (name, spec, words) in [
        ("epidemic", "complete:8", "the number of peers, such as \"epidemic:2\""),
        ("epidemic:few", "complete:8", "the number of peers, such as \"epidemic:2\""),
        ("epidemic:0", "complete:8", "from 1 to 7"),
        ("epidemic:8", "complete:8", "from 1 to 7"),
        ("epidemic:3", "complete:9", "both are odd: use epidemic:2"),
        ("base-2:3", "complete:8", "base-2 takes no number"),
    ] {
        let error = refused(name, spec);
        assert!(error.contains(words), "{error}");
    }
    for n in 1..=40 {
        for recipe in &schedule::REGISTRY {
            if recipe.number.is_some_and(|(_, peers)| peers >= n as u64) {
                continue;
            }
            let remedy = (recipe.remedy)(n);
            for spec in remedy.split(" or ").filter(|spec| spec.contains(':')) {
                let topology = Topology::parse(spec, 1).unwrap();
                assert!(
                    Schedule::new(&recipe.example(), &topology, 1).is_ok(),
                    "{} on {spec}",
                    recipe.name
                );
            }
        }
    }
}

#[test]
fn rates_are_those_of_the_products() {
    let rate = |name, spec| {
        let (schedule, topology) = make(name, spec);
        *schedule.rate(&topology)
    };
    for (name, spec, rounds) in [
        ("one-peer-exponential", "exponential:8", 3),
        ("base-2", "complete:5", 5),
        ("base-2", "hypercube:16", 4),
    ] {
        let rate = rate(name, spec);
        assert_eq!(
            (rate.rho, rate.gap, rate.mixing_time, rate.counted),
            (0.0, 1.0, Some(rounds), true),
            "{name}"
        );
    }
    let (static_rate, ring) = (rate("static", "ring:8"), Topology::parse("ring:8", 1).unwrap());
    assert_eq!((static_rate.rho, static_rate.mixing_time), (ring.spectrum().rho, Some(22)));
    // Circulants commute: the product's eigenvalues are the products, here (1 + z^1)(1 + z^2)(1 +
    // z^4) / 8 at z = exp(2 pi i k / 6).
    let modulus = |angle: f64| (angle / 2.0).cos().abs();
    let largest = (1..6)
        .map(|k| f64::from(k) * std::f64::consts::TAU / 6.0)
        .map(|angle| modulus(angle) * modulus(2.0 * angle) * modulus(4.0 * angle))
        .fold(0.0, f64::max);
    let six = rate("one-peer-exponential", "exponential:6");
    assert!((six.rho - largest.cbrt()).abs() < 1e-9, "{} and {}", six.rho, largest.cbrt());
}

#[test]
fn random_matching_shrinks_disagreement_by_rho_a_round() {
    let (schedule, topology) = make("random-matching", "ring:8");
    let rho = schedule.rate(&topology).rho;
    // From many first rounds, the slowest wave: the mean of the logarithms.
    let wave: Matrix =
        (0..8).map(|i| vec![(std::f64::consts::TAU * f64::from(i) / 8.0).cos()]).collect();
    let size = |x: &Matrix| x.iter().map(|x| x[0] * x[0]).sum::<f64>().sqrt();
    let factor = |from: u64| {
        let last = (from..from + 100).fold(wave.clone(), |x, t| times(&dense(&schedule, t), &x));
        (size(&last) / size(&wave)).ln() / 100.0
    };
    let measured = ((0..100).map(|k| factor(10 * k)).sum::<f64>() / 100.0).exp();
    assert!((measured / rho - 1.0).abs() < 0.02, "{measured} and {rho}");
}

#[test]
fn an_epidemic_round_contracts_as_far_as_its_graphs_are_exchangeable() {
    // The derivation is in the schedule's documentation.
    for (n, peers) in [(8usize, 1u32), (8, 2), (9, 2), (9, 6), (20, 3), (20, 7), (20, 18)] {
        let (schedule, _) = make(&format!("epidemic:{peers}"), &format!("complete:{n}"));
        let (n, s) = (n as f64, f64::from(peers));
        let expected = (1.0 - s / (n - 1.0)) / (s + 1.0);
        // One node far away, two nodes apart, and a slope: the draws favour none of them.
        for x in [
            (0..n as usize).map(|i| f64::from(i == 0) - 1.0 / n).collect::<Vec<_>>(),
            (0..n as usize).map(|i| f64::from(i == 0) - f64::from(i == 5)).collect(),
            (0..n as usize).map(|i| i as f64 - (n - 1.0) / 2.0).collect(),
        ] {
            let x: Matrix = x.into_iter().map(|x| vec![x]).collect();
            let square = |x: &Matrix| x.iter().map(|x| x[0] * x[0]).sum::<f64>();
            let period = schedule.period();
            let all = (0..period).map(|t| square(&times(&dense(&schedule, t), &x)) / square(&x));
            let all: Vec<f64> = all.collect();
            let mean = all.iter().sum::<f64>() / period as f64;
            let spread = all.iter().map(|f| (f - mean).powi(2)).sum::<f64>().sqrt();
            let error = spread / period as f64;
            assert!(
                (mean - expected).abs() < 4.5 * error + 1e-12,
                "{n} nodes, {s} peers: {mean}, {expected} expected, standard error {error}"
            );
        }
    }
}

#[test]
fn gossip_alone_agrees_exactly_after_a_period() {
    for rule in [
        "kind = 'd-psgd'",
        "kind = 'd-psgd'\norder = 'cta'",
        "kind = 'deep-squeeze'",
        "kind = 'sgp'",
    ] {
        for (schedule, topology) in
            [("one-peer-exponential", "exponential:8"), ("base-2", "complete:7")]
        {
            let mut run = Run::scheduled(topology, schedule, rule, "kind = 'identity'");
            (run.step, run.same_start, run.rounds) = (0.0, false, run.schedule.period());
            assert!(consensus(&run.models()) < 1e-12, "{rule}, {schedule}");
            run.rounds -= 1;
            assert!(consensus(&run.models()) > 1e-4, "{rule}, {schedule}: a round too few");
        }
    }
}

#[test]
fn rules_that_keep_copies_are_refused() {
    let mut refused = 0;
    for entry in &RULES {
        let rule = format!("kind = '{}'", entry.name);
        let on = |schedule: &str, compressor: &str| {
            Run::scheduled("complete:4", schedule, &rule, &format!("kind = '{compressor}'"))
                .try_prepare()
        };
        let works = |compressor: &&str| on("static", compressor).is_ok();
        let compressor = ["identity", "top-k", "count-sketch"].into_iter().find(works);
        let compressor =
            compressor.unwrap_or_else(|| panic!("a compressor with which {} runs", entry.name));
        let follows = entry.follows_schedules;
        match on("base-2", compressor) {
            Ok(prepared) => assert!(follows && prepared.plan.follows_schedule(), "{}", entry.name),
            Err(error) => {
                let error = error.to_string();
                let words = [
                    "topology.schedule = \"base-2\"",
                    entry.name,
                    "go stale",
                    "d-psgd, naive, deep-squeeze",
                ];
                assert!(!follows && words.iter().all(|words| error.contains(words)), "{error}");
                refused += 1;
            }
        }
    }
    let follow = RULES.iter().filter(|entry| entry.follows_schedules).count();
    assert_eq!(refused + follow, RULES.len());
    assert!(refused > 0 && follow > 0, "{refused} are refused, {follow} follow");
}
