//! Writes a node's checkpoints beside training, and agrees with the other nodes when.
//!
//! A run can continue from a round of which every node has a checkpoint, so all nodes write them
//! after the same rounds:
//!
//! * With `checkpoint.every_rounds` these are its multiples.
//! * Otherwise node 0 names the next round when `checkpoint.every_s` have passed. It chooses one
//!   that is far enough ahead for the message to reach every node before; a node that has passed it
//!   writes none, and the checkpoint is of no use.
//! * Every node reports what it has written, and nodes forward the reports. Node 0 announces the
//!   newest round of which every node has a checkpoint; all nodes keep that one and newer ones.
//!
//! A thread of its own writes the files, while the node continues.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    drive::Change,
    gossip::Input,
    mixing::Topology,
    net::{
        life::{clock, rounds::status::Status},
        link::wire::{Beginning, CheckpointSchedule},
    },
    run::{Checkpoint, Checkpoints, checkpoint::Every},
    threads,
    units::{NodeId, Round},
};

/// The time that a schedule may take to cross a link: nodes look four times a second.
const CROSSING: Duration = Duration::from_secs(1);

/// How often a node looks for news of checkpoints.
const LOOK: Duration = Duration::from_millis(100);

/// How long node 0 waits for the reports of a checkpoint after its round, in intervals or in times
/// that a message takes to cross the network.
const PATIENCE: u32 = 3;

/// How many schedules a node follows in so many intervals.
const MOST_SCHEDULES: (usize, u32) = (3, 2);

/// The rounds from which the run continues if no checkpoint is due before its end.
const AT_THE_END: Round = Round(u64::MAX);

/// Writes the checkpoints of one node.
pub(crate) struct Saver {
    checkpoints: Checkpoints,
    status: Arc<Status>,
    me: NodeId,
    nodes: usize,
    /// The links to the farthest node.
    distance: u32,
    /// When this node continued, and after how many rounds.
    started: (Instant, u64),
    /// When it last looked for news.
    looked: Instant,
    /// The last change of [`Status::saves`] that was handled.
    news: u64,
    /// The newest round of which every node has a checkpoint.
    common: u64,
    /// At node 0: when the last schedule was made, and when all nodes had passed its round.
    scheduled: Instant,
    passed: Option<Instant>,
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
    writer: Writer,
}

enum Writer {
    /// On a thread of its own.
    Beside {
        queue: SyncSender<Checkpoint>,
        thread: JoinHandle<()>,
    },
    /// On this thread, where time is virtual or the system refuses another thread.
    Here {
        failing: bool,
    },
    Finished,
}

impl Saver {
    /// For a node that continues there, in this membership.
    pub(crate) fn new(
        checkpoints: Checkpoints,
        status: Arc<Status>,
        topology: &Topology,
        me: NodeId,
        at: Beginning,
        membership: u64,
    ) -> Saver {
        let Beginning { rounds, from_mean, without, history } = at;
        let (mut distances, mut order) = (Vec::new(), Vec::new());
        topology.graph().distances(NodeId(0), &mut distances, &mut order);
        let distance = distances.iter().copied().filter(|far| *far != u32::MAX).max();
        // Later ones belong to an attempt that no node continues with.
        let lacks = without.contains(&me);
        checkpoints.retain(|saved| saved == rounds && !lacks);
        checkpoints.begin();
        status.has_saved(me, rounds);
        let writer = if clock::is_virtual() {
            Writer::Here { failing: false }
        } else {
            let (queue, waiting) = mpsc::sync_channel(1);
            let (checkpoints, status) = (checkpoints.clone(), Arc::clone(&status));
            let work = move || write(&checkpoints, &status, me, waiting);
            match threads::spawn("gradvine-saver", work) {
                Ok(thread) => Writer::Beside { queue, thread },
                Err(error) => {
                    tracing::warn!("checkpoints are written between rounds: {error}");
                    Writer::Here { failing: false }
                }
            }
        };
        Saver {
            checkpoints,
            status,
            me,
            nodes: topology.nodes(),
            distance: distance.unwrap_or(0),
            started: (clock::now(), rounds),
            looked: clock::now(),
            news: 0,
            common: rounds,
            scheduled: clock::now(),
            passed: None,
            followed: VecDeque::new(),
            schedule: CheckpointSchedule { number: 0, next: rounds, common: rounds },
            membership,
            history,
            from_mean,
            returned: None,
            writer,
        }
    }

    /// The first request for a snapshot.
    pub(crate) fn first(&self) -> Option<Input> {
        let after = match self.checkpoints.every {
            Every::Rounds(every) => Round(self.started.1.saturating_add(every)),
            Every::Time(_) => AT_THE_END,
            Every::Never => return None,
        };
        Some(Input::Snapshot(after))
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

    /// The nodes that are back.
    pub(crate) fn returned(&self) -> Vec<NodeId> {
        self.returned.as_ref().map_or(Vec::new(), |(_, returned)| returned.clone())
    }

    /// Takes what is new, in this round of the node. May return a request for a snapshot.
    pub(crate) fn look(&mut self, round: Round) -> Option<Input> {
        if clock::since(self.looked) < LOOK {
            return None;
        }
        self.looked = clock::now();
        if self.me == NodeId(0) {
            self.plan(round);
        }
        let news = self.status.save_news();
        if std::mem::replace(&mut self.news, news) == news {
            return None;
        }
        let (own, schedule) = {
            let saves = self.status.saves();
            (saves.newest.get(&self.me.0).copied().unwrap_or(0), saves.schedule)
        };
        // A false message of a neighbour must not remove what this node needs.
        if schedule.common > self.common && schedule.common <= own {
            self.common = schedule.common;
            self.checkpoints.retain(|saved| saved >= self.common);
        }
        let is_new = schedule.number > self.schedule.number && schedule.next > self.schedule.next;
        self.schedule = schedule;
        let ahead = is_new && schedule.next > round.0 && self.follows();
        ahead.then_some(Input::Snapshot(Round(schedule.next)))
    }

    /// Whether this node writes the next checkpoint of a schedule: in a fixed rhythm it follows
    /// none, and false ones must not keep the disk busy.
    fn follows(&mut self) -> bool {
        let Every::Time(every) = self.checkpoints.every else { return false };
        let (most, intervals) = MOST_SCHEDULES;
        if self.me != NodeId(0) && self.followed.len() == most {
            if clock::since(self.followed[0]) < intervals * every {
                return false;
            }
            self.followed.pop_front();
        }
        self.followed.push_back(clock::now());
        self.followed.truncate(most);
        true
    }

    /// Makes the schedule, at node 0.
    fn plan(&mut self, round: Round) {
        let (oldest, latest) = {
            let saves = self.status.saves();
            let newest = (0..self.nodes as u32).map(|node| saves.newest.get(&node).copied());
            let oldest = newest.clone().min().flatten().unwrap_or(0);
            (oldest, newest.max().flatten().unwrap_or(0))
        };
        let (common, next) = match self.checkpoints.every {
            Every::Never => return,
            // All of them are multiples.
            Every::Rounds(_) => (oldest, self.schedule.next),
            Every::Time(every) => {
                // Some nodes may have none of the rounds in between.
                let common = if oldest == latest { oldest } else { self.common };
                let waits = common < self.schedule.next;
                let due = clock::since(self.scheduled) >= every
                    && (!waits || self.is_missed(round, every));
                (common, if due { self.far_enough(round) } else { self.schedule.next })
            }
        };
        if common > self.schedule.common || next > self.schedule.next {
            if next > self.schedule.next {
                (self.scheduled, self.passed) = (clock::now(), None);
            }
            let number = self.schedule.number + 1;
            self.status.set_schedule(CheckpointSchedule { number, next, common });
        }
    }

    /// Whether all nodes have passed the scheduled round so long ago that some have no checkpoint
    /// of it. Until then another schedule would only take its place, again and again.
    fn is_missed(&mut self, round: Round, every: Duration) -> bool {
        let hops = self.distance + 1;
        // The others are at most as many rounds behind as they are far away.
        if round.0 < self.schedule.next.saturating_add(2 * u64::from(hops)) {
            return false;
        }
        let passed = *self.passed.get_or_insert_with(clock::now);
        clock::since(passed) >= PATIENCE * every.max(CROSSING * hops)
    }

    /// A round that no node reaches before it knows of it.
    fn far_enough(&self, round: Round) -> u64 {
        let (since, first) = self.started;
        let hops = self.distance + 1;
        let each = (round.0 - first) as f64 / clock::since(since).as_secs_f64().max(1e-3);
        let rounds = each * (CROSSING * hops).as_secs_f64();
        round.0 + rounds.ceil() as u64 + 2 * u64::from(hops)
    }

    /// Queues a checkpoint. With a fixed number of rounds it waits while another one is written.
    pub(crate) fn save(&mut self, checkpoint: Checkpoint) -> Option<Input> {
        let rounds = checkpoint.snapshot.rounds.0;
        let (membership, history) = (self.membership, self.history.clone());
        let first = self.from_mean && self.common == self.started.1;
        let common = if first { 0 } else { self.common };
        let checkpoint = Checkpoint { common, membership, history, ..checkpoint };
        if self.checkpoints.last == Some(rounds) {
            return None;
        }
        match (self.checkpoints.every, &mut self.writer) {
            (Every::Never, _) | (_, Writer::Finished) => return None,
            (_, Writer::Here { failing }) => {
                write_one(&self.checkpoints, &self.status, self.me, &checkpoint, failing);
            }
            (Every::Rounds(_), Writer::Beside { queue, .. }) => _ = queue.send(checkpoint),
            (Every::Time(_), Writer::Beside { queue, .. }) => {
                if let Err(TrySendError::Full(_)) = queue.try_send(checkpoint) {
                    tracing::warn!(
                        "no checkpoint of round {rounds}: the one before is still being written"
                    );
                }
            }
        }
        let next = match self.checkpoints.every {
            Every::Rounds(every) => Round(rounds.saturating_add(every)),
            _ => AT_THE_END,
        };
        Some(Input::Snapshot(next))
    }

    /// Waits until all checkpoints are written.
    pub(crate) fn finish(&mut self) {
        if let Writer::Beside { queue, thread } =
            std::mem::replace(&mut self.writer, Writer::Finished)
        {
            drop(queue);
            let _ = thread.join();
        }
    }

    /// Removes all checkpoints: the run is over. `stays` says whether the folder remains, so that
    /// a node that is started again knows that the run was its own.
    pub(crate) fn clear(mut self, stays: bool) {
        self.finish();
        match stays {
            true => self.checkpoints.retain(|_| false),
            false => self.checkpoints.remove(),
        }
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Writes one checkpoint after the other.
fn write(checkpoints: &Checkpoints, status: &Status, me: NodeId, queue: Receiver<Checkpoint>) {
    let mut failing = false;
    for checkpoint in queue {
        write_one(checkpoints, status, me, &checkpoint, &mut failing);
    }
}

/// Writes a checkpoint, and reports it once the disk has it.
fn write_one(
    checkpoints: &Checkpoints,
    status: &Status,
    me: NodeId,
    checkpoint: &Checkpoint,
    failing: &mut bool,
) {
    let rounds = checkpoint.snapshot.rounds.0;
    let started = clock::now();
    match checkpoints.write(checkpoint) {
        Ok(()) => {
            let seconds = clock::since(started).as_secs_f64();
            tracing::info!("checkpoint of round {rounds}, written in {seconds:.2} s");
            status.has_saved(me, rounds);
            *failing = false;
        }
        // Once, until it succeeds again: the disk may be full for a long time.
        Err(error) if !std::mem::replace(failing, true) => tracing::warn!("{error}"),
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        gossip::snapshot::Snapshot,
        mixing::Topology,
        net::{life::clock::virtual_time, link::wire::Message},
        run::checkpoint::Owner,
    };

    const TICK: Duration = Duration::from_millis(100);

    /// One node of a run whose rounds take some ticks each.
    struct Node {
        saver: Saver,
        status: Arc<Status>,
        round: u64,
        request: Option<u64>,
        saved: Vec<u64>,
    }

    struct Network {
        topology: Topology,
        nodes: Vec<Node>,
        now: Instant,
        ticks: u64,
    }

    impl Network {
        fn new(folder: &Path, spec: &str, every: Duration) -> Network {
            let now = Instant::now();
            virtual_time::set(now);
            let topology = Topology::parse(spec, 0).unwrap();
            let node = |node: usize| {
                let sections = Default::default();
                let owner = Owner::of(("run", 1), (node.into(), format!("n{node}")), &sections);
                let every = Every::Time(every);
                let checkpoints = Checkpoints::open(folder, every, owner, &sections).unwrap();
                let status = Arc::new(Status::new([].into_iter()));
                let (at, shared) = (Beginning::default(), Arc::clone(&status));
                let saver = Saver::new(checkpoints, shared, &topology, node.into(), at, 0);
                Node { saver, status, round: 0, request: None, saved: Vec::new() }
            };
            let nodes = (0..topology.nodes()).map(node).collect();
            Network { topology, nodes, now, ticks: 0 }
        }

        /// Lets time pass. News crosses a link in a tick; a round takes `pace` ticks, and nodes
        /// that are further from node 0 are as many rounds behind.
        fn tick(&mut self, pace: u64) {
            self.now += TICK;
            self.ticks += 1;
            virtual_time::set(self.now);
            let before: Vec<_> =
                self.nodes.iter().map(|node| node.status.saves().clone()).collect();
            let (mut far, mut order) = (Vec::new(), Vec::new());
            self.topology.graph().distances(NodeId(0), &mut far, &mut order);
            for (index, node) in self.nodes.iter_mut().enumerate() {
                let me = NodeId::from(index);
                for peer in self.topology.neighbours(me) {
                    for message in before[peer.index()].news(&mut Default::default()) {
                        match message {
                            Message::Saved(saved) => node.status.add_saved(me, &saved),
                            Message::Schedule(schedule) => node.status.add_schedule(me, schedule),
                            other => panic!("{other:?}"),
                        }
                    }
                }
                node.round = (self.ticks / pace).saturating_sub(u64::from(far[index]));
                if let Some(Input::Snapshot(round)) = node.saver.look(Round(node.round)) {
                    node.request = Some(round.0);
                }
                if let Some(round) = node.request.take_if(|round| *round <= node.round) {
                    let snapshot = Snapshot { rounds: Round(round), ..Snapshot::default() };
                    node.saver.save(Checkpoint { snapshot, ..Checkpoint::default() });
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
            let folder = tempfile::tempdir().unwrap();
            let every = Duration::from_secs_f64(every);
            let mut network = Network::new(folder.path(), "ring:8", every);
            (0..ticks).for_each(|_| network.tick(pace));
            let first = &network.nodes[0];
            assert!(first.saved.len() >= 4, "{every:?}, {pace}: {:?}", first.saved);
            for node in &network.nodes {
                assert!(node.saver.common > 0, "{every:?}, {pace}");
                let both = node.saved.len().min(first.saved.len());
                assert_eq!(node.saved[..both], first.saved[..both], "{every:?}, {pace}");
            }
        }
    }

    #[test]
    fn false_schedules_neither_keep_the_disk_busy_nor_stop_the_true_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut network = Network::new(folder.path(), "ring:4", Duration::from_secs(10));
        for tick in 0..1000 {
            network.tick(1);
            let node = &network.nodes[2];
            let CheckpointSchedule { number, .. } = node.status.saves().schedule;
            if tick > 500 {
                let next = node.round + 1;
                node.status.add_schedule(
                    NodeId(2),
                    CheckpointSchedule { number: number + 1, next, common: 0 },
                );
            }
        }
        // At most three in 20 s.
        let saved = &network.nodes[2].saved;
        assert!(saved.len() >= 4 && saved.len() <= 4 + 3 * 3, "{saved:?}");
        assert!(saved.is_sorted_by(|a, b| a < b), "{saved:?}");
        let last = network.nodes[0].saver.common;
        assert!(last > 0 && !network.nodes[0].saver.checkpoints.is_empty());
    }
}
