//! The world around the programs: time, machines, links and faults. All randomness comes from one
//! seed, and one program runs at a time, so a seed gives the same run again.

use std::{
    collections::BTreeMap,
    env,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

use super::{
    connections, links, program,
    scenario::{Fault, Scenario},
    state::{Act, Bug, Machine, Message, Outcome, Parcel, Program, Ran, State, Wake, World},
};
use crate::{
    drive::{Membership, describe_panic},
    mixing::Topology,
    net::{self, driver::clock::virtual_time},
    rng::{Purpose, Stream},
};

/// How long a program that ended with an error stays down.
const AGAIN: Duration = Duration::from_secs(1);

/// How often a program may end with an error once all is mended.
const TRIES: u32 = 3;

/// After the last fault everything must end within this time.
const HEALED: Duration = Duration::from_secs(1_000);

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

impl World {
    /// All machines are down, at time 0.
    fn new(scenario: &Scenario, bug: Option<Bug>) -> Arc<World> {
        let experiment = scenario.experiment();
        let spec = scenario.topology;
        let topology = Arc::new(Topology::parse(spec, scenario.seed).expect("a valid topology"));
        let links: Vec<_> = topology.edges().map(|(a, b)| ((a.index(), b.index()), 0)).collect();
        let nodes = topology.nodes();
        let machine = |_| Machine {
            files: Arc::default(),
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
        Arc::new(World(Mutex::new(state)))
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
                    let mean = |machine: &Machine| program::results(&machine.files);
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
                        place.files.lose_power(rng);
                    }
                    if *damage {
                        place.files.damage(rng);
                    }
                    if *wipe {
                        place.files.wipe();
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
            Fault::FullDisk { machine } => self.lock().machines[*machine].files.set_full(true),
            Fault::SlowDisk { machine } => self.lock().machines[*machine].files.set_slow(200),
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
            Fault::FullDisk { machine } => state.machines[*machine].files.set_full(false),
            Fault::SlowDisk { machine } => state.machines[*machine].files.set_slow(0),
        }
    }
}
