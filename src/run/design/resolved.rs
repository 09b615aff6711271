//! The design that all nodes of a run share: an experiment with every constant resolved and every
//! combination checked.

use std::sync::Arc;

use super::{needs, stop_early, warm_start};
use crate::{
    compress::{self, Compressor},
    config::ConfigError,
    data::Task,
    digest,
    experiment::{
        DataParams, Experiment, Policy, RequireParams, StartParams, Transport, Weighting,
    },
    gossip::{
        NewRule, NodeConfig, Tally, plan,
        rule::{self, Prepared, Setting, Steps},
        tree::{self, Readers, SIGNATURE, Setup},
    },
    learn::{
        Init, MAX_PARAMETERS, Model, ModelParams, Optimizer, OptimizerConfig, OptimizerParams,
        Tensor, count_elements, count_trained,
    },
    mixing::{MatrixError, Schedule, Topology, TopologyError, Weights, family::Families},
    run::shards::opening::{Opening, Sums, withstands},
    units::NodeId,
    vector,
};

/// The shared part of a run. Two nodes with the same design end with the same bits.
pub struct Design {
    /// The resolved experiment, as written into the run directory.
    pub experiment: Experiment,
    /// The links between nodes and their weights.
    pub topology: Arc<Topology>,
    /// The links in use in each round.
    pub schedule: Arc<Schedule>,
    /// The tensors of the model, in the order of x.
    pub tensors: Vec<Tensor>,
    /// The number of features, if the model is one of ours and rows are tables; else 0.
    pub features: usize,
    /// The maximum number of classes in a node's rows, or the number of predicted values; 0 for a
    /// model that a program brings.
    pub outputs: usize,
    /// The compressor that the experiment names.
    pub compressor: Arc<dyn Compressor>,
    /// The compressor's nominal delta at the model's dimension.
    pub nominal_delta: f64,
    /// The rule, ready for every node.
    pub rule: Prepared,
    /// The local optimizer with its schedule.
    pub optimizer: OptimizerConfig,
    /// x_0: the same on every node, or this node's if one node gives its own to all.
    pub initial: Arc<Vec<f32>>,
    /// The node that gives its x_0 to all.
    pub initial_from: Option<NodeId>,
    /// Further values that must be the same at all nodes, with their keys: those of a program, or
    /// the names of columns.
    pub agreed: Vec<(String, String)>,
    /// What the readers of the rows have assumed or noticed and a user should know.
    pub remarks: Vec<String>,
    /// The names of the predicted columns, if the rows have names.
    pub(crate) targets: Vec<String>,
}

/// What is known of a design before it is made.
#[derive(Clone, Copy, Default)]
pub(super) struct Known<'a> {
    /// A design that may have the same initial model.
    pub(super) other: Option<&'a Design>,
    /// The compressor's nominal delta, if the model is the same.
    pub(super) nominal_delta: Option<f64>,
}

impl std::fmt::Debug for Design {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rule, nodes) = (self.rule_name(), self.topology.nodes());
        write!(f, "Design({rule}, {nodes} nodes, {} parameters)", self.parameters())
    }
}

impl Design {
    /// What a user should know before the run: about the rows, then about the rule.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        self.remarks.iter().chain(&self.rule.warnings)
    }

    /// Resolves an experiment on a topology, for data of these sizes.
    ///
    /// # Errors
    /// If a value is out of range or a combination cannot work.
    pub fn new(
        experiment: Experiment,
        topology: Arc<Topology>,
        inputs: usize,
        outputs: usize,
    ) -> Result<Design, ConfigError> {
        Design::with_known(experiment, topology, (inputs, outputs), Known::default())
    }

    /// The same, without computing again what is known.
    pub(super) fn with_known(
        mut experiment: Experiment,
        topology: Arc<Topology>,
        (inputs, outputs): (usize, usize),
        known: Known<'_>,
    ) -> Result<Design, ConfigError> {
        check_run(&experiment)?;
        let model = Model::resolve(&experiment.model, Some(inputs), Some(outputs))?;
        // Nodes that write the default and those that leave it out agree.
        let usual = ModelParams { task: None, ..experiment.model.clone() }.task()?;
        experiment.model.task = experiment.model.task.filter(|task| *task != usual);
        experiment.model.inputs = Some(inputs);
        experiment.model.outputs = Some(outputs);
        experiment.data.weighting.get_or_insert(Weighting::Nodes);
        if let Some(scale) = warm_start::scale_of_init(&experiment)? {
            experiment.data.scale = Some(scale);
        }
        if let Some(scale) = warm_start::target_scale_of_init(&experiment, outputs) {
            experiment.data.target_scale = Some(scale);
        }
        if let Some(scale) = &experiment.data.scale {
            scale.check("data.scale", inputs)?;
        }
        if let Some(scale) = &experiment.data.target_scale {
            if !experiment.model.scales_targets() {
                let problem = "only a model of numbers with hidden layers scales its targets: \
                               leave it out, or use kind = \"mlp\" with task = \"regression\"";
                return Err(ConfigError::at("data.target_scale", problem));
            }
            scale.check("data.target_scale", outputs)?;
        }
        Sums::of(&experiment, inputs, outputs).check()?;
        needs::one_copy(model.parameters())?;
        let other = known.other.filter(|other| other.has_model_of(&experiment));
        let initial = match other {
            Some(other) => Arc::clone(&other.initial),
            None => {
                let (init, seed) = (experiment.own_init(), experiment.run.seed);
                Arc::new(model.initial(init, &experiment.folder, seed)?)
            }
        };
        let nominal_delta = known.nominal_delta.filter(|_| other.is_some());
        let (tensors, sizes) = (model.tensors().to_vec(), (inputs, outputs));
        Design::resolve(experiment, topology, tensors, initial, sizes, nominal_delta)?
            .check_members()
    }

    /// Whether this experiment, with its model resolved, has the same initial model.
    fn has_model_of(&self, experiment: &Experiment) -> bool {
        let Experiment { model, folder, run, .. } = &self.experiment;
        (model, folder, run.seed) == (&experiment.model, &experiment.folder, experiment.run.seed)
    }

    /// Resolves an experiment on a topology, for a model that a program brings: `tensors` and their
    /// initial values, which must be the same at all nodes. The sections `[model]` and `[data]` of
    /// the experiment are ignored, except `data.weighting`.
    ///
    /// # Errors
    /// If a value is out of range, a combination cannot work, or the tensors and `initial` have
    /// different lengths.
    pub fn of_tensors(
        mut experiment: Experiment,
        topology: Arc<Topology>,
        tensors: Vec<Tensor>,
        initial: Vec<f32>,
    ) -> Result<Design, ConfigError> {
        check_run(&experiment)?;
        check_tensors(&tensors, &initial)?;
        stop_early::refuse(&experiment.run)?;
        needs::one_copy(initial.len())?;
        let ModelParams { init, init_digest, .. } = experiment.model;
        let init = init.filter(|init| matches!(init, Init::From(_)));
        let init_digest = init_digest.filter(|_| init.is_some());
        let kind = OWN_MODEL.into();
        experiment.model = ModelParams { kind, init, init_digest, ..ModelParams::default() };
        experiment.data = DataParams {
            weighting: experiment.data.weighting.or(Some(Weighting::Nodes)),
            source: OWN_MODEL.into(),
            standardize: false,
            ..DataParams::default()
        };
        let initial = Arc::new(initial);
        Design::resolve(experiment, topology, tensors, initial, (0, 0), None)?.check_members()
    }

    /// Checks the numbers of nodes that the run needs, and whether it can continue without some.
    fn check_members(self) -> Result<Design, ConfigError> {
        let nodes = self.topology.nodes();
        let Experiment { run, absence, checkpoint, .. } = &self.experiment;
        if let Some(RequireParams { nodes: least, share }) = &run.require {
            if !(1..=nodes).contains(&(*least as usize)) {
                let problem = format!("expected 1 to {nodes}, the nodes of the topology");
                return Err(ConfigError::new("run.require.nodes", least, problem));
            }
            if !(0.0..=1.0).contains(share) {
                let problem = "expected a number from 0 to 1";
                return Err(ConfigError::new("run.require.share", share, problem));
            }
        }
        let least = nodes / 2 + 1;
        let fits = |place: &str, quorum: u32| {
            let problem =
                format!("expected more than half of the {nodes} nodes, {least} to {nodes}");
            match (least..=nodes).contains(&(quorum as usize)) {
                true => Ok(()),
                false => Err(ConfigError::new(place, quorum, problem)),
            }
        };
        if let Some(quorum) = absence.quorum {
            fits("absence.quorum", quorum)?;
        }
        if let StartParams::Quorum(start) = &run.start {
            fits("run.start.quorum", start.quorum)?;
            check_time("run.start.within_s", start.within_s, "", MONTH)?;
            if absence.policy == Policy::Wait {
                let problem = "the nodes that come later can only join with absence.policy = \
                               \"continue\"";
                return Err(ConfigError::at("run.start", problem));
            }
        }
        if absence.policy == Policy::Wait {
            return Ok(self);
        }
        let wrong = |problem: &str| Err(ConfigError::new("absence.policy", "continue", problem));
        if nodes < 3 {
            return wrong("more than half of 2 nodes are both: it takes at least 3");
        }
        if absence.deadline_s == 0.0 {
            return wrong("after absence.deadline_s, which is 0 (for ever): set a deadline");
        }
        if !plan::can_pause(&*self.rule.plan) {
            return wrong(
                "this rule has messages in flight between rounds, so it has no checkpoints to \
                 resume from: choose another rule, or absence.policy = \"wait\"",
            );
        }
        if checkpoint.every_s == 0.0 && checkpoint.every_rounds.is_none() {
            return wrong("nodes continue from checkpoints, and checkpoint.every_s is 0 (never)");
        }
        if self.initial_from.is_some() && run.start.quorum().is_some() {
            let problem = "model.init names a node that gives the initial model: use \"all\"";
            return Err(ConfigError::at("run.start", problem));
        }
        // All nodes' views fit one control message.
        if 64 * nodes + 16 * self.topology.links() > 1 << 20 {
            return wrong("the topology is too large: nodes tell each other all links");
        }
        Ok(self)
    }

    /// The steps that both kinds of model share.
    fn resolve(
        mut experiment: Experiment,
        topology: Arc<Topology>,
        tensors: Vec<Tensor>,
        initial: Arc<Vec<f32>>,
        (features, outputs): (usize, usize),
        nominal_delta: Option<f64>,
    ) -> Result<Design, ConfigError> {
        tree::check(&topology)?;
        let initial_from = initial_from(&experiment, &topology)?;
        check_initial_digest(&experiment, &initial)?;
        let parameters = count_trained(&tensors);
        let trained = tensors.iter().filter(|tensor| !tensor.is_statistic);
        let registries = experiment.registries;
        let built = compress::build_in(registries.compressors, &experiment.compressor)?;
        let nominal_delta = nominal_delta
            .unwrap_or_else(|| compress::nominal_delta(&*built.compressor, parameters));
        let schedule = Arc::new(Schedule::new_in(
            registries.schedules,
            &experiment.topology.schedule,
            &topology,
            experiment.run.seed,
        )?);
        let setting = Setting {
            topology: &topology,
            schedule: &schedule,
            compressor: &built.compressor,
            nominal_delta,
            parameters,
            shapes: &trained.map(Tensor::matrix).collect::<Vec<_>>(),
            seed: experiment.run.seed,
            allow_unstable: experiment.run.allow_unstable,
        };
        let rule = rule::prepare_in(registries.rules, &experiment.rule, &setting)?;
        let entry = rule::of(registries.rules, &rule.resolved);
        let defends = entry.is_some_and(|entry| entry.defends);
        let mut rule = rule.beside_statistics(initial.len() - parameters, &schedule, defends);
        let optimizer = experiment.optimizer.check(experiment.run.rounds)?;
        let OptimizerParams { momentum, step, .. } = experiment.optimizer;
        let steps = Steps { momentum, step, adaptive: optimizer.adam.is_some() };
        let unstable = experiment.run.allow_unstable;
        rule.warnings.extend(rule::advise(registries.rules, &rule.resolved, &steps, unstable)?);
        rule.warnings.extend(weighting_warning(&experiment));
        if let Some(every) = experiment.run.mean_every {
            rule = rule.with_means(every, &topology, initial.len(), withstands(&experiment))?;
        }
        stop_early::check_rule(&experiment.run, &*rule.plan, &topology)?;
        experiment.rule = rule.resolved.clone();
        experiment.compressor = built.resolved;
        Ok(Design {
            experiment,
            topology,
            schedule,
            tensors,
            features,
            outputs,
            compressor: built.compressor,
            nominal_delta,
            rule,
            optimizer,
            initial,
            initial_from,
            agreed: Vec::new(),
            remarks: Vec::new(),
            targets: Vec::new(),
        })
    }

    /// The design of a run of some of the nodes, without the links in `cut`: see
    /// [`Topology::restricted`]. The rule's constants stay as they are.
    ///
    /// # Errors
    /// If these nodes are not connected, or the rule or the schedule needs the others.
    pub fn restricted(
        &self,
        members: &[NodeId],
        cut: &[(NodeId, NodeId)],
    ) -> Result<Design, ConfigError> {
        let topology = Arc::new(self.topology.restricted(members, cut)?);
        let mut experiment = self.experiment.clone();
        if self.initial_from.is_some_and(|from| !members.contains(&from)) {
            // The node that gives the initial model is needed at the beginning only.
            (experiment.model.init, experiment.model.init_digest) = (None, None);
        }
        let (tensors, sizes) = (self.tensors.clone(), (self.features, self.outputs));
        // The compressor is the same: measuring it takes a pass of random numbers over the model.
        let (initial, delta) = (Arc::clone(&self.initial), Some(self.nominal_delta));
        Design::resolve(experiment, topology, tensors, initial, sizes, delta)
    }

    /// The configuration of one node's core.
    pub fn node(&self, id: NodeId, setup: Option<Setup>, readers: Readers) -> NodeConfig {
        let (topology, plan) = (Arc::clone(&self.topology), Arc::clone(&self.rule.plan));
        let run = &self.experiment.run;
        NodeConfig {
            initial_from: self.initial_from,
            initial_digest: self.experiment.model.init_digest.clone(),
            seed: run.seed,
            max_norm: self.experiment.robust.max_norm,
            liars: withstands(&self.experiment),
            rounds: run.rounds,
            evaluate_every: run.evaluate_every,
            stopping: stop_early::patience(run),
            setup,
            readers,
            ..NodeConfig::new(id, topology, plan, self.new_rule(id), self.initial.to_vec())
        }
    }

    fn new_rule(&self, id: NodeId) -> NewRule {
        let spawn = Arc::clone(&self.rule.spawn);
        Box::new(move |x| spawn(id, x))
    }

    /// One node's optimizer on a shard of this many rows.
    pub(crate) fn optimizer(&self, node: NodeId, rows: usize) -> Optimizer {
        Optimizer::new(
            self.optimizer.clone(),
            self.experiment.run.seed,
            node,
            rows,
            self.parameters(),
        )
    }

    /// The dimension d of the model.
    pub fn parameters(&self) -> usize {
        self.initial.len()
    }

    /// The names of the classes, as far as the experiment gives them, or of the predicted numbers,
    /// as far as the rows do.
    pub(crate) fn output_names(&self) -> Vec<String> {
        let data = &self.experiment.data;
        if let Some(classes) = &data.classes {
            return classes.clone();
        }
        let are_values = self.table_model().is_ok_and(|model| model.task() == Task::Regression);
        if are_values && self.targets.len() == self.outputs {
            self.targets.clone()
        } else {
            Vec::new()
        }
    }

    /// Whether f_i is weighted by its share of the rows.
    pub fn by_rows(&self) -> bool {
        self.experiment.data.weighting == Some(Weighting::Rows)
    }

    /// The maximum frame length, in bytes: the plan's, or that of a tree exchange.
    pub(crate) fn frame_limit(&self) -> usize {
        use crate::gossip::frame::HEADER;
        let setup = tree::setup_limit(Opening::byte_len(&self.sums()));
        let one_by_one = self.initial_from.is_some() || withstands(&self.experiment).is_some();
        let model = if one_by_one { 4 * self.parameters() } else { 0 };
        let record = setup.max(model).max(Tally::BYTES) + SIGNATURE;
        let records = tree::records_limit(self.topology.nodes(), record);
        let tree = (8 * self.parameters()).max(records);
        HEADER + plan::payload_limit(&*self.rule.plan, self.topology.nodes()).max(tree)
    }

    /// The sums that nodes exchange before round 0.
    pub(crate) fn sums(&self) -> Sums {
        Sums::of(&self.experiment, self.features, self.outputs)
    }

    /// The model of `[model]`, with known sizes.
    ///
    /// # Errors
    /// If a program has brought the model.
    pub(crate) fn table_model(&self) -> Result<Model, ConfigError> {
        Ok(Model::resolve(&self.experiment.model, None, None)?)
    }

    /// The name of the rule, `rule.kind`.
    pub fn rule_name(&self) -> &str {
        self.experiment.rule.get("kind").and_then(toml::Value::as_str).unwrap_or("?")
    }
}

/// The weighting of nodes that have files of their own, if the experiment does not state it.
pub(crate) fn weighting_of_files(experiment: &Experiment) -> Weighting {
    if counts_nodes(experiment) { Weighting::Nodes } else { Weighting::Rows }
}

fn counts_nodes(experiment: &Experiment) -> bool {
    rule::of(experiment.registries.rules, &experiment.rule).is_some_and(|rule| rule.counts_nodes)
}

/// A warning if nodes are weighted by rows with a rule that counts nodes.
fn weighting_warning(experiment: &Experiment) -> Option<String> {
    let by_rows = experiment.data.weighting == Some(Weighting::Rows);
    (by_rows && counts_nodes(experiment)).then(|| {
        "data.weighting = \"rows\": this rule counts nodes: it ignores the sizes of updates, or \
         takes large ones for wrong ones; use \"nodes\""
            .to_string()
    })
}

/// The value of `model.kind` and `data.source` in the files of runs whose model a program brought.
pub(crate) const OWN_MODEL: &str = "own";

/// The node that gives the initial model: `model.init = "from:NODE"`.
fn initial_from(
    experiment: &Experiment,
    topology: &Topology,
) -> Result<Option<NodeId>, ConfigError> {
    let Some(Init::From(name)) = &experiment.model.init else { return Ok(None) };
    let mut ids = (0..topology.nodes()).map(NodeId::from);
    let found = ids.find(|&id| topology.node(id).name == *name);
    found.map(Some).ok_or_else(|| {
        let problem = format!(
            "`{}` has no node `{name}`: expected `from:` and a node's name",
            topology.name()
        );
        ConfigError::new("model.init", format!("\"from:{name}\""), problem)
    })
}

/// Compares the initial values from a file with `model.init_digest`; those that a node gives are
/// compared when they come.
fn check_initial_digest(experiment: &Experiment, initial: &[f32]) -> Result<(), ConfigError> {
    let ModelParams { init, init_digest: Some(expected), .. } = &experiment.model else {
        return Ok(());
    };
    let wrong = |problem: String| Err(ConfigError::new("model.init_digest", expected, problem));
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    if expected.len() != 64 || !expected.bytes().all(is_digit) {
        return wrong("expected a SHA-256: 64 digits from 0 to 9 and a to f".into());
    }
    match init {
        Some(Init::From(_)) => Ok(()),
        Some(Init::File(name)) => match digest::of_model(initial) {
            found if found == *expected => Ok(()),
            found => wrong(format!("the values in {name} have the SHA-256 {found}")),
        },
        _ => wrong("only with init = \"from:NODE\" or the path of a file: leave it out".into()),
    }
}

/// The parameters of a model of these tensors; `None` above the accepted number.
pub(crate) fn count_parameters(tensors: &[Tensor]) -> Option<usize> {
    count_elements(tensors).filter(|&parameters| parameters <= MAX_PARAMETERS)
}

/// Checks the tensors of a program's model.
fn check_tensors(tensors: &[Tensor], initial: &[f32]) -> Result<(), ConfigError> {
    let total = count_parameters(tensors).ok_or_else(|| {
        let problem = format!("at most {MAX_PARAMETERS} numbers are accepted");
        ConfigError::new("tensors", format!("{} tensors", tensors.len()), problem)
    })?;
    if total != initial.len() || total == 0 {
        let problem = format!(
            "the tensors hold {total} numbers: expected as many initial values, and at least one"
        );
        return Err(ConfigError::new("initial", format!("{} numbers", initial.len()), problem));
    }
    if count_trained(tensors) == 0 || !tensors.is_sorted_by_key(|tensor| tensor.is_statistic) {
        let problem =
            "statistics are expected after all parameters, of which there is at least one";
        return Err(ConfigError::at("tensors", problem));
    }
    let mut names = std::collections::BTreeSet::new();
    for tensor in tensors {
        let plain = !tensor.name.is_empty()
            && tensor.name.len() <= 256
            && tensor.name != "__metadata__"
            && !tensor.name.chars().any(|c| c.is_control() || c == '=');
        if !plain || !names.insert(&tensor.name) {
            return Err(ConfigError::new(
                "tensors",
                format!("{:?}", tensor.name),
                "expected names of 1 to 256 characters without control characters and `=`, each \
                 once",
            ));
        }
    }
    match vector::first_non_finite(initial) {
        Some(at) => Err(ConfigError::new(
            format!("initial[{at}]"),
            initial[at],
            "a finite number is needed",
        )),
        None => Ok(()),
    }
}

/// Reads the topology that an experiment names.
///
/// # Errors
/// If neither a file nor a family is named, both are, a size is missing or superfluous, or the
/// topology is wrong.
pub fn topology(experiment: &Experiment) -> Result<Topology, ConfigError> {
    let (params, seed) = (&experiment.topology, experiment.run.seed);
    let families = experiment.registries.families;
    let weights =
        params.weights.as_deref().map(str::parse::<Weights>).transpose().map_err(inside)?;
    let sizes = [
        ("nodes", params.nodes),
        ("rows", params.rows),
        ("columns", params.columns),
        ("degree", params.degree),
    ];
    match (&params.file, &params.family) {
        (Some(file), None) => {
            if let Some((key, size)) = sizes.iter().find_map(|(key, size)| Some((key, (*size)?))) {
                let problem = format!(
                    "\"{file}\" says its size itself: leave the key out, or name a family instead \
                     of a file"
                );
                return Err(ConfigError::new(format!("topology.{key}"), size, problem));
            }
            let beside = experiment.folder.join(file);
            let spec = if beside.is_file() { beside.display().to_string() } else { file.clone() };
            let parsed = Topology::parse_in(families, &spec, weights, seed);
            parsed.map_err(|error| in_spec(error, file, params.weights.as_deref()))
        }
        (None, Some(family)) => {
            let spec = family_spec(families, family, &sizes)?;
            let parsed = Topology::parse_in(families, &spec, weights, seed);
            parsed.map_err(|error| inside(error.into()))
        }
        (None, None) => Err(ConfigError::at(
            "topology",
            "name a file (or a spec such as file = \"ring:8\"), or a family and its size",
        )),
        (Some(file), Some(_)) => Err(ConfigError::new(
            "topology.file",
            format!("\"{file}\""),
            "give a file or a family, not both",
        )),
    }
}

/// The error of a key of `[topology]`, unless it is of a file.
fn inside(error: ConfigError) -> ConfigError {
    let place = format!("topology.{}", error.place);
    if error.file.is_some() { error } else { error.with_place(place) }
}

/// The error of a file or a spec such as `ring:8`, with the key that is to be corrected.
fn in_spec(error: TopologyError, spec: &str, weights: Option<&str>) -> ConfigError {
    match (&error, weights) {
        (&TopologyError::Matrix { error: MatrixError::NoGap { rho, .. }, .. }, Some(weights)) => {
            let mut error = ConfigError::from(error).with_value(format!("\"{weights}\""));
            error.problem = format!("rho = {rho}: {}", error.problem);
            error.with_place("topology.weights")
        }
        (TopologyError::Config(of_key), _) if of_key.place == "weights" => inside(error.into()),
        _ => error.of_spec("topology.file", spec),
    }
}

/// `random-regular:16:4` from a family and its sizes.
fn family_spec(
    families: Families,
    name: &str,
    sizes: &[(&str, Option<u32>)],
) -> Result<String, ConfigError> {
    let family = families.find(name).ok_or_else(|| {
        let names = families.names();
        ConfigError::new(
            "topology.family",
            format!("\"{name}\""),
            format!("expected one of {}", names.join(", ")),
        )
        .with_accepted(names)
    })?;
    let keys: Vec<&str> = family.keys.iter().copied().filter(|key| *key != "seed").collect();
    let takes = || format!("a {name} takes {}", keys.join(" and "));
    if let Some((key, size)) =
        sizes.iter().find_map(|(key, size)| Some((key, size.filter(|_| !keys.contains(key))?)))
    {
        return Err(ConfigError::new(
            format!("topology.{key}"),
            size,
            format!("{}: leave this key out", takes()),
        ));
    }
    let value = |key: &&str| {
        let size = sizes.iter().find(|(name, _)| name == key).and_then(|(_, size)| *size);
        size.map(|size| size.to_string()).ok_or_else(|| {
            ConfigError::at(format!("topology.{key}"), format!("is missing: {}", takes()))
        })
    };
    let values = keys.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("{name}:{}", values.join(&family.separator.to_string())))
}

/// Checks the numbers of seconds.
fn check_times(experiment: &Experiment) -> Result<(), ConfigError> {
    let Experiment { run, absence, checkpoint, .. } = experiment;
    let times = [
        ("run.patience_s", run.patience_s, "", MONTH),
        ("run.work_s", run.work_s, "", MONTH),
        ("run.connect_s", run.connect_s, "", MONTH),
        ("absence.wait_s", absence.wait_s, "", MONTH),
        ("absence.deadline_s", absence.deadline_s, "0 (for ever) or ", MONTH),
        ("absence.heartbeat_s", absence.heartbeat_s, "", (600.0, "600")),
        ("checkpoint.every_s", checkpoint.every_s, "0 (never) or ", MONTH),
    ];
    times.into_iter().try_for_each(|(key, value, zero, most)| check_time(key, value, zero, most))
}

/// The greatest number of seconds of most keys, and its text.
const MONTH: (f64, &str) = (86_400.0 * 30.0, "2592000 (30 days)");

/// Checks a number of seconds. `zero` says what 0 means, if it is accepted.
fn check_time(
    key: &str,
    value: f64,
    zero: &str,
    (most, limit): (f64, &str),
) -> Result<(), ConfigError> {
    if (0.1..=most).contains(&value) || (value == 0.0 && !zero.is_empty()) {
        return Ok(());
    }
    let problem = format!("expected {zero}a number of seconds from 0.1 to {limit}");
    Err(ConfigError::new(key, value, problem))
}

/// Checks the ranges of `[run]`.
pub(super) fn check_run(experiment: &Experiment) -> Result<(), ConfigError> {
    let run = &experiment.run;
    for (key, value) in [
        ("run.rounds", Some(run.rounds)),
        ("run.evaluate_every", Some(run.evaluate_every)),
        ("run.mean_every", run.mean_every),
        ("run.minimum_rows", run.minimum_rows),
    ] {
        if value == Some(0) {
            return Err(ConfigError::new(key, 0, "expected a whole number from 1"));
        }
    }
    stop_early::check(run)?;
    check_times(experiment)?;
    let rounds = experiment.checkpoint.every_rounds;
    if let Some(rounds) = rounds.filter(|rounds| !(1..=i64::MAX as u64).contains(rounds)) {
        let problem = "expected a whole number from 1 to 9223372036854775807";
        return Err(ConfigError::new("checkpoint.every_rounds", rounds, problem));
    }
    if let Some(most) = experiment.robust.max_norm.filter(|most| !(*most > 0.0 && most.is_finite()))
    {
        let problem = "expected a finite number above 0";
        return Err(ConfigError::new("robust.max_norm", most, problem));
    }
    if let Some(name) = &run.congestion {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let wrong =
            |problem: &str| Err(ConfigError::new("run.congestion", format!("\"{name}\""), problem));
        if !(1..16).contains(&name.len()) || !name.chars().all(fits) {
            return wrong(
                "expected the name of a congestion control that the system has, such as bbr or \
                 cubic",
            );
        }
        if run.transport == Transport::Quic {
            return wrong(
                "QUIC has its own congestion control: leave it out, or set run.transport = \"tcp\"",
            );
        }
    }
    if run.out.as_deref() == Some("") {
        return Err(ConfigError::new(
            "run.out",
            "\"\"",
            "expected the name of a folder; without the key one is chosen",
        ));
    }
    let id = &run.id;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || id.len() > 64 || !id.chars().all(plain) {
        return Err(ConfigError::new(
            "run.id",
            format!("\"{id}\""),
            "expected 1 to 64 letters, digits, `-`, `_` or `.`",
        ));
    }
    Ok(())
}
