//! Every rule with a server or a collective against a plain dense f64 implementation written from
//! its paper's equations.

use common::{
    Run,
    dense::{
        C, COMPRESSORS, Matrix, centralized, check_agreed as check, mean, plus, starts as start,
    },
    difference,
    driver::Driven,
    sgd::{Sgd, Updates},
    widen,
};
use gradvine::gossip::Input;

const IDENTITY: &str = "kind = 'identity'";

const COLLECTIVES: [(&str, &str); 8] = [
    ("ring:5", "collective = 'ring'"),
    ("complete:8", "collective = 'ring'"),
    ("complete:2", "collective = 'ring'"),
    ("complete:1", "collective = 'ring'"),
    ("star:6", "collective = 'server'"),
    ("complete:7", "collective = 'all-to-all'"),
    ("complete:6", "collective = 'hybrid'\ngroup = 3"),
    ("complete:8", "collective = 'hybrid'\ngroup = 2"),
];

#[test]
fn c_sgd_with_every_collective() {
    for (topology, collective) in COLLECTIVES {
        for (d, layers) in [(40, false), (43, false), (3, false), (40, true), (43, true), (3, true)]
        {
            let rule = format!("kind = 'c-sgd'\n{collective}\nlayers = {layers}");
            let mut run = Run::new(topology, &rule, IDENTITY);
            run.d = d;
            check(&run, &centralized(&run));
        }
        let run = Run::new(topology, &format!("kind = 'c-sgd'\n{collective}"), IDENTITY);
        run.varied().iter().for_each(|run| check(run, &centralized(run)));
        for sgd in Sgd::VARIED {
            let layers = format!("{}\nlayers = true", run.rule);
            let layered = Run { rule: layers, sgd, ..run.clone() };
            check(&layered, &centralized(&layered));
        }
    }
}

#[test]
fn the_collective_is_chosen_from_the_links_and_written_down() {
    for (topology, collective) in [("ring:5", "ring"), ("star:4", "server"), ("complete:4", "ring")]
    {
        let prepared = Run::new(topology, "kind = 'c-sgd'", IDENTITY).prepare();
        assert_eq!(prepared.resolved["collective"].as_str(), Some(collective));
    }
    for (topology, collective) in [("star:4", "server"), ("complete:4", "all-to-all")] {
        for rule in ["kind = 'sparse-loco'", "kind = 'streaming-diloco'"] {
            let prepared = Run::new(topology, rule, IDENTITY).prepare();
            assert_eq!(prepared.resolved["collective"].as_str(), Some(collective));
        }
    }
}

#[test]
fn collectives_without_their_links_are_refused_with_a_way_out() {
    let refused = |topology: &str, rule: &str| Run::new(topology, rule, IDENTITY).refusal();
    let error = refused("torus:3x4", "kind = 'c-sgd'");
    assert!(error.contains("ring:n, star:n or complete:n"), "{error}");
    let error = refused("ring:5", "kind = 'c-sgd'\ncollective = 'server'");
    assert!(error.contains("no link 0 - 2") || error.contains("no link 2 - 0"), "{error}");
    assert!(error.contains("star:n"), "{error}");
    let error = refused("star:5", "kind = 'c-sgd'\ncollective = 'ring'");
    assert!(error.contains("no link 1 - 2") && error.contains("ring:n"), "{error}");
    let error = refused("complete:6", "kind = 'c-sgd'\ncollective = 'hybrid'\ngroup = 4");
    assert!(error.contains("rule.group = 4") && error.contains("divisor"), "{error}");
    let error = refused("complete:6", "kind = 'c-sgd'\ncollective = 'hybrid'");
    assert!(error.contains("rule.group") && error.contains("missing"), "{error}");
    let error = refused("complete:6", "kind = 'c-sgd'\ncollective = 'ring'\ngroup = 2");
    assert!(error.contains("rule.group = 2"), "{error}");
}

#[test]
fn the_topology_of_groups_carries_the_hybrid() {
    let rule = "kind = 'c-sgd'\ncollective = 'hybrid'\ngroup = 4";
    let run = Run::new(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/groups-2x4.toml"),
        rule,
        IDENTITY,
    );
    check(&run, &centralized(&run));
}

#[test]
fn ring_all_reduce_sends_two_parts_of_n_less_one_in_n() {
    for nodes in [2usize, 4, 5, 8] {
        let mut run =
            Run::new(&format!("complete:{nodes}"), "kind = 'c-sgd'\ncollective = 'ring'", IDENTITY);
        run.rounds = 3;
        let sent: Vec<u64> =
            run.ended().unwrap().iter().map(|ended| ended.traffic.payload).collect();
        assert_eq!(sent, vec![3 * 4 * (2 * (nodes - 1) * 40 / nodes) as u64; nodes]);
    }
}

#[test]
fn local_sgd_averages_models() {
    for (topology, collective) in COLLECTIVES {
        let run = Run::new(topology, &format!("kind = 'local-sgd'\n{collective}"), IDENTITY);
        // The mean of the models is x less the mean of what the local steps changed.
        run.varied().iter().for_each(|run| check(run, &centralized(run)));
    }
}

#[test]
fn diloco_takes_a_nesterov_step_outside() {
    for (step, momentum) in [(0.7, 0.9), (1.0, 0.0), (0.5, 0.5)] {
        let rule = format!("kind = 'diloco'\nouter_step = {step}\nouter_momentum = {momentum:?}");
        for run in Run::new("ring:5", &rule.replace(" = 1\n", " = 1.0\n"), IDENTITY).varied() {
            let (mut updates, mut x) = (Updates::new(&run), start(&run));
            let mut m = vec![0.0; run.d];
            for _ in 0..run.rounds {
                let d = mean(&updates.next(&x).0);
                m = m.iter().zip(&d).map(|(m, d)| momentum * m + d).collect();
                let direction = plus(&d, momentum, &m);
                x = x.iter().map(|x| plus(x, -step, &direction)).collect();
            }
            check(&run, &x);
            if (step, momentum) == (1.0, 0.0) {
                check(&run, &centralized(&run));
            }
        }
    }
}

/// Models by the equations of Streaming DiLoCo; what is in the air at the end lands then.
fn streaming(run: &Run, c: C, fragments: usize, delay: usize, keep: f64) -> Matrix {
    let (mut updates, mut x) = (Updates::new(run), start(run));
    let (mut outer, mut m) = (x[0].clone(), vec![0.0; run.d]);
    let mut flights: Vec<(std::ops::Range<usize>, Vec<f64>)> = Vec::new();
    let mut starts: Vec<usize> = vec![0];
    for p in 0..fragments {
        let longer = usize::from(p < run.d % fragments);
        starts.push(starts[p] + run.d / fragments + longer);
    }
    for t in 0..run.rounds as usize + delay {
        if t < run.rounds as usize {
            let (u, _) = updates.next(&x);
            x = x.iter().zip(&u).map(|(x, u)| plus(x, -1.0, u)).collect();
            let p = t % fragments;
            let range = starts[p]..starts[p + 1];
            let change = |x: &Vec<f64>| plus(&outer[range.clone()], -1.0, &x[range.clone()]);
            let sent: Matrix = x.iter().map(|x| c(&change(x))).collect();
            flights.push((range.clone(), mean(&sent)));
        }
        if t < delay {
            continue;
        }
        let (range, d) = &flights[t - delay];
        for (k, d) in range.clone().zip(d) {
            m[k] = 0.8 * m[k] + d;
            outer[k] -= 0.6 * (d + 0.8 * m[k]);
            x.iter_mut().for_each(|x| x[k] = keep * x[k] + (1.0 - keep) * outer[k]);
        }
    }
    x
}

#[test]
fn streaming_diloco_sends_a_fragment_in_each_round() {
    for (topology, collective) in
        [("complete:5", "all-to-all"), ("star:4", "server"), ("complete:1", "server")]
    {
        for (fragments, delay, keep) in [(1, 0, 0.0), (3, 0, 0.5), (4, 1, 0.5), (7, 6, 0.25)] {
            for (compressor, c) in &COMPRESSORS {
                let rule = format!(
                    "kind = 'streaming-diloco'\ncollective = '{collective}'\nfragments = \
                     {fragments}\ndelay = {delay}\nkeep = {keep:?}\nouter_step = \
                     0.6\nouter_momentum = 0.8"
                );
                for run in Run::new(topology, &rule, compressor).varied() {
                    // Among so many numbers some changes are nothing but rounding, and what sign
                    // they have is not determined.
                    if run.d != 40 && compressor.contains("sign") {
                        continue;
                    }
                    let models = run.models();
                    let off = difference(&streaming(&run, *c, fragments, delay, keep), &models);
                    assert!(off < 1e-5, "{}: {off:e}", run.words());
                }
            }
        }
    }
}

#[test]
fn streaming_diloco_in_one_piece_at_once_is_diloco() {
    let constants = "outer_step = 0.6\nouter_momentum = 0.8";
    let diloco = Run::new("complete:5", &format!("kind = 'diloco'\n{constants}"), IDENTITY);
    let streaming = format!("kind = 'streaming-diloco'\nfragments = 1\nkeep = 0.0\n{constants}");
    let streaming = Run::new("complete:5", &streaming, IDENTITY);
    let off = difference(&widen(&diloco.models()), &streaming.models());
    assert!(off < 1e-5, "{off:e}");
}

#[test]
fn a_fragment_costs_its_part_of_the_bytes() {
    let bytes = |rule: &str| {
        let mut run = Run::new("complete:4", rule, IDENTITY);
        (run.rounds, run.d) = (8, 42);
        run.ended().unwrap()[1].traffic.payload
    };
    let rule = "kind = 'streaming-diloco'\ncollective = 'all-to-all'";
    // 42 numbers in fragments of 11, 11, 10 and 10: in 8 rounds each goes twice to three others.
    assert_eq!(bytes(rule), 2 * 42 * 4 * 3);
}

/// Models by the equations of delayed averaging, without landing what is in the air at the end.
fn delayed(run: &Run, delay: usize, period: usize, compensate: bool, land_rest: bool) -> Matrix {
    let (mut updates, mut x) = (Updates::new(run), start(run));
    let mut gathered: Matrix = vec![vec![0.0; run.d]; x.len()];
    // Of each round in which the nodes meet: everybody's update of the period.
    let mut sent: Vec<Option<Matrix>> = Vec::new();
    let land = |x: &mut Matrix, u: &Matrix| {
        let mean = mean(u);
        for (x, u) in x.iter_mut().zip(u) {
            *x = plus(x, -1.0, &mean);
            if compensate {
                *x = plus(x, 1.0, u);
            }
        }
    };
    for round in 0..run.rounds as usize {
        let u = updates.next(&x).0;
        if compensate {
            x = x.iter().zip(&u).map(|(x, u)| plus(x, -1.0, u)).collect();
        }
        gathered = gathered.iter().zip(&u).map(|(sum, u)| plus(sum, 1.0, u)).collect();
        let meets = (round + 1) % period == 0;
        sent.push(meets.then(|| std::mem::replace(&mut gathered, vec![vec![0.0; run.d]; x.len()])));
        if let Some(Some(u)) = round.checked_sub(delay).map(|launched| &sent[launched]) {
            land(&mut x, u);
        }
    }
    if land_rest {
        for u in sent.iter().skip(sent.len() - delay.min(sent.len())).flatten() {
            land(&mut x, u);
        }
    }
    x
}

#[test]
fn delayed_updates_with_and_without_compensation() {
    for (topology, collective) in COLLECTIVES {
        for (delay, period) in [(0, 1), (1, 1), (4, 1), (40, 1), (0, 3), (5, 3), (2, 5)] {
            for compensate in [true, false] {
                let rule = format!(
                    "kind = 'delayed'\n{collective}\ndelay = {delay}\nperiod = \
                     {period}\ncompensate = {compensate}"
                );
                let run = Run::new(topology, &rule, IDENTITY);
                let found =
                    difference(&delayed(&run, delay, period, compensate, true), &run.models());
                assert!(found < 1e-5, "{rule} on {topology}: {found:e}");
                if (run.rounds as usize).is_multiple_of(period) {
                    let models = run.models();
                    assert!(
                        models.iter().all(|model| *model == models[0]),
                        "{rule}: all has landed and nodes differ"
                    );
                }
            }
        }
        let rule = format!("kind = 'delayed'\n{collective}\ndelay = 5\nperiod = 3");
        for run in Run::new(topology, &rule, IDENTITY).varied() {
            let found = difference(&delayed(&run, 5, 3, true, true), &run.models());
            assert!(found < 1e-5, "{}: {found:e}", run.words());
        }
    }
}

#[test]
fn a_node_computes_ahead_of_its_frames_by_the_delay_and_no_further() {
    for (rule, ahead) in [
        ("kind = 'c-sgd'", 1),
        ("kind = 'delayed'\ndelay = 0", 1),
        ("kind = 'delayed'\ndelay = 6", 7),
    ] {
        // Nothing is ever heard from the others.
        let mut node = Driven::new(Run::new("ring:4", rule, IDENTITY).specs().swap_remove(2));
        node.settle(Input::Start);
        assert_eq!((node.gradients, node.overlapping), (ahead, ahead - 1), "{rule}");
        assert!(node.node.waiting_for().is_some());
    }
}

#[test]
fn a_delay_of_nothing_is_centralized_and_of_a_period_is_local_sgd() {
    let run = Run::new("ring:5", "kind = 'delayed'\ndelay = 0", IDENTITY);
    check(&run, &centralized(&run));
    // Models after each period of 3 rounds: each on its own, then the mean.
    let run = Run::new("ring:5", "kind = 'delayed'\ndelay = 0\nperiod = 3", IDENTITY);
    let (mut updates, mut x) = (Updates::new(&run), start(&run));
    for round in 0..run.rounds {
        x = x.iter().zip(updates.next(&x).0).map(|(x, u)| plus(x, -1.0, &u)).collect();
        if (round + 1) % 3 == 0 {
            let mean = mean(&x);
            x.iter_mut().for_each(|x| x.clone_from(&mean));
        }
    }
    assert!(difference(&x, &run.models()) < 1e-5);
}

#[test]
fn compensation_leaves_the_mean_alone_and_nodes_differ_by_their_last_updates() {
    let mut run = Run::new("ring:5", "kind = 'delayed'\ndelay = 4", IDENTITY);
    run.rounds = 12;
    let x = delayed(&run, 4, 1, true, false);
    // The reference, whose agreement with the rule is tested above, against the invariants of the
    // paper.
    let mut updates = Updates::new(&run);
    let mut history: Vec<Matrix> = Vec::new();
    let mut mean_model = mean(&start(&run));
    for rounds in 0..run.rounds {
        let mut shorter = run.clone();
        shorter.rounds = rounds;
        let at = delayed(&shorter, 4, 1, true, false);
        let u = updates.next(&at).0;
        mean_model = plus(&mean_model, -1.0, &mean(&u));
        history.push(u);
    }
    assert!(difference(&[mean_model], &[mean(&x).iter().map(|&x| x as f32).collect()]) < 1e-6);
    let last = &history[history.len() - 4..];
    for k in 0..run.d {
        let moved = |i: usize| last.iter().map(|u| u[i][k]).sum::<f64>();
        assert!(((x[0][k] - x[3][k]) - (moved(3) - moved(0))).abs() < 1e-12);
    }
}

#[test]
fn on_identical_data_every_delay_is_plain_sgd() {
    let mut one = Run::new("complete:1", "kind = 'c-sgd'", IDENTITY);
    one.rounds = 25;
    let alone = &one.models()[0];
    for delay in [0, 3, 10] {
        let mut run = Run::new("ring:4", &format!("kind = 'delayed'\ndelay = {delay}"), IDENTITY);
        (run.rounds, run.same_data) = (25, true);
        assert!(
            difference(&vec![widen(std::slice::from_ref(alone))[0].clone(); 4], &run.models())
                < 1e-6
        );
    }
    let mut stale =
        Run::new("ring:4", "kind = 'delayed'\ndelay = 10\ncompensate = false", IDENTITY);
    (stale.rounds, stale.same_data) = (25, true);
    assert!(
        difference(&vec![widen(std::slice::from_ref(alone))[0].clone(); 4], &stale.models()) > 1e-3
    );
}
