//! One node with its exchange, for Python's thread. Every wait is outside Python's lock, and is
//! interrupted by Ctrl-C.

use std::{
    future::Future,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gradvine::{
    gossip::plan,
    node::{self, Event, Measures, Node, NodeResult, Step},
};
use gradvine_watch::{Page, Watcher};
use pyo3::{
    buffer::PyBuffer,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyList},
};
use tokio::{runtime::Runtime, time::timeout};

use crate::{
    Described,
    buffer::Buffer,
    error::{StateError, UpdateError, of_config, of_end},
    of_described,
};

/// How often a wait looks for Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(100);

/// The summary as JSON, the run directory, the mean and the node's own model.
type Ended = (String, Option<PathBuf>, Py<Buffer>, Py<Buffer>);

struct Open {
    exchange: node::Exchange,
    runtime: Runtime,
    /// What Python has of the model and of the update, since the last round.
    lent: Option<(Py<Buffer>, Py<Buffer>)>,
    result: Option<NodeResult>,
}

/// A node that takes its updates from a training loop.
#[pyclass(frozen, module = "gradvine._gradvine")]
pub struct Exchange {
    open: Mutex<Option<Open>>,
    /// Measures of the training loop, for the next evaluation.
    measures: Arc<Mutex<Measures>>,
    /// Whether the node is being closed: calls of other threads end.
    closing: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits outside Python's lock until the future is ready, or the node is being closed.
///
/// # Errors
/// KeyboardInterrupt, or what another signal handler raised; that the node was closed.
fn wait<F>(
    py: Python<'_>,
    runtime: &Runtime,
    future: F,
    closing: &AtomicBool,
) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    loop {
        let ready = py.detach(|| runtime.block_on(async { timeout(SIGNALS, &mut future).await }));
        match ready {
            Ok(output) => return Ok(output),
            Err(_) if closing.load(Ordering::Relaxed) => return Err(closed()),
            Err(_) => py.check_signals()?,
        }
    }
}

/// The error of a call after, or during, the end of a node.
fn closed() -> PyErr {
    StateError::new_err(("this node was closed; join again",))
}

/// The error of a number that is not finite.
pub(crate) fn not_finite(index: usize, value: f32) -> PyErr {
    let text = format!("update[{index}] is {value}: expected finite numbers");
    let tensor: Option<String> = None;
    UpdateError::new_err((text, tensor, index, value))
}

/// Calls Python's function with a model.
pub(crate) fn evaluate(function: &Py<PyAny>, x: &[f32]) -> PyResult<Measures> {
    Python::attach(|py| {
        let x = Py::new(py, Buffer::of_update(x.to_vec()))?;
        function.call1(py, (x,))?.extract(py)
    })
}

#[pymethods]
impl Exchange {
    /// Starts a node from its file and waits until all nodes are linked. `tensors` are names,
    /// shapes, and whether they are statistics, `initial` their numbers in this order. `agreed` are
    /// further values that must be the same at all nodes. `place` is the run directory, and whether
    /// to start a new run in it.
    #[staticmethod]
    #[pyo3(signature = (file, tensors, initial, rows, *, agreed, place))]
    fn connect(
        py: Python<'_>,
        file: PathBuf,
        tensors: Vec<Described>,
        initial: PyBuffer<f32>,
        rows: u64,
        agreed: Vec<(String, String)>,
        place: (Option<PathBuf>, bool),
    ) -> PyResult<Exchange> {
        let measures = Arc::new(Mutex::new(Measures::new()));
        let shared = Arc::clone(&measures);
        let tensors = of_described(tensors);
        let at = file.display().to_string();
        let mut builder = (Node::builder(file).map_err(of_config)?)
            .initial(initial.to_vec(py)?)
            .evaluate(move |_| lock(&shared).clone());
        let page = Page::open(builder.status()).map_err(|error| of_config(error.within(at)))?;
        builder = builder.beside(|prepared| {
            Watcher::of(prepared, page, Arc::new(|line: &str| tracing::warn!("{line}")))
        });
        for (key, value) in agreed {
            builder = builder.agree(key, value);
        }
        let (out, fresh) = place;
        if let Some(out) = out {
            builder = builder.out(out);
        }
        if fresh {
            builder = builder.fresh();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let exchange = wait(py, &runtime, builder.connect(tensors, rows), &AtomicBool::new(false))?
            .map_err(of_end)?;
        let open = Open { exchange, runtime, lent: None, result: None };
        Ok(Exchange { open: Mutex::new(Some(open)), measures, closing: AtomicBool::new(false) })
    }

    /// What does not change: the names of this node, its neighbours and all nodes, the rule.
    fn about<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with(|open| {
            let design = open.exchange.design();
            let node = open.exchange.id();
            let name = |id| design.topology.node(id).name.clone();
            let about = PyDict::new(py);
            about.set_item("name", name(node))?;
            let neighbours = design.topology.neighbours(node).iter().map(|&peer| name(peer));
            about.set_item("neighbours", neighbours.collect::<Vec<_>>())?;
            let nodes = (0..design.topology.nodes()).map(|node| name(node.into()));
            about.set_item("nodes", nodes.collect::<Vec<_>>())?;
            about.set_item("rule", design.rule_name())?;
            let rule = design.experiment.registries().rules.find(design.rule_name());
            about.set_item("needs_step", rule.is_some_and(|rule| rule.needs_step))?;
            about.set_item("warnings", &design.rule.warnings)?;
            about.set_item("deadline_s", design.experiment.absence.deadline_s)?;
            about.set_item("rounds", design.experiment.run.rounds)?;
            about.set_item("folder", open.exchange.directory())?;
            let every = design.experiment.checkpoint.every_rounds;
            let every = every.filter(|_| plan::can_pause(&*design.rule.plan));
            about.set_item("checkpoint_every_rounds", every)?;
            Ok(about)
        })
    }

    /// The model and the buffer for the update, while the node waits for an update.
    fn parts(&self, py: Python<'_>) -> PyResult<Option<(Py<Buffer>, Py<Buffer>)>> {
        self.with(|open| {
            if open.lent.is_none()
                && let Some((x, update)) = open.exchange.buffers()
            {
                let x = Py::new(py, Buffer::of_model(Arc::clone(x)))?;
                let update = Py::new(py, Buffer::of_update(std::mem::take(update)))?;
                open.lent = Some((x, update));
            }
            Ok(open.lent.as_ref().map(|(x, update)| (x.clone_ref(py), update.clone_ref(py))))
        })
    }

    /// One round. Returns whether there is a next one, and whether arrays that Python still shows
    /// made copies necessary.
    fn round(&self, py: Python<'_>, loss: f64, size: f32) -> PyResult<(bool, bool)> {
        self.with(|open| {
            let mut copied = false;
            if let Some((x, update)) = &open.lent
                && size >= 0.0
                && size.is_finite()
            {
                if let Some((index, value)) = update.get().first_not_finite() {
                    return Err(not_finite(index, value));
                }
                let (numbers, shown) = update.get().take();
                copied = x.get().release() || shown;
                if let Some((_, buffer)) = open.exchange.buffers() {
                    *buffer = numbers;
                }
                open.lent = None;
            }
            let round = open.exchange.round(Step { loss, size });
            let more = wait(py, &open.runtime, round, &self.closing)?.map_err(of_end)?;
            Ok((more, copied))
        })
    }

    /// Whether the node takes one more update.
    fn is_open(&self) -> PyResult<bool> {
        self.with(|open| Ok(open.exchange.is_open()))
    }

    /// Rounds done.
    fn rounds(&self) -> PyResult<u64> {
        self.with(|open| Ok(open.exchange.rounds()))
    }

    /// The events since the last call, each a dictionary with its `kind`.
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.with(|open| {
            let events = PyList::empty(py);
            while let Some(event) = open.exchange.next_event() {
                events.append(of_event(py, event)?)?;
            }
            Ok(events)
        })
    }

    /// Measures of the training loop for the next line of `metrics.jsonl`.
    fn set_measures(&self, measures: Measures) {
        *lock(&self.measures) = measures;
    }

    /// Ends the rounds of all nodes and waits for the results: the summary as JSON, the run
    /// directory, and the mean and the node's own model as buffers. `function` is called with each
    /// model (a buffer) and returns measures.
    #[pyo3(signature = (function=None))]
    fn finish(&self, py: Python<'_>, function: Option<Py<PyAny>>) -> PyResult<Ended> {
        self.with(|open| {
            if let Some((x, update)) = open.lent.take() {
                let (numbers, _) = update.get().take();
                x.get().release();
                if let Some((_, buffer)) = open.exchange.buffers() {
                    *buffer = numbers;
                }
            }
            if open.result.is_none() {
                let mut error = None;
                let result = match function {
                    None => wait(py, &open.runtime, open.exchange.finish(), &self.closing)?,
                    Some(function) => {
                        let finish = open.exchange.finish_with(|x| {
                            evaluate(&function, x).unwrap_or_else(|raised| {
                                error.get_or_insert(raised);
                                Measures::new()
                            })
                        });
                        wait(py, &open.runtime, finish, &self.closing)?
                    }
                };
                open.result = Some(result.map_err(of_end)?);
                if let Some(error) = error {
                    return Err(error);
                }
            }
            let result = open.result.as_ref().expect("it was just set");
            let summary = serde_json::to_string(&result.summary);
            let summary = summary.map_err(|error| StateError::new_err((error.to_string(),)))?;
            let buffer = |x: &[f32]| Py::new(py, Buffer::of_update(x.to_vec()));
            let models = (buffer(&result.mean)?, buffer(&result.model)?);
            Ok((summary, result.directory.clone(), models.0, models.1))
        })
    }

    /// Ends the run because training cannot continue; all nodes get the reason.
    fn fail(&self, py: Python<'_>, reason: String) -> PyResult<()> {
        self.with(|open| {
            open.lent = None;
            // The error is that the run has failed for this reason.
            wait(py, &open.runtime, open.exchange.fail(reason), &self.closing)?;
            Ok(())
        })
    }

    /// Leaves the run, if it is not over. The neighbours get the reason; the node's threads end
    /// soon afterwards. A call in another thread ends first.
    fn close(&self, py: Python<'_>) {
        self.closing.store(true, Ordering::Relaxed);
        let started = Instant::now();
        let open = loop {
            match self.open.try_lock() {
                Ok(mut open) => break open.take(),
                Err(TryLockError::Poisoned(error)) => break error.into_inner().take(),
                // The other thread may be in a function of the program.
                Err(TryLockError::WouldBlock) if started.elapsed() > LEAVES => break None,
                Err(TryLockError::WouldBlock) => py.detach(|| thread::sleep(SIGNALS / 10)),
            }
        };
        let Some(Open { exchange, runtime, .. }) = open else { return };
        // A node that takes longer ends by itself.
        let _ = py.detach(|| runtime.block_on(async { timeout(LEAVES, exchange.close()).await }));
    }
}

/// How long a node that leaves may take to tell its neighbours.
const LEAVES: Duration = Duration::from_secs(3);

impl Exchange {
    fn with<T>(&self, work: impl FnOnce(&mut Open) -> PyResult<T>) -> PyResult<T> {
        let mut open = match self.open.try_lock() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let text = "another thread is in a call of this node: one call at a time";
                return Err(StateError::new_err((text,)));
            }
        };
        match &mut *open {
            Some(open) => work(open),
            None => Err(closed()),
        }
    }
}

fn of_event<'py>(py: Python<'py>, event: Event) -> PyResult<Bound<'py, PyDict>> {
    let made = PyDict::new(py);
    let kind = match event {
        Event::Linked { peer, up, links } => {
            made.set_item("peer", peer)?;
            made.set_item("up", up)?;
            made.set_item("links", links)?;
            "linked"
        }
        Event::LinkLost { peer, reason } => {
            made.set_item("peer", peer)?;
            made.set_item("reason", reason)?;
            "link_lost"
        }
        Event::Waiting { peers, text } => {
            made.set_item("peers", peers)?;
            made.set_item("text", text)?;
            "waiting"
        }
        Event::Started => "begun",
        Event::Resumed { rounds } => {
            made.set_item("rounds", rounds)?;
            "resumed"
        }
        Event::Evaluation(metric) => {
            made.set_item("round", metric.round)?;
            made.set_item("measures", metric.measures)?;
            "evaluation"
        }
        Event::Round { rounds, loss, traffic, elapsed, .. } => {
            made.set_item("rounds", rounds)?;
            made.set_item("loss", loss)?;
            made.set_item("bytes_payload", traffic.payload)?;
            made.set_item("bytes_wire", traffic.wire)?;
            made.set_item("time_s", elapsed.time.seconds())?;
            made.set_item("computing_s", elapsed.computing.seconds())?;
            "round"
        }
        Event::Averaged { rounds, mean } => {
            made.set_item("rounds", rounds)?;
            made.set_item("mean", Py::new(py, Buffer::of_model(mean))?)?;
            "averaged"
        }
        Event::Final { rounds } => {
            made.set_item("rounds", rounds)?;
            "final"
        }
        Event::Mean => "mean",
        Event::Missed(events) => {
            made.set_item("events", events)?;
            "missed"
        }
        Event::Ended => "ended",
        event => return Err(PyTypeError::new_err(format!("an event without a form: {event:?}"))),
    };
    made.set_item("kind", kind)?;
    Ok(made)
}
