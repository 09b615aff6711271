//! Writes a node's checkpoints beside training, and agrees with the other nodes when.
//!
//! A run can go on from a round of which every node has a checkpoint, so all nodes write them after
//! the same rounds:
//!
//! * With `checkpoint.every_rounds` these are its multiples.
//! * Otherwise node 0 names the next round when `checkpoint.every_s` have passed. It chooses one
//!   that is far enough ahead for the message to reach every node before; a node that has passed it
//!   writes none, and the checkpoint is of no use.
//! * Every node reports what it has written, and nodes forward the reports. Node 0 announces the
//!   newest round of which every node has a checkpoint; all nodes keep that one and newer ones.
//!
//! A thread of its own writes the files, while the node goes on.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    clock,
    status::{Saves, Status},
    wire::{Beginning, Schedule},
};
use crate::{
    drive::Change,
    gossip::Input,
    mixing::Topology,
    run::{Checkpoint, Checkpoints, checkpoint::Every},
    units::{NodeId, Round},
};

/// The time that a schedule may take to cross a link: nodes look four times a second.
const CROSSING: Duration = Duration::from_secs(1);

/// How often a node looks for news of checkpoints.
const LOOK: Duration = Duration::from_millis(100);

/// How long node 0 waits for the reports of a checkpoint, in intervals.
const PATIENCE: u32 = 3;

/// The rounds from which the run goes on if no checkpoint is due before its end.
const AT_THE_END: Round = Round(u64::MAX);

/// Writes the checkpoints of one node.
pub(super) struct Saver {
    checkpoints: Checkpoints,
    status: Arc<Status>,
    me: NodeId,
    nodes: usize,
    /// The links to the farthest node.
    distance: u32,
    /// When this node went on, and after how many rounds.
    begun: (Instant, u64),
    /// When it last looked for news.
    looked: Instant,
    /// The last change of [`Status::saves`] that was handled.
    news: u64,
    /// The newest round of which every node has a checkpoint.
    common: u64,
    /// At node 0: when the last schedule was made.
    scheduled: Instant,
    schedule: Schedule,
    /// The membership, and the changes until it.
    membership: u64,
    history: Vec<Change>,
    /// Whether this attempt has begun anew from a mean: the first checkpoint is of an older
    /// membership, or some nodes lack it.
    anew: bool,
    /// The newest common checkpoint when the first of these nodes came back, which are no members.
    visited: Option<(u64, Vec<NodeId>)>,
    writer: Writer,
}

/// Writes checkpoints.
enum Writer {
    /// On a thread of its own.
    Beside {
        queue: SyncSender<Checkpoint>,
        thread: JoinHandle<()>,
    },
    /// On this thread, where time is virtual.
    Here {
        failing: bool,
    },
    Finished,
}

impl Saver {
    /// For a node that goes on there, in this membership.
    pub fn new(
        checkpoints: Checkpoints,
        status: Arc<Status>,
        topology: &Topology,
        me: NodeId,
        at: Beginning,
        membership: u64,
    ) -> Saver {
        let Beginning { rounds, anew, without, history } = at;
        let (mut distances, mut order) = (Vec::new(), Vec::new());
        topology.graph().distances(NodeId(0), &mut distances, &mut order);
        let distance = distances.iter().copied().filter(|far| *far != u32::MAX).max();
        // Later ones belong to an attempt that no node goes on with.
        let lacks = without.contains(&me);
        checkpoints.retain(|saved| saved == rounds && !lacks);
        checkpoints.begin();
        status.add_saved(&[(me.0, rounds)]);
        let writer = if clock::is_virtual() {
            Writer::Here { failing: false }
        } else {
            let (queue, waiting) = mpsc::sync_channel(1);
            let (checkpoints, status) = (checkpoints.clone(), Arc::clone(&status));
            let thread = thread::spawn(move || write(&checkpoints, &status, me, waiting));
            Writer::Beside { queue, thread }
        };
        Saver {
            checkpoints,
            status,
            me,
            nodes: topology.nodes(),
            distance: distance.unwrap_or(0),
            begun: (clock::now(), rounds),
            looked: clock::now(),
            news: 0,
            common: rounds,
            scheduled: clock::now(),
            schedule: Schedule { number: 0, next: rounds, common: rounds },
            membership,
            history,
            anew,
            visited: None,
            writer,
        }
    }

    /// The first request for a snapshot.
    pub fn first(&self) -> Option<Input> {
        let after = match self.checkpoints.every {
            Every::Rounds(every) => Round(self.begun.1.saturating_add(every)),
            Every::Time(_) => AT_THE_END,
            Every::Never => return None,
        };
        Some(Input::Snapshot(after))
    }

    /// A node that is no member has come back. Returns whether that is news.
    pub fn visit(&mut self, peer: NodeId) -> bool {
        let (_, visitors) = self.visited.get_or_insert((self.common, Vec::new()));
        let is_new = !visitors.contains(&peer);
        if is_new {
            visitors.push(peer);
        }
        is_new
    }

    /// The nodes that are back and can take part now: all members have had a checkpoint since the
    /// first of them came.
    pub fn due(&mut self) -> Option<Vec<NodeId>> {
        let (_, visitors) = self.visited.take_if(|(common, _)| self.common > *common)?;
        Some(visitors)
    }

    /// The nodes that are back.
    pub fn visitors(&self) -> Vec<NodeId> {
        self.visited.as_ref().map_or(Vec::new(), |(_, visitors)| visitors.clone())
    }

    /// Takes what is new, in this round of the node. May return a request for a snapshot.
    pub fn look(&mut self, round: Round) -> Option<Input> {
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
        let Saves { newest, schedule } = self.status.saves().clone();
        let own = newest.get(&self.me.0).copied().unwrap_or(0);
        // A false message of a neighbour must not remove what this node needs.
        if schedule.common > self.common && schedule.common <= own {
            self.common = schedule.common;
            self.checkpoints.retain(|saved| saved >= self.common);
        }
        let is_new = schedule.number > self.schedule.number && schedule.next > self.schedule.next;
        self.schedule = schedule;
        let ahead = is_new && schedule.next > round.0;
        ahead.then_some(Input::Snapshot(Round(schedule.next)))
    }

    /// Makes the schedule, at node 0.
    fn plan(&mut self, round: Round) {
        let (common, next) = {
            let saves = self.status.saves();
            let newest = (0..self.nodes as u32).map(|node| saves.newest.get(&node).copied());
            let oldest = newest.clone().min().flatten().unwrap_or(0);
            let latest = newest.max().flatten().unwrap_or(0);
            match self.checkpoints.every {
                Every::Never => return,
                // All of them are multiples.
                Every::Rounds(_) => (oldest, self.schedule.next),
                Every::Time(every) => {
                    // Some nodes may have none of the rounds in between.
                    let common = if oldest == latest { oldest } else { self.common };
                    let waits = common < self.schedule.next;
                    let since = clock::since(self.scheduled);
                    let due = since >= every && (!waits || since >= PATIENCE * every);
                    let next = if due { self.far_enough(round) } else { self.schedule.next };
                    (common, next)
                }
            }
        };
        if common > self.schedule.common || next > self.schedule.next {
            if next > self.schedule.next {
                self.scheduled = clock::now();
            }
            let number = self.schedule.number + 1;
            self.status.set_schedule(Schedule { number, next, common });
        }
    }

    /// A round that no node reaches before it knows of it.
    fn far_enough(&self, round: Round) -> u64 {
        let (since, first) = self.begun;
        let hops = self.distance + 1;
        let each = (round.0 - first) as f64 / clock::since(since).as_secs_f64().max(1e-3);
        let rounds = each * (CROSSING * hops).as_secs_f64();
        round.0 + rounds.ceil() as u64 + 2 * u64::from(hops)
    }

    /// Queues a checkpoint. With a fixed number of rounds it waits while another one is written.
    pub fn save(&mut self, checkpoint: Checkpoint) -> Option<Input> {
        let rounds = checkpoint.snapshot.rounds.0;
        let (membership, history) = (self.membership, self.history.clone());
        let first = self.anew && self.common == self.begun.1;
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
    pub fn finish(&mut self) {
        if let Writer::Beside { queue, thread } =
            std::mem::replace(&mut self.writer, Writer::Finished)
        {
            drop(queue);
            let _ = thread.join();
        }
    }

    /// Removes all checkpoints: the run is over. `stays` says whether the folder remains, so that
    /// a node that is started again knows that the run was its own.
    pub fn clear(mut self, stays: bool) {
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
    let begun = clock::now();
    match checkpoints.write(checkpoint) {
        Ok(()) => {
            let seconds = clock::since(begun).as_secs_f64();
            tracing::info!("checkpoint of round {rounds}, written in {seconds:.2} s");
            status.add_saved(&[(me.0, rounds)]);
            *failing = false;
        }
        // Once, until it succeeds again: the disk may be full for a long time.
        Err(error) if !std::mem::replace(failing, true) => tracing::warn!("{error}"),
        Err(_) => {}
    }
}
