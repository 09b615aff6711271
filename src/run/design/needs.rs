//! A lower bound of a run's memory, from its plan and its rule's state, checked before anything is
//! allocated.
//!
//! In bytes beside what the process holds at that time: vectors of the rules, the optimizers and an
//! evaluation, frames in flight, scaled copies of the rows, records that go over the tree. It
//! leaves out intermediate results of a batch, buffers of sockets and tables, which are small
//! compared with these if a model is large. So it never refuses a run that would fit.

use std::sync::Arc;

use super::stop_early;
use crate::{
    compress::{self, Size},
    config::ConfigError,
    data::Dataset,
    gossip::{
        plan::{self, At, Meeting},
        rule::{self, Setting},
    },
    memory,
    mixing::Schedule,
    run::{
        Design, Whole,
        shards::opening::{Opening, withstands},
    },
    units::{NodeId, Round},
};

/// The model length at which rules are created to count their vectors.
const SHORT: usize = 1024;

/// Bytes per number of a model.
const FLOAT: u64 = 4;

/// The memory of a process before its node allocates anything: measured at 13 MB, rounded down.
const PROCESS: u64 = 10_000_000;

/// Address space for what is left out here: no allocation can be refused later.
const SMALL: u64 = 16 << 20;

/// The remedy if a run is too large for this machine.
const SMALLER: &str = "take a smaller model, a rule that keeps less (gradvine rules --parameters \
                       D), or a \
     machine with more; --no-space-check starts nevertheless";

/// Checks that a model with this many parameters, its gradient and one copy fit into memory.
pub(crate) fn one_copy(parameters: usize) -> Result<(), ConfigError> {
    let need = (parameters as u64).saturating_mul(3 * FLOAT);
    let value = format!("{parameters} parameters");
    memory::require(need, "model", &value, "a model with its gradient and one copy", SMALLER)
}

/// The memory of a run, compared with the free memory at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Vectors of rules and optimizers, and the models of an evaluation.
    pub vectors: u64,
    /// Frames that are sent or received.
    pub frames: u64,
    /// Scaled rows and setup records.
    pub data: u64,
}

impl Needs {
    /// The memory of a run with all nodes in this process.
    pub fn together(whole: &Whole) -> Needs {
        let design = &whole.design;
        let (nodes, vector) = (design.topology.nodes() as u64, vector(design));
        let rules = all_vectors(design).saturating_add(own_vectors(design).saturating_mul(nodes));
        // Between rounds [`Watch`](crate::run::Watch) holds a copy of every model, and their mean.
        let run = &design.experiment.run;
        let seen = if run.evaluate_every < run.rounds { nodes + 1 } else { 0 };
        // At the end every node has its model, the sum of a subtree in doubles and the mean; the
        // frame with the sum is as long as the sum.
        let rounds = rules.saturating_add(seen).saturating_mul(vector);
        let end = (4 * nodes).saturating_add(2 * (nodes - 1)).saturating_mul(vector);
        let kept = whole.shards.iter().filter_map(|shard| shard.validation());
        let rows = whole.shards.iter().chain(whole.tests.all()).map(|shared| shared.raw());
        let rows = rows.chain(kept).map(|rows| scaled(design, rows));
        Needs {
            vectors: rounds.max(end),
            frames: frames(design, (0..design.topology.nodes()).map(NodeId::from)),
            data: rows.fold(setup(design), u64::saturating_add),
        }
    }

    /// The memory of a process with one node; `rows` are its training rows, with those that it will
    /// keep for validation, and its test rows.
    pub(crate) fn alone<'a>(
        design: &Design,
        node: NodeId,
        rows: impl Iterator<Item = &'a Dataset>,
    ) -> Needs {
        let vectors = vectors_of(design, node).unwrap_or(LEAST).saturating_add(own_vectors(design));
        Needs {
            vectors: vectors.max(at_end(design)).saturating_mul(vector(design)),
            frames: frames(design, [node].into_iter()),
            data: rows.map(|rows| divided(design, rows)).fold(setup(design), u64::saturating_add),
        }
    }

    /// The memory of one process per node, all on this machine.
    pub fn processes(whole: &Whole) -> Needs {
        let all = Needs::together(whole);
        let design = &whole.design;
        let nodes = design.topology.nodes() as u64;
        // Each process has its own initial model.
        let initial = vector(design).saturating_mul(nodes);
        let end = at_end(design).saturating_mul(initial);
        let records = setup(design).saturating_mul(nodes - 1);
        Needs {
            vectors: all.vectors.max(end).saturating_add(initial),
            data: all.data.saturating_add(PROCESS.saturating_mul(nodes)).saturating_add(records),
            ..all
        }
    }

    /// The memory of a plan that measures gradients of every node's rows.
    pub fn plan(whole: &Whole) -> Needs {
        let vectors = (whole.shards.len() as u64).saturating_add(4);
        let rows = whole.shards.iter().map(|shared| scaled(&whole.design, shared.raw()));
        Needs {
            vectors: vectors.saturating_mul(vector(&whole.design)),
            frames: 0,
            data: rows.fold(0, u64::saturating_add),
        }
    }

    /// The sum of all parts, in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.vectors.saturating_add(self.frames).saturating_add(self.data)
    }

    /// Checks that the memory is free. `what` names the command, and `remedy` the alternatives.
    ///
    /// # Errors
    /// If it is not; the error has both figures.
    pub fn check(&self, design: &Design, what: &str, remedy: &str) -> Result<(), ConfigError> {
        let value = format!("{} parameters", design.parameters());
        let remedy = format!("{remedy}{SMALLER}");
        memory::require(self.total(), "model", &value, what, &remedy)?;
        memory::require_address_space(self.total().saturating_add(SMALL), what, "")
    }

    /// [`Needs::check`] for a run with all nodes on this machine.
    ///
    /// # Errors
    /// As [`Needs::check`].
    pub fn check_run(&self, design: &Design) -> Result<(), ConfigError> {
        let what = format!("a run of {} nodes on one machine", design.topology.nodes());
        self.check(
            design,
            &what,
            "take fewer nodes, put them on several machines (gradvine node), ",
        )
    }
}

/// The minimum number of vectors of any rule: its model, an update, a received vector.
const LEAST: u64 = 2;

/// One vector of the model's length, in bytes.
fn vector(design: &Design) -> u64 {
    FLOAT.saturating_mul(design.parameters() as u64)
}

/// Vectors of a node's optimizer, and the models that it keeps.
fn own_vectors(design: &Design) -> u64 {
    let several = if design.optimizer.local_steps > 1 { 2 } else { 0 };
    let moments = match design.optimizer.adam {
        Some(_) => 2,
        None => u64::from(design.optimizer.momentum > 0.0),
    };
    several + moments + kept_models(design)
}

/// The copies of its model that a node keeps for the end.
fn kept_models(design: &Design) -> u64 {
    let patience = stop_early::patience(&design.experiment.run);
    patience.map_or(0, |patience| patience.models(&*design.rule.plan, &design.topology))
}

/// The vectors of all nodes' rules. They are counted at node 0, which may serve the others, and at
/// the nodes with the fewest and the most neighbours; in between the number is interpolated.
fn all_vectors(design: &Design) -> u64 {
    let topology = &design.topology;
    let degree = |id: NodeId| topology.neighbours(id).len() as u64;
    let others = || (1..topology.nodes()).map(NodeId::from);
    let first = vectors_of(design, NodeId(0)).unwrap_or(LEAST);
    let (Some(low), Some(high)) =
        (others().min_by_key(|id| degree(*id)), others().max_by_key(|id| degree(*id)))
    else {
        return first;
    };
    let count = |id| vectors_of(design, id).unwrap_or(LEAST);
    let (least, most) = (count(low), count(high));
    let (from, to) = (degree(low), degree(high));
    let more = |id| match to - from {
        0 => 0,
        apart => most.saturating_sub(least) * (degree(id) - from) / apart,
    };
    others().map(|id| least + more(id)).fold(first, u64::saturating_add)
}

/// The vectors that a node's rule keeps, counted on a short model; `None` if the rule cannot run on
/// one so short.
fn vectors_of(design: &Design, node: NodeId) -> Option<u64> {
    let length = design.parameters().min(SHORT);
    let setting = Setting {
        topology: &design.topology,
        schedule: &Arc::new(Schedule::fixed(&design.topology)),
        compressor: &design.compressor,
        nominal_delta: compress::nominal_delta(&*design.compressor, length),
        parameters: length,
        shapes: &[(length, 1)],
        seed: design.experiment.run.seed,
        allow_unstable: true,
    };
    let prepared =
        rule::prepare_in(design.experiment.registries.rules, &design.experiment.rule, &setting)
            .ok()?;
    let mut rule = (prepared.spawn)(node, &vec![0.0; length]);
    Some(2 + rule::count_numbers(&mut *rule).div_ceil(length.max(1)) as u64)
}

/// Frames whose size the plan knows: each frame of the first exchange of a flight is held by the
/// node that made it, and by the link to its receiver.
fn frames(design: &Design, nodes: impl Iterator<Item = NodeId>) -> u64 {
    let plan = &*design.rule.plan;
    let firsts: Vec<At> = plan::flights(plan)
        .into_iter()
        .map(|flight| At { round: Round(0), flight, exchange: 0 })
        .collect();
    let mut meeting = Meeting::default();
    let mut most = vec![0u64; firsts.len()];
    for node in nodes {
        for (at, most) in
            firsts.iter().zip(&mut most).filter(|(at, _)| plan.exchanges(at.flight) > 0)
        {
            meeting.clear();
            plan.meet(node, at, &mut meeting);
            if let Size::Exact(bytes) = plan.format(at, node).size() {
                let held = meeting.send.len() as u64 + u64::from(!meeting.send.is_empty());
                *most = most.saturating_add((bytes as u64).saturating_mul(held));
            }
        }
    }
    most.into_iter().max().unwrap_or(0)
}

/// The bytes of a scaled copy of rows; 0 if they are used unscaled.
fn scaled(design: &Design, rows: &Dataset) -> u64 {
    let data = &design.experiment.data;
    let copied = data.standardize || data.scale.is_some() || !rows.gaps.is_empty();
    if copied { FLOAT * rows.features.len() as u64 } else { 0 }
}

/// The bytes of a copy of rows that will be scaled, or of which some will be kept for validation;
/// while they are divided none is scaled.
fn divided(design: &Design, rows: &Dataset) -> u64 {
    let copied = if design.experiment.run.stop_early.is_some() { rows.features.len() } else { 0 };
    scaled(design, rows).max(FLOAT * copied as u64)
}

/// The models that the process of one node holds at the end: its own, a sum in doubles and the
/// mean; or those of all nodes in a frame, and taken out of it.
fn at_end(design: &Design) -> u64 {
    let nodes = design.topology.nodes() as u64;
    withstands(&design.experiment).map_or(4, |_| (2 * nodes).max(4))
}

/// The setup records of all nodes, which each process collects.
fn setup(design: &Design) -> u64 {
    let sums = design.sums();
    let record = if sums.are_some() { Opening::byte_len(&sums) as u64 } else { 0 };
    record.saturating_mul(design.topology.nodes() as u64)
}
