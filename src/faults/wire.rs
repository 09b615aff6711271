//! A link between two machines: what each end holds, what is on the way; and what else happens.

use std::{collections::VecDeque, sync::Arc};

use litemap::LiteMap;

use crate::{
    cluster::{Input, members::assembly::News, statements::Batch},
    gossip::Cause,
    status::Passed,
    units::{NodeId, Time},
};

/// A message of a link.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Chooses(News),
    Statements(Batch),
    Goodbye(Option<Cause>),
    Records(Vec<Passed>),
}

/// A frame that has not arrived.
pub(super) struct Sent {
    pub frame: Arc<Vec<u8>>,
    /// Whether it was written to this connection, and to any.
    pub written: bool,
    pub taken: bool,
}

/// One end of a link, for the links that its program has opened last.
#[derive(Default)]
pub(super) struct End {
    /// The incarnation of the other end's program with which this session is; 0 before the first.
    pub known: u64,
    /// Frames for the other end that have not arrived there.
    pub outbox: VecDeque<Sent>,
    /// Frames that have arrived, and whether the core holds one.
    pub arrived: VecDeque<Arc<Vec<u8>>>,
    pub held: bool,
    /// Since when the link is lost.
    pub lost: Option<Time>,
    /// Whether this end sees it up.
    pub up: bool,
    /// The link has ended here.
    pub over: bool,
    /// The other end has said goodbye.
    pub goodbye: bool,
    /// This end has said goodbye.
    pub told_goodbye: bool,
    /// The other end was told statements up to this number, and these records.
    pub told: u64,
    pub told_records: LiteMap<NodeId, u64>,
    pub problem: String,
}

/// A link of the topology.
#[derive(Default)]
pub(super) struct Wire {
    pub ends: [NodeId; 2],
    pub sides: [End; 2],
    /// The connection that is open.
    pub connection: Option<u64>,
    /// How many faults stop what comes from each side, and what waits for them to be over.
    pub cut: [u32; 2],
    pub held: Vec<Happening>,
    /// When the last message to each side arrives.
    pub last: [Time; 2],
    /// The last message of the next handshake is lost: one side only sees it succeed.
    pub half: bool,
}

impl Wire {
    /// The side of a node.
    pub(super) fn side(&self, node: NodeId) -> usize {
        usize::from(self.ends[1] == node)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut != [0; 2]
    }
}

/// Something that happens.
#[derive(Debug)]
pub(super) enum Happening {
    /// A machine starts its program.
    Start(NodeId),
    /// An input for the program that has opened these links.
    Input {
        machine: NodeId,
        generation: u64,
        input: Input,
    },
    Tick {
        machine: NodeId,
        program: u64,
    },
    /// A disk has written a checkpoint.
    Written {
        machine: NodeId,
        generation: u64,
    },
    /// A program says goodbye no longer.
    Closed {
        machine: NodeId,
        generation: u64,
    },
    /// The ends of a link try to connect.
    Dial(usize),
    Frame {
        wire: usize,
        from: usize,
        connection: u64,
    },
    Message {
        wire: usize,
        from: usize,
        connection: u64,
        message: Message,
    },
    /// An end sees that its connection has ended.
    Lose {
        wire: usize,
        side: usize,
        connection: u64,
    },
    /// A connection has carried nothing for too long, if its link is still cut.
    Silent {
        wire: usize,
        connection: u64,
    },
    /// A lost link may have to be given up.
    Expire {
        wire: usize,
        side: usize,
        generation: u64,
        lost: Time,
    },
    Begin(usize),
    Over(usize),
}
