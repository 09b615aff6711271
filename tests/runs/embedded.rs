//! Nodes that programs embed: with their own objectives, with their own training loops, and with
//! programs that stop, fail, or disagree with their neighbours.

#![cfg(feature = "net")]

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use gradvine::{
    digest,
    experiment::{Experiment, Transport},
    learn::{Batch, Objective, Tensor},
    mixing::{FileFormat, Topology},
    net::{Keypair, free_ports},
    node::{EndError, Event, Exchange, Node, NodeBuilder, NodeResult, Step},
};

use crate::{
    bowl::{self, Bowl, file},
    until,
};

const NODES: usize = 4;
const D: usize = 700;

fn bowl(node: usize) -> Bowl {
    let tensors = [Tensor::new("a", &[100, 5]), Tensor::new("b", &[200])];
    Bowl::new(node, &tensors, Duration::ZERO)
}

fn initial() -> Vec<f32> {
    (0..D).map(|k| k as f32 / D as f32).collect()
}

fn experiment(more: &str) -> Experiment {
    let text = format!(
        "run.evaluate_every = 10\nrun.connect_s = 20.0\ntopology.file = 'ring:4'\n\
         optimizer = {{ step = 0.1, batch = 'full' }}\n{more}"
    );
    let rounds = if more.contains("run.rounds") { "" } else { "\nrun.rounds = 30" };
    Experiment::parse(&(text + rounds), &[]).unwrap()
}

const CHOCO: &str = "rule.kind = 'choco'\ncompressor = { kind = 'min-max', bits = 4 }";

/// A builder for every node of a ring on loopback.
fn builders(experiment: &Experiment) -> Vec<NodeBuilder> {
    builders_on("ring:4", experiment)
}

/// A builder for every node of a topology of four nodes on loopback.
fn builders_on(spec: &str, experiment: &Experiment) -> Vec<NodeBuilder> {
    let keys: Vec<Keypair> = (0..NODES).map(|_| Keypair::generate_ed25519()).collect();
    let ports = free_ports(Transport::Tcp, NODES).unwrap();
    let addresses: Vec<Vec<String>> =
        ports.iter().map(|port| vec![format!("/ip4/127.0.0.1/tcp/{port}")]).collect();
    let family = spec.split(':').next().unwrap();
    let text = file(family, &keys, &addresses);
    let topology = Topology::from_text(&text, FileFormat::Toml, family).unwrap();
    let builder = |(key, addresses): (Keypair, Vec<String>)| {
        NodeBuilder::new(key, topology.clone(), experiment.clone())
            .listen(&addresses[0])
            .initial(initial())
    };
    keys.into_iter().zip(addresses).map(builder).collect()
}

/// Models of the same run in the simulator.
fn simulated(experiment: &Experiment) -> Vec<Vec<f32>> {
    bowl::simulated(experiment, &initial(), (0..NODES).map(bowl))
}

/// Local training by the program: one step of SGD a round, as the experiment's optimizer makes it.
fn train(exchange: &mut Exchange, objective: &mut Bowl, rounds: u64) -> Result<(), EndError> {
    while exchange.is_open() && exchange.rounds() < rounds {
        let (x, update) = exchange.parts();
        let loss = objective.gradient(x, Batch::All, update);
        update.iter_mut().for_each(|u| *u *= 0.1);
        exchange.round_blocking(Step { loss, size: 0.1 })?;
    }
    Ok(())
}

/// Runs `each` for every node, on threads of their own.
fn all<T: Send>(
    builders: Vec<NodeBuilder>,
    each: impl Fn(usize, NodeBuilder) -> T + Sync,
) -> Vec<T> {
    let each = &each;
    thread::scope(|scope| {
        let threads: Vec<_> = builders
            .into_iter()
            .enumerate()
            .map(|(i, builder)| scope.spawn(move || each(i, builder)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn connect(builder: NodeBuilder) -> Result<Exchange, EndError> {
    builder.connect_blocking(bowl(0).tensors, 3)
}

#[test]
fn an_objective_of_ones_own_ends_with_the_simulators_bits_and_leaves_a_run_directory() {
    let experiment = experiment(CHOCO);
    let folder = tempfile::tempdir().unwrap();
    let results = all(builders(&experiment), |i, builder| {
        let mut node = builder
            .objective(bowl(i))
            .evaluate(|x| BTreeMap::from([("first".into(), f64::from(x[0]))]))
            .out(folder.path().join(format!("n{i}")))
            .spawn_blocking()
            .unwrap();
        let (mut linked, mut rounds, mut evaluations) = (0, 0, 0);
        // The losses since the last evaluation, and its record of their mean.
        let (mut losses, mut recorded) = (Vec::new(), None);
        while let Some(event) = node.next_blocking() {
            match event {
                Event::Linked { .. } => linked += 1,
                Event::Round { rounds: done, loss, mean_loss, .. } => {
                    rounds = done;
                    losses.push(loss);
                    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
                    assert_eq!(mean_loss, mean);
                    if let Some(recorded) = recorded.take() {
                        assert_eq!((recorded, losses.len()), (mean, 10), "not the last batch");
                        assert!(losses[0] > losses[9], "losses differ");
                        losses.clear();
                    }
                }
                Event::Evaluation(metric) => {
                    recorded = metric.train_loss;
                    assert_eq!(metric.measures.len(), 1);
                    evaluations += 1;
                }
                _ => {}
            }
        }
        assert_eq!((linked, rounds, evaluations), (2, 30, 3));
        node.join_blocking().unwrap()
    });
    let models = simulated(&experiment);
    for (i, result) in results.iter().enumerate() {
        assert_eq!(result.model, models[i], "node {i}");
        assert_eq!(result.summary, results[0].summary);
        let measure = result.summary.outcome.measures["first"];
        assert_eq!(measure.of_mean, f64::from(result.mean[0]));
        assert!(measure.min <= measure.mean && measure.mean <= measure.max);

        let run = folder.path().join(format!("n{i}"));
        let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), 3);
        assert!(lines.contains("\"measures\":{\"first\":"), "{lines}");
        for file in ["experiment.toml", "topology.toml", "summary.json"] {
            assert!(run.join(file).is_file(), "{file}");
        }
        let bytes = fs::read(run.join("model-mean.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(file.tensor("a").unwrap().shape(), [100, 5]);
        let saved = gradvine::learn::read_tensors(
            &run.join(format!("model-n{i}.safetensors")),
            &bowl(i).tensors,
        );
        assert_eq!(digest::of_model(&saved.unwrap()), digest::of_model(&result.model));
    }
}

#[test]
fn a_training_loop_of_ones_own_ends_with_the_same_bits() {
    for rule in
        [CHOCO, "rule.kind = 'gradient-tracking'", "rule.kind = 'd-psgd'\nrule.order = 'cta'"]
    {
        let experiment = experiment(rule);
        let models = simulated(&experiment);
        let results = all(builders(&experiment), |i, builder| {
            let mut exchange = connect(builder).unwrap();
            assert_eq!(exchange.model(), initial());
            train(&mut exchange, &mut bowl(i), u64::MAX).unwrap();
            assert_eq!(exchange.rounds(), 30);
            assert!(exchange.round_blocking(Step { loss: 0.0, size: 1.0 }).is_err());
            exchange.finish_blocking().unwrap()
        });
        for (result, model) in results.iter().zip(&models) {
            assert_eq!(&result.model, model, "{rule}");
            assert_eq!(result.summary, results[0].summary);
            assert_eq!(result.summary.outcome.train_loss, None);
        }
    }
}

#[test]
fn a_loop_that_ends_early_ends_all_nodes_after_the_same_round() {
    let experiment = experiment(CHOCO);
    let results = all(builders(&experiment), |i, builder| {
        let mut exchange = connect(builder).unwrap();
        train(&mut exchange, &mut bowl(i), if i == 2 { 5 } else { u64::MAX }).unwrap();
        exchange.finish_blocking().unwrap()
    });
    // It asks in round 5; the farthest node of the ring is two links away.
    assert!(results.iter().all(|result| result.summary.rounds == 9));
    assert!(results.iter().all(|result| result.mean == results[0].mean));
}

#[test]
fn rules_that_move_a_common_model_end_early_too() {
    for (rule, compressor, topology) in
        [("sign-sgd", "identity", "complete:4"), ("double-squeeze", "sign", "star:4")]
    {
        let rules = format!("rule.kind = '{rule}'\ncompressor.kind = '{compressor}'");
        let experiment = experiment(&rules);
        let results = all(builders_on(topology, &experiment), |i, builder| {
            let mut exchange = connect(builder).unwrap();
            train(&mut exchange, &mut bowl(i), if i == 2 { 3 } else { u64::MAX }).unwrap();
            exchange.finish_blocking().unwrap()
        });
        for result in &results {
            assert!(result.summary.rounds < 30, "{rule}: {}", result.summary.rounds);
            assert_eq!(result.model, results[0].model, "{rule}");
            assert_eq!(result.summary, results[0].summary, "{rule}");
        }
    }
}

#[test]
fn a_round_whose_future_is_dropped_goes_on() {
    let experiment = experiment(CHOCO);
    let results = all(builders(&experiment), |i, builder| {
        let mut exchange = connect(builder).unwrap();
        let step = |loss| Step { loss, size: 0.1 };
        while exchange.is_open() {
            let (x, update) = exchange.parts();
            let loss = bowl(i).gradient(x, Batch::All, update);
            update.iter_mut().for_each(|u| *u *= 0.1);
            // Polled once, then dropped: the update is on its way.
            if futures::FutureExt::now_or_never(exchange.round(step(loss))).is_none() {
                assert!(exchange.is_open() && exchange.model().is_empty());
                // This step is not applied: the node has an update already.
                exchange.round_blocking(step(f64::NAN)).unwrap();
            }
        }
        exchange.finish_blocking().unwrap().model
    });
    assert_eq!(results, simulated(&experiment));
}

#[test]
fn steps_without_a_finite_size_are_refused_and_change_nothing() {
    let experiment = experiment(CHOCO);
    let models = all(builders(&experiment), |i, builder| {
        let mut exchange = connect(builder).unwrap();
        for size in [f32::NAN, f32::INFINITY, -0.1] {
            let error = exchange.round_blocking(Step { loss: 0.0, size }).unwrap_err();
            assert!(error.to_string().contains("Step::size"), "{error}");
        }
        train(&mut exchange, &mut bowl(i), u64::MAX).unwrap();
        exchange.finish_blocking().unwrap().model
    });
    assert_eq!(models, simulated(&experiment));
}

/// A bowl that panics in its third gradient, or in an evaluation of its loss.
struct Panicking {
    bowl: Bowl,
    gradients: u64,
}

impl Objective for Panicking {
    fn tensors(&self) -> &[Tensor] {
        self.bowl.tensors()
    }

    fn rows(&self) -> usize {
        self.bowl.rows()
    }

    fn gradient(&mut self, x: &[f32], batch: Batch<'_>, out: &mut [f32]) -> f64 {
        self.gradients += 1;
        assert!(self.gradients < 3, "the disk is gone");
        self.bowl.gradient(x, batch, out)
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        self.bowl.loss(x)
    }
}

#[test]
fn a_panic_of_the_program_ends_the_run_at_once_and_saves_the_model() {
    // In a gradient in place, in one beside the core, and in an evaluation.
    for (rule, evaluation) in [(CHOCO, false), ("rule.kind = 'd-psgd'", false), (CHOCO, true)] {
        let experiment = experiment(rule);
        let folder = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let ends = all(builders(&experiment), |i, builder| {
            let out = folder.path().join(format!("n{i}"));
            let builder = builder.out(out);
            let node = match i {
                1 if evaluation => {
                    builder.objective(bowl(1)).evaluate(|_| panic!("the disk is gone")).start()
                }
                1 => builder.objective(Panicking { bowl: bowl(1), gradients: 0 }).start(),
                _ => builder.objective(bowl(i)).start(),
            };
            node.join_blocking().unwrap_err().to_string()
        });
        for (i, end) in ends.iter().enumerate().filter(|(i, _)| *i != 1 || !evaluation) {
            assert!(end.contains("the program panicked: the disk is gone"), "node {i}: {end}");
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no deadline was waited for");
        for i in 0..NODES {
            let model = folder.path().join(format!("n{i}/model-n{i}.safetensors"));
            assert!(model.is_file(), "node {i}, {rule}, {evaluation}");
        }
    }
}

#[test]
fn one_node_gives_its_model_to_all() {
    let experiment = experiment(&format!("{CHOCO}\nmodel.init = 'from:n2'"));
    let models = all(builders(&experiment), |i, builder| {
        let builder = if i == 2 { builder } else { builder.initial(vec![7.0; D]) };
        let mut exchange = connect(builder).unwrap();
        assert_eq!(exchange.model(), initial(), "node {i} starts from the model of n2");
        train(&mut exchange, &mut bowl(i), u64::MAX).unwrap();
        exchange.finish_blocking().unwrap().model
    });
    assert_eq!(models, simulated(&self::experiment(CHOCO)));
}

/// The values that a node gives have the digest that the run names, or its neighbours refuse them.
#[test]
fn a_model_with_another_digest_is_refused() {
    let digest = digest::of_model(&initial());
    let text = format!("{CHOCO}\nmodel.init = 'from:n2'\nmodel.init_digest = '{digest}'");
    let experiment = experiment(&text);
    let models = all(builders(&experiment), |_, builder| {
        let mut exchange = connect(builder).unwrap();
        let model = exchange.model().to_vec();
        train(&mut exchange, &mut bowl(0), u64::MAX).unwrap();
        exchange.finish_blocking().unwrap();
        model
    });
    assert_eq!(models, vec![initial(); NODES]);
    let errors = all(builders(&experiment), |i, builder| {
        let builder = if i == 2 { builder.initial(vec![7.0; D]) } else { builder };
        connect(builder).map(drop).unwrap_err().to_string()
    });
    let named = "the initial model, exchange 0: malformed payload: \
                 the model of node 2: its SHA-256 is ";
    assert!(errors.iter().any(|error| error.contains(named)), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains(&digest)), "{errors:?}");
}

#[test]
fn a_failing_loop_sends_its_reason_to_all_nodes() {
    let experiment = experiment(CHOCO);
    let ends: Vec<EndError> = all(builders(&experiment), |i, builder| {
        let mut exchange = connect(builder).unwrap();
        if i == 1 {
            train(&mut exchange, &mut bowl(i), 7).unwrap();
            return futures::executor::block_on(exchange.fail("the camera is gone"));
        }
        let ended = train(&mut exchange, &mut bowl(i), u64::MAX);
        ended.expect_err("node 1 has failed")
    });
    for (i, end) in ends.iter().enumerate() {
        let reason = "the gradient of round 7 could not be computed: the camera is gone";
        let ending = end.ending().unwrap();
        assert!(ending.text.contains(reason), "node {i}: {end}");
        assert_eq!(ending.node.as_deref(), Some("n1"), "node {i}: {end}");
        // The neighbours may be a round apart.
        assert!(ending.rounds.is_some_and(|rounds| (5..=9).contains(&rounds)), "{ending:?}");
    }
}

#[test]
fn a_node_that_is_stopped_or_dropped_leaves_nothing_running() {
    let experiment = experiment("rule.kind = 'd-psgd'\nrun.rounds = 100000000");
    let folder = tempfile::tempdir().unwrap();
    let mut nodes: Vec<Node> = all(builders(&experiment), |i, builder| {
        let out = folder.path().join(format!("n{i}"));
        builder.objective(bowl(i)).out(out).spawn_blocking().unwrap()
    });
    while !matches!(nodes[0].next_blocking(), Some(Event::Round { rounds: 3.., .. })) {}
    drop(nodes.pop());
    let stopped = nodes.pop().unwrap();
    stopped.stop();
    let ends: Vec<EndError> =
        nodes.into_iter().chain([stopped]).map(|node| node.join_blocking().unwrap_err()).collect();
    for (i, end) in ends.iter().enumerate() {
        assert!(matches!(end, EndError::Failed(_) | EndError::Interrupted(_)), "{end}");
        let ending = end.ending().unwrap();
        assert_eq!(ending.folder, Some(folder.path().join(format!("n{i}"))), "{ending:?}");
        // Node 0 has done 3 rounds; the farthest node is two links away.
        assert!(ending.rounds.is_some_and(|rounds| rounds >= 1), "{ending:?}");
    }
    // The node that was dropped saves its model, too, and ends.
    let left = folder.path().join("n3/summary.json");
    until("the dropped node ends", || left.is_file());
    for i in 0..NODES {
        assert!(folder.path().join(format!("n{i}/model-n{i}.safetensors")).is_file(), "node {i}");
    }
}

#[test]
fn nodes_with_different_tensors_refuse_each_other_and_name_the_difference() {
    let experiment = experiment("rule.kind = 'd-psgd'");
    let ends = all(builders(&experiment), |i, builder| {
        let mut mine = bowl(i);
        if i == 0 {
            mine.tensors[0] = Tensor::new("a", &[5, 100]);
        }
        builder.objective(mine).start()
    });
    let mut nodes = ends.into_iter();
    let EndError::Setup(error) = nodes.next().unwrap().join_blocking().unwrap_err() else {
        panic!("node 0 differs from all its neighbours")
    };
    let text = error.to_string();
    assert!(text.contains("model.tensor.a"), "{text}");
    assert!(text.contains("[5, 100]") && text.contains("[100, 5]"), "{text}");
}

#[test]
fn nodes_run_within_a_runtime_of_the_programs_own() {
    let experiment = experiment(CHOCO);
    let models = simulated(&experiment);
    let runtimes = [
        tokio::runtime::Builder::new_current_thread().build().unwrap(),
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap(),
    ];
    for runtime in runtimes {
        let results: Vec<NodeResult> = runtime.block_on(async {
            let start = |(i, builder): (usize, NodeBuilder)| builder.objective(bowl(i)).spawn();
            let nodes = futures::future::try_join_all(
                builders(&experiment).into_iter().enumerate().map(start),
            );
            let joined = nodes.await.unwrap().into_iter().map(Node::join);
            futures::future::try_join_all(joined).await.unwrap()
        });
        assert!(results.iter().zip(&models).all(|(result, model)| result.model == *model));
    }
}

#[test]
fn impossible_embeddings_are_refused_with_the_reason() {
    let wrong = |builder: NodeBuilder| match builder.prepare() {
        Ok(_) => panic!("it was accepted"),
        Err(error) => error.to_string(),
    };
    let first = |more: &str| builders(&experiment(more)).swap_remove(0);
    let error = wrong(first("rule.kind = 'd-psgd'"));
    assert!(error.contains("model.inputs"), "{error}");
    let error = wrong(first("rule.kind = 'd-psgd'").objective(bowl(0)).initial(vec![0.0; 3]));
    assert!(error.contains("the tensors hold 700 numbers"), "{error}");
    let error = wrong(first("rule.kind = 'd-psgd'").objective(bowl(0)).initial(vec![f32::NAN; D]));
    assert!(error.contains("initial[0] = NaN"), "{error}");
    let mut twice = bowl(0);
    twice.tensors[1].name = "a".into();
    let error = wrong(first("rule.kind = 'd-psgd'").objective(twice));
    assert!(error.contains("\"a\"") && error.contains("each once"), "{error}");
}

#[test]
#[ignore = "slow"]
fn values_that_a_program_agrees_on_are_compared() {
    let experiment = experiment(CHOCO);
    let ends: Vec<EndError> = all(builders(&experiment), |i, builder| {
        let builder = builder.agree("tokenizer", if i == 3 { "v2" } else { "v1" });
        connect(builder).unwrap_err()
    });
    let named = ends.iter().filter(|end| {
        let text = end.to_string();
        text.contains("model.tokenizer") && text.contains("v1") && text.contains("v2")
    });
    // The others hear of it from their neighbours.
    assert!(named.count() >= 2, "{ends:?}");
    for (key, value) in [("", "1"), ("a b", "1"), ("a=b", "1"), ("a", "1\n2")] {
        let builder = builders(&experiment).remove(0).agree(key, value);
        let error = connect(builder).unwrap_err().to_string();
        assert!(error.contains("expected a key without spaces"), "{error}");
    }
    let twice = builders(&experiment).remove(0).agree("a", "1").agree("a", "2");
    assert!(connect(twice).unwrap_err().to_string().contains("each key once"));
}

#[test]
fn a_program_measures_the_own_model_and_the_mean_when_it_finishes() {
    let experiment = experiment(CHOCO);
    let results = all(builders(&experiment), |i, builder| {
        let mut exchange = connect(builder).unwrap();
        train(&mut exchange, &mut bowl(i), u64::MAX).unwrap();
        assert!(!exchange.is_open());
        let mut models = Vec::new();
        let mut measure = |x: &[f32]| {
            models.push(x.to_vec());
            BTreeMap::from([("calls".to_string(), models.len() as f64)])
        };
        // A future that is dropped loses nothing.
        let first = futures::FutureExt::now_or_never(exchange.finish_with(&mut measure));
        assert!(first.is_none(), "the mean is not formed without the other nodes");
        let result = futures::executor::block_on(exchange.finish_with(&mut measure)).unwrap();
        assert_eq!(models, [result.model.clone(), result.mean.clone()]);
        result
    });
    for result in &results {
        let calls = &result.summary.outcome.measures["calls"];
        assert_eq!((calls.mean, calls.of_mean), (1.0, 2.0));
        assert_eq!(result.summary, results[0].summary);
    }
}

#[test]
fn vectors_can_be_taken_and_put_back() {
    let experiment = experiment(CHOCO);
    let models = all(builders(&experiment), |i, builder| {
        let mut exchange = connect(builder).unwrap();
        let mut kept = Vec::new();
        while let Some((x, update)) = exchange.buffers() {
            // An owner of the model that stays.
            kept.push(std::sync::Arc::clone(x));
            let mut taken = std::mem::take(update);
            let loss = bowl(i).gradient(&kept[kept.len() - 1], Batch::All, &mut taken);
            taken.iter_mut().for_each(|u| *u *= 0.1);
            let error = exchange.round_blocking(Step { loss, size: 0.1 }).unwrap_err();
            assert!(error.to_string().contains("update.length = 0: expected 700"), "{error}");
            *exchange.buffers().unwrap().1 = taken;
            exchange.round_blocking(Step { loss, size: 0.1 }).unwrap();
        }
        assert_eq!(*kept[0], initial());
        exchange.finish_blocking().unwrap().model
    });
    assert_eq!(models, simulated(&experiment));
}
