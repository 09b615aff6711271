//! The handle of a node that runs on a thread of its own.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{mpsc, oneshot};

use super::{EndError, Event, NodeBuilder, NodeResult};
use crate::{config::ConfigError, run::Design, threads, units::NodeId};

/// The maximum number of unread events; later ones are dropped and counted.
const UNREAD: usize = 1024;

/// A running node. Dropping it stops the node: its neighbours get the reason, its model is saved if
/// there is a run directory, and its threads end, as a rule within two seconds of the end of the
/// gradient or evaluation in progress.
///
/// ```
/// use gradvine::{mixing::NodeInfo, prelude::*};
///
/// // The other node of this network never comes, so the program stops this one.
/// let key = Keypair::generate_ed25519();
/// let peer = |key: &Keypair| Some(key.public().to_peer_id().to_string());
/// let address = vec!["/ip4/127.0.0.1/tcp/9".to_string()];
/// let names = vec![
///     NodeInfo { peer: peer(&key), ..NodeInfo::named("here") },
///     NodeInfo {
///         peer: peer(&Keypair::generate_ed25519()),
///         addresses: address,
///         ..NodeInfo::named("away")
///     },
/// ];
/// let topology = Topology::parse("path:2", 1)?.with_nodes(names)?;
/// let settings = ["model.inputs=64", "model.outputs=10"].map(String::from);
/// let experiment = Experiment::default_with(&settings)?;
/// let mut node = NodeBuilder::new(key, topology, experiment).data("digits").start();
/// node.stop();
/// while let Some(event) = node.next_blocking() {
///     assert!(!matches!(event, Event::Linked { .. } | Event::Started));
/// }
/// assert_eq!(node.try_next(), None);
/// let (design, id) = node.design().expect("its files were read");
/// assert_eq!(design.topology.node(id).name, "here");
/// assert_eq!(node.directory(), None); // nothing is written
/// assert!(matches!(node.join_blocking(), Err(EndError::Interrupted(_))));
/// # Ok::<(), gradvine::config::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Node {
    events: mpsc::Receiver<Event>,
    /// Events received while the node linked.
    early: VecDeque<Event>,
    stop: Arc<AtomicBool>,
    /// What the node runs, and its number, once its files are read.
    known: Arc<OnceLock<Known>>,
    result: oneshot::Receiver<Result<NodeResult, EndError>>,
}

/// The design, this node's number in its topology, and the run directory.
type Known = (Arc<Design>, NodeId, Option<PathBuf>);

/// A node once its links are up.
pub(super) enum Linked {
    Runs(Node),
    /// The run in its directory is over.
    Over(Node, Box<NodeResult>),
}

impl Node {
    /// A node from its file.
    ///
    /// # Errors
    /// If the file, or the key, topology or experiment that it names, cannot be read or is wrong.
    pub fn builder(path: impl AsRef<Path>) -> Result<NodeBuilder, ConfigError> {
        NodeBuilder::load(path.as_ref())
    }

    pub(super) fn start(mut builder: NodeBuilder) -> Node {
        let (sender, events) = mpsc::channel(UNREAD);
        let (report, result) = oneshot::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let known = Arc::new(OnceLock::new());
        let tell = Arc::clone(&known);
        let started = threads::spawn("gradvine-node", move || {
            let mut missed = 0;
            let mut events = move |event: Event| {
                if missed > 0 && sender.try_send(Event::Missed(missed)).is_ok() {
                    missed = 0;
                }
                // If the receiver is dropped, nothing needs the event.
                if let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(event) {
                    missed += 1;
                }
            };
            let mut stop = || asked.load(Ordering::Relaxed);
            let beside = builder.beside.take();
            let result = builder.prepare().map_err(EndError::Setup).and_then(|prepared| {
                // It is set only here.
                let folder = prepared.directory().map(|made| made.path().to_path_buf());
                let _ = tell.set((Arc::clone(prepared.design()), prepared.node(), folder));
                let recorder = prepared.recorder();
                let beside = beside.map(|begin| begin(&prepared));
                let result = prepared.run(recorder, &mut events, &mut stop);
                drop(beside);
                result
            });
            // The receiver may be dropped: then nothing needs the result.
            let _ = report.send(result);
        });
        let result = match started {
            Ok(_) => result,
            Err(error) => {
                let (report, result) = oneshot::channel();
                let text = format!("the node cannot be started: {error}");
                let _ = report.send(Err(EndError::failed(text)));
                result
            }
        };
        Node { events, early: VecDeque::new(), stop, known, result }
    }

    /// Waits until the rounds begin; if the run was over before, its result.
    pub(super) async fn linked(mut self) -> Result<Linked, EndError> {
        let mut early = VecDeque::new();
        while let Some(event) = self.events.recv().await {
            let started = event == Event::Started;
            early.push_back(event);
            if started {
                self.early = early;
                return Ok(Linked::Runs(self));
            }
        }
        let result = self.result().await?;
        Ok(Linked::Over(self, Box::new(result)))
    }

    /// The next event; `None` once the node has ended and all events were read.
    pub async fn next(&mut self) -> Option<Event> {
        match self.early.pop_front() {
            Some(event) => Some(event),
            None => self.events.recv().await,
        }
    }

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Option<Event> {
        self.early.pop_front().or_else(|| self.events.try_recv().ok())
    }

    /// The same as [`Node::next`], blocking this thread.
    pub fn next_blocking(&mut self) -> Option<Event> {
        futures::executor::block_on(self.next())
    }

    /// The design that all nodes of the run share, and this node's number in its topology; `None`
    /// until the node has read its files.
    pub fn design(&self) -> Option<(&Arc<Design>, NodeId)> {
        self.known.get().map(|(design, node, _)| (design, *node))
    }

    /// The run directory; `None` if nothing is written, and until the node has read its files.
    pub fn directory(&self) -> Option<&Path> {
        self.known.get().and_then(|(.., folder)| folder.as_deref())
    }

    /// Asks the node to leave the run now. Its neighbours get the reason; [`Node::join`] then
    /// returns that it was interrupted.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// Why the run ended early. The results so far are in the run directory.
    pub async fn join(mut self) -> Result<NodeResult, EndError> {
        self.result().await
    }

    /// The same. If the future is dropped before it is ready, the run continues.
    pub(super) async fn result(&mut self) -> Result<NodeResult, EndError> {
        let panicked = || Err(EndError::failed("the node's thread panicked"));
        (&mut self.result).await.unwrap_or_else(|_| panicked())
    }

    /// The same, blocking this thread.
    ///
    /// # Errors
    /// As [`Node::join`].
    pub fn join_blocking(self) -> Result<NodeResult, EndError> {
        futures::executor::block_on(self.join())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}
