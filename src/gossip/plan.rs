//! A round is a short program, represented as data.
//!
//! The steps of a round are [`Step`]s. A *flight* is a list of exchanges that advances by itself
//! while gradients are computed; a [`Meeting`] lists the receivers and senders of one exchange. A
//! [`Plan`] gives them for any node, so a run can be checked (every send has a matching wait and a
//! link of the topology), its cost predicted and its buffers limited before it starts.
//!
//! | rules | steps of a round |
//! |---|---|
//! | D-PSGD cta, naive, CHOCO iclr | `Launch 0`, `Gradient`, `Join`, `Land 0` (gossip and gradient overlap) |
//! | D-PSGD atc, DCD, DeepSqueeze, CHOCO icml, SGP | `Gradient`, `Join`, `Launch 0`, `Land 0` |
//! | gradient tracking: two vectors | `Gradient`, `Join`, `Launch 0`, `Launch 1`, `Land 0`, `Land 1` |
//! | BEER | `Launch 0`, `Gradient`, `Join`, `Land 0`, `Launch 1`, `Land 1` |
//! | C-SGD with `layers` | `Gradient`, `Part 0`, `Launch 0`, `Part 1`, `Launch 1`, ..., `Join`, `Launch p`, `Land 0`, ..., `Land p` |

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    compress::Format,
    config::ConfigError,
    mixing::{Schedule, Topology},
    units::{NodeId, Round},
};

/// The position of a frame in the algorithm; also its key. Ordered by round, then flight, then
/// exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct At {
    /// The step t, from 0.
    pub round: Round,
    /// Which flight of the round.
    pub flight: u8,
    /// Which exchange of the flight.
    pub exchange: u16,
}

/// The flight of a notice, if the plan calls: its sender makes no more calls. Rules have lower
/// flights.
pub const LAST_CALL: u8 = 249;
/// The flight of setup records.
pub const SETUP: u8 = 250;
/// The flight of the exact mean.
pub(crate) const MEAN: u8 = 251;
/// The flight of the records at the end.
pub const SUMMARY: u8 = 252;
/// The flight of a notice that all nodes end after the round of its frame.
pub const STOP: u8 = 253;
/// The flight of the initial model, if one node gives it to all.
pub(crate) const INITIAL: u8 = 254;
/// The flight of the sum of a subtree's losses on validation rows, to the parent; its round is that
/// of the evaluation.
pub(crate) const TALLY: u8 = 255;

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let At { round, flight, exchange } = self;
        match *flight {
            SETUP => write!(f, "the agreement before round 0, exchange {exchange}"),
            INITIAL => write!(f, "the initial model, exchange {exchange}"),
            MEAN => write!(f, "round {round}, the mean of the models, exchange {exchange}"),
            SUMMARY => write!(f, "the records at the end, exchange {exchange}"),
            STOP => write!(f, "round {round}, the notice that the run ends"),
            TALLY => write!(f, "round {round}, the sum of losses, exchange {exchange}"),
            LAST_CALL => write!(f, "the notice of the last call"),
            _ => write!(f, "round {round} flight {flight} exchange {exchange}"),
        }
    }
}

/// One step of a round's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start a flight. Waits until its first exchange is open, so that its frames are encoded
    /// before the model is lent.
    Launch(u8),
    /// Request a gradient at the model; the model is lent until the result.
    Gradient,
    /// Wait until this part of the update is final; the model is still lent.
    Part(u8),
    /// Wait for the result of [`Step::Gradient`].
    Join,
    /// Wait until the flight launched `lag` rounds ago is complete, then apply it to the model.
    /// Flights that remain after the last round land then, in order.
    Land {
        /// The number of a flight of the plan.
        flight: u8,
        /// How many rounds ago it was launched; 0 is this round.
        lag: u32,
    },
}

/// The receivers and senders of a node in one exchange. Reused: the engine clears it before each
/// query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meeting {
    /// Receivers of this node's frame, ascending.
    pub send: Vec<NodeId>,
    /// Senders whose frames this node needs, ascending; the rule gets them in this order.
    pub wait: Vec<NodeId>,
    /// Whether there is one encoding for all receivers. It is made, and applied by its owner, even
    /// if no node receives it.
    pub shared: bool,
}

impl Meeting {
    /// Empties both lists and keeps their buffers.
    pub fn clear(&mut self) {
        self.send.clear();
        self.wait.clear();
        self.shared = false;
    }
}

/// The program of every round and its meetings, for any node; data only.
pub trait Plan: Send + Sync {
    /// The steps of a round.
    fn steps(&self) -> &[Step];
    /// How many exchanges a flight has.
    fn exchanges(&self, flight: u8) -> u16;
    /// The meeting of `node` at `at`. `out` is empty when passed.
    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting);
    /// The format of the payloads that `from` sends in this exchange.
    fn format(&self, at: &At, from: NodeId) -> &Format;
    /// Whether the frames of the flight carry checksums of the copies that nodes keep of each other
    /// ([`Copies`](super::party::Copies)). Not those of a flight beside the rule's own: copies may
    /// change while it is under way.
    fn is_compared(&self, _flight: u8) -> bool {
        true
    }
    /// Whether the flight is a call: exchange 0 sends a request to one neighbour, exchange 1 waits
    /// for its answer. The neighbour has no flight of its own for it and answers at once, in any
    /// state. Nodes that call are in rounds of their own.
    fn calls(&self, _flight: u8) -> bool {
        false
    }
    /// The starts of the update's parts that [`Step::Part`] waits for, descending to 0; each part
    /// ends where the one before it begins. Empty if the update is wanted as a whole. The flights
    /// of the parts overlap.
    fn parts(&self) -> &[usize] {
        &[]
    }
    /// The staleness bound, for a plan whose nodes call one server: by how many rounds a node may
    /// be ahead of the slowest when it begins its next. The server takes calls when they arrive
    /// ([`Answers::called`](super::party::Answers::called)) and answers them within this bound.
    /// `None`: no node waits for the slowest.
    fn bound(&self) -> Option<u64> {
        None
    }
    /// The number of rounds after which the meetings repeat.
    fn period(&self) -> u64 {
        1
    }
    /// Whether the meetings follow the topology's schedule. A plan with other meetings runs on
    /// static topologies only.
    fn follows_schedule(&self) -> bool {
        false
    }
}

/// The most rounds after which a flight lands.
pub(crate) fn lag(plan: &dyn Plan) -> u64 {
    let lag = |step: &Step| if let Step::Land { lag, .. } = step { u64::from(*lag) } else { 0 };
    plan.steps().iter().map(lag).max().unwrap_or(0)
}

/// The flights that a program launches, ascending.
pub fn flights(plan: &dyn Plan) -> Vec<u8> {
    let mut flights: Vec<u8> = plan
        .steps()
        .iter()
        .filter_map(|step| if let Step::Launch(flight) = step { Some(*flight) } else { None })
        .collect();
    flights.sort_unstable();
    flights
}

/// Whether a program launches this flight. Called for every frame that arrives.
pub(crate) fn launches(plan: &dyn Plan, flight: u8) -> bool {
    plan.steps().contains(&Step::Launch(flight))
}

/// Whether nodes call each other at any time: results then depend on the order of events, and only
/// the simulator repeats it.
pub fn is_asynchronous(plan: &dyn Plan) -> bool {
    flights(plan).into_iter().any(|flight| plan.calls(flight))
}

/// Whether nothing is in flight between two rounds: then the states of all nodes after the same
/// round make a whole, from which the run can continue.
pub fn can_pause(plan: &dyn Plan) -> bool {
    let landed = |flight: u8| plan.steps().contains(&Step::Land { flight, lag: 0 });
    !is_asynchronous(plan) && flights(plan).into_iter().all(landed)
}

/// Whether frames may cross: several flights of several exchanges are in flight together, so two
/// nodes may send theirs in different orders. Around a ring this could deadlock, each node holding
/// a frame that it does not need yet, in front of the one that it needs. So links deliver such
/// frames before they are due.
pub(crate) fn crosses(plan: &dyn Plan) -> bool {
    let in_the_air =
        |step: &Step| if let Step::Land { lag, .. } = step { u64::from(*lag) + 1 } else { 0 };
    plan.steps().iter().map(in_the_air).sum::<u64>() > 1
        && flights(plan).into_iter().any(|flight| plan.exchanges(flight) > 1)
}

/// The positions of all frames of one round, in order.
pub fn places(plan: &dyn Plan, round: Round) -> Vec<At> {
    let exchanges =
        |flight| (0..plan.exchanges(flight)).map(move |exchange| At { round, flight, exchange });
    flights(plan).into_iter().flat_map(exchanges).collect()
}

/// Whether no node sends a frame of the rule in this round.
pub(crate) fn is_silent(plan: &dyn Plan, nodes: usize, round: Round) -> bool {
    let mut meeting = Meeting::default();
    places(plan, round).iter().all(|at| {
        (0..nodes).map(NodeId::from).all(|node| {
            meeting.clear();
            plan.meet(node, at, &mut meeting);
            meeting.send.is_empty()
        })
    })
}

/// The largest payload of any frame of the plan in a run of `nodes` nodes, in bytes.
pub(crate) fn payload_limit(plan: &dyn Plan, nodes: usize) -> usize {
    let places = (0..plan.period()).flat_map(|round| places(plan, Round(round)));
    let size = |at: At| {
        (0..nodes).map(move |from| plan.format(&at, NodeId::from(from)).size().limit()).max()
    };
    places.filter_map(size).max().unwrap_or(0)
}

/// Checks over one period that every send has a matching wait and uses a link.
///
/// # Errors
/// If a rule's plan does not fit the topology; the first two nodes that do not match are named.
pub(crate) fn check(plan: &dyn Plan, topology: &Topology) -> Result<(), ConfigError> {
    let nodes = topology.nodes();
    for at in (0..plan.period()).flat_map(|round| places(plan, Round(round))) {
        let meetings: Vec<Meeting> = (0..nodes)
            .map(|node| {
                let mut meeting = Meeting::default();
                plan.meet(NodeId::from(node), &at, &mut meeting);
                meeting
            })
            .collect();
        for (node, meeting) in meetings.iter().enumerate() {
            let node = NodeId::from(node);
            let ascending = |ids: &[NodeId]| ids.windows(2).all(|pair| pair[0] < pair[1]);
            let wrong = |other: NodeId, what: &str| {
                ConfigError::at(
                    "rule",
                    format!(
                        "at {at}, node {node} {what} node {other}: this rule cannot run on `{}`",
                        topology.name()
                    ),
                )
            };
            if !ascending(&meeting.send) || !ascending(&meeting.wait) {
                return Err(ConfigError::at(
                    "rule",
                    format!("at {at}, node {node} meets others out of order"),
                ));
            }
            for &to in &meeting.send {
                if !topology.neighbours(node).contains(&to) {
                    return Err(wrong(to, "sends without a link to"));
                }
                if !plan.calls(at.flight) && !meetings[to.index()].wait.contains(&node) {
                    return Err(wrong(to, "sends unexpectedly to"));
                }
            }
            for &from in &meeting.wait {
                let sends =
                    meetings.get(from.index()).is_some_and(|other| other.send.contains(&node));
                if !plan.calls(at.flight) && !sends {
                    return Err(wrong(from, "waits in vain for"));
                }
            }
        }
    }
    Ok(())
}

/// The plan of every rule whose flights have one exchange each: with all neighbours, or with those
/// that a schedule selects.
#[derive(Debug)]
pub struct Gossip {
    topology: Arc<Topology>,
    schedule: Option<Arc<Schedule>>,
    steps: Vec<Step>,
    /// The formats of flight 0, 1 and so on.
    formats: Vec<Format>,
    shared: bool,
}

impl Gossip {
    /// The gradient first, then the exchange.
    pub fn after_gradient(topology: &Arc<Topology>, format: Format) -> Gossip {
        const STEPS: &[Step] =
            &[Step::Gradient, Step::Join, Step::Launch(0), Step::Land { flight: 0, lag: 0 }];
        Gossip::of_steps(topology, STEPS, vec![format])
    }

    /// The exchange is in flight while the gradient is computed.
    pub fn around_gradient(topology: &Arc<Topology>, format: Format) -> Gossip {
        const STEPS: &[Step] =
            &[Step::Launch(0), Step::Gradient, Step::Join, Step::Land { flight: 0, lag: 0 }];
        Gossip::of_steps(topology, STEPS, vec![format])
    }

    /// Any program. Its flights are numbered from 0 and have these `formats`.
    ///
    /// # Panics
    /// If there is not a format for each flight.
    pub fn of_steps(
        topology: &Arc<Topology>,
        steps: &'static [Step],
        formats: Vec<Format>,
    ) -> Gossip {
        let (topology, steps) = (Arc::clone(topology), steps.to_vec());
        let plan = Gossip { topology, schedule: None, steps, formats, shared: true };
        assert!(
            flights(&plan).into_iter().eq(0..plan.formats.len() as u8),
            "every flight has one format"
        );
        plan
    }

    /// The same plan, with flights that land `rounds` rounds later.
    #[must_use]
    pub fn landing_late(mut self, rounds: u32) -> Gossip {
        for step in &mut self.steps {
            if let Step::Land { lag, .. } = step {
                *lag += rounds;
            }
        }
        self
    }

    /// The same plan with the neighbours that the schedule selects in each round, in place of all.
    /// For rules without copies of their neighbours: a copy would miss what its owner sends to
    /// others.
    #[must_use]
    pub fn following(self, schedule: &Arc<Schedule>) -> Gossip {
        Gossip { schedule: Some(Arc::clone(schedule)), ..self }
    }

    /// The same plan with a separate payload for every neighbour.
    #[must_use]
    pub fn one_for_each(self) -> Gossip {
        Gossip { shared: false, ..self }
    }
}

impl Plan for Gossip {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn exchanges(&self, _flight: u8) -> u16 {
        1
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        let all = self.topology.neighbours(node);
        let (to, from) = match &self.schedule {
            Some(schedule) => {
                let turn = schedule.turn(at.round, node);
                (turn.to, turn.from)
            }
            None => (all, all),
        };
        out.send.extend_from_slice(to);
        out.wait.extend_from_slice(from);
        out.shared = self.shared;
    }

    fn period(&self) -> u64 {
        self.schedule.as_ref().map_or(1, |schedule| schedule.period())
    }

    fn follows_schedule(&self) -> bool {
        self.schedule.is_some()
    }

    fn format(&self, at: &At, _from: NodeId) -> &Format {
        &self.formats[usize::from(at.flight)]
    }
}
