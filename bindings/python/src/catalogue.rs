//! What there is (rules, compressors, topologies), and reports of runs.

use std::path::PathBuf;

use gradvine::{
    compress::COMPRESSORS, experiment::Experiment, gossip::rule::RULES, run, units::NodeId,
};
use gradvine_report::Loaded;
use pyo3::{prelude::*, types::PyDict};

use crate::{Described, error::of_config, of_described};

/// Names, texts and constants of an entry.
fn entry<'py>(
    py: Python<'py>,
    texts: &[(&str, &str)],
    constants: &[(&str, &str)],
) -> PyResult<Bound<'py, PyDict>> {
    let (made, meanings) = (PyDict::new(py), PyDict::new(py));
    for (key, text) in texts {
        made.set_item(key, text)?;
    }
    for (name, meaning) in constants {
        meanings.set_item(name, meaning)?;
    }
    made.set_item("constants", meanings)?;
    Ok(made)
}

#[pyfunction]
pub(crate) fn rules(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let rule = |rule: &'static gradvine::gossip::rule::Entry| {
        let texts = [
            ("name", rule.name),
            ("summary", rule.summary),
            ("paper", rule.paper),
            ("update", rule.update),
            ("state", rule.state),
            ("sends", rule.sends),
            ("conditions", rule.conditions),
        ];
        let made = entry(py, &texts, rule.constants)?;
        made.set_item("compresses", rule.compresses)?;
        made.set_item("needs_step", rule.needs_step)?;
        Ok(made)
    };
    RULES.iter().map(rule).collect()
}

#[pyfunction]
pub(crate) fn compressors(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let compressor = |one: &'static gradvine::compress::Entry| {
        let texts = [
            ("name", one.name),
            ("summary", one.summary),
            ("paper", one.paper),
            ("class_", one.class_words),
        ];
        entry(py, &texts, one.constants)
    };
    COMPRESSORS.iter().map(compressor).collect()
}

/// What a run of an experiment (TOML text, with paths from this folder, and further settings, each
/// `key=value`) takes with a model of these tensors.
#[pyfunction]
pub(crate) fn plan<'py>(
    py: Python<'py>,
    experiment: (String, PathBuf),
    settings: Vec<String>,
    tensors: Vec<Described>,
) -> PyResult<Bound<'py, PyDict>> {
    let (text, folder) = experiment;
    let mut experiment = Experiment::parse(&text, &settings).map_err(of_config)?;
    experiment.folder = folder;
    let tensors = of_described(tensors);
    let outlook = py.detach(|| run::outlook_of_own(&experiment, tensors)).map_err(of_config)?;
    let (made, round) = (PyDict::new(py), &outlook.prediction);
    made.set_item("rule", &outlook.rule)?;
    made.set_item("compressor", &outlook.compressor)?;
    made.set_item("topology", &outlook.topology)?;
    made.set_item("rounds", outlook.rounds)?;
    made.set_item("round_s", round.round_s)?;
    made.set_item("run_s", outlook.run_s())?;
    made.set_item("computing", round.computing)?;
    made.set_item("bytes_payload", round.payload.0)?;
    made.set_item("bytes_wire", round.wire.0)?;
    made.set_item("bytes_wire_most", round.wire.1)?;
    made.set_item("agreement_rounds", outlook.agreement)?;
    made.set_item("rho", outlook.rho)?;
    made.set_item("cost_s", outlook.cost_s())?;
    Ok(made)
}

/// The topology that an experiment (TOML text, with paths from this folder) names.
#[pyfunction]
pub(crate) fn topology(
    py: Python<'_>,
    experiment: (String, PathBuf),
) -> PyResult<Bound<'_, PyDict>> {
    let (text, folder) = experiment;
    let mut experiment = Experiment::parse(&text, &[]).map_err(of_config)?;
    experiment.folder = folder;
    let topology = py.detach(|| {
        let topology = run::topology(&experiment)?;
        // It is computed once and kept.
        topology.spectrum();
        Ok(topology)
    });
    let topology = topology.map_err(|error| of_config(experiment.blame(error)))?;
    let spectrum = topology.spectrum();
    let names: Vec<&str> =
        (0..topology.nodes()).map(|node| topology.node(NodeId::from(node)).name.as_str()).collect();
    let links: Vec<(&str, &str)> = (topology.graph().links().iter())
        .map(|(a, b)| (names[a.index()], names[b.index()]))
        .collect();
    let made = PyDict::new(py);
    made.set_item("name", topology.name())?;
    made.set_item("nodes", &names)?;
    made.set_item("links", links)?;
    made.set_item("matrix", topology.matrix().dense())?;
    made.set_item("rho", spectrum.rho)?;
    made.set_item("gap", spectrum.gap)?;
    made.set_item("mixing_time", spectrum.mixing_time())?;
    made.set_item("svg", gradvine_report::topology::svg(&topology))?;
    Ok(made)
}

/// One page of HTML from run directories, and what a reader should know of those that are not over.
#[pyfunction]
pub(crate) fn report(py: Python<'_>, folders: Vec<PathBuf>) -> PyResult<(String, Vec<String>)> {
    py.detach(|| {
        let runs = folders.iter().map(|path| Loaded::load(path));
        let runs = runs.collect::<Result<Vec<_>, _>>().map_err(of_config)?;
        let warnings = runs.iter().filter_map(Loaded::warning).collect();
        Ok((gradvine_report::page(runs).html, warnings))
    })
}
