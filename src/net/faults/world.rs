//! The world around the programs: time, machines, links and faults. All randomness comes from one
//! seed, and one program runs at a time, so a seed gives the same run again.

use std::{
    collections::BTreeMap,
    env,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    connections::{self, Connection, Parcel},
    disk::SimulatedDisk,
    links::{self, HostState},
    program::{self, Outcome, Wake},
    scenario::{Fault, Scenario},
};
use crate::{
    drive::{Membership, describe_panic},
    experiment::Experiment,
    mixing::Topology,
    net::{
        self,
        life::{agreement::assembly::check::check_adopted, clock::virtual_time},
    },
    rng::{Purpose, Sequence, Stream},
};

/// How long a program that ended with an error stays down.
const AGAIN: Duration = Duration::from_secs(1);

/// How often a program may end with an error once all is mended.
const TRIES: u32 = 3;

/// After the last fault everything must end within this time.
const HEALED: Duration = Duration::from_secs(1_000);

/// Where a node records its membership.
const MEMBERSHIP: &str = "run/checkpoints/NODE/membership.json";

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
    /// Nodes hear of different members of one membership.
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
struct Program {
    wakes: Sender<Wake>,
    thread: JoinHandle<()>,
    wait: u64,
    /// Whether it waits for events.
    for_events: bool,
}

pub(super) struct Machine {
    pub disk: Arc<SimulatedDisk>,
    program: Option<Program>,
    /// The host of the program, if it has one now.
    pub host: Option<u64>,
    /// How long the program takes for each event.
    pub slow: Duration,
    pub is_asked_to_leave: bool,
    /// Machines that are down stay so until then.
    down: bool,
    /// How often it has ended since all was mended.
    tries: u32,
    ended: Option<Duration>,
    pub outcome: Option<Outcome>,
}

/// The state of the world.
pub(super) struct State {
    pub now: Duration,
    pub base: Instant,
    pub rng: Sequence,
    agenda: BTreeMap<(Duration, u64), Act>,
    acts: u64,
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
    adopted: BTreeMap<u64, Membership>,
    /// When the last fault is over.
    healed: Duration,
    next_id: u64,
    /// Whether to print what happens.
    pub traces: bool,
}

pub(super) struct World(Mutex<State>);

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

    fn ends_of(&self, machine: usize) -> Vec<usize> {
        let has = |&link: &usize| {
            let (a, b) = self.links[link].0;
            a == machine || b == machine
        };
        (0..self.links.len()).filter(has).collect()
    }

    fn links_between(&self, group: &[usize]) -> Vec<usize> {
        let leaves = |&link: &usize| {
            let (a, b) = self.links[link].0;
            group.contains(&a) != group.contains(&b)
        };
        (0..self.links.len()).filter(leaves).collect()
    }
}

/// Prints what happens, but for what happens all the time.
fn trace(time: Duration, act: &Act) {
    match act {
        Act::Wake { .. } | Act::Tick { .. } | Act::Connect(_) => {}
        Act::Arrive { parcel: Parcel::Message(net::Message::Working(_)), .. } => {}
        Act::Arrive { connection, from, parcel: Parcel::Piece(piece) } => {
            eprintln!("{time:>10.3?} connection {connection} from end {from}: {piece}");
        }
        act => eprintln!("{time:>10.3?} {act:?}"),
    }
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

impl World {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this bug is planted.
    pub(super) fn has(&self, bug: Bug) -> bool {
        self.lock().bug == Some(bug)
    }

    /// All machines are down, at time 0.
    fn new(scenario: &Scenario, bug: Option<Bug>) -> Arc<World> {
        let experiment = scenario.experiment();
        let spec = scenario.topology;
        let topology = Arc::new(Topology::parse(spec, scenario.seed).expect("a valid topology"));
        let links: Vec<_> = topology.edges().map(|(a, b)| ((a.index(), b.index()), 0)).collect();
        let nodes = topology.nodes();
        Arc::new_cyclic(|world| {
            let machine = |machine| Machine {
                disk: SimulatedDisk::new(machine, world.clone()),
                program: None,
                host: None,
                slow: Duration::ZERO,
                is_asked_to_leave: false,
                down: false,
                tries: 0,
                ended: None,
                outcome: None,
            };
            let mut state = State {
                now: Duration::ZERO,
                base: Instant::now(),
                rng: Stream::new(scenario.seed, Purpose::Test).sequence(),
                agenda: BTreeMap::new(),
                acts: 0,
                machines: (0..nodes).map(machine).collect(),
                hosts: BTreeMap::new(),
                connections: BTreeMap::new(),
                links,
                delays: 0,
                adopted: BTreeMap::from([(0, Membership::all(nodes))]),
                topology,
                experiment,
                bug,
                healed: Duration::ZERO,
                next_id: 0,
                traces: env::var("GRADVINE_TRACE").is_ok(),
            };
            for machine in 0..nodes {
                let when = state.millis(0, 500);
                state.at(when, Act::Start(machine));
            }
            for link in 0..state.links.len() {
                let when = state.millis(0, 500);
                state.at(when, Act::Connect(link));
            }
            for (index, (when, length, _)) in scenario.faults.iter().enumerate() {
                state.at(*when, Act::Fault(index));
                state.at(*when + *length, Act::Mend(index));
                state.healed = state.healed.max(*when + *length);
            }
            World(Mutex::new(state))
        })
    }

    /// Checks the membership that a machine has just recorded against those of the others.
    pub(super) fn check_recorded(&self, machine: usize) {
        let state = &mut *self.lock();
        let nodes = state.topology.nodes();
        let recorded = |node: usize| {
            let name = &state.topology.node(node.into()).name;
            let path = MEMBERSHIP.replace("NODE", name);
            let bytes = state.machines[node].disk.look(Path::new(&path));
            bytes.map_or_else(
                || Membership::all(nodes),
                |bytes| serde_json::from_slice(&bytes).expect("a whole membership"),
            )
        };
        let disks: Vec<Membership> = (0..nodes).map(recorded).collect();
        check_adopted(&state.topology, machine, &disks, &mut state.adopted);
        let Membership { members, cut, .. } = &disks[machine];
        let part = state.topology.restricted(members, cut).expect("a topology of the members");
        super::check::check_weights(&part);
    }

    /// Runs the scenario.
    ///
    /// # Errors
    /// What went wrong.
    pub(super) fn run(scenario: &Scenario, bug: Option<Bug>) -> Result<Ran, String> {
        let world = World::new(scenario, bug);
        let (sender, messages) = mpsc::channel();
        let scheduled =
            panic::catch_unwind(AssertUnwindSafe(|| world.schedule(scenario, &sender, &messages)));
        let result = scheduled.unwrap_or_else(|payload| {
            Err(format!("at {:?}: {}", world.lock().now, describe_panic(&*payload)))
        });
        // Nothing of this world may continue.
        let machines = world.lock().machines.len();
        for machine in 0..machines {
            world.kill(machine, &messages);
        }
        result
    }

    fn schedule(
        self: &Arc<World>,
        scenario: &Scenario,
        sender: &Sender<(usize, Message)>,
        messages: &Receiver<(usize, Message)>,
    ) -> Result<Ran, String> {
        loop {
            let act = {
                let state = &mut *self.lock();
                let is_over = |machine: &Machine| match &machine.outcome {
                    Some(Outcome::Failed(_)) => machine.tries >= TRIES,
                    outcome => outcome.is_some(),
                };
                let all = state.machines.iter().all(&is_over) && state.now >= state.healed;
                if all {
                    let outcomes =
                        state.machines.iter_mut().filter_map(|machine| machine.outcome.take());
                    let outcomes = outcomes.collect();
                    let mean = |machine: &Machine| program::results(&machine.disk);
                    let means = state.machines.iter().map(mean).collect();
                    let ended = state.machines.iter().map(|machine| machine.ended).collect();
                    return Ok(Ran { outcomes, means, ended, time: state.now });
                }
                let Some(((time, _), act)) = state.agenda.pop_first() else {
                    return Err("nothing more happens, and nodes wait".into());
                };
                state.now = time;
                if time > state.healed + HEALED {
                    let waits: Vec<usize> = (0..state.machines.len())
                        .filter(|machine| !is_over(&state.machines[*machine]))
                        .collect();
                    return Err(format!("machines {waits:?} still wait at {time:?}"));
                }
                virtual_time::set(state.instant());
                if state.traces {
                    trace(time, &act);
                }
                act
            };
            match act {
                Act::Wake { machine, wait } => self.wake(machine, wait, messages)?,
                Act::Start(machine) => self.start(machine, sender),
                Act::Fault(index) => self.begin(&scenario.faults[index].2, messages),
                Act::Mend(index) => self.mend(&scenario.faults[index].2),
                other => connections::act(&mut self.lock(), other),
            }
        }
    }

    fn start(self: &Arc<World>, machine: usize, sender: &Sender<(usize, Message)>) {
        let state = &mut *self.lock();
        let place = &mut state.machines[machine];
        if place.down || place.program.is_some() || matches!(place.outcome, Some(Outcome::Over(_)))
        {
            return;
        }
        let (wakes, waits) = mpsc::channel();
        let thread = program::start(machine, self, waits, sender.clone());
        place.outcome = None;
        place.is_asked_to_leave = false;
        place.program = Some(Program { wakes, thread, wait: 0, for_events: false });
        let now = state.now;
        state.at(now, Act::Wake { machine, wait: 0 });
    }

    /// Runs the program of a machine until it waits again.
    fn wake(
        self: &Arc<World>,
        machine: usize,
        wait: u64,
        messages: &Receiver<(usize, Message)>,
    ) -> Result<(), String> {
        {
            let state = self.lock();
            let now = state.instant();
            let Some(program) = &state.machines[machine].program else { return Ok(()) };
            if program.wait != wait {
                return Ok(());
            }
            program.wakes.send(Wake { now, killed: false }).expect("it waits");
        }
        let (who, message) = messages.recv().expect("the scheduler has a sender");
        assert_eq!(who, machine, "one program runs at a time");
        match message {
            Message::Waits { until, events } => {
                let state = &mut *self.lock();
                let has_events = state.machines[machine]
                    .host
                    .is_some_and(|host| events && !state.hosts[&host].events.is_empty());
                let program = state.machines[machine].program.as_mut().expect("it runs");
                program.wait += 1;
                program.for_events = events && !has_events;
                let wait = program.wait;
                let until = if has_events { state.now } else { until };
                state.at(until, Act::Wake { machine, wait });
            }
            Message::Ended(outcome) => {
                let program = self.lock().machines[machine].program.take().expect("it ran");
                let _ = program.thread.join();
                let state = &mut *self.lock();
                if state.traces {
                    eprintln!("{:>10.3?} machine {machine}: {outcome}", state.now);
                }
                if let Outcome::Panicked(text) = &outcome {
                    return Err(format!("machine {machine} at {:?}: {text}", state.now));
                }
                let now = state.now;
                state.machines[machine].ended.get_or_insert(now);
                // A service manager starts it again.
                let again = state.now < state.healed || {
                    state.machines[machine].tries += 1;
                    state.machines[machine].tries < TRIES
                };
                if matches!(outcome, Outcome::Failed(_)) && again {
                    let when = state.now + AGAIN;
                    state.at(when, Act::Start(machine));
                }
                links::close_host(state, machine);
                state.machines[machine].outcome = Some(outcome);
            }
        }
        Ok(())
    }

    /// Kills the program of a machine, if it runs.
    fn kill(self: &Arc<World>, machine: usize, messages: &Receiver<(usize, Message)>) {
        let program = {
            let state = &mut *self.lock();
            links::close_host(state, machine);
            state.machines[machine].program.take()
        };
        let Some(program) = program else { return };
        let now = self.lock().instant();
        let _ = program.wakes.send(Wake { now, killed: true });
        // It may wait a few times more while it unwinds.
        while let Ok((_, message)) = messages.recv() {
            match message {
                Message::Waits { .. } => _ = program.wakes.send(Wake { now, killed: true }),
                Message::Ended(_) => break,
            }
        }
        let _ = program.thread.join();
    }

    fn begin(self: &Arc<World>, fault: &Fault, messages: &Receiver<(usize, Message)>) {
        match fault {
            Fault::Kill { machines, power, wipe, damage } => {
                for &machine in machines {
                    self.kill(machine, messages);
                    let state = &mut *self.lock();
                    let State { machines, rng, .. } = state;
                    let place = &mut machines[machine];
                    place.down = true;
                    if *power {
                        place.disk.lose_power(rng);
                    }
                    if *damage {
                        place.disk.damage(rng);
                    }
                    if *wipe {
                        place.disk.wipe();
                    }
                }
            }
            Fault::Cut { link } => connections::cut(&mut self.lock(), &[*link]),
            Fault::Partition { group } => {
                let state = &mut *self.lock();
                let between = state.links_between(group);
                connections::cut(state, &between);
            }
            Fault::Reset { link } => connections::reset(&mut self.lock(), *link),
            Fault::Delay => self.lock().delays += 30,
            Fault::Slow { machine } => {
                self.lock().machines[*machine].slow = Duration::from_millis(40);
            }
            Fault::FullDisk { machine } => self.lock().machines[*machine].disk.set_full(true),
            Fault::SlowDisk { machine } => self.lock().machines[*machine].disk.set_slow(200),
            Fault::Leave { machine } => {
                let state = &mut *self.lock();
                state.machines[*machine].is_asked_to_leave = true;
                state.machines[*machine].down = true;
            }
            Fault::Hang { machine } => {
                let state = &mut *self.lock();
                let ends = state.ends_of(*machine);
                connections::cut(state, &ends);
            }
        }
    }

    fn mend(self: &Arc<World>, fault: &Fault) {
        let state = &mut *self.lock();
        let mend = |state: &mut State, links: &[usize]| {
            links.iter().for_each(|link| state.links[*link].1 -= 1);
        };
        match fault {
            Fault::Kill { machines, .. } => {
                for &machine in machines {
                    state.machines[machine].down = false;
                    let when = state.now;
                    state.at(when, Act::Start(machine));
                }
            }
            Fault::Leave { machine } => {
                state.machines[*machine].down = false;
                let when = state.now;
                state.at(when, Act::Start(*machine));
            }
            Fault::Cut { link } => mend(state, &[*link]),
            Fault::Partition { group } => {
                let between = state.links_between(group);
                mend(state, &between);
            }
            Fault::Hang { machine } => {
                let ends = state.ends_of(*machine);
                mend(state, &ends);
            }
            Fault::Reset { .. } => {}
            Fault::Delay => state.delays -= 30,
            Fault::Slow { machine } => state.machines[*machine].slow = Duration::ZERO,
            Fault::FullDisk { machine } => state.machines[*machine].disk.set_full(false),
            Fault::SlowDisk { machine } => state.machines[*machine].disk.set_slow(0),
        }
    }
}
