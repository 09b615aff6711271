//! Useful commands after a run.

use std::path::Path;

use gradvine::{
    compress::{self, Cheaper},
    experiment::DataParams,
    mixing::Weights,
    run::{Design, MEAN_MODEL, Summary, Whole},
};

use super::command_line::{path, quoted};

/// A run after which commands are suggested.
pub struct NextSteps<'a> {
    /// The run as it was resolved.
    pub whole: &'a Whole,
    /// What the run has written as `summary.json`.
    pub summary: &'a Summary,
    /// The directory of the run, which the commands name.
    pub folder: &'a Path,
    /// Whether the simulator ran it, not real nodes.
    pub simulated: bool,
    /// Whether its experiment came from a file.
    pub from_file: bool,
    /// The command line that repeats the run with another setting, `key=value`.
    pub again_with: &'a dyn Fn(&str) -> String,
    /// The command that starts this program, as [`program_name`](super::program_name) has it.
    pub program: &'a str,
}

impl NextSteps<'_> {
    /// The commands, each with its purpose.
    pub fn text(&self) -> String {
        let &NextSteps { whole, summary, folder, simulated, from_file, again_with, program } = self;
        let experiment = whole.design.experiment.moved();
        let how_good = match whole.classes.is_empty() {
            true => "how good the mean model is",
            false => "how good the mean model is, class by class",
        };
        let other = if simulated { "train" } else { "simulate" };
        let mut lines = vec![
            (
                format!("gradvine report {}", path(folder)),
                "curves, bytes and topology as a page: report.html",
            ),
            (evaluations(&folder.join(MEAN_MODEL), &experiment.data), how_good),
        ];
        let again = format!("gradvine {other} {}", path(&folder.join("experiment.toml")));
        lines.push(match (summary.interrupted, summary.history.is_empty()) {
            // An interrupted run has done fewer rounds than the experiment states.
            (true, _) => (again, "the whole run, the other way"),
            (false, true) => (again, "the same run the other way, with the same digest"),
            (false, false) => (again, "the run with all nodes all the time"),
        });
        // A file may hold the rule's step as computed for this compressor; another compressor needs
        // another.
        if !from_file || !["gamma", "eta"].iter().any(|key| experiment.rule.contains_key(*key)) {
            lines.extend(cheaper(&whole.design).map(|(set, what)| (again_with(&set), what)));
        }
        let topology = &whole.design.topology;
        let spec = match topology.shape() {
            Some(shape) if topology.weights() == Weights::default() => shape.to_string(),
            _ => path(&folder.join("topology.toml")),
        };
        lines.push((format!("gradvine topology show {spec}"), "why it mixes as fast as it does"));
        let mut text = "\nTry next:".to_string();
        for (line, what) in lines {
            for line in line.lines() {
                text += &format!("\n  {}", line.replacen("gradvine", program, 1));
            }
            text += &format!("\n      {what}");
        }
        text
    }
}

/// Sources that are named one by one.
const SHOWN: usize = 8;

/// The commands that evaluate a model on the data of the run, one a line for each source.
fn evaluations(model: &Path, data: &DataParams) -> String {
    let one = vec![data.source.clone()];
    let sources = data.sources.as_ref().unwrap_or(&one);
    let mut flags = String::new();
    for (flag, value) in [("--target", &data.target), ("--labels", &data.labels)] {
        flags +=
            &value.as_ref().map(|value| format!(" {flag} {}", quoted(value))).unwrap_or_default();
    }
    let command = |data: &str| format!("gradvine evaluate {} {data}{flags}", path(model));
    let more = sources.len().saturating_sub(SHOWN);
    let mut lines: Vec<String> =
        sources.iter().take(SHOWN).map(|source| command(&quoted(source))).collect();
    if more > 0 {
        lines.push(format!("(and so on for {more} more sources)"));
    }
    lines.join("\n")
}

/// A setting with which the same rule sends fewer bytes, and how many; `None` if none is known to
/// work.
fn cheaper(design: &Design) -> Option<(String, &'static str)> {
    let constants = &design.experiment.compressor;
    let entry = design.experiment.registries().compressors.find(design.compressor.name())?;
    let Cheaper { key, value, words } = (entry.cheaper)(constants)?;
    if key == "kind" && !compresses(design) {
        return None;
    }
    let mut table = if key == "kind" { toml::Table::new() } else { constants.clone() };
    table.insert(key.into(), value.clone());
    let built = compress::build(&table).ok()?;
    let works = compress::nominal_delta(&*built.compressor, design.parameters()) > 0.0;
    let value = value.as_str().map_or_else(|| value.to_string(), String::from);
    works.then(|| (format!("compressor.{key}={value}"), words))
}

fn compresses(design: &Design) -> bool {
    design
        .experiment
        .registries()
        .rules
        .find(design.rule_name())
        .is_some_and(|rule| rule.compresses)
}

#[cfg(test)]
mod tests {
    use gradvine::experiment::Experiment;

    use super::*;

    fn hint(sets: &[&str]) -> Option<(String, &'static str)> {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        cheaper(&Whole::new(Experiment::default_with(&sets).unwrap()).unwrap().design)
    }

    #[test]
    fn the_hint_fits_the_compressor() {
        let of = |sets: &[&str]| hint(sets).map(|(set, _)| set);
        assert_eq!(of(&["compressor.bits=8"]).as_deref(), Some("compressor.bits=4"));
        assert_eq!(
            of(&["compressor.kind=top-k", "compressor.fraction=0.5"]).as_deref(),
            Some("compressor.fraction=0.25")
        );
        assert_eq!(of(&["compressor.kind=bf16"]).as_deref(), Some("compressor.kind=min-max"));
        assert_eq!(of(&["rule.kind=d-psgd", "compressor.kind=identity"]), None);
        assert_eq!(of(&["compressor.kind=sign"]), None);
    }

    #[test]
    fn each_source_has_its_evaluation() {
        let shown = |sources: usize| {
            let sources = (0..sources).map(|site| format!("site {site}.csv")).collect();
            let data = DataParams {
                sources: Some(sources),
                target: Some("y".into()),
                ..DataParams::default()
            };
            evaluations(Path::new("m"), &data)
        };
        assert_eq!(
            shown(2),
            "gradvine evaluate m 'site 0.csv' --target y\n\
             gradvine evaluate m 'site 1.csv' --target y"
        );
        assert_eq!(shown(8).lines().count(), 8);
        assert!(shown(11).ends_with("'site 7.csv' --target y\n(and so on for 3 more sources)"));
        let one = evaluations(Path::new("m"), &DataParams::default());
        assert_eq!(one, "gradvine evaluate m digits");
    }
}
