//! The program of a node: the code of a real one on a thread, of which only one runs at a time.
//! Whenever it waits, the world continues.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    disk::SimulatedDisk,
    files::Files,
    links::SimulatedLinks,
    state::{Bug, Message, Outcome, Wake, World},
    task::{self, Killed, Task, pass},
};
use crate::{
    cluster::{Opening, members::keys::Named, part::Part, waiting::limits::Limits},
    config::ConfigError,
    data::{Disk, replace_file},
    drive::{
        Change, Conclusion, Elapsed, Ended, Learner, NodeSpec, Observer, RunError, describe_panic,
    },
    experiment::{Experiment, Policy},
    gossip::{
        RoundDone, Traffic,
        tree::{Readers, Setup},
    },
    net::{
        RunCard,
        driver::{self, Network, Opens, Role, clock::virtual_time, observer::LocalObserver},
        link::wire::ASSEMBLY,
    },
    run::{
        Checkpoints, Whole,
        checkpoint::{Every, Owner, Written},
    },
    state::Visitor,
    units::{NodeId, Round},
};

/// The folder of a run on each disk.
pub(super) const RUN: &str = "run";

/// The file of a node's results.
const RESULTS_LINGER: &str = "run/results.json";

/// Starts the program of a machine. It waits for its first [`Wake`].
pub(super) fn start(
    machine: usize,
    world: &Arc<World>,
    wakes: Receiver<Wake>,
    messages: Sender<(usize, Message)>,
) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let ends = messages.clone();
        let Ok(Wake { now, .. }) = wakes.recv() else { return };
        virtual_time::set(now);
        task::enter(Some(Task { machine, world: Arc::clone(&world), wakes, messages }));
        let ran = panic::catch_unwind(AssertUnwindSafe(|| run(machine, &world)));
        task::enter(None);
        let outcome = match ran {
            Ok(Ok(ended)) => Outcome::Over(Box::new(ended)),
            Ok(Err(error)) => Outcome::Failed(error),
            Err(payload) if payload.is::<Killed>() => Outcome::Killed,
            Err(payload) => Outcome::Panicked(describe(&*payload)),
        };
        let _ = ends.send((machine, Message::Ended(outcome)));
    })
}

fn describe(payload: &(dyn Any + Send)) -> String {
    describe_panic(payload)
}

/// As `gradvine node` does.
fn run(machine: usize, world: &Arc<World>) -> Result<Ended, RunError> {
    let (experiment, disk) = {
        let state = world.lock();
        let files = Arc::clone(&state.machines[machine].files);
        (state.experiment.clone(), SimulatedDisk::new(machine, files, world))
    };
    let (mut whole, mut checkpoints) = open(machine, experiment, disk.clone())?;
    if world.has(Bug::TwoMemberships) {
        let design = Arc::get_mut(&mut whole.design).expect("nobody else has it");
        design.experiment.absence.quorum = Some(1);
    }
    let design = Arc::clone(&whole.design);
    let complete = disk.read(Path::new(RESULTS_LINGER)).ok().map(|bytes| {
        let results: Results = serde_json::from_slice(&bytes).expect("whole results");
        results.into_ended()
    });
    if checkpoints.is_empty()
        && let Some(complete) = complete
    {
        return Ok(complete);
    }
    checkpoints.results = complete.as_ref().map(|made| Written::of(&made.mean, &made.history));
    let node = NodeId::from(machine);
    let mut learner = whole.spec(node).learner;
    let config = design.node(node, learner.setup(), Readers::Everyone);
    let learner = Box::new(Paced { learner, world: Arc::clone(world) });
    let may_continue = design.experiment.absence.policy == Policy::Continue;
    let mut observer = Writer { disk: &*disk, resumed: false };
    let stop = &mut || world.lock().machines[machine].is_asked_to_leave;
    let mut network = Simulated { machine, world: Arc::clone(world) };
    let role = Role {
        design: &design,
        limits: Limits::of(&design.experiment),
        checkpoints: Some(checkpoints.clone()),
        confirms: true,
        keys: Arc::new(Named(node)),
    };
    let mut local = LocalObserver { node, observer: &mut observer };
    let ended = driver::run(NodeSpec { config, learner }, role, &mut network, &mut local, stop);
    match (ended, complete) {
        (Err(error), Some(complete)) if error.confirms(observer.resumed, may_continue) => {
            checkpoints.retain(|_| false);
            Ok(complete)
        }
        (ended, _) => ended,
    }
}

/// The files of a node.
fn open(
    machine: usize,
    experiment: Experiment,
    disk: Arc<dyn Disk>,
) -> Result<(Whole, Checkpoints), RunError> {
    let whole = Whole::new(experiment).map_err(RunError::Setup)?;
    let design = &whole.design;
    let card = RunCard::new(design);
    let owner = Owner::new(design, machine.into(), card.texts());
    let checkpoints =
        Checkpoints::open_on(disk, Path::new(RUN), Every::of(design), owner, card.texts());
    let checkpoints = checkpoints.map_err(RunError::Setup)?;
    Ok((whole, checkpoints))
}

/// The mean in the results on a disk.
pub(super) fn results(files: &Files) -> Option<Vec<f32>> {
    let results: Results = serde_json::from_slice(&files.look(Path::new(RESULTS_LINGER))?).ok()?;
    Some(results.into_ended().mean)
}

/// The results of a node in a file.
#[derive(Serialize, Deserialize)]
struct Results {
    model: Vec<u32>,
    mean: Vec<u32>,
    records: Vec<Vec<u8>>,
    history: Vec<Change>,
}

impl Results {
    fn of(ended: &Ended) -> Results {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
        Results {
            model: bits(&ended.model),
            mean: bits(&ended.mean),
            records: ended.records.clone(),
            history: ended.history.clone(),
        }
    }

    fn into_ended(self) -> Ended {
        let values = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect();
        Ended {
            model: values(self.model),
            mean: values(self.mean),
            records: self.records,
            history: self.history,
            traffic: Traffic::default(),
        }
    }
}

struct Writer<'a> {
    disk: &'a dyn Disk,
    resumed: bool,
}

impl Observer for Writer<'_> {
    fn round(&mut self, _node: NodeId, _elapsed: Elapsed, _done: RoundDone) {}

    fn resumes(&mut self, _node: NodeId, _rounds: Round) {
        self.resumed = true;
    }

    fn ended(&mut self, _node: NodeId, ended: &Ended) {
        let text = serde_json::to_vec(&Results::of(ended)).expect("results are JSON");
        // A disk that is full: the results are in memory only.
        let _ =
            replace_file(self.disk, Path::new(RESULTS_LINGER), &mut |file| file.write_all(&text));
    }
}

/// Opens links in the world.
struct Simulated {
    machine: usize,
    world: Arc<World>,
}

impl Network for Simulated {
    fn open(&mut self, part: &Part<'_>, opening: &Opening, resumes: bool) -> Opens {
        let membership = if opening.chooses { ASSEMBLY } else { part.membership.id };
        let links = SimulatedLinks::open(&self.world, self.machine, part, membership, resumes);
        // Gradients are computed on this thread.
        let (own, _) = std::sync::mpsc::channel();
        Ok((Box::new(links), own))
    }
}

/// A learner whose gradients take virtual time.
struct Paced {
    learner: Box<dyn Learner>,
    world: Arc<World>,
}

impl Learner for Paced {
    fn setup(&mut self) -> Option<Setup> {
        self.learner.setup()
    }

    fn prepare(&mut self, merged: &[u8]) -> Result<(), ConfigError> {
        self.learner.prepare(merged)
    }

    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        let millis = 20 + self.world.lock().rng.below(60);
        pass(Duration::from_millis(millis));
        self.learner.compute(round, x, update)
    }

    fn state(&mut self, visitor: &mut dyn Visitor) -> bool {
        self.learner.state(visitor)
    }

    fn step(&self, round: Round) -> f32 {
        self.learner.step(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        self.learner.conclude(conclusion)
    }
}
