//! A run whose nodes are processes of their own on this machine: writes the files of a deployment
//! (one folder per node, with key, node file and own rows), starts the nodes, follows them, and
//! collects their results.
//!
//! [`run`] does all of it; the laboratory uses the steps one by one, with a network namespace for
//! each node.
#![forbid(unsafe_code)]

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Seek, SeekFrom},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gradvine::{
    config::ConfigError,
    data::{Schema, Target, write_csv},
    experiment::Experiment,
    files,
    learn::SavedModel,
    memory,
    mixing::NodeInfo,
    net::{free_ports, identity},
    run::{
        EndError, Ending, NodeFile, Progress, RunDirectory, SavedFiles, Space, Summary, TestRows,
        Warn, Whole, metrics::Metric, write_summary,
    },
    units::NodeId,
};

/// What starts the command `gradvine`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The path of the command, or of an interpreter.
    pub path: PathBuf,
    /// The arguments of an interpreter.
    pub first: Vec<OsString>,
}

impl Program {
    /// The program, to be completed with arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.first);
        command
    }
}

/// How a caller controls a run.
pub struct Control<'a> {
    /// What is started as `PROGRAM node NODE.toml`.
    pub program: Program,
    /// Whether the run has to stop.
    pub stop: &'a dyn Fn() -> bool,
    /// Receives the progress after each round.
    pub show: &'a mut dyn FnMut(&Progress),
    /// Called with the text of each warning.
    pub warn: Warn,
}

/// How long nodes have to end by themselves after one has failed. One that was killed does not
/// return, and the others would wait for its links.
const GRACE: Duration = Duration::from_secs(5);

/// How often a node is started again.
const MOST_RESTARTS: u32 = 100;

/// How often the nodes' metrics are read.
const POLL: Duration = Duration::from_millis(100);

/// One node's process and folder.
pub struct Process {
    /// The name of the node.
    pub name: String,
    /// Its number in the topology.
    pub node: NodeId,
    /// How often it was started again.
    restarts: u32,
    folder: PathBuf,
    child: Child,
    /// The position up to which its metrics were read, and the file that they were read from.
    read: u64,
    file: Option<u64>,
    latest: Option<Metric>,
    /// The metrics that were read from its file so far, in order.
    pub metrics: Vec<Metric>,
    ended: bool,
    code: Option<i32>,
    /// The signal that ended it, if any.
    signal: Option<i32>,
}

/// The run in a line, with the command that starts a node by hand.
pub fn describe(whole: &Whole, directory: &RunDirectory) -> String {
    let (count, folder) = (whole.shards.len(), directory.path().display());
    format!(
        "{count} processes, one per node; start one by hand with: gradvine node \
         {folder}/nodes/NAME/node.toml"
    )
}

/// Checks that the disk has room for the files of a run and of its nodes; warns if there is little,
/// and discards the run directory if there is none.
///
/// # Errors
/// If there is no room.
pub fn check_room(whole: &Whole, directory: &RunDirectory, warn: &Warn) -> Result<(), ConfigError> {
    let space = Space::of(&whole.design, SavedFiles::Both);
    space.ensure(directory.path(), warn).inspect_err(|_| directory.discard())
}

/// Runs every node as a process of its own on loopback, and returns the summary that all of them
/// have written. Their files are in `nodes/` of the run directory.
///
/// # Errors
/// [`EndError::Interrupted`] after [`Control::stop`], otherwise as the first node that failed
/// ended. The results so far are written.
pub fn run(
    whole: &Whole,
    directory: &mut RunDirectory,
    control: &mut Control<'_>,
) -> Result<Summary, EndError> {
    let transport = whole.design.experiment.run.transport;
    // Otherwise the run continues, with the files that it has.
    if !directory.path().join("nodes").exists() {
        let addresses: Vec<String> = (free_ports(transport, whole.shards.len())?.into_iter())
            .map(|port| transport.address(Ipv4Addr::LOCALHOST, port))
            .collect();
        write_files(whole, directory, &addresses, true)?;
    }
    let program = control.program.clone();
    let command = |_| program.command();
    let mut processes = start(whole, directory, command)?;
    let restart = &mut |process: &mut Process| process.restart(command(process.node));
    follow(&mut processes, control, Some(restart), &mut |_| Ok(()))?;
    merge_metrics(&processes, directory, &control.warn);
    if (control.stop)() {
        return Err(interrupted(whole, directory, &processes, &control.warn));
    }
    gather(whole, directory, &processes, &control.warn)
}

/// Whether the nodes of the run in this folder are processes of their own.
pub fn is_run(folder: &Path) -> bool {
    folder.join("nodes").is_dir()
}

/// Checks that a folder holds a run of processes, or of one process, that can continue.
///
/// # Errors
/// If it holds none; `place` is `folder`.
pub fn check_goes_on(folder: &Path) -> Result<(), ConfigError> {
    let is_ready = is_run(folder) || RunDirectory::can_go_on(folder);
    if folder.join("experiment.toml").is_file() && is_ready {
        return Ok(());
    }
    let problem = "this folder holds no run that can continue: one that is over, or that wrote no \
                   checkpoint, cannot";
    Err(ConfigError::new("folder", folder.display(), problem))
}

/// Starts a node that was killed once more, in the same folder.
pub type Restart<'a> = dyn FnMut(&mut Process) -> Result<(), EndError> + 'a;

/// Watches the nodes until all have ended; if the user interrupts, or one has failed, asks the
/// others to stop. A node that was killed is started again by `restart`, if there is one. Calls
/// `look` at regular intervals.
pub fn follow(
    processes: &mut [Process],
    control: &mut Control<'_>,
    mut restart: Option<&mut Restart<'_>>,
    look: &mut dyn FnMut(&[Process]) -> Result<(), EndError>,
) -> Result<(), EndError> {
    let (mut stopping, mut shown) = (false, 0);
    let mut failed: Option<Instant> = None;
    while processes.iter().any(|process| !process.ended) {
        thread::sleep(POLL);
        if failed.is_none() && processes.iter().any(Process::has_failed) {
            failed = Some(Instant::now());
        }
        let late = failed.is_some_and(|since| since.elapsed() > GRACE);
        if ((control.stop)() || late) && !stopping {
            stopping = true;
            // A node stops when its standard input ends.
            processes.iter_mut().for_each(|process| drop(process.child.stdin.take()));
        }
        look(processes)?;
        for process in &mut *processes {
            process.look()?;
            if let Some(restart) = restart.as_mut().filter(|_| process.was_killed() && !stopping) {
                let (name, signal) = (&process.name, process.signal.unwrap_or_default());
                (control.warn)(&format!(
                    "warning: node {name} was ended by signal {signal}: it is started again"
                ));
                restart(process)?;
            }
        }
        let progress = progress(processes);
        if progress.rounds > shown {
            shown = progress.rounds;
            (control.show)(&progress);
        }
    }
    Ok(())
}

/// Writes the nodes' metrics into the run's, sorted by rounds, then nodes.
///
/// A line that cannot be written ends nothing: it is a warning.
pub fn merge_metrics(processes: &[Process], directory: &mut RunDirectory, warn: &Warn) {
    let check = |result: std::io::Result<()>| {
        if let Err(error) = result {
            warn(&format!("warning: {error}"));
        }
    };
    let mut metrics: Vec<&Metric> = processes.iter().flat_map(|process| &process.metrics).collect();
    metrics.sort_by_key(|metric| (metric.round, metric.node));
    for metric in metrics {
        check(directory.metric(metric));
    }
    check(directory.finish());
}

/// Writes keys, the topology with peers and addresses, node files and rows. Unless `tested` is set,
/// nodes get no test rows.
pub fn write_files(
    whole: &Whole,
    directory: &RunDirectory,
    addresses: &[String],
    tested: bool,
) -> Result<(), EndError> {
    let design = &whole.design;
    let nodes = directory.path().join("nodes");
    let none = TestRows::None;
    let tests = if tested { &whole.tests } else { &none };
    let mut infos = Vec::new();
    files::create_folder(&nodes)?;
    if let TestRows::Same(test) = tests {
        write_csv(test.raw(), &nodes.join("test.csv"))?;
    }
    for (index, address) in addresses.iter().enumerate() {
        let name = design.topology.node(NodeId::from(index)).name.clone();
        let test = match (tests, tests.of(NodeId::from(index))) {
            (TestRows::Same(_), _) => Some("../test.csv"),
            (_, Some(test)) => {
                files::create_folder(&nodes.join(&name))?;
                write_csv(test.raw(), &nodes.join(&name).join("test.csv"))?;
                Some("test.csv")
            }
            (_, None) => None,
        };
        let file = NodeFile {
            topology: "../../topology.toml".into(),
            data: Some("data.csv".into()),
            test: test.map(String::from),
            ..NodeFile::default()
        };
        infos.push(write_node(&nodes.join(&name), name, address, file)?);
        let rows = nodes.join(&infos[index].name).join("data.csv");
        write_csv(&whole.rows_of(index.into()), &rows)?;
    }
    let topology = (*design.topology).clone().with_nodes(infos)?;
    directory.write("topology.toml", &topology.to_toml())?;
    // The nodes' files are plain CSV with the targets last, whatever the experiment reads.
    let mut experiment: Experiment = design.experiment.moved();
    let rows = whole.shards[0].raw();
    let targets = match &rows.target {
        Target::Classes { .. } => 1,
        Target::Values(values) => values.ncols(),
    };
    let targets: Vec<String> = (1..=targets).rev().map(|back| format!("-{back}")).collect();
    experiment.data.target = Some(targets.join(","));
    experiment.data.header = Some(rows.columns.is_some());
    (experiment.data.columns, experiment.data.labels) = (None, None);
    experiment.data.schema = experiment.data.schema.as_ref().map(Schema::of_features);
    (experiment.data.rows, experiment.data.features) = (None, None);
    (experiment.data.noise, experiment.data.heterogeneity) = (None, None);
    (experiment.data.alpha, experiment.data.split) = (None, Default::default());
    (experiment.data.sources, experiment.data.sizes) = (None, None);
    // Otherwise nodes without test rows would take some from their own rows.
    experiment.data.test_share = 0.0;
    experiment.data.source = "data.csv".into();
    // All nodes are on this machine.
    experiment.run.minimum_rows = Some(1);
    files::replace(&nodes.join("experiment.toml"), experiment.to_toml().as_bytes())?;
    Ok(())
}

/// Writes the files of nodes on this machine that get their models and rows from programs: the
/// topology, the experiment, and for each node a folder with its key and its file. Returns the
/// paths of the nodes' files, in node order.
///
/// # Errors
/// If the experiment's topology is wrong, the folder has these files, or a file cannot be written.
pub fn write_node_files(folder: &Path, experiment: &Experiment) -> Result<Vec<PathBuf>, EndError> {
    let run = &experiment.run;
    let topology = gradvine::run::topology(experiment).map_err(|error| experiment.blame(error))?;
    for name in ["topology.toml", "experiment.toml"] {
        if folder.join(name).exists() {
            let problem = "it exists: expected a folder without the files of other nodes";
            return Err(ConfigError::new("folder", folder.join(name).display(), problem).into());
        }
    }
    files::create_folder(folder)?;
    let mut infos = Vec::new();
    for (index, port) in free_ports(run.transport, topology.nodes())?.into_iter().enumerate() {
        let name = topology.node(NodeId::from(index)).name.clone();
        let address = run.transport.address(Ipv4Addr::LOCALHOST, port);
        let file = NodeFile { topology: "../topology.toml".into(), ..NodeFile::default() };
        infos.push(write_node(&folder.join(&name), name, &address, file)?);
    }
    let files = infos.iter().map(|info| folder.join(&info.name).join("node.toml")).collect();
    let topology = topology.with_nodes(infos)?.to_toml();
    files::replace(&folder.join("topology.toml"), topology.as_bytes())?;
    files::replace(&folder.join("experiment.toml"), experiment.moved().to_toml().as_bytes())?;
    Ok(files)
}

/// Writes the key and the file of a node at this address into its folder.
fn write_node(
    folder: &Path,
    name: String,
    address: &str,
    file: NodeFile,
) -> Result<NodeInfo, EndError> {
    files::create_folder(folder)?;
    let key = identity::create(&folder.join("node.key"))?;
    let file = NodeFile {
        key: "node.key".into(),
        listen: vec![address.into()],
        experiment: "../experiment.toml".into(),
        out: "run".into(),
        ..file
    };
    let text = toml::to_string(&file).map_err(|error| EndError::failed(error.to_string()))?;
    files::replace(&folder.join("node.toml"), text.as_bytes())?;
    Ok(NodeInfo {
        name,
        peer: Some(key.public().to_peer_id().to_string()),
        addresses: vec![address.into()],
    })
}

/// Starts every node. `command` makes the command of a node, without its arguments.
///
/// # Errors
/// [`EndError::Failed`] if a log file or a process cannot be created.
pub fn start(
    whole: &Whole,
    directory: &RunDirectory,
    command: impl Fn(NodeId) -> Command,
) -> Result<Vec<Process>, EndError> {
    let mut processes = Vec::new();
    for node in 0..whole.shards.len() {
        let name = whole.design.topology.node(NodeId::from(node)).name.clone();
        let folder = directory.path().join("nodes").join(&name);
        let log = files::create(&folder.join("log.txt"))?;
        let child = spawn(command(NodeId::from(node)), &folder, log)?;
        processes.push(Process {
            name,
            node: NodeId::from(node),
            restarts: 0,
            folder,
            child,
            read: 0,
            file: None,
            latest: None,
            metrics: Vec::new(),
            ended: false,
            code: None,
            signal: None,
        });
    }
    Ok(processes)
}

/// Starts a node with the files in this folder.
fn spawn(mut command: Command, folder: &Path, log: fs::File) -> Result<Child, EndError> {
    let child = command
        .arg("node")
        .arg(folder.join("node.toml"))
        .args(["--quiet", "--until-stdin-ends"])
        .args(memory::is_unlimited().then_some("--no-space-check"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    Ok(child)
}

impl Process {
    /// Whether a signal ended it, and it may be started again.
    fn was_killed(&self) -> bool {
        self.ended && self.signal.is_some() && self.restarts < MOST_RESTARTS
    }

    /// Starts it again: it resumes from its newest checkpoint.
    fn restart(&mut self, command: Command) -> Result<(), EndError> {
        let log = files::append(&self.folder.join("log.txt"))?;
        self.child = spawn(command, &self.folder, log)?;
        (self.ended, self.code, self.signal) = (false, None, None);
        self.restarts += 1;
        Ok(())
    }

    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        (!self.ended).then(|| self.child.id())
    }

    /// Whether it has ended, and not with success.
    fn has_failed(&self) -> bool {
        self.ended && self.code != Some(0)
    }

    /// Reads its new metrics, and checks whether it has ended.
    fn look(&mut self) -> Result<(), EndError> {
        if !self.ended
            && let Some(status) = self.child.try_wait()?
        {
            (self.ended, self.code, self.signal) = (true, status.code(), signal(status));
        }
        let Ok(mut file) = fs::File::open(self.folder.join("run/metrics.jsonl")) else {
            return Ok(());
        };
        let metadata = file.metadata()?;
        if metadata.len() < self.read || self.file != Some(identity_of(&metadata)) {
            // The node has gone back to a checkpoint, and has written the file again.
            self.read = 0;
            self.metrics.clear();
            self.file = Some(identity_of(&metadata));
        }
        file.seek(SeekFrom::Start(self.read))?;
        for line in BufReader::new(file).lines() {
            let line = line?;
            // A line that is not complete yet is read again next time.
            let Ok(metric) = Metric::from_json(line.as_bytes()) else { break };
            self.read += line.len() as u64 + 1;
            self.latest = Some(metric.clone());
            self.metrics.push(metric);
        }
        Ok(())
    }

    /// The last line of its log, for an error.
    fn last_line(&self) -> String {
        let text = fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default();
        text.lines().next_back().unwrap_or("its log is empty").to_string()
    }

    /// Its summary, if it has written one.
    fn summary(&self) -> Option<Summary> {
        Summary::from_json(&fs::read(self.folder.join("run/summary.json")).ok()?).ok()
    }
}

/// A number that differs for files that replaced each other, where the system has one.
fn identity_of(metadata: &fs::Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::ino(metadata);
    #[cfg(not(unix))]
    return u64::from(metadata.is_dir());
}

/// The signal that ended a process.
fn signal(status: std::process::ExitStatus) -> Option<i32> {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    return None;
}

/// The slowest node's round, the mean loss, the worst known accuracy, all bytes.
pub fn progress(processes: &[Process]) -> Progress {
    let latest: Vec<&Metric> =
        processes.iter().filter_map(|process| process.latest.as_ref()).collect();
    let count = latest.len().max(1) as f64;
    Progress {
        rounds: if latest.len() < processes.len() {
            0
        } else {
            latest.iter().map(|metric| metric.round).min().unwrap_or(0)
        },
        loss: latest.iter().filter_map(|metric| metric.train_loss).sum::<f64>() / count,
        consensus: None,
        accuracy: latest.iter().filter_map(|metric| metric.test_accuracy).reduce(f64::min),
        payload: latest.iter().fold(0, |sum, metric| metric.bytes_payload.saturating_add(sum)),
        ..Progress::default()
    }
}

/// Handles an interrupted run: the nodes' own models become this run's.
pub fn interrupted(
    whole: &Whole,
    directory: &RunDirectory,
    processes: &[Process],
    warn: &Warn,
) -> EndError {
    let mut summary = salvage(whole, directory, processes, warn);
    summary.interrupt();
    write_summary(directory, &summary, warn);
    let (rounds, folder) = (summary.rounds, directory.path());
    let place = folder.display();
    EndError::Interrupted(Ending {
        text: format!("stopped in round {rounds}; the results so far are in {place}"),
        rounds: Some(rounds),
        folder: Some(folder.to_path_buf()),
        ..Ending::default()
    })
}

/// Collects the results of a run that ended early: the nodes' models, and a summary from their
/// records.
fn salvage(whole: &Whole, directory: &RunDirectory, processes: &[Process], warn: &Warn) -> Summary {
    let mut all = Summary::blank(&whole.design);
    // A node that left knows of no later change.
    let summaries = processes.iter().filter_map(Process::summary);
    if let Some(longest) = summaries.max_by_key(|own| own.history.len()) {
        (all.history, all.away) = (longest.history, longest.away);
    }
    let mut rounds = Vec::new();
    for process in processes {
        let name = format!("model-{}.safetensors", process.name);
        if process.folder.join("run").join(&name).exists()
            && let Err(error) = copy_model(whole, process, directory, &name)
        {
            warn(&format!("warning: the model of node {}: {error}", process.name));
        }
        let own = process.summary().filter(|_| !all.away.contains_key(&process.name));
        let Some(own) = own else { continue };
        let Some(part) = own.participation.get(&process.name) else { continue };
        all.add(&process.name, part.clone(), own.time_s);
        rounds.push(part.rounds);
    }
    let mean = "model-mean.safetensors";
    if let Some(process) =
        processes.iter().find(|process| process.folder.join("run").join(mean).exists())
    {
        match copy_model(whole, process, directory, mean) {
            Ok(()) => {
                all.mean_digest = process.summary().map(|own| own.mean_digest).unwrap_or_default();
            }
            Err(error) => warn(&format!("warning: the mean model: {error}")),
        }
    }
    all.rounds = rounds.into_iter().min().unwrap_or_else(|| progress(processes).rounds);
    all
}

/// Copies a node's model into this run, with the names of the classes and the schema, which no
/// node's rows hold.
fn copy_model(
    whole: &Whole,
    process: &Process,
    directory: &RunDirectory,
    name: &str,
) -> Result<(), EndError> {
    let mut saved = SavedModel::read(&process.folder.join("run").join(name))?;
    saved.classes.clone_from(&whole.classes);
    // The nodes' files have the features as columns, the experiment's file the columns themselves.
    saved.schema.clone_from(&whole.design.experiment.data.schema);
    Ok(saved.write(&directory.path().join(name))?)
}

/// The node that failed first: one that was killed, else one with wrong files, else one that its
/// summary names, else any.
fn first_failed<'a>(failed: &[&'a Process]) -> Option<&'a Process> {
    let rank = |process: &&Process| match process.code {
        None => 0,
        Some(2) => 1,
        Some(_) => {
            let own = process.summary().and_then(|summary| summary.failed_at);
            if own.as_ref() == Some(&process.name) { 2 } else { 3 }
        }
    };
    failed.iter().copied().min_by_key(rank)
}

/// Checks that all nodes have succeeded with the same summary, returns it, and copies their models
/// into this run. A node that left on request has a summary of its own part only.
pub fn gather(
    whole: &Whole,
    directory: &RunDirectory,
    processes: &[Process],
    warn: &Warn,
) -> Result<Summary, EndError> {
    let failed: Vec<&Process> =
        processes.iter().filter(|process| process.code != Some(0)).collect();
    if let Some(first) = first_failed(&failed) {
        let (name, log) = (&first.name, first.folder.join("log.txt"));
        let how = match (first.code, first.signal) {
            (Some(code), _) => format!("ended with code {code}: {}", first.last_line()),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended without a code".into(),
        };
        let how = format!("{how} (its log: {})", log.display());
        let message = format!("node {name} {how}");
        let mut summary = salvage(whole, directory, processes, warn);
        (summary.failure, summary.failed_at) = (Some(message.clone()), Some(name.clone()));
        write_summary(directory, &summary, warn);
        let results = format!("the results so far are in {}", directory.path().display());
        let ending = Ending {
            text: format!("{message}; {results}"),
            node: Some(name.clone()),
            rounds: Some(summary.rounds),
            folder: Some(directory.path().to_path_buf()),
            ..Ending::default()
        };
        return Err(match first.code {
            Some(2) => ConfigError::at(format!("node {name}"), format!("{how}; {results}")).into(),
            Some(3) => EndError::Short(ending),
            _ => EndError::Failed(ending),
        });
    }
    let read = |process: &Process| {
        let path = process.folder.join("run/summary.json");
        let bytes = fs::read(&path).map_err(|error| {
            ConfigError::at("cannot be read", error.to_string()).within(path.display())
        })?;
        let summary = Summary::from_json(&bytes).map_err(std::io::Error::from)?;
        Ok::<_, EndError>((bytes, summary))
    };
    let all = processes.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = (0..all.len()).rev().max_by_key(|&node| all[node].1.history.len()) else {
        return Err(EndError::failed("the run has no nodes"));
    };
    let (bytes, summary) = &all[first];
    for (process, (own, _)) in processes.iter().zip(&all) {
        if own != bytes && !summary.away.contains_key(&process.name) {
            return Err(EndError::failed(format!(
                "node {} wrote another summary than node {}",
                process.name, processes[first].name
            )));
        }
        copy_model(whole, process, directory, &format!("model-{}.safetensors", process.name))?;
    }
    copy_model(whole, &processes[first], directory, "model-mean.safetensors")?;
    let mut summary = summary.clone();
    // Each node knows of its own rows only, and leaves that out of its summary.
    summary.warnings.splice(0..0, whole.design.remarks.iter().cloned());
    Ok(summary)
}
