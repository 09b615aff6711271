//! All directions of a network's links, with the frames on them: bytes, or only their places in a
//! plan.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Conditions,
    channel::{Channel, Passage},
};
use crate::units::{NodeId, Time};

/// The lines of a network. A reader holds one frame of a line at a time: the next is read when its
/// node has taken that one.
#[derive(Debug)]
pub(crate) struct Lines<'a, F> {
    conditions: &'a Conditions,
    lines: BTreeMap<(NodeId, NodeId), Line<F>>,
    /// When each node's last frame has left, if its links share an uplink.
    uplinks: Vec<Time>,
}

#[derive(Debug)]
struct Line<F> {
    channel: Channel,
    /// When the last frame has left.
    free: Time,
    in_flight: VecDeque<F>,
    /// Arrived, and not read yet.
    arrived: VecDeque<F>,
    /// Whether the reader holds a frame.
    held: bool,
}

impl<'a, F> Lines<'a, F> {
    /// Lines between so many nodes, all free.
    pub(crate) fn new(conditions: &'a Conditions, nodes: usize) -> Lines<'a, F> {
        Lines { conditions, lines: BTreeMap::new(), uplinks: vec![Time(0); nodes] }
    }

    /// Sends a frame that has so many bytes on the wire, and tells when it leaves and arrives.
    pub(crate) fn send(
        &mut self,
        now: Time,
        (from, to): (NodeId, NodeId),
        frame: F,
        bytes: usize,
    ) -> Passage {
        let conditions = self.conditions;
        let line = self.lines.entry((from, to)).or_insert_with(|| Line {
            channel: Channel::new(*conditions.link(from, to), conditions.dice(from, to)),
            free: Time(0),
            in_flight: VecDeque::new(),
            arrived: VecDeque::new(),
            held: false,
        });
        let free =
            if conditions.shared_uplink { &mut self.uplinks[from.index()] } else { &mut line.free };
        line.in_flight.push_back(frame);
        line.channel.send(now, bytes, free)
    }

    /// The oldest frame in flight has arrived.
    pub(crate) fn arrive(&mut self, from: NodeId, to: NodeId) {
        if let Some(line) = self.lines.get_mut(&(from, to)) {
            line.arrived.extend(line.in_flight.pop_front());
        }
    }

    /// Takes the next frame that has arrived, unless the reader holds one; `ahead`: whether it
    /// holds several.
    pub(crate) fn read(&mut self, from: NodeId, to: NodeId, ahead: bool) -> Option<F> {
        let line = self.lines.get_mut(&(from, to))?;
        if line.held && !ahead {
            return None;
        }
        let frame = line.arrived.pop_front()?;
        line.held = true;
        Some(frame)
    }

    /// The node has taken the frame that its reader holds.
    pub(crate) fn release(&mut self, from: NodeId, to: NodeId) {
        if let Some(line) = self.lines.get_mut(&(from, to)) {
            line.held = false;
        }
    }
}
