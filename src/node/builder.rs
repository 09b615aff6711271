//! Builds a node from its file or from values.

use std::{
    any::Any,
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use super::{
    EndError, Exchange, Measures, Node, NodeResult, Prepared,
    command::Command,
    exchange::{self, NodeEnds},
    handle::Linked,
    prepared::{ScoreModel, results_of},
};
use crate::{
    config::ConfigError,
    drive::{Learner as _, NodeSpec},
    experiment::{Experiment, Registries, RunVersion},
    gossip::tree::Readers,
    learn::{Objective, Tensor},
    mixing::Topology,
    net::{Answers, Keypair, Place, RunCard, Site, identity},
    run::{
        Checkpoints, DataRecord, Design, Evaluate, NodeFile, OwnLearner, RunDirectory, RunInfo,
        SavedFiles, Security, Single, Space, StatusFile, Warn,
        checkpoint::{Every, Owner},
        count_parameters,
    },
    state::State,
    units::NodeId,
};

/// What a node trains, and whose gradients it takes.
enum Problem {
    /// The experiment's model on the rows of a file.
    File,
    /// An objective of the program's own.
    Objective(Box<dyn Objective>),
    /// Updates from a training loop of the program.
    Exchange { tensors: Vec<Tensor>, rows: u64, ends: NodeEnds },
}

/// A node before its start.
///
/// Its methods only keep values; [`NodeBuilder::prepare`] and the methods that start a node check
/// files other than the node's own, data and combinations.
///
/// From values, with an objective of the program. Here both nodes of the network are in this
/// process; on several machines each program builds one node.
///
/// ```
/// use gradvine::{experiment::Transport, mixing::NodeInfo, net::free_ports, prelude::*, run::Run};
/// use std::{collections::BTreeMap, sync::Arc};
///
/// # struct Bowl(f32, [Tensor; 1]);
/// # impl Objective for Bowl {
/// #     fn tensors(&self) -> &[Tensor] { &self.1 }
/// #     fn rows(&self) -> usize { 1 }
/// #     fn gradient(&mut self, x: &[f32], _: Batch<'_>, out: &mut [f32]) -> f64 {
/// #         out[0] = x[0] - self.0;
/// #         self.loss(x)
/// #     }
/// #     fn loss(&mut self, x: &[f32]) -> f64 { 0.5 * f64::from(x[0] - self.0).powi(2) }
/// # }
/// /// Keys, addresses and a topology of two nodes on loopback.
/// fn network() -> Result<(Vec<Keypair>, Vec<String>, Topology), Box<dyn std::error::Error>> {
///     let keys = [Keypair::generate_ed25519(), Keypair::generate_ed25519()];
///     let ports = free_ports(Transport::Tcp, 2)?;
///     let addresses: Vec<_> = ports.iter().map(|p| format!("/ip4/127.0.0.1/tcp/{p}")).collect();
///     let nodes = keys.iter().zip(&addresses).enumerate().map(|(i, (key, address))| NodeInfo {
///         peer: Some(key.public().to_peer_id().to_string()),
///         addresses: vec![address.clone()],
///         ..NodeInfo::named(format!("site-{i}"))
///     });
///     let topology = Topology::parse("path:2", 1)?.with_nodes(nodes.collect())?;
///     Ok((keys.into(), addresses, topology))
/// }
/// let (keys, addresses, topology) = network()?;
/// let experiment = Experiment::parse("run.rounds = 20\nrule.kind = 'd-psgd'", &[])?;
/// let folder = tempfile::tempdir()?;
/// let mut nodes = Vec::new();
/// for (i, (key, address)) in keys.into_iter().zip(addresses).enumerate() {
///     // f_0 and f_1 have their least values at 1 and 3; all nodes together look for 2.
///     let centre = [1.0, 3.0][i];
///     let node = NodeBuilder::new(key, topology.clone(), experiment.clone())
///         .listen(address)
///         .objective(Bowl(centre, [Tensor::new("x", &[1])]))
///         .initial(vec![0.0])
///         .agree("loss", "squares")
///         .evaluate(|x| BTreeMap::from([("error".into(), f64::from((x[0] - 2.0).abs()))]))
///         .warn(Arc::new(|line| eprintln!("{line}")))
///         .out(folder.path().join(format!("node-{i}")))
///         .start();
///     nodes.push(node);
/// }
/// while let Some(event) = nodes[0].next_blocking() {
///     if let Event::Linked { peer, .. } = event {
///         assert_eq!(peer, "site-1");
///     }
/// }
/// let results = nodes.into_iter().map(Node::join_blocking).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(results[0].mean, results[1].mean);
/// assert_eq!(results[0].summary, results[1].summary);
///
/// // Each node has written a run directory.
/// let run = Run::load(results[0].directory.as_ref().expect("a folder was given"), false)?;
/// assert_eq!(run.summary, Some(results[0].summary.clone()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NodeBuilder {
    key: Keypair,
    topology: Topology,
    experiment: Experiment,
    file: NodeFile,
    /// The path of the node's file, for errors.
    origin: Option<PathBuf>,
    out: Option<PathBuf>,
    problem: Problem,
    initial: Option<Vec<f32>>,
    agreed: Vec<(String, String)>,
    evaluate: Option<Evaluate>,
    warn: Warn,
    fresh: bool,
    ends: Arc<AtomicBool>,
    documents: Option<Answers>,
    pub(super) beside: Option<Beside>,
}

/// What is made when a node is prepared, and dropped when it has ended.
pub(super) type Beside = Box<dyn FnOnce(&Prepared) -> Box<dyn Any> + Send>;

impl NodeBuilder {
    /// A node from these values. `topology` names the PeerIds of `key` and of all other nodes, with
    /// addresses; it and `experiment` are the same at every node. Names in `experiment` are found
    /// in its registries ([`Experiment::with_registries`]).
    pub fn new(key: Keypair, topology: Topology, experiment: Experiment) -> NodeBuilder {
        NodeBuilder {
            key,
            topology,
            file: NodeFile { experiment: "experiment".into(), ..NodeFile::default() },
            experiment,
            origin: None,
            out: None,
            problem: Problem::File,
            initial: None,
            agreed: Vec::new(),
            evaluate: None,
            warn: Arc::new(|line| tracing::warn!("{line}")),
            fresh: false,
            ends: Arc::default(),
            documents: None,
            beside: None,
        }
    }

    /// A node from its file, with the key, the topology and the experiment that the file names.
    ///
    /// # Errors
    /// If one of these files cannot be read or is wrong.
    pub fn load(path: &Path) -> Result<NodeBuilder, ConfigError> {
        NodeBuilder::load_with(path, Registries::default())
    }

    /// As [`NodeBuilder::load`], with registries of the program's own: the files may name their
    /// entries.
    ///
    /// # Errors
    /// As [`NodeBuilder::load`].
    pub fn load_with(path: &Path, registries: Registries) -> Result<NodeBuilder, ConfigError> {
        let file = NodeFile::load(path)?;
        let key = identity::load(&file.key)?;
        let topology = Topology::load_with(&file.topology, registries.families)?;
        let experiment = Experiment::load(&file.experiment, &[])?.with_registries(registries);
        let mut builder = NodeBuilder::new(key, topology, experiment);
        builder.out = Some(file.out.clone());
        (builder.file, builder.origin) = (file, Some(path.to_path_buf()));
        Ok(builder)
    }

    /// How TCP connections are encrypted; both ends of a link agree on the faster kind that both
    /// have.
    #[must_use]
    pub fn security(mut self, security: Security) -> NodeBuilder {
        self.file.security = security;
        self
    }

    /// Whether the node asks its router to forward the ports on which it listens (UPnP) while it
    /// runs. Without this call it does not.
    #[must_use]
    pub fn upnp(mut self, upnp: bool) -> NodeBuilder {
        self.file.upnp = upnp;
        self
    }

    /// Through which proxy connections of TCP leave this machine: `http://HOST:PORT` or
    /// `socks5://HOST:PORT`.
    #[must_use]
    pub fn proxy(mut self, proxy: impl Into<String>) -> NodeBuilder {
        self.file.proxy = Some(proxy.into());
        self
    }

    /// Adds an address to listen on, such as `/ip4/0.0.0.0/tcp/4001`.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> NodeBuilder {
        self.file.listen.push(address.into());
        self
    }

    /// The rows to train on, if there is no objective: `digits`, `breast-cancer` or a file.
    #[must_use]
    pub fn data(mut self, source: impl Into<String>) -> NodeBuilder {
        self.file.data = Some(source.into());
        self
    }

    /// Begins again: removes the files of an earlier run from the run directory. Otherwise a run
    /// that was interrupted there continues.
    #[must_use]
    pub fn fresh(mut self) -> NodeBuilder {
        self.fresh = true;
        self
    }

    /// Once this is true, the node asks all others to end the run: they end after the same round,
    /// with their results.
    #[must_use]
    pub fn end_once(mut self, ends: Arc<AtomicBool>) -> NodeBuilder {
        self.ends = ends;
        self
    }

    /// The file with the values that this node gives to all, if the experiment asks it for them
    /// (`model.init = "from:NODE"`).
    #[must_use]
    pub fn own_init(mut self, file: impl Into<PathBuf>) -> NodeBuilder {
        self.file.init = Some(file.into().display().to_string());
        self
    }

    /// The versions of the signed run of which this run is a stage, for the summary.
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn versions(mut self, versions: Vec<RunVersion>) -> NodeBuilder {
        self.experiment.versions = versions;
        self
    }

    /// Answers sites that ask for documents, at the addresses of the node.
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn documents(mut self, answers: Answers) -> NodeBuilder {
        self.documents = Some(answers);
        self
    }

    /// The run directory to create, or that of a run to continue with. Without one nothing is
    /// written.
    #[must_use]
    pub fn out(mut self, folder: impl Into<PathBuf>) -> NodeBuilder {
        self.out = Some(folder.into());
        self
    }

    /// An objective of the program, instead of the experiment's model and data. Its tensors and
    /// initial values must be the same at every node.
    #[must_use]
    pub fn objective(mut self, objective: impl Objective + 'static) -> NodeBuilder {
        self.problem = Problem::Objective(Box::new(objective));
        self
    }

    /// The initial model of all nodes: d numbers in the order of the tensors. Without it, zeros.
    #[must_use]
    pub fn initial(mut self, x: Vec<f32>) -> NodeBuilder {
        self.initial = Some(x);
        self
    }

    /// A value of the program's own objective or training loop that must be the same at all nodes,
    /// such as a hash of parameters that are not trained. Nodes compare it when they link; where it
    /// differs they refuse each other, and name `model.KEY` and both values.
    #[must_use]
    pub fn agree(mut self, key: impl Into<String>, value: impl Into<String>) -> NodeBuilder {
        self.agreed.push((key.into(), value.into()));
        self
    }

    /// Measures of the program: called with the node's model at every evaluation, and at the end
    /// with its own model and with the mean. They are written to `metrics.jsonl` and to the
    /// summary.
    #[must_use]
    pub fn evaluate(
        mut self,
        evaluate: impl FnMut(&[f32]) -> Measures + Send + 'static,
    ) -> NodeBuilder {
        self.evaluate = Some(Evaluate::new(evaluate));
        self
    }

    /// The function that shows warnings to the user; without it they go to `tracing`.
    #[must_use]
    pub fn warn(mut self, warn: Warn) -> NodeBuilder {
        self.warn = warn;
        self
    }

    /// What the node's file says about who is told of the run.
    pub fn status(&self) -> &StatusFile {
        &self.file.status
    }

    /// Calls `begin` when the node's files are read, before it runs, if it is started on a thread
    /// of its own; what that returns is dropped when the node has ended. With it a program watches
    /// the records of all nodes ([`Prepared::board`]).
    #[must_use]
    pub fn beside<T: 'static>(
        mut self,
        begin: impl FnOnce(&Prepared) -> T + Send + 'static,
    ) -> NodeBuilder {
        self.beside = Some(Box::new(move |prepared| Box::new(begin(prepared))));
        self
    }

    /// Reads the data and checks everything.
    ///
    /// # Errors
    /// If a file, a value or a combination is wrong, or the run directory cannot be made.
    pub fn prepare(self) -> Result<Prepared, ConfigError> {
        let NodeBuilder { key, topology, experiment, file, origin, out, problem, .. } = self;
        let (initial, evaluate, warn, fresh) = (self.initial, self.evaluate, self.warn, self.fresh);
        let agreed = self.agreed;
        let in_topology = origin.as_ref().map(|_| file.topology.display().to_string());
        let blame = blame_file(origin);
        let on_event = Command::of(&file).map_err(&blame)?;
        let place = Place::new(key, &file.listen, &topology).map_err(|error| {
            let error = blame(error);
            if let Some(file) = in_topology { error.within(file) } else { error }
        })?;
        let place = place.with_security(file.security).with_upnp(file.upnp).map_err(&blame)?;
        let place = place.with_proxy(file.proxy.as_deref()).map_err(&blame)?;
        let place = place.with_documents(self.documents);
        let node = place.node;
        let mut read = DataRecord::default();
        let (design, mut spec, known, score): Parts = match problem {
            Problem::File => {
                if let Some((key, value)) = agreed.first() {
                    let problem = "is for an objective or a training loop of the program";
                    return Err(ConfigError::new(format!("model.{key}"), value, problem));
                }
                let mut single = Single::new(&file, experiment, topology, node).map_err(&blame)?;
                read = std::mem::take(&mut single.read);
                single_parts(single, &warn)
            }
            Problem::Objective(objective) => {
                let tensors = objective.tensors().to_vec();
                let design = own_design(experiment, topology, tensors, (initial, agreed))?;
                let rows = objective.rows();
                let learner = OwnLearner::of_objective(&design, node, objective)?;
                own_parts(design, learner.evaluated(evaluate.clone()), node, rows as u64)
            }
            Problem::Exchange { tensors, rows, ends } => {
                let design = own_design(experiment, topology, tensors, (initial, agreed))?;
                let learner = exchange::learner(&design, ends, rows)?;
                own_parts(design, learner.evaluated(evaluate.clone()), node, rows)
            }
        };
        let restores = spec.learner.state(&mut State::default());
        let directory = out.map(|out| make_directory(&design, &out, (fresh, restores), &warn));
        let directory = directory.transpose();
        let directory = directory.map_err(|error| blame(error.with_place("node.out")))?;
        let kept = directory.as_ref().filter(|_| restores);
        let kept = kept.map(|directory| what_is_kept(&design, node, directory)).transpose()?;
        let (checkpoints, complete) = kept.unzip();
        if let Some(directory) = &directory {
            // Not before the files of another run are recognised.
            let read = read.resumed(directory.path());
            let read = read.map_err(|error| error.with_place("node.data"))?;
            write_design(&design, &read, directory).map_err(&blame)?;
        }
        // Last: an error stands alone.
        place.warnings().iter().for_each(|warning| warn(&format!("warning: {warning}")));
        let site = site_of(place, &design, (&file.status, self.ends)).map_err(&blame)?;
        Ok(Prepared {
            design,
            site,
            spec,
            known,
            score,
            evaluate,
            directory,
            checkpoints,
            complete: complete.flatten(),
            on_event,
            blame: Box::new(blame),
            warn,
        })
    }

    /// Starts the node on a thread of its own, without waiting for its links. Errors in its files
    /// are returned by [`Node::join`].
    pub fn start(self) -> Node {
        Node::start(self)
    }

    /// Starts the node and waits until all nodes are linked.
    ///
    /// # Errors
    /// If its files are wrong, or not all nodes are linked within `run.connect_s`; the error names
    /// the missing ones.
    pub async fn spawn(self) -> Result<Node, EndError> {
        match Node::start(self).linked().await? {
            Linked::Runs(node) => Ok(node),
            Linked::Over(..) => Err(EndError::failed("the run in this run directory is over")),
        }
    }

    /// The same, blocking this thread.
    ///
    /// # Errors
    /// As [`NodeBuilder::spawn`].
    pub fn spawn_blocking(self) -> Result<Node, EndError> {
        futures::executor::block_on(self.spawn())
    }

    /// Starts the node for a training loop of the program, on a model of these tensors, and waits
    /// until all nodes are linked. `rows` is the number of rows that this node trains on, for
    /// `data.weighting = "rows"` and the summary. A run that is over already in the run directory
    /// is not open: [`Exchange::finish`] returns its results.
    ///
    /// # Errors
    /// As [`NodeBuilder::spawn`]; also if the rule cannot run so, with the reason.
    pub async fn connect(mut self, tensors: Vec<Tensor>, rows: u64) -> Result<Exchange, EndError> {
        let (ends, program) = exchange::ends();
        self.problem = Problem::Exchange { tensors, rows, ends };
        Exchange::begin(Node::start(self).linked().await?, program).await
    }

    /// The same, blocking this thread.
    ///
    /// # Errors
    /// As [`NodeBuilder::connect`].
    pub fn connect_blocking(self, tensors: Vec<Tensor>, rows: u64) -> Result<Exchange, EndError> {
        futures::executor::block_on(self.connect(tensors, rows))
    }
}

fn site_of(
    place: Place,
    design: &Design,
    (status, ends): (&StatusFile, Arc<AtomicBool>),
) -> Result<Site, ConfigError> {
    let mut site = Site::new(place, design)?;
    site.ends = ends;
    if !status.share {
        site.board.set_terse();
    }
    Ok(site)
}

/// What a node runs, and how it is recorded and scored.
type Parts = (Arc<Design>, NodeSpec, RunInfo, ScoreModel);

/// Errors about values of the node's file name that file; other places belong to the topology.
fn blame_file(origin: Option<PathBuf>) -> impl Fn(ConfigError) -> ConfigError {
    move |error: ConfigError| match &origin {
        Some(origin) if error.is_in("node") => error.within(origin.display()),
        Some(origin) if error.key() == Some("listen") => {
            error.with_place("node.listen").within(origin.display())
        }
        _ => error,
    }
}

fn single_parts(mut single: Single, warn: &Warn) -> Parts {
    for warning in single.warning.iter().chain(&single.remarks) {
        warn(&format!("warning: {warning}"));
    }
    let spec = single.spec.take().expect("a node has its learner before it runs");
    let (design, known) = (Arc::clone(&single.design), RunInfo::from(&single));
    (design, spec, known, Box::new(move |x| single.score(x)))
}

/// The checkpoints of a node in its run directory, and its results if the run is over.
fn what_is_kept(
    design: &Design,
    node: NodeId,
    directory: &RunDirectory,
) -> Result<(Checkpoints, Option<NodeResult>), ConfigError> {
    let card = RunCard::new(design);
    let owner = Owner::new(design, node, card.texts());
    let mut checkpoints =
        Checkpoints::open(directory.path(), Every::of(design), owner, card.texts())?;
    let complete = results_of(design, node, directory);
    checkpoints.results = complete.as_ref().and_then(|made| made.written(&design.topology));
    Ok((checkpoints, complete))
}

fn own_design(
    experiment: Experiment,
    topology: Topology,
    tensors: Vec<Tensor>,
    (initial, agreed): (Option<Vec<f32>>, Vec<(String, String)>),
) -> Result<Arc<Design>, ConfigError> {
    let mut keys = BTreeSet::new();
    for (key, value) in &agreed {
        let plain = |text: &str| !text.chars().any(char::is_control);
        if key.is_empty() || key.contains([' ', '=']) || !plain(key) || !plain(value) {
            let problem = "expected a key without spaces or \"=\", and a value of one line";
            return Err(ConfigError::new(format!("model.{key}"), value, problem));
        }
        if !keys.insert(key) {
            let problem = "expected each key once";
            return Err(ConfigError::new(format!("model.{key}"), value, problem));
        }
    }
    // Too many numbers are refused with the design.
    let numbers = count_parameters(&tensors).unwrap_or(0);
    let initial = initial.unwrap_or_else(|| vec![0.0; numbers]);
    let design = Design::of_tensors(experiment.clone(), Arc::new(topology), tensors, initial);
    let design = design.map_err(|error| experiment.blame(error))?;
    let agreed = agreed.into_iter().map(|(key, value)| (format!("model.{key}"), value)).collect();
    Ok(Arc::new(Design { agreed, ..design }))
}

fn own_parts(design: Arc<Design>, mut learner: OwnLearner, node: NodeId, rows: u64) -> Parts {
    let config = design.node(node, learner.setup(), Readers::Everyone);
    let spec = NodeSpec { config, learner: Box::new(learner) };
    let known = RunInfo::of_own(Arc::clone(&design), node, rows);
    (design, spec, known, Box::new(|_| None))
}

fn make_directory(
    design: &Design,
    out: &Path,
    (fresh, restores): (bool, bool),
    warn: &Warn,
) -> Result<RunDirectory, ConfigError> {
    let space = Space::of(design, SavedFiles::One);
    if fresh {
        let directory = RunDirectory::again(out)?;
        // What was removed has made room.
        space.ensure(out, warn).inspect_err(|_| directory.discard())?;
        return Ok(directory);
    }
    if restores && RunDirectory::can_go_on(out) {
        return RunDirectory::go_on(out);
    }
    space.ensure(out, warn)?;
    RunDirectory::create(out)
}

/// Writes the files that are known before the run.
fn write_design(
    design: &Design,
    read: &DataRecord,
    directory: &RunDirectory,
) -> Result<(), ConfigError> {
    directory
        .write("experiment.toml", &design.experiment.moved().to_toml())
        .and_then(|()| directory.write("topology.toml", &design.topology.to_toml()))
        .and_then(|()| read.write(directory))
        .map_err(|error| ConfigError::at("node.out", error.to_string()))
}
