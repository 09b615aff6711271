//! A node with its files read and checked, on the thread that runs it.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use super::{Event, command::Command, on_event::Notices};
use crate::{
    config::ConfigError,
    drive::{Elapsed, Ended, Lent, NodeSpec, Observer, RunError, Waiting},
    experiment::Policy,
    gossip::{OwnModel, RoundDone},
    learn::tensors_of,
    mixing::Topology,
    net::{self, PeerId, Site},
    run::{
        Checkpoints, Departure, Design, Ending, Evaluate, Measures, Recorder, RunDirectory,
        RunInfo, Summary, Warn,
        checkpoint::Written,
        metrics::{MeanLoss, Metric},
        record::Score,
    },
    status::Board,
    units::{NodeId, Round},
};

/// The results that a run returns to the program that embedded a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeResult {
    /// The summary, the same at all nodes.
    pub summary: Summary,
    /// This node's own model after its last round.
    pub model: Vec<f32>,
    /// The exact mean of all nodes' models, the same bits everywhere.
    pub mean: Vec<f32>,
    /// Bytes that the node sent to form the mean, and before round 0.
    pub tree_bytes: u64,
    /// The run directory, if one was written.
    pub directory: Option<PathBuf>,
}

impl NodeResult {
    /// What other nodes must know of these results; `None` if their history is not of this run.
    pub(super) fn written(&self, topology: &Topology) -> Option<Written> {
        let history = self.summary.history.iter().map(|change| change.numbered(topology));
        Some(Written::of(&self.mean, &history.collect::<Result<Vec<_>, _>>().ok()?))
    }
}

/// How a node scores its model if the program brings no objective.
pub(super) type ScoreModel = Box<dyn Fn(&[f32]) -> Option<Score>>;

/// A node that is ready to run on this thread.
pub struct Prepared {
    pub(super) design: Arc<Design>,
    pub(super) site: Site,
    pub(super) spec: NodeSpec,
    pub(super) known: RunInfo,
    pub(super) score: ScoreModel,
    pub(super) evaluate: Option<Evaluate>,
    pub(super) directory: Option<RunDirectory>,
    pub(super) checkpoints: Option<Checkpoints>,
    /// The results, if the run was over already.
    pub(super) complete: Option<NodeResult>,
    /// What is called when the run waits, or loses a member, or ends.
    pub(super) on_event: Option<Command>,
    pub(super) blame: Box<dyn Fn(ConfigError) -> ConfigError>,
    pub(super) warn: Warn,
}

impl Prepared {
    /// The design that all nodes of the run share.
    pub fn design(&self) -> &Arc<Design> {
        &self.design
    }

    /// The node's number in the topology.
    pub fn node(&self) -> NodeId {
        self.site.place.node
    }

    /// Its name in the topology.
    pub fn name(&self) -> &str {
        &self.design.topology.node(self.site.place.node).name
    }

    /// The PeerId that follows from the node's key.
    pub fn peer(&self) -> PeerId {
        self.site.place.peer()
    }

    /// What nodes say about themselves, from when the node runs.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.site.board)
    }

    /// Signs what this node says in its first attempt, while all nodes are members.
    #[cfg(feature = "internals")]
    pub fn signer(&self) -> impl Fn(net::Said) -> net::Statement + Send + Sync + use<> {
        self.site.signer()
    }

    /// The node and its run in one line.
    pub fn describe(&self) -> String {
        let design = &self.design;
        format!(
            "node {} ({}) of {} on {}: {} with {}, {} parameters, {} rounds",
            self.name(),
            self.peer(),
            design.topology.nodes(),
            design.topology.name(),
            design.rule_name(),
            design.compressor.name(),
            design.parameters(),
            design.experiment.run.rounds
        )
    }

    /// The run directory, if one is written.
    pub fn directory(&self) -> Option<&RunDirectory> {
        self.directory.as_ref()
    }

    /// Saves models and ends a run that cannot end by itself; `None` without a run directory.
    pub fn recorder(&self) -> Option<Recorder> {
        let directory = self.directory.as_ref()?;
        Some(Recorder::new(self.known.clone(), directory, Arc::clone(&self.warn)))
    }

    /// Runs the node to its end on this thread. `events` receives every event; `stop` is called
    /// again and again and returns whether to leave now. `recorder` is the result of
    /// [`Prepared::recorder`].
    ///
    /// # Errors
    /// If the node's files differ from its neighbours', a link breaks, a deadline passes, the node
    /// fails, records are missing at the end, or `stop` returns true. By then the results are in
    /// the run directory, and the neighbours know the reason.
    pub fn run(
        mut self,
        recorder: Option<Recorder>,
        events: &mut dyn FnMut(Event),
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<NodeResult, super::EndError> {
        let Prepared { design, site, spec, score, evaluate, mut directory, .. } = self;
        let (blame, warn, checkpoints) = (self.blame, self.warn, self.checkpoints);
        let node = site.place.node;
        let board = Arc::clone(&site.board);
        let is_over = checkpoints.as_ref().is_some_and(Checkpoints::is_empty);
        if let Some(complete) = self.complete.take_if(|_| is_over) {
            warn(&already_over(&complete));
            events(Event::Ended);
            return Ok(complete);
        }
        let notices = Notices::start(self.on_event, &design, node);
        let mut events = |event: Event| {
            notices.follow(&event);
            events(event);
        };
        let may_continue = design.experiment.absence.policy == Policy::Continue;
        let mut departure = directory.as_ref().filter(|_| may_continue).map(Departure::of);
        let mut observer = RunObserver {
            design: &design,
            recorder: recorder.as_ref(),
            directory: directory.as_mut(),
            score,
            evaluate,
            events: &mut events,
            notices: &notices,
            rounds: 0,
            losses: MeanLoss::default(),
            away: BTreeMap::new(),
            resumed: false,
            written: None,
            board,
            warn: Arc::clone(&warn),
        };
        let kept = checkpoints.clone();
        let mut asked = || departure.as_mut().is_some_and(Departure::is_asked);
        let mut stop = || stop() || asked();
        let ended = net::alone(site, spec, &design, checkpoints, &mut observer, &mut stop);
        let leaves = asked();
        let (rounds, resumed, written) =
            (observer.rounds, observer.resumed, observer.written.take());
        let run = RanNode {
            design: &design,
            node,
            recorder: recorder.as_ref(),
            directory: directory.as_ref(),
            checkpoints: kept.as_ref(),
            complete: self.complete,
            may_continue,
            resumed,
            rounds,
            written,
        };
        let result = run.result(ended.map_err(|error| match error {
            RunError::Setup(error) => RunError::Setup(blame(error)),
            error => error,
        }));
        let result = result.map_err(|error| if leaves { left(error) } else { error });
        // Last, because a disk that was full may have room now.
        if let Some(Err(error)) = directory.as_mut().map(RunDirectory::finish) {
            warn(&format!("warning: {error}"));
        }
        events(Event::Ended);
        notices.end(&result);
        result
    }
}

/// What is known of a run when its node has ended.
struct RanNode<'a> {
    design: &'a Design,
    node: NodeId,
    recorder: Option<&'a Recorder>,
    directory: Option<&'a RunDirectory>,
    checkpoints: Option<&'a Checkpoints>,
    /// The results that were there before.
    complete: Option<NodeResult>,
    may_continue: bool,
    resumed: bool,
    rounds: u64,
    written: Option<Result<Summary, super::EndError>>,
}

impl RanNode<'_> {
    /// The results, or why there are none and what is saved.
    fn result(self, ended: Result<Ended, RunError>) -> Result<NodeResult, super::EndError> {
        let kept_before = self.complete.is_some() && !self.resumed;
        let has_results = kept_before || matches!(self.written, Some(Ok(_)));
        let error = match ended {
            Ok(Ended { model, mean, traffic, .. }) => {
                let written = self.written.expect("a run that is over has its results");
                return written.map(|summary| NodeResult {
                    summary,
                    model,
                    mean,
                    tree_bytes: traffic.tree,
                    directory: self.directory.map(|made| made.path().to_path_buf()),
                });
            }
            Err(error) => error,
        };
        if let Some(Err(why)) = self.written {
            return Err(why);
        }
        match (self.complete, self.recorder, self.directory) {
            (Some(complete), ..) if error.confirms(self.resumed, self.may_continue) => {
                if let Some(checkpoints) = self.checkpoints {
                    checkpoints.retain(|_| false);
                }
                Ok(complete)
            }
            // They must not be replaced: the others may have the same.
            (_, _, directory) if has_results => {
                Err(unconfirmed(super::EndError::of(error, &self.design.topology), directory))
            }
            (_, Some(recorder), Some(directory)) => {
                Err(recorder.failed(directory, error, self.rounds, Some(self.node)))
            }
            _ => Err(super::EndError::of(error, &self.design.topology)),
        }
    }
}

fn already_over(complete: &NodeResult) -> String {
    let folder = complete.directory.clone().unwrap_or_default();
    format!(
        "the run in {} is over; to start from the beginning, use --fresh (in Python: fresh=True) \
         or another run directory",
        folder.display()
    )
}

/// A node that was asked to leave has done so.
fn left(error: super::EndError) -> super::EndError {
    match error {
        super::EndError::Interrupted(ending) => {
            let text = format!("{}; the others continue without this node", ending.text);
            super::EndError::Left(Ending { text, ..ending })
        }
        error => error,
    }
}

/// Why a node with results ends before it knows that the others have theirs.
fn unconfirmed(error: super::EndError, directory: Option<&RunDirectory>) -> super::EndError {
    let place = directory.map_or(String::new(), |made| format!(" in {}", made.path().display()));
    match error {
        super::EndError::Interrupted(ending) => super::EndError::Interrupted(Ending {
            text: format!(
                "stopped before all nodes had their results; those of this node are whole{place}"
            ),
            ..ending
        }),
        error => error.and(format!(
            "its results are whole{place}: compare their digest with that of another node"
        )),
    }
}

/// Saves the models that could not be saved before, and writes the summary, the same at every node.
fn conclude(
    design: &Design,
    ended: &Ended,
    files: Option<(&Recorder, &RunDirectory)>,
) -> Result<Summary, super::EndError> {
    let kept = files.map_or(Ok(()), |(recorder, _)| recorder.finish(true));
    let made = Summary::of_run(design, &ended.records, &ended.history);
    let summary = match (made, files) {
        (Ok(mut summary), Some((recorder, _))) => {
            recorder.add_warnings(&mut summary);
            summary
        }
        (Ok(summary), None) => summary,
        (Err(why), Some((recorder, directory))) => {
            return Err(recorder.unusable(directory, why.to_string(), kept));
        }
        (Err(why), None) => {
            return Err(super::EndError::Short(
                format!("no node's record can be used: {why}").into(),
            ));
        }
    };
    let written = files.map_or(Ok(()), |(_, directory)| directory.summary(&summary));
    kept.map_err(|error| super::EndError::failed(error.to_string()))?;
    written.map_err(|error| super::EndError::failed(error.to_string()))?;
    Ok(summary)
}

/// The results of a run that was over when this program was started again; `None` if it was not.
pub(super) fn results_of(
    design: &Design,
    node: NodeId,
    directory: &RunDirectory,
) -> Option<NodeResult> {
    let path = directory.path();
    let summary = Summary::read(&path.join("summary.json")).ok()?;
    let whole = summary.failure.is_none() && !summary.interrupted;
    if !whole || summary.rounds < summary.rounds_of(design.experiment.run.rounds) {
        return None;
    }
    // No input of this command: it writes them again if the last rounds are done once more.
    let model = |name: &str| {
        let bytes = fs::read(path.join(format!("model-{name}.safetensors"))).ok()?;
        tensors_of(&bytes, &design.tensors).ok()
    };
    Some(NodeResult {
        model: model(&design.topology.node(node).name)?,
        mean: model("mean")?,
        summary,
        tree_bytes: 0,
        directory: Some(path.to_path_buf()),
    })
}

/// The figures of an evaluation that all nodes may know.
fn figures(metric: &Metric) -> BTreeMap<String, f64> {
    let own = [("test_loss", metric.test_loss), ("test_accuracy", metric.test_accuracy)];
    let own = own.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?)));
    own.chain(metric.measures.clone()).collect()
}

/// Records the node's events, and passes them on.
struct RunObserver<'a> {
    design: &'a Design,
    recorder: Option<&'a Recorder>,
    directory: Option<&'a mut RunDirectory>,
    score: ScoreModel,
    evaluate: Option<Evaluate>,
    events: &'a mut dyn FnMut(Event),
    notices: &'a Notices,
    rounds: u64,
    losses: MeanLoss,
    /// Why nodes are away, as it was written.
    away: BTreeMap<String, String>,
    /// Whether the run continued, so that its files are no longer those of an earlier end.
    resumed: bool,
    /// The summary, once the run is over.
    written: Option<Result<Summary, super::EndError>>,
    board: Arc<Board>,
    warn: Warn,
}

impl RunObserver<'_> {
    fn name(&self, node: NodeId) -> String {
        self.design.topology.node(node).name.clone()
    }

    fn metric(
        &self,
        node: NodeId,
        elapsed: Elapsed,
        done: &RoundDone,
        (x, mean_loss): (&[f32], f64),
    ) -> Metric {
        let score = (self.score)(x);
        let measures = self.evaluate.as_ref().map_or_else(Measures::new, |evaluate| evaluate.of(x));
        Metric {
            round: done.round.0 + 1,
            node: node.0,
            time_s: elapsed.time.seconds(),
            computing_s: elapsed.computing.seconds(),
            train_loss: Some(mean_loss),
            test_loss: score.map(|score| score.loss),
            test_accuracy: score.and_then(|score| score.accuracy()),
            consensus: None,
            bytes_payload: done.traffic.payload,
            bytes_wire: done.traffic.wire,
            bytes_dense: done.traffic.dense,
            measures,
        }
    }
}

impl Observer for RunObserver<'_> {
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone) {
        self.rounds = done.round.0 + 1;
        let mean_loss = self.losses.add(done.loss, done.model.is_some());
        if let Some(x) = &done.model {
            let metric = self.metric(node, elapsed, &done, (x, mean_loss));
            if let Some(Err(error)) = self.directory.as_mut().map(|to| to.metric(&metric)) {
                (self.warn)(&format!("warning: {error}"));
            }
            self.board.evaluated(metric.round, figures(&metric));
            (self.events)(Event::Evaluation(metric));
        }
        let (rounds, loss, traffic) = (self.rounds, done.loss, done.traffic);
        if let Some(mean) = done.mean.map(Arc::new) {
            (self.events)(Event::Averaged { rounds, mean });
        }
        (self.events)(Event::Round { rounds, loss, mean_loss, traffic, elapsed });
    }

    fn linked(&mut self, _node: NodeId, peer: NodeId, up: usize, links: usize) {
        let peer = self.name(peer);
        (self.events)(Event::Linked { peer, up, links });
    }

    fn link_lost(&mut self, _node: NodeId, peer: NodeId, reason: &str) {
        let peer = self.name(peer);
        (self.events)(Event::LinkLost { peer, reason: reason.to_string() });
    }

    fn waits(&mut self, _node: NodeId, waiting: &Waiting) {
        let peers = waiting.peers.iter().map(|peer| self.name(*peer)).collect();
        (self.events)(Event::Waiting { peers, text: waiting.text.clone() });
    }

    fn away(&mut self, _node: NodeId, nodes: &[(NodeId, String)]) {
        let known = nodes.iter().map(|(node, why)| (self.name(*node), why.clone())).collect();
        if self.away != known
            && let Some(directory) = &self.directory
        {
            self.away = known;
            // It informs people only: the next change is written again.
            let _ = directory.away(&self.away);
        }
    }

    fn members(&mut self, _node: NodeId, members: &[NodeId]) {
        self.notices.continues(members.iter().map(|node| self.name(*node)));
    }

    fn begins(&mut self, node: NodeId, lent: &Lent) {
        if let Some(recorder) = self.recorder {
            recorder.begins(node, lent);
        }
        (self.events)(Event::Started);
    }

    fn resumes(&mut self, node: NodeId, rounds: Round) {
        (self.rounds, self.resumed) = (rounds.0, true);
        self.losses = MeanLoss::default();
        // The node forms its results again.
        self.written = None;
        if let Some(recorder) = self.recorder {
            recorder.resumes(node);
        }
        let rewound = self.directory.as_mut().map(|directory| directory.rewind(rounds.0));
        if let Some(Err(error)) = rewound {
            (self.warn)(&format!("warning: {error}"));
        }
        (self.events)(Event::Resumed { rounds: rounds.0 });
    }

    fn save(&mut self, node: NodeId, elapsed: Elapsed, own: &OwnModel) {
        if let Some(recorder) = self.recorder {
            recorder.save(node, elapsed, own);
        }
        (self.events)(Event::Final { rounds: own.rounds.0 });
    }

    fn mean(&mut self, mean: &[f32]) {
        if let Some(recorder) = self.recorder {
            recorder.mean(mean);
        }
        (self.events)(Event::Mean);
    }

    fn ended(&mut self, _node: NodeId, ended: &Ended) -> bool {
        let files = self.recorder.zip(self.directory.as_deref());
        let written = self.written.insert(conclude(self.design, ended, files));
        written.is_ok()
    }
}
