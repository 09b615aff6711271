//! The simulator with training in Python: virtual time and links, and the digest of the real run.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use gradvine::{
    drive::{Computed, Elapsed, Observer, Wanted},
    experiment::Experiment,
    gossip::{RoundDone, Traffic},
    learn::Ready,
    node::Measures,
    run::{Design, Evaluate, Gradients, OwnRun},
    simulation,
    units::{NodeId, Round},
    vector,
};
use pyo3::{buffer::PyBuffer, prelude::*, types::PyDict};

use crate::{
    Described,
    buffer::Buffer,
    error::{RunError, StateError, of_config},
    exchange::{lock, not_finite},
    of_described,
};

/// The first exception that Python's functions raised.
type Raised = Arc<Mutex<Option<PyErr>>>;

/// The training of one node.
struct Training {
    node: usize,
    rows: u64,
    /// Called with the node, the model and the buffer for the update; returns loss and step size.
    train: Arc<Py<PyAny>>,
    raised: Raised,
    size: f32,
}

impl Gradients for Training {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn compute_lent(&mut self, wanted: Wanted<'_>, ready: &mut Ready<'_>) -> Computed {
        let Wanted { x, update, .. } = wanted;
        let called = Python::attach(|py| -> PyResult<(Vec<f32>, f64, f32)> {
            let model = Py::new(py, Buffer::of_model(Arc::clone(x)))?;
            let buffer = Py::new(py, Buffer::of_update(update))?;
            let arguments = (self.node, model.clone_ref(py), buffer.clone_ref(py));
            let (loss, size) = self.train.call1(py, arguments)?.extract(py)?;
            if let Some((index, value)) = buffer.get().first_not_finite() {
                return Err(not_finite(index, value));
            }
            model.get().release();
            Ok((buffer.get().take().0, loss, size))
        });
        let (mut update, loss, size) = called.map_err(|error| {
            let text = error.to_string();
            lock(&self.raised).get_or_insert(error);
            text
        })?;
        self.size = size;
        ready(0..update.len(), &mut update);
        Ok((update, loss))
    }

    fn step(&self, _round: Round) -> f32 {
        self.size
    }

    fn loss(&mut self, _x: &[f32]) -> f64 {
        f64::NAN
    }
}

/// Collects evaluations, and ends the run after an exception.
struct Watch<'a> {
    nodes: usize,
    design: Arc<Design>,
    /// Called with the figures of an evaluation and the mean of all models.
    see: Option<&'a Py<PyAny>>,
    /// The reports of rounds with an evaluation, until all nodes have reported.
    waiting: BTreeMap<Round, Vec<(NodeId, Elapsed, RoundDone)>>,
    raised: &'a Raised,
}

impl Watch<'_> {
    fn show(&self, round: Round, reports: &[(NodeId, Elapsed, RoundDone)]) -> PyResult<()> {
        let Some(see) = self.see else { return Ok(()) };
        let models =
            reports.iter().filter_map(|(node, _, done)| Some((*node, done.model.as_deref()?)));
        let models: Vec<(NodeId, &[f32])> = models.collect();
        let mean = self.design.mean_of(round, &models);
        let away = models.iter().map(|(_, x)| vector::distance_squared(x, &mean)).sum::<f64>();
        let (mut traffic, mut time, mut loss) = (Traffic::default(), 0.0_f64, 0.0);
        for (_, elapsed, done) in reports {
            traffic.payload += done.traffic.payload;
            traffic.wire += done.traffic.wire;
            time = time.max(elapsed.time.seconds());
            loss += done.loss / reports.len() as f64;
        }
        Python::attach(|py| {
            let figures = PyDict::new(py);
            figures.set_item("rounds", round.0 + 1)?;
            figures.set_item("time_s", time)?;
            figures.set_item("loss", loss)?;
            figures.set_item("consensus", away / models.len() as f64)?;
            figures.set_item("bytes_payload", traffic.payload)?;
            figures.set_item("bytes_wire", traffic.wire)?;
            see.call1(py, (figures, Py::new(py, Buffer::of_update(mean))?))?;
            py.check_signals()
        })
    }
}

impl Observer for Watch<'_> {
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone) {
        let signals = Python::attach(|py| py.check_signals());
        let round = done.round;
        let mut shown = Ok(());
        if done.model.is_some() {
            let reports = self.waiting.entry(round).or_default();
            reports.push((node, elapsed, done));
            if reports.len() == self.nodes
                && let Some(reports) = self.waiting.remove(&round)
            {
                shown = self.show(round, &reports);
            }
        }
        if let Err(error) = signals.and(shown) {
            lock(self.raised).get_or_insert(error);
        }
    }

    fn stop_after(&mut self) -> Option<Round> {
        lock(self.raised).is_some().then_some(Round(0))
    }
}

/// `train(node, x, update)` writes the update and returns loss and step size; `see(figures, mean)`
/// is called at every evaluation; `evaluate(x)` measures models at the end.
type Functions = (Py<PyAny>, Option<Py<PyAny>>, Option<Py<PyAny>>);

/// The summary as JSON, the SHA-256 of all events, the mean, and each node's model; warnings.
type Simulated = (String, String, Py<Buffer>, Vec<Py<Buffer>>, Vec<String>);

/// Simulates an experiment (TOML text, with paths from this folder) with a model's tensors and
/// initial numbers, the rows of each node, and Python's functions.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    experiment: (String, PathBuf),
    tensors: Vec<Described>,
    initial: PyBuffer<f32>,
    rows: Vec<u64>,
    functions: Functions,
) -> PyResult<Simulated> {
    let (text, folder) = experiment;
    let (train, see, evaluate) = functions;
    let mut experiment = Experiment::parse(&text, &[]).map_err(of_config)?;
    experiment.folder = folder;
    let (raised, train) = (Raised::default(), Arc::new(train));
    let nodes = rows.len();
    let training = |(node, rows)| -> Box<dyn Gradients> {
        let (train, raised) = (Arc::clone(&train), Arc::clone(&raised));
        Box::new(Training { node, rows, train, raised, size: 1.0 })
    };
    let gradients = rows.into_iter().enumerate().map(training).collect();
    let tensors = of_described(tensors);
    let evaluate = evaluate.map(|function| {
        let raised = Arc::clone(&raised);
        Evaluate::new(move |x| {
            crate::exchange::evaluate(&function, x).unwrap_or_else(|error| {
                lock(&raised).get_or_insert(error);
                Measures::new()
            })
        })
    });
    let initial = initial.to_vec(py)?;
    let run = OwnRun::new(&experiment, tensors, initial, gradients, evaluate.as_ref());
    let run = run.map_err(of_config)?;
    let topology = Arc::clone(&run.design.topology);
    let warnings = run.design.rule.warnings.clone();
    let design = Arc::clone(&run.design);
    let (see, waiting) = (see.as_ref(), BTreeMap::new());
    let mut watch = Watch { nodes, design, see, waiting, raised: &raised };
    let simulated = simulation::simulate_own(run, &mut watch);
    if let Some(error) = lock(&raised).take() {
        return Err(error);
    }
    let (summary, simulated) = simulated.map_err(|error| match error {
        gradvine::drive::RunError::Setup(error) => of_config(error),
        error => RunError::new_err((error.describe(&topology),)),
    })?;
    let summary = serde_json::to_string(&summary)
        .map_err(|error| StateError::new_err((error.to_string(),)))?;
    let buffer = |x: Vec<f32>| Py::new(py, Buffer::of_update(x));
    let mean = buffer(simulated.ended[0].mean.clone())?;
    let models = simulated.ended.into_iter().map(|ended| buffer(ended.model));
    Ok((summary, simulated.trace, mean, models.collect::<PyResult<_>>()?, warnings))
}
