//! What is simulated: machines, links, connections, and what happens when. Any program may look at
//! it, but one at a time.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use litemap::LiteMap;
use tokio::sync::mpsc;

use super::files::Files;
use crate::{
    cluster::message::{Saves, StartMessage},
    drive::{Ended, Membership, RunError},
    experiment::Experiment,
    mixing::Topology,
    net::{
        self, Event,
        driver::status::Status,
        link::{
            limits::Deadlines,
            session::{Inbox, Outbox},
        },
    },
    rng::Sequence,
    units::NodeId,
};

/// A bug that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// A writer continues after the last frame that it wrote.
    NoRetransmission,
    /// A frame begins again although the receiver has some of its bytes.
    PieceTwice,
    /// Checkpoints lack the error memory of the rule.
    ErrorForgotten,
    /// A file gets its name before the disk has its contents.
    RenameBeforeSync,
    /// Fewer than half of the nodes may continue.
    TwoMemberships,
    /// A node takes a checkpoint of other members for one of its own.
    ReplicaKept,
}

/// What happens at some time.
#[derive(Debug)]
pub(super) enum Act {
    /// A program has waited for long enough, unless it has started another wait since.
    Wake {
        machine: usize,
        wait: u64,
    },
    /// A machine starts its program.
    Start(usize),
    /// The ends of a link try to connect.
    Connect(usize),
    /// Something reaches the other end of a connection.
    Arrive {
        connection: u64,
        from: usize,
        parcel: Parcel,
    },
    /// An end of a connection sends what is due.
    Tick {
        connection: u64,
        end: usize,
    },
    /// An end of a connection sees that it is closed.
    Close {
        connection: u64,
        end: usize,
    },
    /// A lost link may have to be given up.
    Expire {
        host: u64,
        peer: u32,
        lost: Duration,
    },
    Fault(usize),
    Mend(usize),
}

/// What a program says to the scheduler.
pub(super) enum Message {
    Waits { until: Duration, events: bool },
    Ended(Outcome),
}

/// A program that has been started.
pub(super) struct Program {
    pub wakes: Sender<Wake>,
    pub thread: JoinHandle<()>,
    /// Counts its waits.
    pub wait: u64,
    /// Whether it waits for events.
    pub for_events: bool,
}

pub(super) struct Machine {
    pub files: Arc<Files>,
    pub program: Option<Program>,
    /// The host of the program, if it has one now.
    pub host: Option<u64>,
    /// How long the program takes for each event.
    pub slow: Duration,
    pub is_asked_to_leave: bool,
    /// Machines that are down stay so until then.
    pub down: bool,
    /// How often it has ended since all was mended.
    pub tries: u32,
    /// When it ended first.
    pub ended: Option<Duration>,
    pub outcome: Option<Outcome>,
}

/// The state of the world.
pub(super) struct State {
    pub now: Duration,
    pub base: Instant,
    pub rng: Sequence,
    pub agenda: BTreeMap<(Duration, u64), Act>,
    pub acts: u64,
    pub machines: Vec<Machine>,
    pub hosts: BTreeMap<u64, HostState>,
    pub connections: BTreeMap<u64, Connection>,
    /// The links of the topology, and how many faults cut each now.
    pub links: Vec<((usize, usize), u32)>,
    /// Latencies are longer by this factor.
    pub delays: u32,
    pub topology: Arc<Topology>,
    pub experiment: Experiment,
    pub bug: Option<Bug>,
    /// All memberships that a node has recorded.
    pub adopted: BTreeMap<u64, Membership>,
    /// When the last fault is over.
    pub healed: Duration,
    pub next_id: u64,
    /// Whether to print what happens.
    pub traces: bool,
}

pub(super) struct World(pub Mutex<State>);

impl State {
    /// Puts something on the agenda.
    pub(super) fn at(&mut self, time: Duration, act: Act) {
        self.acts += 1;
        self.agenda.insert((time.max(self.now), self.acts), act);
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A random time between these milliseconds.
    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(1000 * from + self.rng.below(1000 * (to - from)))
    }

    /// The time that something takes to cross a link.
    pub(super) fn latency(&mut self) -> Duration {
        self.millis(1, 20) * (1 + self.delays)
    }

    /// The time as programs see it.
    pub(super) fn instant(&self) -> Instant {
        self.base + self.now
    }

    /// An event has come for the program of this machine.
    pub(super) fn notify(&mut self, machine: usize) {
        let Some(program) = &mut self.machines[machine].program else { return };
        if std::mem::take(&mut program.for_events) {
            let wait = program.wait;
            self.at(self.now, Act::Wake { machine, wait });
        }
    }

    /// The machine of a link's other end cannot be reached over a link that is cut.
    pub(super) fn is_cut(&self, link: usize) -> bool {
        self.links[link].1 > 0
    }

    pub(super) fn ends_of(&self, machine: usize) -> Vec<usize> {
        let has = |&link: &usize| {
            let (a, b) = self.links[link].0;
            a == machine || b == machine
        };
        (0..self.links.len()).filter(has).collect()
    }

    pub(super) fn links_between(&self, group: &[usize]) -> Vec<usize> {
        let leaves = |&link: &usize| {
            let (a, b) = self.links[link].0;
            group.contains(&a) != group.contains(&b)
        };
        (0..self.links.len()).filter(leaves).collect()
    }
}

impl World {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this bug is planted.
    pub(super) fn has(&self, bug: Bug) -> bool {
        self.lock().bug == Some(bug)
    }
}

/// The end of a program.
pub(super) enum Outcome {
    Over(Box<Ended>),
    Failed(RunError),
    Killed,
    Panicked(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Over(ended) => write!(f, "over, {:?}", ended.history),
            Outcome::Failed(error) => error.fmt(f),
            Outcome::Killed => f.write_str("killed"),
            Outcome::Panicked(text) => f.write_str(text),
        }
    }
}

/// What the scheduler says to a program that waits.
pub(super) struct Wake {
    pub now: Instant,
    pub killed: bool,
}

/// A connection between two hosts.
pub(super) struct Connection {
    /// The host and the neighbour's number there, of each end.
    pub ends: [(u64, NodeId); 2],
    pub link: usize,
    /// Which ends still see it.
    pub open: [bool; 2],
    /// When the last parcel from each end arrives: of frames, and of messages.
    pub last: [[Duration; 2]; 2],
    /// The next frame of each end, and its first byte.
    pub writer: [(u64, usize); 2],
    /// What each end has sent and the other end has not read.
    pub unread: [VecDeque<Piece>; 2],
    /// What waits for a cut link to be mended.
    pub held: [Vec<Parcel>; 2],
}

/// A piece of a frame.
#[derive(Debug)]
pub(super) struct Piece {
    pub number: u64,
    /// The length of the whole frame.
    pub length: usize,
    pub bytes: Vec<u8>,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of frame {}, {} in all", self.bytes.len(), self.number, self.length)
    }
}

/// What a connection carries.
#[derive(Debug)]
pub(super) enum Parcel {
    Piece(Piece),
    Message(net::Message),
}

/// One end of a link.
pub(super) struct End {
    /// The machine at the other end.
    pub machine: usize,
    pub unused: bool,
    pub outbox: Outbox,
    pub inbox: Inbox,
    pub spare: mpsc::Sender<Vec<u8>>,
    /// Frames of the core that no connection has carried.
    pub queue: VecDeque<Arc<Vec<u8>>>,
    /// The incarnation of the other end's program.
    pub known: u64,
    pub lost: Option<Duration>,
    pub connection: Option<(u64, usize)>,
    /// The link has ended here.
    pub is_over: bool,
    /// The neighbour has said goodbye.
    pub goodbye: bool,
    /// The start message that was not sent yet.
    pub start: Option<StartMessage>,
    pub saves: Saves,
    pub beats: LiteMap<NodeId, u64>,
    pub acknowledged: u64,
}

/// The host of a program's attempt.
pub(super) struct HostState {
    pub machine: usize,
    pub id: NodeId,
    pub membership: u64,
    pub incarnation: u64,
    pub restarts: bool,
    pub deadlines: Deadlines,
    pub status: Arc<Status>,
    pub ends: LiteMap<NodeId, End>,
    pub events: VecDeque<Event>,
}

/// The result of a run.
pub(super) struct Ran {
    pub outcomes: Vec<Outcome>,
    /// The mean in the files of each machine, if it has results.
    pub means: Vec<Option<Vec<f32>>>,
    /// When the program of each machine first ended by itself.
    pub ended: Vec<Option<Duration>>,
    /// The virtual time that it took.
    pub time: Duration,
}
