//! Trained models are never lost: they are saved before the mean is formed, invalid records cause
//! only a warning, and a run that ends early in any way leaves every node's model.
#![cfg(feature = "net")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use gradvine::{
    drive::{
        Conclusion, Elapsed, Ended, Learner, NodeSpec, NoopObserver, Observer, RunError, Waiting,
    },
    experiment::{Experiment, Transport},
    gossip::{OwnModel, RoundDone, rule::RULES},
    learn::Ready,
    net,
    run::{Summary, Whole, record::Closing},
    sim::{self},
    units::{NodeId, Round},
};

fn whole(sets: &[&str]) -> Arc<Whole> {
    let base =
        ["topology.file=path:4", "data.source=breast-cancer", "model.kind=softmax", "run.rounds=6"];
    let sets: Vec<String> = base.iter().chain(sets).map(ToString::to_string).collect();
    Arc::new(Whole::new(Experiment::default_with(&sets).unwrap()).unwrap())
}

/// A node's learner with another end.
struct Spoilt {
    inner: Box<dyn Learner>,
    conclude: Box<dyn FnMut(Vec<u8>) -> Vec<u8> + Send>,
    gradient: Box<dyn FnMut(Round) + Send>,
    /// The round with an invalid update.
    diverges: Option<Round>,
}

impl Learner for Spoilt {
    fn setup(&mut self) -> Option<gradvine::gossip::tree::Setup> {
        self.inner.setup()
    }

    fn prepare(&mut self, merged: &[u8]) -> Result<(), gradvine::config::ConfigError> {
        self.inner.prepare(merged)
    }

    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        self.compute_by_parts(round, x, update, &mut |_, _| {})
    }

    fn compute_by_parts(
        &mut self,
        round: Round,
        x: &[f32],
        update: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        (self.gradient)(round);
        let loss = self.inner.compute_by_parts(round, x, update, ready);
        if Some(round) == self.diverges {
            update.fill(f32::NAN);
        }
        loss
    }

    fn step(&self, round: Round) -> f32 {
        self.inner.step(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        let record = self.inner.conclude(conclusion);
        (self.conclude)(record)
    }
}

fn spoil(
    specs: &mut [NodeSpec],
    node: usize,
    conclude: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static,
    gradient: impl FnMut(Round) + Send + 'static,
) {
    spoil_as(&mut specs[node], |inner| Spoilt {
        inner,
        conclude: Box::new(conclude),
        gradient: Box::new(gradient),
        diverges: None,
    });
}

fn spoil_as(spec: &mut NodeSpec, with: impl FnOnce(Box<dyn Learner>) -> Spoilt) {
    struct Nothing;
    impl Learner for Nothing {
        fn compute(&mut self, _: Round, _: &[f32], _: &mut [f32]) -> f64 {
            unreachable!("it is replaced")
        }
        fn step(&self, _: Round) -> f32 {
            unreachable!("it is replaced")
        }
        fn conclude(&mut self, _: &Conclusion<'_>) -> Vec<u8> {
            unreachable!("it is replaced")
        }
    }
    let inner = std::mem::replace(&mut spec.learner, Box::new(Nothing));
    spec.learner = Box::new(with(inner));
}

/// Keeps the models that it should save.
#[derive(Default)]
struct Saver {
    own: BTreeMap<NodeId, OwnModel>,
    mean: Option<Vec<f32>>,
    /// Whether a mean came before a node's own model.
    too_late: bool,
}

impl Observer for Saver {
    fn round(&mut self, _node: NodeId, _elapsed: Elapsed, _done: RoundDone) {}

    fn save(&mut self, node: NodeId, _elapsed: Elapsed, own: &OwnModel) {
        self.too_late |= self.mean.is_some();
        self.own.insert(node, own.clone());
    }

    fn mean(&mut self, mean: &[f32]) {
        self.mean = Some(mean.to_vec());
    }
}

#[test]
#[ignore = "slow"]
fn invalid_records_are_named_and_the_rest_of_the_summary_is_kept() {
    let whole = whole(&[]);
    let good = sim::run(whole.specs(), &mut NoopObserver).unwrap();
    let complete = Summary::new(&whole.design, &good[0].records).unwrap();
    let change = |edit: fn(&mut Closing)| {
        move |record: Vec<u8>| {
            let mut closing = Closing::from_bytes(&record).unwrap();
            edit(&mut closing);
            closing.to_bytes()
        }
    };
    type Spoiler = Box<dyn FnMut(Vec<u8>) -> Vec<u8> + Send>;
    let cases: Vec<(&str, Spoiler)> = vec![
        ("it is empty", Box::new(|_| Vec::new())),
        ("expected value", Box::new(|_| b"garbage".to_vec())),
        ("missing field", Box::new(|_| b"{}".to_vec())),
        (
            "digest: this is not a SHA-256",
            Box::new(change(|closing| closing.digest = "f".repeat(63))),
        ),
        ("it has no mean model", Box::new(change(|closing| closing.mean = None))),
        (
            "its mean model is another",
            Box::new(change(|closing| closing.mean = Some("0".repeat(64)))),
        ),
        ("the run has 6", Box::new(change(|closing| closing.rounds = u64::MAX))),
        ("right answers in", Box::new(change(|closing| closing.test.as_mut().unwrap().rows = 0))),
    ];
    for (why, conclude) in cases {
        let mut specs = whole.specs();
        spoil(&mut specs, 2, conclude, |_| {});
        let ended = net::together(specs, &whole.design, Transport::Tcp, &mut NoopObserver).unwrap();
        let summary = Summary::new(&whole.design, &ended[0].records).unwrap();
        assert!(summary.unusable["2"].contains(why), "{why}: {:?}", summary.unusable);
        assert_eq!((summary.unusable.len(), summary.digest.as_str()), (1, ""));
        assert_eq!(summary.mean_digest, complete.mean_digest);
        for name in ["0", "1", "3"] {
            assert_eq!(summary.participation[name].digest, complete.participation[name].digest);
        }
    }
    // Invalid sums of bytes from another node do not wrap.
    let mut specs = whole.specs();
    spoil(&mut specs, 1, change(|closing| closing.bytes = [u64::MAX; 3]), |_| {});
    let ended = sim::run(specs, &mut NoopObserver).unwrap();
    assert_eq!(Summary::new(&whole.design, &ended[0].records).unwrap().bytes.payload, u64::MAX);
}

#[test]
fn the_digest_covers_the_mean() {
    use sha2::{Digest, Sha256};
    let whole = whole(&[]);
    let ended = sim::run(whole.specs(), &mut NoopObserver).unwrap();
    let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut all = Sha256::new();
    ended.iter().for_each(|one| all.update(Sha256::digest(bytes(&one.model))));
    all.update(Sha256::digest(bytes(&ended[0].mean)));
    let digest: String = all.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(Summary::new(&whole.design, &ended[0].records).unwrap().digest, digest);
}

#[test]
fn own_models_are_saved_before_the_mean_and_when_the_mean_fails() {
    let whole = whole(&[]);
    let ended = sim::run(whole.specs(), &mut NoopObserver).unwrap();
    for over_libp2p in [false, true] {
        let mut saver = Saver::default();
        if over_libp2p {
            net::together(whole.specs(), &whole.design, Transport::Tcp, &mut saver).unwrap();
        } else {
            sim::run(whole.specs(), &mut saver).unwrap();
        }
        assert!(over_libp2p || !saver.too_late, "every model was saved before a mean was formed");
        assert_eq!(saver.mean.as_ref(), Some(&ended[0].mean));
        for (node, one) in ended.iter().enumerate() {
            let own = &saver.own[&NodeId::from(node)];
            assert_eq!((own.rounds, &*own.x), (Round(6), &one.model), "node {node}");
        }
    }
    // A node that ends when its model is final.
    let mut specs = whole.specs();
    spoil(&mut specs, 3, |_| panic!("this node dies"), |_| {});
    let mut saver = Saver::default();
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        net::together(specs, &whole.design, Transport::Tcp, &mut saver)
    }));
    assert!(failed.is_err() || failed.unwrap().is_err());
    for (node, one) in ended.iter().enumerate() {
        assert_eq!(*saver.own[&NodeId::from(node)].x, one.model, "node {node}");
    }
}

/// In the middle of a round every rule has a model close to those at the round's ends, and none of
/// it is lost while it is lent.
#[test]
fn runs_that_end_early_leave_a_model_for_every_rule() {
    for entry in &RULES {
        let of = |compressor| {
            common::Run::new(
                &format!("{}:4", entry.home),
                &format!("kind = '{}'", entry.name),
                compressor,
            )
        };
        // Rules that take only sparse vectors or tables have one of these.
        let compressors = [
            "kind = 'identity'",
            "kind = 'top-k'
k = 10",
            "kind = 'count-sketch'
rows = 3
columns = 40",
        ];
        let run = compressors
            .map(of)
            .into_iter()
            .find(|run| run.try_prepare().is_ok())
            .expect("one that it takes");
        let calm = run.ended().unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let scale = calm[0].model.iter().fold(0f32, |most, x| most.max(x.abs()));
        let mut saver = Saver::default();
        let mut specs = run.specs();
        spoil_as(&mut specs[0], |inner| Spoilt {
            inner,
            conclude: Box::new(|record| record),
            gradient: Box::new(|_| {}),
            diverges: Some(Round(20)),
        });
        let error = sim::run(specs, &mut saver).unwrap_err();
        assert!(matches!(error, RunError::Failed { .. }), "{}: {error}", entry.name);
        assert_eq!(saver.own.len(), calm.len(), "{}", entry.name);
        for (node, own) in saver.own.iter().filter(|(node, _)| node.0 > 0) {
            assert_eq!(own.x.len(), calm[0].model.len(), "{}, node {node}", entry.name);
            let most = own.x.iter().fold(0f32, |most, x| most.max(x.abs()));
            let least = scale * 1e-6;
            assert!(
                most.is_finite() && most > least && most < 100.0 * scale,
                "{}, node {node}: {most}",
                entry.name
            );
        }
    }
}

/// Gradients and evaluations that take longer than `patience_s` are no silence, also for nodes that
/// are further away.
#[test]
#[ignore = "slow"]
fn work_that_is_known_to_go_on_is_no_silence() {
    for evaluation in [true, false] {
        let ended = with_long_work(&["run.patience_s=3"], evaluation, Another::Waits);
        assert!(ended.is_ok(), "{evaluation}: {:?}", ended.err());
    }
    // But it has a limit.
    let limited = ["run.patience_s=3", "run.work_s=1"];
    let error = with_long_work(&limited, false, Another::GivesUp).unwrap_err();
    assert!(matches!(error, RunError::Deadline { .. }), "{error}");
}

/// The node with long work: it is the furthest from node 0, which collects the records.
const BUSY: usize = 3;

/// What another node than [`BUSY`] does; it looks every five seconds.
#[derive(PartialEq)]
enum Another {
    Waits,
    GivesUp,
}

/// Says when another node does this.
struct Watch(Another, mpsc::Sender<()>);

impl Observer for Watch {
    fn round(&mut self, _node: NodeId, _elapsed: Elapsed, _done: RoundDone) {}

    fn waits(&mut self, _node: NodeId, waiting: &Waiting) {
        if self.0 == Another::Waits && waiting.text.contains(" in round ") {
            let _ = self.1.send(());
        }
    }

    fn save(&mut self, node: NodeId, _elapsed: Elapsed, own: &OwnModel) {
        if self.0 == Another::GivesUp && node.index() != BUSY && own.rounds.0 < 6 {
            let _ = self.1.send(());
        }
    }
}

/// A run in which an evaluation, or a gradient, of [`BUSY`] ends when another node does this.
fn with_long_work(
    sets: &[&str],
    evaluation: bool,
    another: Another,
) -> Result<Vec<Ended>, RunError> {
    let whole = whole(sets);
    let mut specs = whole.specs();
    let (does, seen) = mpsc::channel();
    let work = Arc::new(Mutex::new(move |is_long: bool| {
        if is_long {
            seen.recv_timeout(Duration::from_secs(60)).expect("another node waits or gives up");
        }
    }));
    let shared = Arc::clone(&work);
    let conclude = move |record| {
        shared.lock().unwrap()(evaluation);
        record
    };
    let gradient = move |round: Round| work.lock().unwrap()(!evaluation && round.0 == 3);
    spoil(&mut specs, BUSY, conclude, gradient);
    net::together(specs, &whole.design, Transport::Tcp, &mut Watch(another, does))
}
