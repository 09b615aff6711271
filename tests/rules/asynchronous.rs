//! Pairwise gossip without rounds in common: the mean is kept, nobody waits for ever, the simulator
//! repeats itself.

use common::{Run, consensus, hook::Alone};
use gradvine::{
    compress::Format,
    gossip::{
        party::{Local, Writer, payload_noise},
        plan::{self, At},
    },
    units::{NodeId, Round},
};

const IDENTITY: &str = "kind = 'identity'";
const RULES: [&str; 2] = ["kind = 'ad-psgd'", "kind = 'swarm'"];

fn mean(models: &[Vec<f32>]) -> Vec<f64> {
    (0..models[0].len())
        .map(|k| models.iter().map(|x| f64::from(x[k])).sum::<f64>() / models.len() as f64)
        .collect()
}

/// How far the mean of all models moves in rounds without gradients, and what is left of their
/// disagreement.
fn drift(rule: &str, topology: &str) -> (f64, f64) {
    let mut run = Run::new(topology, rule, IDENTITY);
    (run.step, run.same_start, run.rounds) = (0.0, false, 60);
    let starts: Vec<Vec<f32>> = (0..run.nodes()).map(|node| run.start(node)).collect();
    let models = run.models();
    let moved =
        mean(&starts).iter().zip(mean(&models)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    (moved, consensus(&models) / consensus(&starts))
}

#[test]
fn pairs_keep_the_mean_and_agree() {
    for rule in RULES {
        for topology in ["ring:8", "star:5", "complete:6", "path:4"] {
            let (moved, left) = drift(rule, topology);
            assert!(moved < 1e-6, "{rule} on {topology}: the mean moved by {moved:e}");
            assert!(left < 1e-2, "{rule} on {topology}: {left:e} of the disagreement is left");
        }
    }
}

#[test]
fn a_node_alone_is_plain_sgd() {
    for rule in RULES {
        let alone = Run::new("complete:1", rule, IDENTITY).models();
        assert_eq!(alone, Run::new("complete:1", "kind = 'c-sgd'", IDENTITY).models());
    }
}

#[test]
fn the_simulator_repeats_itself() {
    for rule in RULES {
        let run = Run::new("torus:3x3", rule, IDENTITY);
        assert_eq!(run.ended().unwrap(), run.ended().unwrap());
        assert!(plan::is_asynchronous(&*run.prepare().plan));
    }
    assert!(!plan::is_asynchronous(
        &*Run::new("ring:4", "kind = 'd-psgd'", IDENTITY).prepare().plan
    ));
}

/// One call from a to b; `lost` is what happens to the answer.
fn call(a: &mut Alone, b: &mut Alone, between: impl FnOnce(&mut Alone), lost: bool) {
    let format = Format::Floats(a.local.x.len());
    let (ask, back) = (
        At { round: Round(0), flight: 0, exchange: 0 },
        At { round: Round(0), flight: 0, exchange: 1 },
    );
    let noise = payload_noise(3, NodeId(0), Some(NodeId(1)), &ask);
    let (mut there, mut answer) = (Vec::new(), Vec::new());
    let mut writer = Writer::new(&format, Some(NodeId(1)), noise, &mut there);
    a.rule.outgoing(&mut a.local, &ask, &mut writer).unwrap();
    let mut writer = Writer::new(&format, Some(NodeId(0)), noise, &mut answer);
    let answers = b.rule.answers().unwrap();
    answers.answer(&mut b.local, &ask, &format.view(noise, &there), &mut writer).unwrap();
    between(a);
    if !lost {
        let view = format.view(noise, &answer);
        a.rule.received(&mut a.local, &back, NodeId(1), &view).unwrap();
    }
}

fn pair() -> (Alone, Alone, Vec<f64>) {
    let mut run = Run::new("ring:4", "kind = 'ad-psgd'", IDENTITY);
    run.same_start = false;
    let prepared = run.prepare();
    let (x, y) = (run.start(0), run.start(1));
    let sum = x.iter().zip(&y).map(|(x, y)| f64::from(*x) + f64::from(*y)).collect();
    let alone = |id: u32, x: Vec<f32>| Alone {
        rule: (prepared.spawn)(NodeId(id), &x),
        local: Local::new(x),
    };
    (alone(0, x), alone(1, y), sum)
}

fn model(alone: &Alone) -> Vec<f64> {
    alone.model().into_iter().map(f64::from).collect()
}

#[test]
fn a_call_leaves_both_with_the_average() {
    let (mut a, mut b, sum) = pair();
    call(&mut a, &mut b, |_| {}, false);
    for ((x, y), sum) in model(&a).iter().zip(model(&b)).zip(&sum) {
        assert!((x - sum / 2.0).abs() < 1e-6 && (y - sum / 2.0).abs() < 1e-6);
    }
}

#[test]
fn a_step_between_call_and_answer_is_kept_and_a_lost_answer_would_not_keep_the_mean() {
    let (mut a, mut b, sum) = pair();
    let step = |Alone { rule, local }: &mut Alone| {
        rule.point(local);
        local.update.fill(0.25);
        rule.gradient(local, Round(0), 0.1);
    };
    call(&mut a, &mut b, step, false);
    for ((x, y), sum) in model(&a).iter().zip(model(&b)).zip(&sum) {
        assert!((x + y - (sum - 0.25)).abs() < 1e-6);
    }
    let (mut a, mut b, sum) = pair();
    call(&mut a, &mut b, |_| {}, true);
    let (a, b) = (model(&a), model(&b));
    let off = a.iter().zip(&b).zip(&sum).map(|((x, y), sum)| (x + y - sum).abs());
    assert!(off.fold(0.0, f64::max) > 1e-2, "the control: half a call changes the mean");
}

/// Free-running nodes over libp2p: they end, agree on the mean, and have learned.
#[cfg(feature = "net")]
#[test]
#[ignore = "slow"]
fn nodes_run_freely_over_libp2p_and_end() {
    use gradvine::{
        drive::NoopObserver,
        experiment::{Experiment, Transport},
        net,
        run::{Summary, Whole},
    };

    let text = "[run]\nrounds = 300\nevaluate_every = 100\n[topology]\nfile = \
                'ring:6'\n[data]\nsource = 'breast-cancer'\n\
                split = 'by-label'\nstandardize = true\n[model]\nkind = 'softmax'\n[rule]\nkind = \
                'd-psgd'\n[compressor]\n\
                kind = 'identity'\n[optimizer]\nstep = 0.1\nbatch = 8\n";
    let run = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let whole =
            std::sync::Arc::new(Whole::new(Experiment::parse(text, &sets).unwrap()).unwrap());
        let ended =
            net::together(whole.specs(), &whole.design, Transport::Tcp, &mut NoopObserver).unwrap();
        assert!(ended.iter().all(|one| one.mean == ended[0].mean));
        let summary = Summary::new(&whole.design, &ended[0].records).unwrap();
        let accuracy = summary.outcome.test_accuracy_of_mean.unwrap();
        assert!(accuracy > 0.93, "{sets:?}: {accuracy}");
        ended
    };
    for rule in ["rule.kind='ad-psgd'", "rule.kind='swarm'"] {
        for topology in ["ring:6", "complete:6", "star:6"] {
            run(&[rule, &format!("topology.file='{topology}'"), "optimizer.local_steps=2"]);
        }
    }
    for (topology, staleness) in [("star:5", 0), ("star:5", 3), ("complete:4", 10)] {
        let ended = run(&[
            "rule.kind='stale-synchronous'",
            &format!("rule.staleness={staleness}"),
            &format!("topology.file='{topology}'"),
        ]);
        assert!(staleness > 0 || ended.iter().all(|one| one.model == ended[0].model));
    }
}
