//! Performs the [`Cluster`] of one node: its links, its learner, its disk, the clock.
//!
//! One loop passes events in, and one match performs the effects. `faults` performs the same
//! effects in virtual time.

pub(crate) mod companion;
pub(crate) mod links;
pub(crate) mod observer;
mod perform;
mod pulse;
mod saver;
pub(crate) mod status;
mod telling;
mod work;

use std::{
    collections::VecDeque,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex,
        atomic::AtomicBool,
        mpsc::{RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use litemap::LiteMap;

use self::{
    companion::{Owned, lock},
    links::Links,
    observer::NodeObserver,
    status::Wire,
    telling::{Now, Task, Telling},
    work::Work,
};
use super::link::session::random;
use crate::{
    cluster::{
        Cluster, Effect, Facts, Input, Opening, Outcome, Terms, event::Event, kept,
        members::keys::Keys, part::Part, waiting::limits::Limits,
    },
    config::ConfigError,
    drive::{Elapsed, Ended, NodeSpec, RunError, describe_panic},
    run::{Checkpoint, Checkpoints, Design},
    state::State,
    status::Board,
    units::NodeId,
};

/// How often `stop` is called, and how often the cluster gets a tick.
const POLL: Duration = Duration::from_millis(100);

/// The links of an attempt, and the sender of the node's own events.
pub(crate) type Opens = Result<(Links, Sender<Event>), RunError>;

/// Opens the links of a node.
pub(crate) trait Network {
    /// The links between the members of `part`. `resumes` says whether this node goes back to a
    /// checkpoint when the program of a neighbour was started again.
    ///
    /// # Errors
    /// If they cannot be opened: the port is taken, or the system gives no more threads.
    fn open(&mut self, part: &Part<'_>, opening: &Opening, resumes: bool) -> Opens;
}

/// How a node takes part in a run.
pub(crate) struct Role<'a> {
    /// The run of all nodes.
    pub design: &'a Design,
    pub limits: Limits,
    /// Its checkpoints, if it writes any.
    pub checkpoints: Option<Checkpoints>,
    /// Whether it leaves only when all nodes have written their results. Then it also goes back to
    /// a checkpoint, if it writes any, when a neighbour was started again.
    pub confirms: bool,
    /// With them it signs what it says about itself.
    pub keys: Arc<dyn Keys>,
    /// What nodes say about themselves.
    pub board: Arc<Board>,
    /// Set once it asks all others to end the run, whatever its learner says.
    pub ends: Arc<AtomicBool>,
}

/// The driver of one node.
struct Driver<'a> {
    cluster: Cluster<'a>,
    network: &'a mut dyn Network,
    observer: &'a mut dyn NodeObserver,
    stop: &'a mut dyn FnMut() -> bool,
    resumes: bool,
    checkpoints: Option<Checkpoints>,
    learner: Owned,
    /// The state of the learner at the beginning.
    initial: State,
    /// The number of its attempt at the run.
    attempt: u64,
    links: Option<Links>,
    own: Option<Sender<Event>>,
    /// The members between which these links are: the cluster may already know others.
    members: Vec<NodeId>,
    /// The newest checkpoint, until it is known where the run continues. It is as large as the
    /// state of the rule.
    newest: Option<Checkpoint>,
    /// The clocks and the setup of the checkpoint from which it continues.
    before: (Elapsed, Vec<u8>),
    work: Option<Work>,
    inputs: VecDeque<Input>,
    /// The effects that are to be performed, the last one first.
    effects: Vec<Effect>,
    /// Effects that an error has left: their vectors may be needed to save the model.
    left: Vec<Effect>,
    /// When the effects of the last input were performed: gradients and evaluations take long.
    acted: Instant,
    next_tick: Instant,
    waited: Duration,
    /// For how long this process was held up when that was last asked.
    held: Duration,
    /// The results that it has written.
    ended: Option<Ended>,
    outcome: Option<Outcome>,
    board: Arc<Board>,
    ends: Arc<AtomicBool>,
    telling: Telling,
}

/// Runs one node to its end. `observer` receives every round and the models to save; `stop` is
/// called again and again and returns whether to leave now.
///
/// # Errors
/// If a link breaks, a deadline passes, the node fails, or `stop` returns true; the neighbours get
/// the reason.
pub(crate) fn run(
    spec: NodeSpec,
    role: Role<'_>,
    network: &mut dyn Network,
    observer: &mut dyn NodeObserver,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Ended, RunError> {
    let NodeSpec { config, mut learner } = spec;
    let Role { design, limits, checkpoints, confirms, keys, board, ends } = role;
    let mut initial = State::default();
    // Without a learner that can be put back, checkpoints are of no use.
    let checkpoints = checkpoints.filter(|_| learner.state(&mut initial));
    if limits.may_continue && checkpoints.is_none() {
        let problem = "this node writes no checkpoints: it needs a run directory, and a learner \
                       that can be put back";
        return Err(RunError::Setup(ConfigError::new("absence.policy", "continue", problem)));
    }
    let keeps = checkpoints.as_ref().map(kept::keeps).transpose().map_err(RunError::Setup)?;
    let resumes = confirms && checkpoints.is_some();
    let now = Instant::now();
    let mut effects = Vec::new();
    let program = random();
    let terms = Terms { limits, keeps, resumes, confirms, keys, program };
    let cluster = Cluster::new(now, design, config, terms, &mut effects)?;
    effects.reverse();
    let mut driver = Driver {
        cluster,
        network,
        observer,
        stop,
        resumes,
        checkpoints,
        learner: Arc::new(Mutex::new(learner)),
        initial,
        attempt: 0,
        links: None,
        own: None,
        members: Vec::new(),
        newest: None,
        before: (Elapsed::default(), Vec::new()),
        work: None,
        inputs: VecDeque::new(),
        effects,
        left: Vec::new(),
        acted: now,
        next_tick: now,
        waited: Duration::ZERO,
        held: pulse::held_up(),
        ended: None,
        outcome: None,
        board,
        ends,
        telling: Telling::new(now),
    };
    driver.perform_all();
    driver.run()
}

impl Driver<'_> {
    fn run(mut self) -> Result<Ended, RunError> {
        loop {
            if let Some(outcome) = self.outcome {
                return match outcome {
                    Outcome::Failed(error) => Err(error),
                    Outcome::Results => Ok(self.ended.expect("it has written results")),
                };
            }
            let stepped = panic::catch_unwind(AssertUnwindSafe(|| self.step()));
            let Err(payload) = stepped else { continue };
            // A panic in code of the program (evaluations, events): the neighbours get the reason
            // and the model is saved before it continues.
            if self.cluster.is_in_rounds() {
                self.left.append(&mut self.effects);
                self.feed(Input::Panicked(describe_panic(&*payload)));
            }
            panic::resume_unwind(payload);
        }
    }

    /// Waits a moment for an event, and passes it on.
    fn step(&mut self) {
        if (self.stop)() {
            return self.feed(Input::Stop);
        }
        let Some(links) = &self.links else {
            return self.feed(Input::Failed(RunError::Network("the links are closed".into())));
        };
        let started = Instant::now();
        let next = links.next(POLL);
        let now = Instant::now();
        let waited = now.saturating_duration_since(started);
        let computing = self.work.as_ref().is_some_and(Work::is_computing);
        if !computing {
            self.waited += waited;
        }
        match next {
            Ok(event) => {
                match &event {
                    Event::Durable(rounds) => self.telling.saved(now, *rounds),
                    Event::Lost { .. } => self.telling.link_lost(),
                    _ => {}
                }
                self.feed(Input::Event(event));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.feed(Input::Failed(RunError::Network("the host's tasks ended".into())));
            }
        }
        let now = Instant::now();
        if self.outcome.is_none() && (now >= self.next_tick || !self.cluster.is_in_rounds()) {
            self.tick(now);
        }
    }

    fn tick(&mut self, now: Instant) {
        let Some(links) = &self.links else { return };
        self.next_tick = now + POLL;
        let computing = self.work.as_ref().is_some_and(Work::is_computing);
        let held = pulse::held_up();
        let held_up = held.saturating_sub(std::mem::replace(&mut self.held, held));
        self.telling.held_up(held_up);
        // While the process is not run, frames may have come.
        let waited = std::mem::take(&mut self.waited).saturating_sub(held_up);
        let part = self.cluster.part();
        let facts = links.status().facts(part, computing, waited, self.acted);
        if self.telling.is_due(now) {
            let wires = links.status().wires().clone();
            self.tell(now, Some(&facts), wires);
        }
        self.feed(Input::Tick(Box::new(facts)));
    }

    /// Says what this node does.
    fn tell(&mut self, now: Instant, facts: Option<&Facts>, wires: LiteMap<NodeId, Wire>) {
        let elapsed = self.work.as_ref().map_or(self.before.0, Work::elapsed);
        let (part, standing) = (self.cluster.part(), self.cluster.standing());
        let at_work = self.links.as_ref().and_then(|links| links.status().at_work(now));
        let now = Now { now, part, standing, facts, wires, at_work, elapsed };
        let (record, now) = (self.telling.record(&now), now.now);
        self.board.say(now, record);
    }

    /// Passes an input on, and all that follow from it here, and performs their effects.
    fn feed(&mut self, input: Input) {
        self.inputs.push_back(input);
        self.perform_all();
        self.acted = Instant::now();
    }

    /// Performs all effects, and passes on the inputs that come of them.
    fn perform_all(&mut self) {
        loop {
            while let Some(effect) = self.effects.pop() {
                let (task, start) = (task_of(&effect), Instant::now());
                if let Err(error) = self.perform(effect) {
                    self.left.append(&mut self.effects);
                    self.inputs.push_front(Input::Failed(error));
                }
                if let Some(task) = task {
                    self.telling.spent(task, start.elapsed());
                }
            }
            let Some(input) = self.inputs.pop_front() else { return };
            let start = Instant::now();
            self.cluster.handle(start, input, &mut self.effects);
            self.telling.spent(Task::Mix, start.elapsed());
            self.effects.reverse();
        }
    }

    /// The learner starts from its beginning.
    fn reset(&mut self) {
        let mut learner = lock(&self.learner);
        // A checkpoint replaces it.
        let _ = self.initial.clone().restore(|visitor| _ = learner.state(visitor));
    }
}

/// What performing an effect is: nothing that takes time, or one of these.
fn task_of(effect: &Effect) -> Option<Task> {
    use crate::gossip::Effect as Core;
    match effect {
        Effect::Core(Core::RoundDone(_) | Core::Save(_) | Core::Conclude { .. }) => {
            Some(Task::Evaluate)
        }
        Effect::Restore { .. }
        | Effect::Write { .. }
        | Effect::Retain(_)
        | Effect::Record(_)
        | Effect::Results { .. }
        | Effect::Salvage(_)
        | Effect::SaveNewest
        | Effect::Clear { .. } => Some(Task::UseDisk),
        _ => None,
    }
}
