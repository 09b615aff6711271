//! Topologies that change from round to round: their matrices, their rates, and the rules on them
//! against dense `f64` equations.

use common::{Problem, Run, consensus, difference, widen};
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
        for &recipe in &schedule::REGISTRY {
            if recipe.number().is_some_and(|(_, peers)| peers >= n) {
                continue;
            }
            let (schedule, topology) = make(&recipe.example(), &format!("complete:{n}"));
            let most = match recipe.number() {
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
                        recipe.name()
                    );
                    assert!(
                        (column - 1.0).abs() < 1e-12 && w[i].iter().all(|&w| w >= 0.0),
                        "{} of {n}",
                        recipe.name()
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
                        recipe.name()
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
        for &recipe in &schedule::REGISTRY {
            if recipe.number().is_some_and(|(_, peers)| peers >= n as u64) {
                continue;
            }
            let remedy = recipe.remedy(n);
            for spec in remedy.split(" or ").filter(|spec| spec.contains(':')) {
                let topology = Topology::parse(spec, 1).unwrap();
                assert!(
                    Schedule::new(&recipe.example(), &topology, 1).is_ok(),
                    "{} on {spec}",
                    recipe.name()
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

/// C in f64.
type C = fn(&[f64]) -> Vec<f64>;

fn identity(v: &[f64]) -> Vec<f64> {
    v.to_vec()
}

/// |v|_1 / d times the sign.
fn scaled_sign(v: &[f64]) -> Vec<f64> {
    let scale = v.iter().map(|x| x.abs()).sum::<f64>() / v.len() as f64;
    v.iter().map(|&x| if x < 0.0 { -scale } else { scale }).collect()
}

/// X + a Y.
fn plus(x: &Matrix, a: f64, y: &Matrix) -> Matrix {
    x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(|(x, y)| x + a * y).collect()).collect()
}

fn gradients(problems: &[Problem], x: &Matrix) -> Matrix {
    problems.iter().zip(x).map(|(p, x)| p.gradient(x)).collect()
}

/// x / w, row by row.
fn quotient(x: &Matrix, w: &Matrix) -> Matrix {
    x.iter().zip(w).map(|(x, w)| x.iter().map(|x| x / w[0]).collect()).collect()
}

/// P of push-sum on a static topology, from its definition: column j gives 1 / (1 + deg j) to j and
/// each of its neighbours.
fn push(topology: &Topology) -> Matrix {
    let n = topology.nodes();
    let linked = |i: usize, j: usize| {
        i == j || topology.neighbours(NodeId::from(j)).contains(&NodeId::from(i))
    };
    let share = |j: usize| 1.0 / (1.0 + topology.neighbours(NodeId::from(j)).len() as f64);
    (0..n).map(|i| (0..n).map(|j| if linked(i, j) { share(j) } else { 0.0 }).collect()).collect()
}

/// The models after all rounds by the equations of one rule, with W_t in round t.
fn reference(rule: &str, run: &Run, c: C, eta: f64) -> Matrix {
    let problems = run.problems();
    let mut x = widen(&(0..run.nodes()).map(|node| run.start(node)).collect::<Vec<_>>());
    let mut error: Matrix = x.iter().map(|x| vec![0.0; x.len()]).collect();
    let mut weight = vec![vec![1.0]; run.nodes()];
    for t in 0..run.rounds {
        let w = if rule == "sgp" && run.schedule.is_static() {
            push(&run.topology)
        } else {
            dense(&run.schedule, t)
        };
        let g = gradients(&problems, &quotient(&x, &weight));
        x = match rule {
            "cta" => plus(&times(&w, &x), -run.step, &g),
            "atc" => times(&w, &plus(&x, -run.step, &g)),
            "naive" => plus(&times(&w, &x.iter().map(|x| c(x)).collect()), -run.step, &g),
            "deep-squeeze" => {
                let z = plus(&x, -run.step, &g);
                let v = plus(&z, 1.0, &error);
                let sent = v.iter().map(|v| c(v)).collect();
                error = plus(&v, -1.0, &sent);
                plus(&z, eta, &plus(&times(&w, &sent), -1.0, &sent))
            }
            "noloco" => {
                // The means over W_t of the changes and of the models apart; u = step g.
                let (alpha, beta, gamma) = (0.5, 0.7, 0.7);
                let pull = plus(&times(&w, &x), -1.0, &x);
                let zeros: Matrix = x.iter().map(|x| vec![0.0; x.len()]).collect();
                let m = plus(&zeros, alpha, &error);
                error = plus(&plus(&m, -beta * run.step, &times(&w, &g)), gamma, &pull);
                plus(&x, 1.0, &error)
            }
            "gasloc" => {
                // error is v.
                let (eta, gamma) = (0.7, 0.5);
                let next = plus(&x, -eta * run.step, &g);
                let before = if t == 0 { x.clone() } else { error.clone() };
                error = next.clone();
                plus(&times(&w, &next), gamma, &plus(&next, -1.0, &before))
            }
            "qg-dsgdm" => {
                let moved = plus(&plus(&x, -run.step, &g), -run.step * 0.9, &error);
                let next = times(&w, &moved);
                let zeros: Matrix = x.iter().map(|x| vec![0.0; x.len()]).collect();
                let away = plus(&x, -1.0, &next);
                error = plus(&plus(&zeros, 0.9, &error), (1.0 - 0.9) / run.step, &away);
                next
            }
            "sgp" => {
                weight = times(&w, &weight);
                times(&w, &plus(&x, -run.step, &g))
            }
            other => panic!("no reference for {other}"),
        };
    }
    quotient(&x, &weight)
}

const ON: [(&str, &str); 8] = [
    ("one-peer-exponential", "exponential:8"),
    ("one-peer-exponential", "exponential:6"),
    ("base-2", "complete:5"),
    ("base-2", "exponential:11"),
    ("random-matching", "ring:7"),
    ("random-matching", "star:5"),
    ("epidemic:3", "complete:8"),
    ("base-2", "complete:1"),
];

#[test]
fn every_rule_on_a_schedule_follows_its_equations() {
    let rules = [
        ("atc", "kind = 'd-psgd'", false),
        ("cta", "kind = 'd-psgd'\norder = 'cta'", false),
        ("naive", "kind = 'naive'", true),
        ("deep-squeeze", "kind = 'deep-squeeze'\neta = 0.2", true),
        ("sgp", "kind = 'sgp'", false),
        ("noloco", "kind = 'noloco'", false),
        ("gasloc", "kind = 'gasloc'", false),
        ("qg-dsgdm", "kind = 'qg-dsgdm'", false),
    ];
    for (name, rule, compresses) in rules {
        for (schedule, topology) in ON {
            let compressors: [(&str, C); 2] =
                [("kind = 'identity'", identity), ("kind = 'sign'\nbucket = 0", scaled_sign)];
            for (compressor, c) in &compressors[..1 + usize::from(compresses)] {
                let mut run = Run::scheduled(topology, schedule, rule, compressor);
                run.same_start = false;
                let difference = difference(&reference(name, &run, *c, 0.2), &run.models());
                assert!(
                    difference < 1e-5,
                    "{name} with {compressor}, {schedule} on {topology}: {difference:e}"
                );
            }
        }
    }
    // Another schedule gives another result: the comparison can fail.
    let other =
        Run::scheduled("complete:5", "random-matching", "kind = 'd-psgd'", "kind = 'identity'")
            .models();
    let run = Run::scheduled("complete:5", "base-2", "kind = 'd-psgd'", "kind = 'identity'");
    assert!(difference(&reference("atc", &run, identity, 0.0), &other) > 1e-3);
}

#[test]
fn stochastic_gradient_push_on_static_topologies() {
    for topology in ["ring:8", "star:5", "path:6", "torus:3x3", "complete:4", "complete:1"] {
        let mut run = Run::new(topology, "kind = 'sgp'", "kind = 'identity'");
        run.same_start = false;
        let difference = difference(&reference("sgp", &run, identity, 0.0), &run.models());
        assert!(difference < 1e-5, "{topology}: {difference:e}");
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
    assert_eq!((refused + follow, follow), (RULES.len(), 8));
}
