//! After which rounds all members write checkpoints, and which ones are removed.
//!
//! A run can continue from a round of which every node has a checkpoint, so all nodes write them
//! after the same rounds:
//!
//! * With `checkpoint.every_rounds` these are its multiples.
//! * Otherwise node 0 names the next round when `checkpoint.every_s` have passed. It chooses one
//!   that is far enough ahead for the message to reach every node before; a node that has passed it
//!   writes none, and the checkpoint is of no use.
//! * Upon a durable checkpoint, a node tells its neighbours. Upon the report of a neighbour about
//!   other nodes, it passes that on. What it has itself it knows itself: no report may say so.
//! * Node 0 announces the newest round of which every node has a checkpoint. Upon that, a node
//!   removes those before the one that was the newest until then, if it has the new one, or a newer
//!   one, itself.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    effect::Effect,
    message::{Beginning, CheckpointSchedule, Saves, Stamp},
};
use crate::{
    drive::Change,
    mixing::Topology,
    run::checkpoint::Every,
    units::{NodeId, Round},
};

/// The time that a schedule may take to cross a link: links look for news four times a second.
const CROSSING: Duration = Duration::from_secs(1);

/// How long node 0 waits for the reports of a checkpoint after its round, in intervals or in times
/// that a message takes to cross the network.
const PATIENCE: u32 = 3;

/// How many schedules a node follows in so many intervals.
const MOST_SCHEDULES: (usize, u32) = (3, 2);

/// The most schedules of checkpoints that a node may have missed while its links were lost.
const MOST_MISSED: u64 = 1 << 20;

/// The rounds from which the run continues if no checkpoint is due before its end.
const AT_THE_END: Round = Round(u64::MAX);

/// The checkpoints of one node in one attempt.
#[derive(Debug)]
pub(crate) struct Checkpointing {
    me: NodeId,
    nodes: usize,
    /// The links to the farthest node.
    distance: u32,
    every: Every,
    /// Rounds after which none is needed: the run is over.
    last: Option<u64>,
    /// When this node continued, and after how many rounds.
    started: (Instant, u64),
    known: Saves,
    /// Whether something was learnt since the last look.
    is_new: bool,
    /// The newest round of which every node has a checkpoint.
    common: u64,
    /// At node 0: when the last schedule was made, and when all nodes had passed its round.
    scheduled: Instant,
    passed: Option<Instant>,
    /// The schedule that was looked at last.
    schedule: CheckpointSchedule,
    /// When this node last followed a schedule of others.
    followed: VecDeque<Instant>,
    /// The membership, and the changes until it.
    membership: u64,
    history: Vec<Change>,
    /// Whether this attempt has started again from a mean: the first checkpoint is of an older
    /// membership, or some nodes lack it.
    from_mean: bool,
    /// The newest common checkpoint when the first of these nodes returned, which are not members.
    returned: Option<(u64, Vec<NodeId>)>,
}

impl Checkpointing {
    /// For a node that continues there, in this membership; `last`: rounds after which none is
    /// needed.
    pub(crate) fn new(
        now: Instant,
        (every, last): (Every, Option<u64>),
        topology: &Topology,
        me: NodeId,
        at: &Beginning,
        membership: u64,
    ) -> Checkpointing {
        let rounds = at.rounds;
        let (mut distances, mut order) = (Vec::new(), Vec::new());
        topology.graph().distances(NodeId(0), &mut distances, &mut order);
        let distance = distances.iter().copied().filter(|far| *far != u32::MAX).max();
        let mut saves = Checkpointing {
            me,
            nodes: topology.nodes(),
            distance: distance.unwrap_or(0),
            every,
            last,
            started: (now, rounds),
            known: Saves::default(),
            is_new: false,
            common: rounds,
            scheduled: now,
            passed: None,
            schedule: CheckpointSchedule { number: 0, next: rounds, common: rounds },
            followed: VecDeque::new(),
            membership,
            history: at.history.clone(),
            from_mean: at.from_mean,
            returned: None,
        };
        saves.saved(rounds);
        saves
    }

    /// The first request for a snapshot.
    pub(crate) fn first(&self) -> Option<Round> {
        match self.every {
            Every::Rounds(every) => Some(Round(self.started.1.saturating_add(every))),
            Every::Time(_) => Some(AT_THE_END),
            Every::Once(round) => Some(round),
            Every::Never => None,
        }
    }

    /// Records that a node that is not a member has returned. Returns whether that is news.
    pub(crate) fn note_return(&mut self, peer: NodeId) -> bool {
        let (_, returned) = self.returned.get_or_insert((self.common, Vec::new()));
        let is_new = !returned.contains(&peer);
        if is_new {
            returned.push(peer);
        }
        is_new
    }

    /// The nodes that have returned and can take part now: all members have had a checkpoint since
    /// the first of them came.
    pub(crate) fn due(&mut self) -> Option<Vec<NodeId>> {
        let (_, returned) = self.returned.take_if(|(common, _)| self.common > *common)?;
        Some(returned)
    }

    /// Whether every node has had a checkpoint since the rounds began.
    pub(crate) fn has_advanced(&self) -> bool {
        self.common > self.started.1
    }

    /// The nodes that have returned.
    pub(crate) fn returned(&self) -> &[NodeId] {
        self.returned.as_ref().map_or(&[], |(_, returned)| returned)
    }

    /// Upon a durable checkpoint of this node.
    pub(crate) fn saved(&mut self, rounds: u64) {
        self.add(self.me, rounds);
    }

    /// Upon the newest checkpoints of nodes, as a neighbour passes them on.
    pub(crate) fn hear(&mut self, saved: &[(NodeId, u64)]) {
        for &(node, rounds) in saved {
            if node != self.me && node.index() < self.nodes {
                self.add(node, rounds);
            }
        }
    }

    fn add(&mut self, node: NodeId, rounds: u64) {
        let known = self.known.newest.entry(node).or_insert(0);
        self.is_new |= rounds > *known;
        *known = rounds.max(*known);
    }

    /// Upon a schedule that a neighbour passes on. Node 0 makes them, and takes none.
    pub(crate) fn hear_schedule(&mut self, schedule: CheckpointSchedule) {
        let known = self.known.schedule.number;
        // One false number must not hide all that follow.
        let is_near = schedule.number <= known.saturating_add(MOST_MISSED);
        if self.me != NodeId(0) && is_near && schedule.number > known {
            (self.known.schedule, self.is_new) = (schedule, true);
        }
    }

    /// Upon a tick in this round of the node: publishes what is new, and removes checkpoints that
    /// nobody needs. May return after which round the next one is written.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        round: Round,
        out: &mut Vec<Effect>,
    ) -> Option<Round> {
        if self.me == NodeId(0) {
            self.plan(now, round);
        }
        if !std::mem::take(&mut self.is_new) {
            return None;
        }
        out.push(Effect::Publish(self.known.clone()));
        let schedule = self.known.schedule;
        let own = self.known.newest.get(&self.me).copied().unwrap_or(0);
        // A false message of a neighbour must not remove what this node needs.
        if schedule.common > self.common && schedule.common <= own {
            // The one before stays, too: the newest may be damaged at some nodes.
            let before = std::mem::replace(&mut self.common, schedule.common);
            out.push(Effect::Retain(before));
        }
        let is_new = schedule.number > self.schedule.number && schedule.next > self.schedule.next;
        self.schedule = schedule;
        let ahead = is_new && schedule.next > round.0 && self.follows(now);
        ahead.then_some(Round(schedule.next))
    }

    /// Whether this node writes the next checkpoint of a schedule: in a fixed rhythm it follows
    /// none, and false ones must not keep the disk busy.
    fn follows(&mut self, now: Instant) -> bool {
        let Every::Time(every) = self.every else { return false };
        let (most, intervals) = MOST_SCHEDULES;
        if self.me != NodeId(0) && self.followed.len() == most {
            if now - self.followed[0] < intervals * every {
                return false;
            }
            self.followed.pop_front();
        }
        self.followed.push_back(now);
        self.followed.truncate(most);
        true
    }

    /// Makes the schedule, at node 0.
    fn plan(&mut self, now: Instant, round: Round) {
        let newest = |node: usize| self.known.newest.get(&node.into()).copied();
        let all = || (0..self.nodes).map(newest);
        let (oldest, latest) =
            (all().min().flatten().unwrap_or(0), all().max().flatten().unwrap_or(0));
        let (common, next) = match self.every {
            Every::Never => return,
            // All nodes know them.
            Every::Rounds(_) | Every::Once(_) => (oldest, self.schedule.next),
            Every::Time(every) => {
                // Some nodes may have none of the rounds in between.
                let common = if oldest == latest { oldest } else { self.common };
                let waits = common < self.schedule.next;
                let due =
                    now - self.scheduled >= every && (!waits || self.is_missed(now, round, every));
                (common, if due { self.far_enough(now, round) } else { self.schedule.next })
            }
        };
        if common > self.schedule.common || next > self.schedule.next {
            if next > self.schedule.next {
                (self.scheduled, self.passed) = (now, None);
            }
            let number = self.known.schedule.number + 1;
            let schedule = CheckpointSchedule { number, next, common };
            (self.known.schedule, self.is_new) = (schedule, true);
        }
    }

    /// Whether all nodes have passed the scheduled round so long ago that some have no checkpoint
    /// of it. Until then another schedule would only take its place, again and again.
    fn is_missed(&mut self, now: Instant, round: Round, every: Duration) -> bool {
        let hops = self.distance + 1;
        // The others are at most as many rounds behind as they are far away.
        if round.0 < self.schedule.next.saturating_add(2 * u64::from(hops)) {
            return false;
        }
        let passed = *self.passed.get_or_insert(now);
        now - passed >= PATIENCE * every.max(CROSSING * hops)
    }

    /// A round that no node reaches before it knows of it.
    fn far_enough(&self, now: Instant, round: Round) -> u64 {
        let (since, first) = self.started;
        let hops = self.distance + 1;
        let each = (round.0 - first) as f64 / (now - since).as_secs_f64().max(1e-3);
        let rounds = each * (CROSSING * hops).as_secs_f64();
        round.0 + rounds.ceil() as u64 + 2 * u64::from(hops)
    }

    /// Upon a snapshot after these rounds: what a checkpoint of it says, and after which round the
    /// next one is due. `None` if none is written.
    pub(crate) fn stamp(&self, rounds: u64) -> Option<(Stamp, Round)> {
        if self.last == Some(rounds) || self.every == Every::Never {
            return None;
        }
        let first = self.from_mean && self.common == self.started.1;
        let stamp = Stamp {
            common: if first { 0 } else { self.common },
            membership: self.membership,
            history: self.history.clone(),
        };
        let next = match self.every {
            Every::Rounds(every) => Round(rounds.saturating_add(every)),
            _ => AT_THE_END,
        };
        Some((stamp, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    /// One node of a run whose rounds take some ticks each.
    struct Node {
        saves: Checkpointing,
        round: u64,
        request: Option<u64>,
        saved: Vec<u64>,
        retained: u64,
        published: Option<Saves>,
    }

    struct Network {
        topology: Topology,
        nodes: Vec<Node>,
        now: Instant,
        ticks: u64,
    }

    impl Network {
        fn new(spec: &str, every: Duration) -> Network {
            let now = Instant::now();
            let topology = Topology::parse(spec, 0).unwrap();
            let node = |node: usize| {
                let at = Beginning::default();
                let every = (Every::Time(every), None);
                let saves = Checkpointing::new(now, every, &topology, node.into(), &at, 0);
                let (round, retained) = (0, 0);
                Node { saves, round, request: None, saved: Vec::new(), retained, published: None }
            };
            let nodes = (0..topology.nodes()).map(node).collect();
            Network { topology, nodes, now, ticks: 0 }
        }

        /// Lets time pass. News crosses a link in a tick; a round takes `pace` ticks, and nodes
        /// that are further from node 0 are as many rounds behind.
        fn tick(&mut self, pace: u64) {
            self.now += TICK;
            self.ticks += 1;
            let before: Vec<_> = self.nodes.iter().map(|node| node.published.clone()).collect();
            let (mut far, mut order) = (Vec::new(), Vec::new());
            self.topology.graph().distances(NodeId(0), &mut far, &mut order);
            for (index, node) in self.nodes.iter_mut().enumerate() {
                for peer in self.topology.neighbours(index.into()) {
                    let Some(saves) = &before[peer.index()] else { continue };
                    let newest: Vec<_> = saves.newest.iter().map(|(n, r)| (*n, *r)).collect();
                    node.saves.hear(&newest);
                    node.saves.hear_schedule(saves.schedule);
                }
                node.round = (self.ticks / pace).saturating_sub(u64::from(far[index]));
                let mut out = Vec::new();
                if let Some(round) = node.saves.look(self.now, Round(node.round), &mut out) {
                    node.request = Some(round.0);
                }
                for effect in out {
                    match effect {
                        Effect::Publish(saves) => node.published = Some(saves),
                        Effect::Retain(rounds) => node.retained = rounds,
                        other => panic!("{other:?}"),
                    }
                }
                if let Some(round) = node.request.take_if(|round| *round <= node.round) {
                    assert!(node.saves.stamp(round).is_some());
                    node.saves.saved(round);
                    node.saved.push(round);
                }
            }
        }
    }

    #[test]
    fn short_intervals_and_slow_rounds_write_checkpoints_that_all_nodes_have() {
        // Intervals shorter than a schedule takes, and rounds longer than an interval.
        for (every, pace, ticks) in [(0.1, 1, 600), (1.0, 1, 600), (1.0, 50, 6000), (60.0, 1, 3000)]
        {
            let mut network = Network::new("ring:8", Duration::from_secs_f64(every));
            (0..ticks).for_each(|_| network.tick(pace));
            let first = &network.nodes[0];
            assert!(first.saved.len() >= 4, "{every:?}, {pace}: {:?}", first.saved);
            for node in &network.nodes {
                assert!(node.retained > 0, "{every:?}, {pace}");
                let both = node.saved.len().min(first.saved.len());
                assert_eq!(node.saved[..both], first.saved[..both], "{every:?}, {pace}");
            }
        }
    }

    #[test]
    fn false_schedules_neither_keep_the_disk_busy_nor_stop_the_true_ones() {
        let mut network = Network::new("ring:4", Duration::from_secs(10));
        for tick in 0..1000 {
            network.tick(1);
            let node = &mut network.nodes[2];
            let CheckpointSchedule { number, .. } = node.saves.known.schedule;
            if tick > 500 {
                let next = node.round + 1;
                let schedule = CheckpointSchedule { number: number + 1, next, common: 0 };
                node.saves.hear_schedule(schedule);
            }
        }
        // At most three in 20 s.
        let saved = &network.nodes[2].saved;
        assert!(saved.len() >= 4 && saved.len() <= 4 + 3 * 3, "{saved:?}");
        assert!(saved.is_sorted_by(|a, b| a < b), "{saved:?}");
        assert!(network.nodes[0].saves.common > 0);
    }

    /// What one member could do with two messages: the checkpoints of all nodes would be removed.
    #[test]
    fn no_message_says_what_this_node_has_saved_and_node_0_takes_no_schedule() {
        let (now, topology) = (Instant::now(), Topology::parse("ring:4", 0).unwrap());
        let new = |node: u32| {
            let every = (Every::Time(Duration::from_secs(1)), None);
            Checkpointing::new(now, every, &topology, NodeId(node), &Beginning::default(), 0)
        };
        let mut saves = new(1);
        saves.saved(40);
        saves.hear(&[(NodeId(1), u64::MAX), (NodeId(2), 60), (NodeId(9), 1)]);
        let newest: Vec<_> = saves.known.newest.iter().map(|(n, r)| (n.0, *r)).collect();
        assert_eq!(newest, [(1, 40), (2, 60)]);
        let schedule = |number, common| CheckpointSchedule { number, next: 50, common };
        saves.hear_schedule(schedule(u64::MAX, 0));
        assert_eq!(saves.known.schedule.number, 0, "later ones would be hidden");
        saves.hear_schedule(schedule(9, 41));
        let mut out = Vec::new();
        saves.look(now, Round(0), &mut out);
        assert_eq!(out.len(), 1, "the own checkpoint of round 40 stays: {out:?}");
        for (number, common, retained) in [(10, 30, 0), (11, 40, 30)] {
            saves.hear_schedule(schedule(number, common));
            out.clear();
            saves.look(now, Round(0), &mut out);
            let retains = |effect: &Effect| matches!(effect, Effect::Retain(r) if *r == retained);
            assert!(out.len() == 2 && retains(&out[1]), "{out:?}");
        }
        let mut first = new(0);
        first.hear_schedule(schedule(1, 0));
        assert_eq!(first.known.schedule.number, 0);
    }
}
