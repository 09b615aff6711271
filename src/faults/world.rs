//! The world around the programs: time, machines, links, and the faults as they come.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use super::{
    Occurrence, Story,
    machine::Machine,
    schedule::{DiskAfter, Fault, Kind, When},
    wire::{End, Happening, Wire},
};
use crate::{
    cluster::{Input, event::Event},
    digest,
    drive::{Membership, Observer, RunError},
    gossip,
    links::{Conditions, Lines, Queue},
    run::Whole,
    units::{NodeId, Round, Time},
};

const SECOND: u64 = 1_000_000_000;

/// How often a program gets a tick.
pub(super) const TICK: u64 = SECOND / 10;

/// How long a program that ended with an error stays down.
const AGAIN: u64 = SECOND;

/// How often a program may end with an error once all faults are over.
pub(super) const TRIES: u32 = 3;

/// The world.
pub(super) struct World<'a> {
    pub whole: &'a Whole,
    pub conditions: &'a Conditions,
    pub observer: &'a mut dyn Observer,
    /// Whether the observer has ended the run.
    stopped: bool,
    pub faults: &'a [Fault],
    /// Those that wait for a round, with it: the next one is the last.
    by_round: Vec<(u64, usize)>,
    /// Those that wait for a checkpoint of all members: the next one is the last.
    pub by_checkpoint: Vec<(Round, usize)>,
    /// All nodes, or the members that a history names.
    pub membership: Membership,
    /// The round after which the user ends the run.
    pub last: Option<Round>,
    queue: Queue<Happening>,
    /// The time 0 as clusters see it.
    base: Instant,
    pub machines: Vec<Machine<'a>>,
    pub wires: Vec<Wire>,
    pub lines: Lines<'a, ()>,
    next_id: u64,
    pub story: Vec<Occurrence>,
    pub restarts: u64,
    pub repeated: u64,
    /// The most rounds that a node has done.
    rounds: u64,
    /// When a node has done a round last.
    pub moved: Time,
    /// When the last fault that has begun is over.
    healed: Time,
    /// When a program has ended last.
    ended: Time,
    /// Whether no node says anything about itself.
    #[cfg(test)]
    pub is_mute: bool,
    /// A member that sends what it should not.
    #[cfg(test)]
    pub liar: Option<super::liar::Liar>,
    /// A member that says anything.
    #[cfg(test)]
    pub hostile: Option<super::hostile::Hostile>,
    #[cfg(test)]
    pub journal: super::journal::Journal,
}

impl<'a> World<'a> {
    /// All machines are about to start.
    pub(super) fn new(
        whole: &'a Whole,
        conditions: &'a Conditions,
        faults: &'a [Fault],
        observer: &'a mut dyn Observer,
    ) -> World<'a> {
        let topology = &whole.design.topology;
        let end = || End { problem: "no contact yet".into(), ..End::default() };
        let wire = |(a, b)| Wire { ends: [a, b], sides: [end(), end()], ..Wire::default() };
        let mut world = World {
            whole,
            conditions,
            observer,
            stopped: false,
            faults,
            by_round: Vec::new(),
            by_checkpoint: Vec::new(),
            membership: Membership::all(topology.nodes()),
            last: None,
            queue: Queue::new(Time(0)),
            base: Instant::now(),
            machines: (0..topology.nodes()).map(|_| Machine::default()).collect(),
            wires: topology.edges().map(wire).collect(),
            lines: Lines::new(conditions, topology.nodes()),
            next_id: 0,
            story: Vec::new(),
            restarts: 0,
            repeated: 0,
            rounds: 0,
            moved: Time(0),
            healed: Time(0),
            ended: Time(0),
            #[cfg(test)]
            is_mute: false,
            #[cfg(test)]
            liar: None,
            #[cfg(test)]
            hostile: None,
            #[cfg(test)]
            journal: super::journal::Journal::new(topology.nodes(), faults),
        };
        for node in 0..topology.nodes() {
            world.post(0, Happening::Start(node.into()));
        }
        for wire in 0..world.wires.len() {
            world.post(1_000, Happening::Dial(wire));
        }
        for (index, fault) in faults.iter().enumerate() {
            match fault.when {
                When::At(time) => world.post_at(time, Happening::Begin(index)),
                When::Round(round) => world.by_round.push((round, index)),
                When::Checkpoint(round) => world.by_checkpoint.push((round, index)),
            }
        }
        world.by_round.sort_unstable_by_key(|next| Reverse(*next));
        world.by_checkpoint.sort_unstable_by_key(|next| Reverse(*next));
        world
    }

    pub(super) fn now(&self) -> Time {
        self.queue.now()
    }

    /// The time as clusters see it.
    pub(super) fn instant(&self) -> Instant {
        self.at(self.now())
    }

    pub(super) fn at(&self, time: Time) -> Instant {
        self.base + Duration::from_nanos(time.0)
    }

    /// Posts something that happens after so many nanoseconds.
    pub(super) fn post(&mut self, after: u64, what: Happening) {
        self.post_at(Time(self.now().0.saturating_add(after)), what);
    }

    pub(super) fn post_at(&mut self, time: Time, what: Happening) {
        self.queue.post(time.max(self.now()), what);
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Notes what has happened.
    pub(super) fn note(&mut self, node: Option<NodeId>, text: String) {
        let time = self.now();
        #[cfg(test)]
        if std::env::var("GRADVINE_TRACE").is_ok() {
            eprintln!("{:>9.3} s {node:?} {text}", time.0 as f64 / 1e9);
        }
        self.story.push(Occurrence { time, node, text });
    }

    /// Runs until all programs have ended.
    ///
    /// # Errors
    /// If the results of the nodes cannot be used.
    pub(super) fn run(mut self) -> Result<Story, RunError> {
        self.pass_time();
        match self.stopped {
            true => Err(RunError::Interrupted(Round(self.rounds))),
            false => Ok(self.end()),
        }
    }

    /// When the last fault that has begun is over.
    #[cfg(test)]
    pub(super) fn healed(&self) -> Time {
        self.healed
    }

    /// The same, and how often the liar has lied.
    #[cfg(test)]
    pub(super) fn run_with_liar(mut self) -> (Story, u64) {
        self.pass_time();
        let times = self.liar.as_ref().map_or(0, |liar| liar.times);
        (self.end(), times)
    }

    /// The same, with the hostile member, and whether the rounds have begun elsewhere.
    #[cfg(test)]
    pub(super) fn run_with_hostile(mut self) -> (Story, super::hostile::Hostile, bool) {
        self.pass_time();
        let hostile = self.hostile.take().expect("a run with a hostile member");
        let has_begun = self.journal.has_begun;
        (self.end(), hostile, has_begun)
    }

    fn pass_time(&mut self) {
        let wait = self.whole.design.experiment.absence.wait_s
            + self.whole.design.experiment.run.patience_s
            + self.whole.design.experiment.run.work_s;
        let patience = (1e9 * (wait + 600.0)) as u64;
        while let Some(what) = self.queue.next() {
            self.happen(what);
            #[cfg(test)]
            self.check_time();
            let waits_since = self.moved.max(self.healed);
            if self.stopped
                || self.is_over()
                || self.now().0 > waits_since.0.saturating_add(patience)
            {
                break;
            }
        }
    }

    /// Whether all machines have ended for good, and no fault is going on.
    pub(super) fn is_over(&self) -> bool {
        let is_over = |node: &NodeId| {
            #[cfg(test)]
            if self.hostile.as_ref().is_some_and(|hostile| hostile.node == *node) {
                return true;
            }
            let machine = &self.machines[node.index()];
            machine.program.is_none()
                && match &machine.ended {
                    Some(Ok(())) => true,
                    Some(Err(_)) => machine.tries >= TRIES,
                    None => false,
                }
        };
        self.now() >= self.healed && self.membership.members.iter().all(is_over)
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Start(machine) => self.start(machine),
            Happening::Input { machine, generation, input } => {
                if self.incarnation(machine) == Some(generation) {
                    if let Input::Event(Event::Computed(done)) = &input
                        && !matches!(done, gossip::Input::Part { .. })
                    {
                        self.stop_computing(machine);
                    }
                    self.feed(machine, input);
                }
            }
            Happening::Tick { machine, program } => self.tick(machine, program),
            Happening::Written { machine, generation } => {
                if self.incarnation(machine) == Some(generation) {
                    self.written(machine);
                }
            }
            Happening::Closed { machine, generation } => {
                if self.incarnation(machine) == Some(generation) {
                    self.feed(machine, Input::Closed);
                }
            }
            Happening::Dial(wire) => self.dial(wire),
            Happening::Frame { wire, from, connection } => {
                self.frame_arrives(wire, from, connection);
            }
            Happening::Message { wire, from, connection, message } => {
                self.hear(wire, from, connection, message);
            }
            Happening::Lose { wire, side, connection } => {
                let newer = self.wires[wire].connection.is_some_and(|open| open != connection);
                if !newer {
                    self.lose(wire, side);
                }
            }
            Happening::Silent { wire, connection } => {
                let is_cut = self.wires[wire].is_cut();
                if is_cut && self.wires[wire].connection == Some(connection) {
                    self.close(wire);
                }
            }
            Happening::Expire { wire, side, generation, lost } => {
                if self.incarnation(self.wires[wire].ends[side]) == Some(generation) {
                    self.expire(wire, side, lost);
                }
            }
            Happening::Begin(index) => self.begin(index),
            Happening::Over(index) => self.over(index),
        }
    }

    /// The links that the program of a machine has opened last.
    pub(super) fn incarnation(&self, machine: NodeId) -> Option<u64> {
        Some(self.machines[machine.index()].program.as_ref()?.incarnation)
    }

    /// The first node has done so many rounds: faults that wait for that begin.
    pub(super) fn reached(&mut self, rounds: u64) {
        self.rounds = self.rounds.max(rounds);
        self.stopped |= self.observer.stop_after().is_some();
        while let Some((_, index)) = self.by_round.pop_if(|(round, _)| *round <= rounds) {
            self.begin(index);
        }
    }

    pub(super) fn begin(&mut self, index: usize) {
        let Fault { length, kind, .. } = &self.faults[index];
        let end = Time(self.now().0.saturating_add(length.0));
        self.healed = self.healed.max(end);
        self.post_at(end, Happening::Over(index));
        let text = kind.describe(&self.whole.design.topology);
        self.note(None, text);
        match kind {
            Kind::Kill(nodes, disk) => nodes.iter().for_each(|node| self.kill(*node, *disk)),
            Kind::Leave(node) => {
                self.machines[node.index()].down += 1;
                self.feed(*node, Input::Stop);
            }
            Kind::Hang(_) | Kind::Cut(_) | Kind::OneWay(_) | Kind::Partition(_) => {
                let sides = self.sides_in(kind);
                self.cut(&sides);
            }
            Kind::Reset(_) => {
                for (wire, _) in self.sides_in(kind) {
                    self.wires[wire].half = true;
                    self.close(wire);
                }
            }
            Kind::Slow(nodes, factor) => {
                nodes.iter().for_each(|node| self.machines[node.index()].slow += factor - 1.0);
            }
            Kind::DiskFull(nodes) => {
                nodes.iter().for_each(|node| self.machines[node.index()].files.fill(true));
            }
            Kind::DiskSlow(nodes, time) => {
                nodes.iter().for_each(|node| self.machines[node.index()].slow_disk += time.0);
            }
            Kind::Members(change) => self.change(change),
            Kind::Stop(last) => self.last = Some(*last),
        }
    }

    fn over(&mut self, index: usize) {
        let Fault { kind, .. } = &self.faults[index];
        match kind {
            Kind::Kill(nodes, _) => nodes.iter().for_each(|node| self.rise(*node)),
            Kind::Leave(node) => self.rise(*node),
            Kind::Hang(_) | Kind::Cut(_) | Kind::OneWay(_) | Kind::Partition(_) => {
                let sides = self.sides_in(kind);
                self.mend(&sides);
                self.note(None, format!("over: {}", kind.describe(&self.whole.design.topology)));
            }
            Kind::Reset(_) | Kind::Members(_) | Kind::Stop(_) => {}
            Kind::Slow(nodes, factor) => {
                nodes.iter().for_each(|node| self.machines[node.index()].slow -= factor - 1.0);
            }
            Kind::DiskFull(nodes) => {
                nodes.iter().for_each(|node| self.machines[node.index()].files.fill(false));
            }
            Kind::DiskSlow(nodes, time) => {
                nodes.iter().for_each(|node| self.machines[node.index()].slow_disk -= time.0);
            }
        }
    }

    /// The links that a fault is about, each with the sides of which it stops what they send.
    fn sides_in(&self, kind: &Kind) -> Vec<(usize, usize)> {
        let is_meant = |wire: &Wire, from: usize| {
            let [a, b] = wire.ends;
            match kind {
                Kind::Cut(links) => links.contains(&(a, b)),
                Kind::Reset(links) => links.contains(&(a, b)) && from == 0,
                Kind::OneWay(links) => links.contains(&(wire.ends[from], wire.ends[1 - from])),
                Kind::Partition(group) => group.contains(&a) != group.contains(&b),
                Kind::Hang(nodes) => nodes.contains(&a) || nodes.contains(&b),
                _ => false,
            }
        };
        let all = (0..self.wires.len()).flat_map(|wire| [(wire, 0), (wire, 1)]);
        all.filter(|&(wire, from)| is_meant(&self.wires[wire], from)).collect()
    }

    /// Kills the program of a machine, which may be writing a checkpoint.
    pub(super) fn kill(&mut self, node: NodeId, disk: DiskAfter) {
        let machine = &mut self.machines[node.index()];
        machine.down += 1;
        if let Some(program) = machine.program.take()
            && let Some(checkpoint) = program.writes.front()
        {
            // It was killed between two of the operations that a file needs.
            machine.files.allow(Some((program.incarnation % 3) as u32));
            let _ = program.checkpoints.write(checkpoint);
            machine.files.allow(None);
        }
        self.drop_links(node);
        let machine = &mut self.machines[node.index()];
        match disk {
            DiskAfter::Kept => {}
            DiskAfter::Unsynced => machine.files.lose_power(node.0.is_multiple_of(2)),
            DiskAfter::Lost => {
                machine.files.wipe();
                machine.results = None;
            }
            DiskAfter::Damaged => machine.files.damage(),
        }
    }

    /// A machine starts its program again, unless another fault keeps it down.
    fn rise(&mut self, node: NodeId) {
        self.machines[node.index()].down -= 1;
        self.post(0, Happening::Start(node));
    }

    /// The program of a machine has ended: a service manager starts it again after an error.
    pub(super) fn ended(&mut self, node: NodeId, outcome: Result<(), String>) {
        self.drop_links(node);
        let (now, healed) = (self.now(), self.healed);
        self.ended = now;
        let machine = &mut self.machines[node.index()];
        machine.program = None;
        let failed = outcome.is_err();
        if now >= healed && failed {
            machine.tries += 1;
        }
        let again = failed && machine.tries < TRIES;
        #[cfg(test)]
        let again = again || (failed && self.hostile.as_ref().is_some_and(|it| it.node == node));
        let text = match &outcome {
            Ok(()) => "ended with the results".to_string(),
            Err(error) => format!("ended: {error}"),
        };
        machine.ended = Some(outcome);
        self.note(Some(node), text);
        if again {
            self.post(AGAIN, Happening::Start(node));
        }
    }

    fn end(mut self) -> Story {
        let ended = self.machines.iter().map(|machine| match &machine.ended {
            Some(Err(error)) => Some(error.clone()),
            _ => None,
        });
        let ended: Vec<Option<String>> = ended.collect();
        let means: Vec<Option<u64>> = (self.machines.iter())
            .map(|machine| Some(digest::short(&machine.results.as_ref()?.mean)))
            .collect();
        // The results that most nodes have.
        let count = |mean: &u64| means.iter().flatten().filter(|other| *other == mean).count();
        let most = means.iter().flatten().max_by_key(|mean| (count(mean), **mean)).copied();
        let machines = self.machines.iter_mut().zip(&means);
        let results = machines.filter(|(_, mean)| most.is_some() && **mean == most);
        let results = results.filter_map(|(machine, _)| machine.results.take()).collect();
        let (restarts, repeated) = (self.restarts, self.repeated);
        let waits = |node: &usize| self.machines[*node].program.is_some();
        let stuck: Vec<_> = (0..self.machines.len()).filter(waits).map(NodeId::from).collect();
        // A fault may last longer than the run.
        let time = if stuck.is_empty() { self.ended } else { self.now() };
        Story { occurrences: self.story, ended, stuck, results, means, time, restarts, repeated }
    }
}
