//! After which rounds all members write checkpoints, and which ones are removed.
//!
//! A run can continue from a round of which every node has a checkpoint, so all nodes write them
//! after the same rounds:
//!
//! * With `checkpoint.every_rounds` these are its multiples.
//! * Otherwise node 0 names the next round when `checkpoint.every_s` have passed. It chooses one
//!   that is far enough ahead for the message to reach every node before; a node that has passed it
//!   writes none, and the checkpoint is of no use.
//! * If no checkpoint of all nodes comes of that for long, it is the turn of the next node. Each
//!   node counts the turns itself, and writes what any node names, within limits. So nobody alone
//!   can prevent checkpoints.
//! * An interval is an eighth of the time since the start. So a run whose programs are killed again
//!   and again, at any rate, loses about a sixteenth of its rounds.
//! * Upon a durable checkpoint, a node [says so](super::statements) to all others.
//! * Once all nodes have said so of a newer round, a node removes those before the one that was the
//!   newest such round until then.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use litemap::LiteMap;

use super::{
    effect::Effect,
    message::{Beginning, CheckpointSchedule, Stamp},
    part::Part,
    statements::{Said, Statements},
};
use crate::{
    drive::Change,
    mixing::Topology,
    run::checkpoint::Every,
    units::{NodeId, Round},
};

/// The time that a schedule may take to cross a link: links look for news four times a second.
const CROSSING: Duration = Duration::from_secs(1);

/// How long a node waits for the reports of a checkpoint that it has named after its round, in
/// intervals or in times that a message takes to cross the network.
const PATIENCE: u32 = 3;

/// How long a turn takes without a checkpoint of all nodes, at least: in the same times, besides an
/// interval; and in rounds, for each link to the farthest node.
const TURN: (u32, u64) = (2 * PATIENCE, 6);

/// The most schedules of another node that a node follows, and in how many intervals. After a
/// restart the intervals are short.
const MOST_SCHEDULES: (usize, u32) = (24, 2);

/// The part of `checkpoint.every_s` after which the first checkpoint is written.
const FIRST: u32 = 16;

/// The part of the time since then that an interval takes, until it is `checkpoint.every_s`.
const PART: u32 = 8;

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
    /// The rounds of the run.
    rounds: u64,
    /// When this node continued, and after how many rounds.
    started: (Instant, u64),
    /// The rounds of this node's newest durable checkpoint.
    own: u64,
    /// The newest round of which every node has a checkpoint.
    common: u64,
    /// Whose turn it is to make schedules, and when and in which round it began, or a checkpoint of
    /// all nodes has come since.
    turn: usize,
    since: (Instant, u64),
    /// The time between two checkpoints, when this node has made its last schedule, that, and when
    /// all nodes had passed its round.
    interval: Duration,
    scheduled: Instant,
    own_schedule: CheckpointSchedule,
    passed: Option<Instant>,
    /// The schedules that each node has made: the newest, and when this node last followed some.
    schedules: LiteMap<NodeId, (CheckpointSchedule, VecDeque<Instant>)>,
    /// The round after which the next one is written.
    next: u64,
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
    /// For a node that begins or continues there; `last`: rounds after which none is needed.
    pub(crate) fn new(
        now: Instant,
        (every, last): (Every, Option<u64>),
        part: &Part<'_>,
        at: &Beginning,
    ) -> Checkpointing {
        let (topology, me) = (part.topology(), part.id);
        let rounds = at.rounds;
        let interval = match every {
            Every::Time(every) => every / FIRST,
            Every::Rounds(_) | Every::Once(_) | Every::Never => Duration::ZERO,
        };
        Checkpointing {
            me,
            nodes: topology.nodes(),
            distance: distance(topology),
            every,
            last,
            rounds: part.design().experiment.run.rounds,
            started: (now, rounds),
            own: rounds,
            common: rounds,
            interval,
            turn: 0,
            since: (now, rounds),
            scheduled: now,
            own_schedule: CheckpointSchedule { number: 0, next: rounds },
            passed: None,
            schedules: LiteMap::new(),
            next: rounds,
            membership: part.membership.id,
            history: at.history.clone(),
            from_mean: at.from_mean,
            returned: None,
        }
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
    pub(crate) fn saved(&mut self, rounds: u64, statements: &mut Statements) {
        self.own = self.own.max(rounds);
        statements.say(Said::Saved(self.own));
    }

    /// The rounds of the newest checkpoints of all nodes.
    fn newest(&self, statements: &Statements) -> impl Iterator<Item = u64> {
        let (first, me, own) = (self.started.1, self.me, self.own);
        (0..self.nodes).map(NodeId::from).map(move |node| match node == me {
            true => own,
            // All have begun there.
            false => statements.saved(node).unwrap_or(first),
        })
    }

    /// Upon a tick in this round of the node: removes checkpoints that nobody needs. May return
    /// after which round the next one is written.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        round: Round,
        statements: &mut Statements,
        out: &mut Vec<Effect>,
    ) -> Option<Round> {
        self.advance(now, round, statements, out);
        let Every::Time(every) = self.every else { return None };
        self.take_turns(now, round, every);
        if self.turn == self.me.index() {
            self.plan(now, round, every, statements);
        }
        for node in (0..self.nodes).map(NodeId::from) {
            let Some(schedule) = statements.schedule(node) else { continue };
            let (known, followed) = self.schedules.entry(node).or_default();
            if schedule.number > known.number {
                let follows = node == self.me || follows(followed, now, every);
                *known = CheckpointSchedule {
                    next: if follows { schedule.next } else { 0 },
                    ..schedule
                };
            }
        }
        let ahead = self.schedules.values().map(|(schedule, _)| schedule.next);
        let next = ahead.filter(|next| *next > round.0).min()?;
        // The one that was named before may be on its way.
        let is_due = next < self.next || round.0 > self.next || self.next == self.started.1;
        (is_due && next != self.next).then(|| {
            self.next = next;
            Round(next)
        })
    }

    /// Removes what nobody needs, once all nodes have said that they have a newer one.
    fn advance(
        &mut self,
        now: Instant,
        round: Round,
        statements: &Statements,
        out: &mut Vec<Effect>,
    ) {
        let oldest = self.newest(statements).min().unwrap_or(0);
        let common = match self.every {
            Every::Never => return,
            Every::Rounds(_) | Every::Once(_) => oldest,
            // Some nodes may have none of the rounds in between.
            Every::Time(_) if self.newest(statements).all(|newest| newest == oldest) => oldest,
            Every::Time(_) => return,
        };
        if common > self.common {
            // The one before stays, too: the newest may be damaged at some nodes.
            let before = std::mem::replace(&mut self.common, common);
            self.since = (now, round.0);
            out.push(Effect::Retain(before));
        }
    }

    /// It is the turn of the next node if no checkpoint of all nodes has come for long.
    fn take_turns(&mut self, now: Instant, round: Round, every: Duration) {
        let ((times, rounds), interval) = (TURN, self.interval(now, every));
        let (hops, (since, first)) = (self.distance + 1, self.since);
        let most = interval + times * interval.max(CROSSING * hops);
        if now >= since + most && round.0 >= first + rounds * u64::from(hops) {
            (self.turn, self.since) = ((self.turn + 1) % self.nodes, (now, round.0));
        }
    }

    /// The time from now on between two checkpoints.
    fn interval(&self, now: Instant, every: Duration) -> Duration {
        every.min(self.interval.max((now - self.started.0) / PART))
    }

    /// Makes a schedule, if one is due.
    fn plan(&mut self, now: Instant, round: Round, every: Duration, statements: &mut Statements) {
        let waits = self.common < self.own_schedule.next;
        let due = now - self.scheduled >= self.interval && (!waits || self.is_missed(now, round));
        let next = self.far_enough(now, round);
        // None is due if the run is over before.
        if due && next <= self.rounds {
            (self.scheduled, self.passed) = (now, None);
            self.interval = self.interval(now, every);
            let number = self.own_schedule.number + 1;
            self.own_schedule = CheckpointSchedule { number, next };
            statements.say(Said::Schedule(self.own_schedule));
        }
    }

    /// Whether all nodes have passed the scheduled round so long ago that some have no checkpoint
    /// of it. Until then another schedule would only take its place, again and again.
    fn is_missed(&mut self, now: Instant, round: Round) -> bool {
        let hops = self.distance + 1;
        // The others are at most as many rounds behind as they are far away.
        if round.0 < self.own_schedule.next.saturating_add(2 * u64::from(hops)) {
            return false;
        }
        let passed = *self.passed.get_or_insert(now);
        now - passed >= PATIENCE * self.interval.max(CROSSING * hops)
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

/// The links from the first node to the farthest one.
fn distance(topology: &Topology) -> u32 {
    let (mut distances, mut order) = (Vec::new(), Vec::new());
    topology.graph().distances(NodeId(0), &mut distances, &mut order);
    distances.into_iter().filter(|far| *far != u32::MAX).max().unwrap_or(0)
}

/// How long a node may write no checkpoint, and for how many rounds, if one member prevents that
/// any of them is of all nodes: it is the turn of each once.
#[cfg(test)]
pub(crate) fn longest_gap(topology: &Topology, every: Duration) -> (Duration, u64) {
    let (nodes, hops, (times, rounds)) = (topology.nodes() as u32, distance(topology) + 1, TURN);
    (nodes * (every + times * every.max(CROSSING * hops)), u64::from(nodes * hops) * rounds)
}

/// Whether a node writes the next checkpoint of another one's schedule, when it has followed these:
/// that one must not keep the disks busy.
fn follows(followed: &mut VecDeque<Instant>, now: Instant, every: Duration) -> bool {
    let (most, intervals) = MOST_SCHEDULES;
    if followed.len() == most {
        if now - followed[0] < intervals * every {
            return false;
        }
        followed.pop_front();
    }
    followed.push_back(now);
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        cluster::{
            members::keys::Named,
            statements::{Retained, Statement, news},
        },
        drive::Membership,
        experiment::Experiment,
        run::Whole,
    };

    const TICK: Duration = Duration::from_millis(100);

    fn whole(topology: &str) -> Whole {
        let settings = [
            &format!("topology.file={topology}"),
            "run.rounds=10000",
            "data.source=synthetic",
            "model.kind=least-squares",
            "rule.kind=d-psgd",
            "compressor.kind=identity",
        ];
        let settings = settings.map(|text| text.to_string());
        Whole::new(Experiment::parse("", &settings).unwrap()).unwrap()
    }

    /// One node of a run whose rounds take some ticks each.
    struct Node<'a> {
        part: Part<'a>,
        saves: Checkpointing,
        statements: Statements,
        round: u64,
        request: Option<u64>,
        saved: Vec<u64>,
        retained: u64,
        told: Retained,
        /// What each neighbour was told.
        sent: Vec<(NodeId, u64)>,
    }

    impl<'a> Node<'a> {
        /// A node that begins after so many rounds.
        fn new(whole: &'a Whole, node: usize, now: Instant, every: Every, at: u64) -> Node<'a> {
            let design = &whole.design;
            let (id, nodes) = (NodeId::from(node), design.topology.nodes());
            let part = Part::new(design, id, Membership::all(nodes)).unwrap();
            let statements = Statements::new(&part, Arc::new(Named(id)), 1);
            let begins = Beginning { rounds: at, ..Beginning::default() };
            let saves = Checkpointing::new(now, (every, None), &part, &begins);
            let sent = part.neighbours.iter().map(|peer| (peer.node, 0)).collect();
            let (told, saved) = (Retained::default(), Vec::new());
            Node {
                part,
                saves,
                statements,
                round: at,
                request: None,
                saved,
                retained: 0,
                told,
                sent,
            }
        }

        /// A tick: what is removed, and what the neighbours are told.
        fn look(&mut self, now: Instant) {
            let mut out = Vec::new();
            let (round, statements) = (Round(self.round), &mut self.statements);
            if let Some(round) = self.saves.look(now, round, statements, &mut out) {
                self.request = Some(round.0);
            }
            out.extend(statements.tell(now).map(Effect::Tell));
            for effect in out {
                match effect {
                    Effect::Tell(statements) => self.told = statements,
                    Effect::Retain(rounds) => self.retained = rounds,
                    other => panic!("{other:?}"),
                }
            }
        }

        fn says(&mut self, node: u32, said: Said) {
            let (node, keys) = (NodeId(node), Named(NodeId(node)));
            let statement = Statement::signed(&keys, (node, node), (0, 1), said);
            let from = self.part.neighbours[0].node;
            self.statements.hear(from, vec![statement].into()).unwrap();
        }
    }

    struct Network<'a> {
        whole: &'a Whole,
        nodes: Vec<Node<'a>>,
        now: Instant,
        ticks: u64,
        /// Whose statements reach nobody.
        silent: Option<NodeId>,
    }

    impl<'a> Network<'a> {
        /// Nodes that begin after so many rounds.
        fn new(whole: &'a Whole, every: Duration, at: u64) -> Network<'a> {
            let (now, nodes) = (Instant::now(), 0..whole.design.topology.nodes());
            let node = |node| Node::new(whole, node, now, Every::Time(every), at);
            Network { whole, nodes: nodes.map(node).collect(), now, ticks: 0, silent: None }
        }

        /// Lets time pass. News crosses a link in a tick; a round takes `pace` ticks, and nodes
        /// that are further from node 0 are as many rounds behind.
        fn tick(&mut self, pace: u64) {
            self.now += TICK;
            self.ticks += 1;
            let mut crossing = Vec::new();
            for node in &mut self.nodes {
                for (peer, sent) in &mut node.sent {
                    let news = news(&node.told, sent);
                    crossing.extend(news.map(|batch| (node.part.id, *peer, batch)));
                }
            }
            for (from, to, mut batch) in crossing {
                batch.statements.retain(|one| Some(one.node) != self.silent);
                self.nodes[to.index()].statements.hear(from, batch).unwrap();
            }
            let (mut far, mut order) = (Vec::new(), Vec::new());
            self.whole.design.topology.graph().distances(NodeId(0), &mut far, &mut order);
            for (index, node) in self.nodes.iter_mut().enumerate() {
                let rounds = (self.ticks / pace).saturating_sub(u64::from(far[index]));
                node.round = node.round.max(node.saves.started.1 + rounds);
                node.look(self.now);
                if let Some(round) = node.request.take_if(|round| *round <= node.round) {
                    assert!(node.saves.stamp(round).is_some());
                    node.saves.saved(round, &mut node.statements);
                    node.saved.push(round);
                }
            }
        }
    }

    #[test]
    fn short_intervals_and_slow_rounds_write_checkpoints_that_all_nodes_have() {
        let whole = whole("ring:8");
        // Intervals shorter than a schedule takes, and rounds longer than an interval.
        for (every, pace, ticks) in [(0.1, 1, 600), (1.0, 1, 600), (1.0, 50, 6000), (60.0, 1, 3000)]
        {
            let mut network = Network::new(&whole, Duration::from_secs_f64(every), 0);
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

    /// A run writes the first checkpoint soon, then in growing intervals, and so does one that was
    /// started again.
    #[test]
    fn after_a_start_checkpoints_come_early() {
        let whole = whole("ring:4");
        for at in [0, 100] {
            let mut network = Network::new(&whole, Duration::from_secs(64), at);
            (0..3000).for_each(|_| network.tick(1));
            let saved = network.nodes.swap_remove(2).saved;
            // Each 4 s until 32 s have passed, then after an eighth of the time.
            assert!((20..30).contains(&saved.len()) && saved[0] < at + 100, "{saved:?}");
            for two in saved.windows(2) {
                let (since, interval) = (two[0] - at, two[1] - two[0]);
                // Measured when the next one is planned, a little before.
                let part = (since / 8).clamp(40, 640);
                let range = part * 4 / 5..=part + 15;
                assert!(range.contains(&interval), "{since}: {interval}, {saved:?}");
            }
        }
    }

    #[test]
    fn a_busy_node_0_does_not_keep_the_disks_busy() {
        let whole = whole("ring:4");
        let mut network = Network::new(&whole, Duration::from_secs(10), 0);
        for tick in 0..1000 {
            network.tick(1);
            let node = &mut network.nodes[2];
            let number = node.saves.schedules.get(&NodeId(0)).map_or(0, |(one, _)| one.number);
            if tick > 500 {
                let schedule = CheckpointSchedule { number: number + 1, next: node.round + 1 };
                node.says(0, Said::Schedule(schedule));
            }
        }
        // At most 24 in 20 s.
        let saved = &network.nodes[2].saved;
        assert!(saved.len() >= 4 && saved.len() <= 4 + 3 * 24, "{saved:?}");
        assert!(saved.is_sorted_by(|a, b| a < b), "{saved:?}");
        assert!(network.nodes[0].saves.common > 0);
    }

    /// Node 0 names no round, or one at the end of the run, or its schedules reach nobody.
    #[test]
    fn nobody_alone_prevents_checkpoints() {
        let whole = whole("ring:5");
        for says in [None, Some(10_000)] {
            let mut network = Network::new(&whole, Duration::from_secs(2), 0);
            network.silent = Some(NodeId(0));
            for _ in 0..2000 {
                network.tick(1);
                for node in network.nodes.iter_mut().skip(1) {
                    let schedule = says.map(|next| CheckpointSchedule { number: 1 << 20, next });
                    schedule.into_iter().for_each(|one| node.says(0, Said::Schedule(one)));
                    let own = node.saved.last().copied().unwrap_or(0);
                    node.says(0, Said::Saved(own));
                }
            }
            for node in &network.nodes[1..] {
                assert!(node.retained > 0 && node.saved.len() > 10, "{says:?}: {:?}", node.saved);
                let gaps = || node.saved.windows(2).map(|two| two[1] - two[0]);
                assert!(gaps().all(|gap| gap < 300), "{says:?}: {:?}", node.saved);
            }
        }
    }

    /// One node alone would have others remove what they need.
    #[test]
    fn a_checkpoint_is_common_only_if_each_node_has_said_so() {
        let (whole, mut now) = (whole("ring:4"), Instant::now());
        let mut b = Node::new(&whole, 1, now, Every::Rounds(20), 0);
        b.saves.saved(40, &mut b.statements);
        let mut retained = |b: &mut Node<'_>, node: u32, said: Said| {
            now += TICK;
            b.says(node, said);
            b.look(now);
            b.retained
        };
        assert_eq!(retained(&mut b, 0, Said::Saved(60)), 0);
        assert_eq!(retained(&mut b, 2, Said::Saved(60)), 0);
        assert_eq!(retained(&mut b, 3, Said::Saved(20)), 0, "the one at the beginning stays");
        assert_eq!(b.saves.common, 20);
        assert_eq!(retained(&mut b, 3, Said::Saved(60)), 20, "this node has 40");
        assert_eq!(b.saves.common, 40);
        b.saves.saved(60, &mut b.statements);
        assert_eq!(retained(&mut b, 2, Said::Saved(80)), 40);
    }
}
