//! Runs that begin with a model that was trained before: its constants are kept, and its columns
//! and classes are compared with the data of the run.

use std::path::PathBuf;

use crate::{
    config::ConfigError,
    data::{self, Dataset, Scale, Task},
    experiment::Experiment,
    learn::{Init, SavedModel, read_scale, read_target_scale},
};

/// The model file that gives the initial values, if it has the texts of this program.
fn saved(experiment: &Experiment, init: Option<&Init>) -> Option<(String, SavedModel)> {
    let Some(Init::File(name)) = init else { return None };
    let path: PathBuf = experiment.folder.join(name);
    Some((name.clone(), SavedModel::read_metadata(&path).ok()?))
}

/// Takes from the model of `model.init` from which date it counts, and what missing values become:
/// the model knows no other. Call it before the data is read.
pub(crate) fn keep_fills(experiment: &mut Experiment) {
    let Some((_, saved)) = saved(experiment, experiment.model.init.as_ref()) else { return };
    if let (Some(own), Some(trained)) = (&experiment.data.schema, &saved.schema) {
        experiment.data.schema = Some(own.counted_as(trained));
    }
    if let (Some(own), Some(trained)) = (&experiment.data.schema, &saved.schema)
        && own.difference(trained).is_none()
        && own.agreed() == trained.agreed()
    {
        experiment.data.schema = Some(own.filled(&saved.preprocessing.fills));
    }
}

/// Checks that the initial model was trained on the columns and the classes of this data, in this
/// order.
///
/// # Errors
/// The first difference.
pub(crate) fn check(experiment: &Experiment, rows: &Dataset) -> Result<(), ConfigError> {
    let Some((name, saved)) = saved(experiment, experiment.own_init()) else { return Ok(()) };
    let refuse =
        |problem: String| Err(ConfigError::new("model.init", format!("\"{name}\""), problem));
    if let (Some(trained), Some(here)) = (&saved.columns, &rows.columns) {
        if let Some(problem) = difference("feature", &trained.features, &here.features) {
            let remedy = match (&saved.schema, &experiment.data.schema) {
                (Some(_), _) => "give the data.schema of its run",
                (None, Some(_)) => "it was trained without data.schema",
                (None, None) => "list them in its order in data.columns",
            };
            return refuse(format!("{problem}: {remedy}"));
        }
        if saved.model.task() == Task::Regression
            && let Some(problem) = difference("target", &trained.targets, &here.targets)
        {
            return refuse(format!("{problem}: list them in its order in data.target"));
        }
    }
    if let (Some(trained), Some(here)) = (&saved.schema, &experiment.data.schema)
        && let Some(problem) = here.difference(trained)
    {
        return refuse(format!("{problem}: give the data.schema of its run"));
    }
    let classes = rows.class_names();
    let are_named = data::are_named(classes) && data::are_named(&saved.classes);
    if are_named && let Some(problem) = difference("class", &saved.classes, classes) {
        return refuse(format!("{problem}: list the classes in its order in data.classes"));
    }
    Ok(())
}

/// The feature scale that the model of `model.init` was trained with, if the experiment gives none:
/// the model fits no other.
///
/// # Errors
/// If the model was trained on features that were not scaled, and these would be.
pub(super) fn scale_of_init(experiment: &Experiment) -> Result<Option<Scale>, ConfigError> {
    if experiment.data.scale.is_some() {
        return Ok(None);
    }
    let Some(Init::File(name)) = &experiment.model.init else { return Ok(None) };
    let scale = read_scale(&experiment.folder.join(name));
    let is_ours = saved(experiment, experiment.model.init.as_ref()).is_some();
    if scale.is_none() && experiment.data.standardize && is_ours {
        let problem = format!(
            "the model of model.init = \"{name}\" was trained on features that were not scaled: \
             expected false"
        );
        return Err(ConfigError::new("data.standardize", true, problem));
    }
    Ok(scale)
}

/// The scale of the predicted numbers that the model of `model.init` was trained with, if the
/// experiment gives none: the model fits no other.
pub(super) fn target_scale_of_init(experiment: &Experiment, outputs: usize) -> Option<Scale> {
    let Some(Init::File(name)) = &experiment.model.init else { return None };
    if !experiment.model.scales_targets() || experiment.data.target_scale.is_some() {
        return None;
    }
    read_target_scale(&experiment.folder.join(name), outputs)
}

/// The first difference between two lists of names.
fn difference(what: &str, trained: &[String], here: &[String]) -> Option<String> {
    let at = (0..trained.len().max(here.len())).find(|&at| trained.get(at) != here.get(at))?;
    let name = |names: &[String]| match names.get(at) {
        Some(name) => format!("`{name}`"),
        None => "missing".into(),
    };
    Some(format!(
        "{what} {at} of this model is {}, in the data it is {}",
        name(trained),
        name(here)
    ))
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn the_first_difference_is_named() {
        let names = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        let shown = |a, b| difference("class", &names(a), &names(b));
        assert_eq!(shown("a b", "a b"), None);
        let turned = "class 1 of this model is `b`, in the data it is `c`";
        assert_eq!(shown("a b c", "a c b").as_deref(), Some(turned));
        let longer = "class 2 of this model is `c`, in the data it is missing";
        assert_eq!(shown("a b c", "a b").as_deref(), Some(longer));
    }
}
