//! The inputs and effects of a [`Cluster`](super::Cluster): all that a driver needs to know.

use std::time::{Duration, Instant};

use litemap::LiteMap;

use super::{
    event::Event,
    members::{assembly::News, ban::Ban},
    message::{Beginning, Origin, Saved, Stamp},
    statements::Retained,
    waiting::pace::{Alive, Paces},
};
use crate::{
    drive::{Change, Membership, RunError, Waiting},
    gossip::{self, Cause, snapshot::Snapshot, tree::Setup},
    units::{NodeId, Round},
};

/// What a driver reports.
#[derive(Debug)]
pub(crate) enum Input {
    /// An event of the links, of a gradient on another thread, or of the disk.
    Event(Event),
    /// What has come of an effect of the core.
    Core(gossip::Input),
    /// Time has passed; what is known now. In the rounds every 100 ms, before that also after each
    /// event.
    Tick(Box<Facts>),
    /// The links of [`Effect::Open`] are open, or why they cannot be.
    Opened(Result<Opened, RunError>),
    /// The checkpoint of [`Effect::Restore`], if there is one there.
    Restored(Result<Option<Restored>, RunError>),
    /// The membership of [`Effect::Record`] is durable, or why it cannot be.
    Recorded(Result<(), RunError>),
    /// The results of [`Effect::Results`] cannot be written.
    Unwritten,
    /// The user asks this node to leave.
    Stop,
    /// An effect could not be performed, or the tasks of the links have ended.
    Failed(RunError),
    /// Code of the program has panicked with this message.
    Panicked(String),
    /// The links of [`Effect::Close`] are closed.
    Closed,
}

/// What a node finds when its links are opened.
#[derive(Default)]
pub(crate) struct Opened {
    /// The number of this attempt at the run, greater than those of the attempts before.
    pub attempt: u64,
    /// The learner's contribution to the setup, if it was asked for.
    pub setup: Option<Setup>,
    /// The checkpoints of this node, if it is about to begin.
    pub saved: Saved,
    /// Whether it has been part of the run before.
    pub has_started: bool,
    /// The rounds of its newest checkpoint.
    pub newest: u64,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "links are open, with {:?}", self.saved)
    }
}

/// The core's part of a checkpoint.
#[derive(Debug)]
pub(crate) struct Restored {
    pub snapshot: Snapshot,
    /// The merged setup records of all nodes.
    pub merged: Vec<u8>,
}

/// What a driver knows of its links and of the work of all nodes. Nodes have their numbers among
/// the members.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The neighbours without a link, each with its last problem.
    pub missing: Vec<(NodeId, String)>,
    /// The neighbours that are not members, each with its last problem.
    pub away: Vec<(NodeId, String)>,
    /// A problem of this computer as a whole.
    pub host: Option<String>,
    /// The bytes of frames so far, both ways.
    pub bytes: u64,
    /// Whether a gradient is computed on another thread.
    pub computing: bool,
    /// When the effects of the last input were performed.
    pub acted: Instant,
    /// How long this node has waited since the last tick.
    pub waited: Duration,
    /// The newest sign of work of any other node, and of each.
    pub at_work: Option<Alive>,
    pub heard: LiteMap<NodeId, Alive>,
    /// What nodes say about their waiting.
    pub paces: Paces,
}

impl Facts {
    /// At this time, nothing is known and nothing is missing.
    pub(crate) fn new(now: Instant) -> Facts {
        Facts {
            missing: Vec::new(),
            away: Vec::new(),
            host: None,
            bytes: 0,
            computing: false,
            acted: now,
            waited: Duration::ZERO,
            at_work: None,
            heard: LiteMap::new(),
            paces: Paces::default(),
        }
    }
}

/// The links that are to be opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opening {
    /// The membership in which they are used; all nodes while members are chosen.
    pub membership: Membership,
    /// Whether members are chosen on them.
    pub chooses: bool,
    /// Whether the learner starts again from its beginning and gives its setup.
    pub resets: bool,
    /// Which node was the first of those that go back to a checkpoint, or choose members.
    pub because: Origin,
    /// The neighbours whose connections are refused, by their numbers in the topology of the run.
    pub bans: Vec<(NodeId, Ban)>,
}

/// What a driver does.
#[derive(Debug)]
pub(crate) enum Effect {
    /// An effect of the core, but for those that the cluster handles itself: snapshots, the end,
    /// failures.
    Core(gossip::Effect),
    /// Closes the links without a goodbye, and opens these: [`Input::Opened`].
    Open(Opening),
    /// Tells a neighbour what this node knows about the members. It replaces what was not sent yet.
    SendNews {
        to: NodeId,
        news: News,
    },
    /// Tells all neighbours those of these statements that they have not been told on their present
    /// connection.
    Tell(Retained),
    /// Tells all nodes for whom this node waits, and what share of its time.
    Pace {
        waits_for: Vec<NodeId>,
        share: Option<u8>,
    },
    /// Goes back to a checkpoint: [`Input::Restored`]. `node` is this node's number among the
    /// members, which may be others by the time that this is performed.
    Restore {
        at: Beginning,
        node: NodeId,
    },
    /// The rounds begin or continue here: other checkpoints are removed. `node` as above.
    Begin {
        at: Beginning,
        node: NodeId,
    },
    /// Writes a checkpoint: [`Event::Durable`](super::event::Event::Durable).
    Write {
        snapshot: Box<Snapshot>,
        stamp: Stamp,
    },
    /// Removes the checkpoints of earlier rounds.
    Retain(u64),
    /// Records a membership durably: [`Input::Recorded`].
    Record(Membership),
    /// The run is over: writes the results.
    Results {
        records: Vec<Vec<u8>>,
        history: Vec<Change>,
    },
    /// Saves the model of a core whose run ends here for now.
    Salvage(Box<Remains>),
    /// Saves the model of the newest checkpoint.
    SaveNewest,
    /// Removes all checkpoints. `folder`: with their folder.
    Clear {
        folder: bool,
    },
    /// Says goodbye, with the reason if the run ends early, and closes: [`Input::Closed`]. With
    /// `over` all nodes have their results, and no lost link is awaited.
    Close {
        reason: Option<Cause>,
        over: bool,
    },
    /// Nothing more happens.
    End(Outcome),
    /// A line for the log.
    Info(String),
    Debug(String),
    Warn(String),
    /// The link to a neighbour is up, as number `up` of `links`. Here and below, nodes have their
    /// numbers in the topology of the run.
    Linked {
        peer: NodeId,
        up: usize,
        links: usize,
    },
    LinkLost {
        peer: NodeId,
        reason: String,
    },
    Waits(Waiting),
    Away(Vec<(NodeId, String)>),
    /// The node continues after these rounds; reports of later ones no longer count.
    Resumes(Round),
}

/// What is left of a node whose rounds have ended early.
pub(crate) struct Remains {
    pub node: gossip::Node,
    /// The model that it was about to lend, if it was.
    pub lent: Option<Vec<f32>>,
    /// The numbers in the topology of the run of the members.
    pub numbers: Vec<NodeId>,
}

impl std::fmt::Debug for Remains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a node after round {}", self.node.round())
    }
}

/// How a node ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With the results that it has written last.
    Results,
    Failed(RunError),
}
