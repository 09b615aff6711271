//! What a rule is: its behaviour on one node ([`Rule`]), what it says about itself ([`Entry`]), and
//! what it is prepared for and becomes ([`Setting`], [`Prepared`]).

use std::sync::Arc;

use serde::Serialize;

use super::constants::NoParams;
use crate::{
    compress::{Compressor, Format},
    config::{self, ConfigError},
    gossip::{
        party::{Copies, Local, Party},
        plan::{At, Plan},
    },
    mixing::{Schedule, Topology},
    registry::Named,
    state::Visitor,
    units::{NodeId, Round},
};

/// An update rule of one node: its equations on [`Local`], and its other state. [`Party`] is its
/// side of the exchanges.
pub trait Rule: Party {
    /// Moves `local.x` to the point of the next gradient, if the model is kept elsewhere.
    fn point(&mut self, _local: &mut Local) {}

    /// Takes the update: `local.update` is the sum of step times direction at `local.x`, and `step`
    /// the sum of the step sizes in it.
    fn gradient(&mut self, local: &mut Local, round: Round, step: f32);

    /// Applies a complete flight to the model.
    fn land(&mut self, _local: &mut Local, _at: &At) {}

    /// Writes the model that is saved and evaluated. It is valid whenever the model is not lent: in
    /// the middle of a round it may already include the round's step and a part of its mixing.
    fn model(&self, local: &Local, out: &mut [f32]) {
        out.copy_from_slice(&local.x);
    }

    /// Lists what the rule keeps besides the model, always in the same order.
    fn state(&mut self, visitor: &mut dyn Visitor);

    /// Takes the mean of all models out, if the round has formed it.
    fn take_mean(&mut self) -> Option<Vec<f32>> {
        None
    }

    /// Its side of a plan with parts.
    fn parts(&mut self) -> Option<&mut dyn Parts> {
        None
    }
}

/// The side of a rule whose flights start while the rest of the update is computed.
pub trait Parts {
    /// Lends a buffer as long as a part of the update. [`Parts::take`] returns it.
    fn lend(&mut self, part: u8) -> Vec<f32>;

    /// Takes a part of the update that is final. All parts are passed, in order, before
    /// [`Rule::gradient`].
    fn take(&mut self, round: Round, part: u8, values: Vec<f32>);
}

/// Visits vectors of one name.
pub(super) fn visit_all(visitor: &mut dyn Visitor, name: &str, vectors: &mut [Vec<f32>]) {
    vectors.iter_mut().for_each(|values| visitor.vector(name, values));
}

/// The numbers in the vectors and buffers of a rule, without the model and its update.
pub fn count_numbers(rule: &mut dyn Rule) -> usize {
    struct Count(usize);
    impl Visitor for Count {
        fn vector(&mut self, _name: &str, values: &mut Vec<f32>) {
            self.0 += values.len();
        }
        fn number(&mut self, _name: &str, _value: &mut f64) {}
        fn scratch(&mut self, numbers: usize) {
            self.0 += numbers;
        }
    }
    let mut count = Count(0);
    rule.state(&mut count);
    count.0
}

/// [`Copies`] of a rule whose nodes all have the same model.
pub(super) struct SameModel;

impl Copies for SameModel {
    fn own<'a>(&'a self, local: &'a Local, to: Option<NodeId>) -> Option<&'a [f32]> {
        (to.is_none() && !local.x.is_empty()).then_some(&local.x)
    }

    fn of<'a>(&'a self, local: &'a Local, _from: NodeId) -> Option<&'a [f32]> {
        (!local.x.is_empty()).then_some(&local.x)
    }
}

/// An entry of the registry.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in files (kebab-case).
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Authors, title, year and numbers of equations.
    pub paper: &'static str,
    /// The equations of a round, in the paper's letters, one a line.
    pub update: &'static str,
    /// What it keeps besides the model.
    pub state: &'static str,
    /// What it sends to each neighbour in a round.
    pub sends: &'static str,
    /// What must hold for it to work.
    pub conditions: &'static str,
    /// Its constants: name, default and where the default comes from.
    pub constants: &'static [(&'static str, &'static str)],
    /// Whether its exchanges are compressed; if not, only `identity` is accepted.
    pub compresses: bool,
    /// The least demanding family of topologies on which it runs at its defaults with any number of
    /// nodes.
    pub home: &'static str,
    /// Whether it runs on a schedule: it keeps no state of its neighbours between rounds.
    pub follows_schedules: bool,
    /// Whether it has its own momentum, in the constant `momentum`.
    pub own_momentum: bool,
    /// Whether its theory needs updates that are step sizes times gradients.
    pub needs_gradients: bool,
    /// Whether it computes with the step size of an update.
    pub needs_step: bool,
    /// Whether it counts nodes, not rows: a vote of a majority, or a defence against Byzantine
    /// nodes, which may send a wrong number of rows, too.
    pub counts_nodes: bool,
    /// Whether it is a defence against Byzantine nodes. Then the scale of the data withstands wrong
    /// sums, too.
    pub defends: bool,
    /// The largest recommended step, and the advice above it.
    pub step_advice: Option<(f64, &'static str)>,
    /// Reads the constants and prepares the rule.
    pub prepare: fn(&toml::Table, &Setting<'_>) -> Result<Prepared, ConfigError>,
}

impl Entry {
    /// Values that most rules share, for `..Entry::BLANK`.
    pub const BLANK: Entry = Entry {
        name: "",
        summary: "",
        paper: "",
        update: "",
        state: "none",
        sends: "",
        conditions: "",
        constants: &[],
        compresses: false,
        home: "path",
        follows_schedules: false,
        own_momentum: false,
        needs_gradients: false,
        needs_step: false,
        counts_nodes: false,
        defends: false,
        step_advice: None,
        prepare: |_, _| Err(ConfigError::at("rule", "this rule has no `prepare`")),
    };

    /// A rule with these constants, all of them resolved; `make` makes that of one node.
    pub fn prepared<R: Rule + 'static>(
        &self,
        constants: &impl Serialize,
        plan: impl Plan + 'static,
        warnings: Vec<String>,
        make: impl Fn(NodeId, &[f32]) -> R + Send + Sync + 'static,
    ) -> Prepared {
        Prepared {
            plan: Arc::new(plan),
            resolved: config::resolved(self.name, constants),
            warnings,
            relaxation: 1.0,
            least_neighbours: 0,
            spawn: Arc::new(move |node, x| Box::new(make(node, x))),
        }
    }

    /// The same for a rule that has no constants.
    ///
    /// # Errors
    /// If the table has one.
    pub(super) fn without_constants<R: Rule + 'static>(
        &self,
        table: &toml::Table,
        plan: impl Plan + 'static,
        warnings: Vec<String>,
        make: impl Fn(NodeId, &[f32]) -> R + Send + Sync + 'static,
    ) -> Result<Prepared, ConfigError> {
        Ok(self.prepared(&config::read::<NoParams>("rule", table)?, plan, warnings, make))
    }
}

impl Named for Entry {
    fn name(&self) -> &str {
        self.name
    }
}

/// The setting that a rule is prepared for.
#[derive(Clone)]
pub struct Setting<'a> {
    /// The links between nodes, with their weights.
    pub topology: &'a Arc<Topology>,
    /// The meetings of each round, with their weights.
    pub schedule: &'a Arc<Schedule>,
    /// The compressor that the experiment names.
    pub compressor: &'a Arc<dyn Compressor>,
    /// The compressor's nominal delta at this dimension.
    pub nominal_delta: f64,
    /// The dimension d of the model.
    pub parameters: usize,
    /// Rows and columns of each of the model's tensors, in order, for rules that work on one matrix
    /// per layer. A vector has one column.
    pub shapes: &'a [(usize, usize)],
    /// The run's seed, for randomness that all nodes share (a sketch's hashes).
    pub seed: u64,
    /// Whether settings that are expected to be unstable may run.
    pub allow_unstable: bool,
}

impl Setting<'_> {
    /// One compressed vector of the model's length.
    pub fn compressed(&self) -> Format {
        Format::Compressed { by: Arc::clone(self.compressor), len: self.parameters }
    }

    /// One plain vector of the model's length.
    pub fn dense(&self) -> Format {
        Format::Floats(self.parameters)
    }

    /// Whether C loses nothing of a vector of the model's length.
    pub fn is_exact(&self) -> bool {
        self.compressor.class(self.parameters).is_exact()
    }

    /// Refuses a compressor whose error feedback cannot converge, unless the run allows it.
    ///
    /// # Errors
    /// If the nominal delta is not positive, or the compressor's errors grow when it compresses
    /// them again ([`Compressor::residual_error`]).
    pub fn require_contraction(&self, rule: &str) -> Result<Vec<String>, ConfigError> {
        let delta = self.nominal_delta;
        let residual = self.compressor.residual_error(self.parameters).unwrap_or(0.0);
        let reason = if delta <= 0.0 {
            format!("the nominal delta is {delta:.3}")
        } else if residual >= 1.0 {
            format!("its error on its own errors reaches {residual:.2} of them (must be below 1)")
        } else {
            return Ok(Vec::new());
        };
        let problem = format!(
            "{rule} feeds the compression error back, which needs a contraction: of `{}` at d = {} \
             {reason}, and every step size diverges; use its scaled form, more bits or levels, or \
             smaller buckets, or set run.allow_unstable = true to watch it fail",
            self.compressor.name(),
            self.parameters
        );
        if self.allow_unstable { Ok(vec![problem]) } else { Err(ConfigError::at("rule", problem)) }
    }
}

/// Makes the rule of one node from its id and the initial model.
pub type Spawn = Arc<dyn Fn(NodeId, &[f32]) -> Box<dyn Rule> + Send + Sync>;

/// A rule with its constants resolved, ready for every node.
pub struct Prepared {
    /// The program of a round.
    pub plan: Arc<dyn Plan>,
    /// All constants with their values, `kind` first.
    pub resolved: toml::Table,
    /// Warnings about settings that are allowed but doubtful.
    pub warnings: Vec<String>,
    /// gamma, if it mixes by I + gamma (W - I): what it is, or is at first. 1 for all others.
    pub relaxation: f64,
    /// How many neighbours each node needs: one that has fewer is no member of a run that
    /// continues.
    pub least_neighbours: usize,
    /// Makes the rule of one node.
    pub spawn: Spawn,
}

impl Prepared {
    /// The same rule, which mixes by I + gamma (W - I): predictions of agreement follow it.
    #[must_use]
    pub fn relaxed_by(self, gamma: f64) -> Prepared {
        Prepared { relaxation: gamma, ..self }
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("resolved", &self.resolved)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}
