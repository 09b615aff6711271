//! The rows of an experiment: how to read them, and several parts as one.

use ndarray::{Array2, Axis, concatenate};

use crate::{
    config::ConfigError,
    data::{Columns, Dataset, Gaps, Options, Target},
    experiment::Experiment,
};

/// How to read the experiment's data file.
///
/// # Errors
/// If there is no such model.
pub(crate) fn options(experiment: &Experiment) -> Result<Options, ConfigError> {
    let data = &experiment.data;
    if let Some(schema) = &data.schema {
        schema.check()?;
        if data.columns.is_some() {
            let problem = "data.schema names the columns too: leave one of the two keys out";
            return Err(ConfigError::at("data.columns", problem));
        }
    }
    Ok(Options {
        header: data.header,
        target: data.target.clone(),
        columns: data.columns.clone().map(|features| Columns { features, targets: Vec::new() }),
        schema: data.schema.clone(),
        by_position: false,
        identifier: None,
        class_names: data.classes.clone(),
        number_classes: false,
        task: experiment.model.task()?,
        classes: experiment.model.outputs,
        inputs: experiment.model.inputs,
        bare: false,
        labels_file: data.labels.as_ref().map(|labels| experiment.folder.join(labels)),
        datasets: experiment.registries.datasets,
    })
}

/// The rows of all parts, one after another.
pub(crate) fn join(parts: &[&Dataset]) -> Dataset {
    let first = parts[0];
    let stack = |parts: Vec<_>| -> Array2<f32> {
        concatenate(Axis(0), &parts).expect("all parts have as many columns")
    };
    let target = match &first.target {
        Target::Classes { names, .. } => Target::Classes {
            labels: parts
                .iter()
                .flat_map(|part| part.labels().unwrap_or_default())
                .copied()
                .collect(),
            names: names.clone(),
        },
        Target::Values(_) => {
            let values = parts.iter().filter_map(|part| match &part.target {
                Target::Values(values) => Some(values.view()),
                Target::Classes { .. } => None,
            });
            Target::Values(stack(values.collect()))
        }
    };
    Dataset {
        name: first.name.clone(),
        features: stack(parts.iter().map(|part| part.features.view()).collect()),
        target,
        columns: first.columns.clone(),
        identifiers: None,
        gaps: Gaps::join(parts),
        remarks: Vec::new(),
    }
}

/// The names of the columns that are predicted; empty if the rows have none.
pub(crate) fn target_names(rows: &Dataset) -> Vec<String> {
    rows.columns.as_ref().map(|columns| columns.targets.clone()).unwrap_or_default()
}
