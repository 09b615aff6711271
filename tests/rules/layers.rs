//! Layers leave one by one while the gradient of those before them is computed, and nothing but
//! time is different.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use common::{
    Run, difference,
    driver::{Driven, sent},
    widen,
};
use gradvine::{
    data::{Dataset, Target},
    drive::{self, Conclusion, Learner, RunError},
    gossip::{Effect, Failure, Input},
    learn::{
        BLOCK_ROWS, Batch, BatchSize, Model, ModelParams, Objective, Optimizer, OptimizerParams,
        Ready, ScheduleKind, Tensor,
    },
    rng::{Purpose, Stream},
    units::{NodeId, Round},
};
use ndarray::Array2;

const IDENTITY: &str = "kind = 'identity'";

/// An objective that tells of its gradient when it is whole, whatever it knows before; or, a bug,
/// of its last layer once the first block of rows is in.
struct Announced {
    of: Box<dyn Objective>,
    too_early: bool,
}

impl Objective for Announced {
    fn tensors(&self) -> &[Tensor] {
        self.of.tensors()
    }

    fn rows(&self) -> usize {
        self.of.rows()
    }

    fn gradient(&mut self, x: &[f32], batch: Batch<'_>, out: &mut [f32]) -> f64 {
        self.of.gradient(x, batch, out)
    }

    fn gradient_by_parts(
        &mut self,
        x: &[f32],
        batch: Batch<'_>,
        out: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        let mut end = out.len();
        if self.too_early {
            let last = end - self.tensors()[self.tensors().len() - 1].len();
            self.of.gradient(x, Batch::Rows(&[0]), out);
            ready(last..end, out);
            end = last;
        }
        let loss = self.of.gradient(x, batch, out);
        ready(0..end, out);
        loss
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        self.of.loss(x)
    }
}

const INPUTS: usize = 5;
const CLASSES: usize = 3;
const ROWS: usize = 2 * BLOCK_ROWS + 44;

fn objective(kind: &str, bias: bool) -> (Box<dyn Objective>, Vec<f32>) {
    let mut dice = Stream::new(8, Purpose::Test).sequence();
    let features = Array2::from_shape_simple_fn((ROWS, INPUTS), || dice.normal() as f32);
    let target = if kind == "least-squares" {
        Target::Values(Array2::from_shape_simple_fn((ROWS, CLASSES), || dice.normal() as f32))
    } else {
        let labels = (0..ROWS).map(|_| dice.below(CLASSES as u64) as u32).collect();
        Target::Classes { labels, names: (0..CLASSES).map(|c| c.to_string()).collect() }
    };
    let data = Arc::new(Dataset::new("generated", features, target).unwrap());
    let hidden = (kind == "mlp").then(|| vec![7, 6, 4]);
    let params = ModelParams { kind: kind.into(), hidden, bias, ..ModelParams::default() };
    let model = Model::resolve(&params, Some(INPUTS), Some(CLASSES)).unwrap();
    let x = (0..model.parameters()).map(|_| 0.5 * dice.normal() as f32).collect();
    (model.objective(data).unwrap(), x)
}

/// What an update of each of four rounds is, and the ranges in which it was told of, each with what
/// it held at that moment.
type Told = (Vec<f32>, f64, Vec<(Range<usize>, Vec<f32>)>);

fn updates(params: &OptimizerParams, mut objective: Box<dyn Objective>, x: &[f32]) -> Vec<Told> {
    let mut optimizer = Optimizer::new(params.check(4).unwrap(), 1, NodeId(0), ROWS, x.len());
    let mut x = x.to_vec();
    let one = |round| {
        let (mut update, mut told) = (vec![f32::NAN; x.len()], Vec::new());
        let mut ready = |range: Range<usize>, update: &mut [f32]| {
            told.push((range.clone(), update[range].to_vec()));
        };
        let loss =
            optimizer.update_by_parts(Round(round), &x, &mut *objective, &mut update, &mut ready);
        x.iter_mut().zip(&update).for_each(|(x, update)| *x -= update);
        (update, loss, told)
    };
    (0..4).map(one).collect()
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|x| x.to_bits()).collect()
}

/// Whether every range was final when it was told of, and together they are the vector from its end
/// to its beginning.
fn is_final((update, _, told): &Told) -> bool {
    let mut end = update.len();
    let mut in_order = |range: &Range<usize>| std::mem::replace(&mut end, range.start) == range.end;
    told.iter().all(|(range, then)| in_order(range) && bits(then) == bits(&update[range.clone()]))
        && end == 0
}

/// Every combination of what an optimizer can be set to.
fn settings() -> Vec<OptimizerParams> {
    let mut all = Vec::new();
    for batch in [BatchSize::Rows(3), BatchSize::Rows(BLOCK_ROWS as u32 + 9), BatchSize::Full] {
        for (momentum, weight_decay) in [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1)] {
            for local_steps in [1, 3] {
                for schedule in [ScheduleKind::Constant, ScheduleKind::Cosine, ScheduleKind::Step] {
                    let step = 0.3;
                    let base = OptimizerParams {
                        batch,
                        momentum,
                        weight_decay,
                        step,
                        ..OptimizerParams::default()
                    };
                    all.push(OptimizerParams { local_steps, schedule, warmup: 1, ..base });
                }
            }
        }
    }
    all
}

#[test]
fn an_update_by_parts_has_the_bits_of_the_whole_and_each_part_is_final_when_it_is_told_of() {
    for (kind, bias, layers) in
        [("mlp", true, 4), ("mlp", false, 4), ("softmax", true, 1), ("least-squares", true, 1)]
    {
        let make = || objective(kind, bias);
        for params in settings() {
            let x = make().1;
            let whole =
                updates(&params, Box::new(Announced { of: make().0, too_early: false }), &x);
            let parts = updates(&params, make().0, &x);
            for (whole, parts) in whole.iter().zip(&parts) {
                assert_eq!(bits(&whole.0), bits(&parts.0), "{kind} {params:?}");
                assert_eq!(whole.1.to_bits(), parts.1.to_bits(), "{kind} {params:?}");
                assert_eq!((whole.2.len(), parts.2.len()), (1, layers), "{kind} {params:?}");
                assert!(is_final(whole) && is_final(parts), "{kind} {params:?}");
            }
        }
    }
}

#[test]
fn what_is_told_of_too_early_is_seen() {
    for params in settings() {
        let (early, x) = objective("mlp", true);
        let told = updates(&params, Box::new(Announced { of: early, too_early: true }), &x);
        let whole = updates(&params, objective("mlp", true).0, &x);
        // With several local steps it is final, and wrong.
        let wrong =
            |(told, whole): (&Told, &Told)| !is_final(told) || bits(&told.0) != bits(&whole.0);
        assert!(told.iter().zip(&whole).all(wrong), "{params:?}");
    }
}

#[test]
fn layers_change_no_bit_by_server_and_all_to_all_and_rounding_by_rings() {
    for (topology, collective, same) in [
        ("star:6", "collective = 'server'", true),
        ("complete:7", "collective = 'all-to-all'", true),
        ("complete:1", "collective = 'server'", true),
        ("complete:2", "collective = 'ring'", true), // two terms have one order
        ("ring:5", "collective = 'ring'", false),
        ("complete:8", "collective = 'ring'", false),
        ("complete:6", "collective = 'hybrid'\ngroup = 3", false),
    ] {
        for d in [40, 43, 3] {
            let ended = |layers: bool| {
                let mut run = Run::new(
                    topology,
                    &format!("kind = 'c-sgd'\n{collective}\nlayers = {layers}"),
                    IDENTITY,
                );
                run.d = d;
                run.ended().unwrap()
            };
            let (whole, layers) = (ended(false), ended(true));
            let models = |of: &[drive::Ended]| {
                of.iter().map(|ended| ended.model.clone()).collect::<Vec<_>>()
            };
            let (a, b) = (models(&whole), models(&layers));
            assert!(b.iter().all(|model| *model == b[0]), "{collective}: nodes differ");
            assert!(a == b || !same, "{collective} on {topology} with d = {d}");
            assert!(difference(&widen(&a), &b) < 1e-5, "{collective} on {topology} with d = {d}");
            let sent =
                |of: &[drive::Ended]| of.iter().map(|ended| ended.traffic.payload).sum::<u64>();
            assert_eq!(
                sent(&whole),
                sent(&layers),
                "{collective} on {topology}: as many numbers are sent"
            );
        }
    }
}

/// The inputs that answer the first request for a gradient, and how many frames leave upon each.
fn leaving(rule: &str) -> Vec<(&'static str, usize)> {
    let mut node = Driven::new(Run::new("complete:3", rule, IDENTITY).specs().swap_remove(1));
    let mut effects = node.give(Input::Start);
    assert_eq!(effects.len(), 1, "{effects:?}");
    let request = effects.remove(0);
    if let Effect::Compute { parts, overlaps, .. } = &request {
        assert_eq!(*overlaps, !parts.is_empty());
    }
    let replies = node.computed(request);
    let one = |input: Input| {
        let name = if matches!(input, Input::Part { .. }) { "part" } else { "computed" };
        let frames = sent(&node.give(input));
        // The wire is fast: both slots of every link are free again before the next layer.
        for (to, _) in &frames {
            node.give(Input::Taken(*to));
        }
        (name, frames.len())
    };
    replies.into_iter().map(one).collect()
}

#[test]
fn the_last_layers_frame_leaves_before_the_gradient_is_whole() {
    let by_layers = [("part", 1), ("part", 1), ("part", 0), ("computed", 1)];
    assert_eq!(leaving("kind = 'c-sgd'\ncollective = 'ring'\nlayers = true"), by_layers);
    // The control: without layers nothing leaves before.
    assert_eq!(leaving("kind = 'c-sgd'\ncollective = 'ring'"), [("computed", 1)]);
}

#[test]
fn a_node_that_computes_takes_what_others_send_and_can_be_stopped() {
    let rule = "kind = 'c-sgd'\ncollective = 'ring'\nlayers = true";
    let specs = Run::new("complete:2", rule, IDENTITY).specs();
    let mut nodes: Vec<Driven> = specs.into_iter().map(Driven::new).collect();
    let give = |node: &mut Driven, input: Input| {
        let effects = node.give(input);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Failed(_))), "{effects:?}");
        effects
    };
    let mut answers: Vec<VecDeque<Input>> = Vec::new();
    for node in &mut nodes {
        let request = give(node, Input::Start).pop().unwrap();
        answers.push(node.computed(request));
    }
    let mut next = |node: usize| answers[node].pop_front().unwrap();
    // Node 0 sends two layers while node 1 has nothing: both are read, though neither is due.
    let frames: Vec<_> = (0..2).flat_map(|_| sent(&give(&mut nodes[0], next(0)))).collect();
    assert_eq!(frames.len(), 2);
    let node = &mut nodes[1];
    for (_, bytes) in frames {
        let effects = give(node, Input::Frame { from: NodeId(0), bytes });
        assert!(
            matches!(effects[..], [Effect::Recycle { .. }]),
            "the link may deliver its next frame: {effects:?}"
        );
    }
    assert_eq!(node.node.waiting_for(), None);
    give(node, Input::StopAfter(Round(0)));
    let mut sends = |input: Input| sent(&give(node, input)).len();
    // Both exchanges of its flight: what the first one waits for is here.
    assert_eq!(sends(next(1)), 2);
    assert_eq!((sends(Input::Taken(NodeId(0))), sends(Input::Taken(NodeId(0)))), (0, 0));
    assert_eq!(sends(next(1)), 2);
    // The last part and the whole: the slots are taken by the layer before.
    assert_eq!((sends(next(1)), sends(next(1))), (0, 0));
    assert_eq!(sends(Input::Taken(NodeId(0))), 1);
    let (at, peers) = node.node.waiting_for().unwrap();
    assert_eq!((at.flight, at.exchange, peers), (0, 1, vec![NodeId(0)]));
}

#[test]
fn a_model_that_differs_is_found_though_it_is_lent_while_layers_leave() {
    for collective in ["ring", "server", "all-to-all"] {
        let mut run = Run::new(
            "complete:4",
            &format!("kind = 'c-sgd'\nlayers = true\ncollective = '{collective}'"),
            IDENTITY,
        );
        run.same_start = false;
        let Err(RunError::Failed { failure, .. }) = run.ended() else {
            panic!("{collective}: it was not found")
        };
        assert!(matches!(failure, Failure::Replica { .. }), "{failure}");
    }
}

#[test]
fn a_number_that_is_not_finite_is_named_by_its_place_in_the_model() {
    /// Its update is infinite at one place.
    struct Diverging;
    impl Learner for Diverging {
        fn compute(&mut self, _round: Round, _x: &[f32], update: &mut [f32]) -> f64 {
            update.fill(0.5);
            update[10] = f32::INFINITY;
            0.0
        }

        fn step(&self, _round: Round) -> f32 {
            1.0
        }

        fn conclude(&mut self, _conclusion: &Conclusion<'_>) -> Vec<u8> {
            Vec::new()
        }
    }
    let mut specs = Run::new("ring:3", "kind = 'c-sgd'\nlayers = true", IDENTITY).specs();
    specs.iter_mut().for_each(|spec| spec.learner = Box::new(Diverging));
    let Err(RunError::Failed { failure, .. }) = gradvine::sim::run(specs, &mut drive::NoopObserver)
    else {
        panic!("it ran")
    };
    assert!(matches!(failure, Failure::Diverged { index: 10, .. }), "{failure}");
}

#[test]
fn one_layer_is_warned_of() {
    let rule = "kind = 'c-sgd'\nlayers = true";
    assert!(Run::new("ring:4", rule, IDENTITY).prepare().warnings.is_empty());
    let mut one = Run::new("ring:4", rule, IDENTITY);
    one.d = 8;
    assert!(one.prepare().warnings[0].contains("one layer"));
}
