//! A round is a short program, and it is data.
//!
//! The steps of a round are [`Step`]s. A *flight* is a list of exchanges that advances by itself
//! while gradients are computed; who sends to whom in each exchange is a [`Meeting`]. A [`Plan`]
//! answers for any node, so that a run can be checked (every send meets a wait, over a link of the
//! topology), priced and limited before it starts.
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

/// The place of a frame in the algorithm; also its key. Ordered by round, then flight, then
/// exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct At {
    /// The step t.
    pub round: Round,
    /// Which flight of the round.
    pub flight: u8,
    /// Which exchange of the flight.
    pub exchange: u16,
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "round {} flight {} exchange {}", self.round, self.flight, self.exchange)
    }
}

/// One step of a round's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start a flight. Waits until its first exchange is open, so that what it sends is encoded
    /// before the model is lent.
    Launch(u8),
    /// Ask for a gradient at the model; the model is lent until the answer.
    Gradient,
    /// Wait until this part of the update is final; the model is still lent.
    Part(u8),
    /// Wait for the gradient.
    Join,
    /// Wait until the flight launched `lag` rounds ago is complete, then fold it into the model.
    /// What is still in the air after the last round lands then, in order.
    Land {
        /// Which flight.
        flight: u8,
        /// How many rounds ago it was launched; 0 is this round.
        lag: u32,
    },
}

/// Whom a node sends to and waits for in one exchange. Reused: the engine clears it before each
/// question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meeting {
    /// Receivers of this node's frame, ascending.
    pub send: Vec<NodeId>,
    /// Senders whose frames this node needs, ascending; they are handed to the rule in this order.
    pub wait: Vec<NodeId>,
    /// Whether there is one encoding for all receivers. It is made, and applied by its owner, even
    /// where no node receives it.
    pub shared: bool,
}

impl Meeting {
    /// Empties both lists.
    pub fn clear(&mut self) {
        self.send.clear();
        self.wait.clear();
        self.shared = false;
    }
}

/// The program of every round and who meets whom in it: data only, and for any node.
pub trait Plan: Send + Sync {
    /// The steps of a round.
    fn steps(&self) -> &[Step];
    /// How many exchanges a flight has.
    fn exchanges(&self, flight: u8) -> u16;
    /// Whom `node` meets at `at`. `out` comes cleared.
    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting);
    /// What the frames of this exchange carry that `from` sends.
    fn format(&self, at: &At, from: NodeId) -> &Format;
    /// Whether the flight is a call: exchange 0 asks one neighbour, which is in no flight of its
    /// own with it and answers at once, whatever it does; exchange 1 waits for the answer. Its
    /// nodes are in rounds of their own.
    fn calls(&self, _flight: u8) -> bool {
        false
    }
    /// Where the parts of the update begin that [`Step::Part`] waits for, descending to 0, each as
    /// far as the one before it; none where the update is wanted as a whole. Their flights are in
    /// the air together.
    fn parts(&self) -> &[usize] {
        &[]
    }
    /// Of a plan whose nodes call one server: by how many rounds a node may be ahead of the slowest
    /// when it begins its next. The server takes calls when they arrive
    /// ([`Answers::called`](super::party::Answers::called)) and answers them within this bound.
    /// `None`: no node waits for the slowest.
    fn bound(&self) -> Option<u64> {
        None
    }
    /// After how many rounds the meetings repeat.
    fn period(&self) -> u64 {
        1
    }
    /// Whether the meetings are those of the topology's schedule. A plan that meets as it likes
    /// runs on static topologies only.
    fn follows_schedule(&self) -> bool {
        false
    }
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

/// Whether a program launches this flight: asked of every frame that arrives.
pub fn launches(plan: &dyn Plan, flight: u8) -> bool {
    plan.steps().contains(&Step::Launch(flight))
}

/// Whether nodes call each other whenever they like: the order of events decides then, and only the
/// simulator repeats it.
pub fn is_asynchronous(plan: &dyn Plan) -> bool {
    flights(plan).into_iter().any(|flight| plan.calls(flight))
}

/// Whether frames may cross: several flights of several exchanges are in the air together, so that
/// two nodes may send theirs in different orders. Around a ring each node could then hold what it
/// does not need yet before what it needs, for ever: such frames are read before they are due.
pub fn crosses(plan: &dyn Plan) -> bool {
    let in_the_air =
        |step: &Step| if let Step::Land { lag, .. } = step { u64::from(*lag) + 1 } else { 0 };
    plan.steps().iter().map(in_the_air).sum::<u64>() > 1
        && flights(plan).into_iter().any(|flight| plan.exchanges(flight) > 1)
}

/// All places of one round's frames, in order.
pub fn places(plan: &dyn Plan, round: Round) -> Vec<At> {
    let exchanges =
        |flight| (0..plan.exchanges(flight)).map(move |exchange| At { round, flight, exchange });
    flights(plan).into_iter().flat_map(exchanges).collect()
}

/// The largest payload that any frame of the plan can have among so many nodes, in bytes.
pub fn payload_limit(plan: &dyn Plan, nodes: usize) -> usize {
    let places = (0..plan.period()).flat_map(|round| places(plan, Round(round)));
    let size = |at: At| {
        (0..nodes).map(move |from| plan.format(&at, NodeId::from(from)).size().limit()).max()
    };
    places.filter_map(size).max().unwrap_or(0)
}

/// Checks that every send meets a wait and uses a link, over one period.
///
/// # Errors
/// If a rule's plan does not fit the topology; the first two nodes that do not match are named.
pub fn check(plan: &dyn Plan, topology: &Topology) -> Result<(), ConfigError> {
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

/// The plan of every rule whose flights are one exchange each: with all neighbours, or with those
/// that a schedule names.
#[derive(Debug)]
pub struct Gossip {
    topology: Arc<Topology>,
    schedule: Option<Arc<Schedule>>,
    steps: Vec<Step>,
    /// Of flight 0, 1 and so on.
    formats: Vec<Format>,
    shared: bool,
}

impl Gossip {
    /// The gradient first, then the exchange.
    pub fn after_gradient(topology: Arc<Topology>, format: Format) -> Gossip {
        const STEPS: &[Step] =
            &[Step::Gradient, Step::Join, Step::Launch(0), Step::Land { flight: 0, lag: 0 }];
        Gossip::of_steps(topology, STEPS, vec![format])
    }

    /// The exchange in the air while the gradient is computed.
    pub fn around_gradient(topology: Arc<Topology>, format: Format) -> Gossip {
        const STEPS: &[Step] =
            &[Step::Launch(0), Step::Gradient, Step::Join, Step::Land { flight: 0, lag: 0 }];
        Gossip::of_steps(topology, STEPS, vec![format])
    }

    /// Any program; its flights are numbered from 0, and `formats` are theirs.
    ///
    /// # Panics
    /// If there is not a format for each flight.
    pub fn of_steps(
        topology: Arc<Topology>,
        steps: &'static [Step],
        formats: Vec<Format>,
    ) -> Gossip {
        let plan =
            Gossip { topology, schedule: None, steps: steps.to_vec(), formats, shared: true };
        assert!(
            flights(&plan).into_iter().eq(0..plan.formats.len() as u8),
            "every flight has one format"
        );
        plan
    }

    /// The same with what is launched landing so many rounds later.
    #[must_use]
    pub fn landing_late(mut self, rounds: u32) -> Gossip {
        for step in &mut self.steps {
            if let Step::Land { lag, .. } = step {
                *lag += rounds;
            }
        }
        self
    }

    /// The same with those whom the schedule names in each round, in place of all neighbours. For
    /// rules that do without copies of their neighbours: a copy would not hear what its owner sends
    /// to others.
    #[must_use]
    pub fn following(self, schedule: &Arc<Schedule>) -> Gossip {
        Gossip { schedule: Some(Arc::clone(schedule)), ..self }
    }

    /// The same with a payload of its own for every neighbour.
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
