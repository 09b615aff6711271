//! After a run: writes models and summary into the run directory, and prints a table.

use std::path::Path;

use gradvine::{
    compress::{self, COMPRESSORS, Cheaper},
    experiment::{DataParams, RunParams},
    gossip::rule::RULES,
    mixing::Weights,
    run::{Design, MEAN_MODEL, Recorder, RunDirectory, Summary, Whole},
};
use gradvine_report::table;
use gradvine_terminal::{note, print, print_json};

use super::{
    Exit,
    run_args::{RunArgs, quoted},
    train::RunResult,
};

/// Writes the summary of a run with all nodes in this process, whose models are saved, and prints
/// it.
pub fn conclude(
    args: &RunArgs,
    whole: &Whole,
    directory: &RunDirectory,
    recorder: &Recorder,
    result: &RunResult,
    interrupted: bool,
    command: &str,
) -> Result<(), Exit> {
    let (design, ended) = (&whole.design, &result.ended);
    let kept = recorder.finish(!interrupted);
    let mut summary = match Summary::of_run(design, &ended[0].records, &ended[0].history) {
        Ok(summary) => summary,
        Err(why) => return Err(recorder.unusable(directory, why, kept).into()),
    };
    warn_of_records(&summary);
    summary.trace.clone_from(&result.trace);
    summary.interrupted = interrupted;
    summary.stopped_early &= !interrupted;
    if !(args.no_baseline || interrupted) {
        summary.pooled = Some(whole.pooled_baseline()?.into());
    }
    debug_assert!(
        ended.iter().all(|one| one.mean == ended[0].mean),
        "every node forms the same mean"
    );
    let written = directory.summary(&summary);
    kept.map_err(|error| Exit::Failed(error.to_string()))?;
    written?;
    let tree = ended.iter().map(|one| one.traffic.tree).sum();
    show(args, whole, directory, &summary, Some(tree), command)?;
    if interrupted {
        return Err(Exit::Interrupted(format!(
            "stopped after round {}; the results so far are in {}",
            summary.rounds,
            directory.path().display()
        )));
    }
    Ok(())
}

/// Prints a summary as JSON, as a table, or not at all, depending on the arguments. `tree`: bytes
/// that formed the mean, if they are known.
pub fn show(
    args: &RunArgs,
    whole: &Whole,
    directory: &RunDirectory,
    summary: &Summary,
    tree: Option<u64>,
    command: &str,
) -> Result<(), Exit> {
    if args.json {
        print_json(summary)?;
    }
    if args.speaks() {
        let (table, folder) = (table(summary, tree.unwrap_or(0)), directory.path().display());
        show_table(&format!(
            "{table}\nrun directory    {folder}\n{}\n",
            next(args, directory, whole, command, summary)
        ));
    }
    let experiment = &whole.design.experiment;
    if command == "simulate" && !experiment.network.absent.is_empty() {
        // Nodes were away as the experiment says.
        return Ok(());
    }
    participation(summary, &experiment.run)
}

/// Prints a table. If standard output fails, the run has still succeeded: its files are written.
pub fn show_table(text: &str) {
    if let Err(error) = print(text) {
        note!("warning: standard output: the table cannot be written: {error}");
    }
}

/// Names the nodes whose records cannot be used.
pub fn warn_of_records(summary: &Summary) {
    for (name, why) in &summary.unusable {
        note!("warning: the record of node {name} cannot be used: {why}");
    }
}

/// A run is incomplete if fewer nodes than it requires took part in as many rounds, or if a node is
/// missing in the summary.
pub fn participation(summary: &Summary, run: &RunParams) -> Result<(), Exit> {
    if summary.interrupted {
        return Ok(());
    }
    let (rounds, nodes) =
        (summary.rounds_of(run.rounds), summary.participation.len() + summary.away.len());
    let (least, share) = match &run.require {
        Some(require) => (require.nodes as usize, require.share),
        None => (nodes, 1.0),
    };
    let needed = (share * rounds as f64).ceil() as u64;
    let short = summary.short_of(needed);
    let short: Vec<String> = short.iter().map(|(name, part)| format!("{name} ({part})")).collect();
    if nodes - short.len() < least {
        return Err(Exit::Short(format!(
            "fewer than {least} nodes took part in {needed} of {rounds} rounds; in fewer: {} \
             (history in summary.json; run.require)",
            short.join(", ")
        )));
    }
    if !summary.unusable.is_empty() {
        let names = summary.unusable.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(Exit::Short(format!(
            "the models are saved, but the records of some nodes cannot be used, so that the \
             summary lacks them and has no digest: {names}"
        )));
    }
    Ok(())
}

/// Useful next commands after this run, with their purposes.
fn next(
    args: &RunArgs,
    directory: &RunDirectory,
    whole: &Whole,
    command: &str,
    summary: &Summary,
) -> String {
    let (folder, experiment) = (directory.path(), whole.design.experiment.moved());
    let how_good = match whole.classes.is_empty() {
        true => "how good the mean model is",
        false => "how good the mean model is, class by class",
    };
    let other = if command == "simulate" { "train" } else { "simulate" };
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
    if args.select.experiment.is_none()
        || !["gamma", "eta"].iter().any(|key| experiment.rule.contains_key(*key))
    {
        lines.extend(
            cheaper(&whole.design)
                .map(|(set, what)| (args.select.again(command, Some(&set)), what)),
        );
    }
    let topology = &whole.design.topology;
    let spec = match topology.shape() {
        Some(shape) if topology.weights() == Weights::default() => shape.to_string(),
        _ => path(&folder.join("topology.toml")),
    };
    lines.push((format!("gradvine topology show {spec}"), "why it mixes as fast as it does"));
    let mut text = "\nTry next:".to_string();
    let program = program(std::env::args().next());
    for (line, what) in lines {
        for line in line.lines() {
            text += &format!("\n  {}", line.replacen("gradvine", &program, 1));
        }
        text += &format!("\n      {what}");
    }
    text
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

/// The command that starts this program: the relative path that the user has typed (as with `cargo
/// run`), else its name.
fn program(started: Option<String>) -> String {
    let relative =
        |text: &String| Path::new(text).is_relative() && Path::new(text).components().count() > 1;
    started.filter(relative).map_or_else(|| "gradvine".into(), |text| quoted(&text))
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// A setting with which the same rule sends fewer bytes, and how many; `None` if none is known to
/// work.
fn cheaper(design: &Design) -> Option<(String, &'static str)> {
    let constants = &design.experiment.compressor;
    let entry = COMPRESSORS.find(design.compressor.name())?;
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
    RULES.find(design.rule_name()).is_some_and(|rule| rule.compresses)
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

    #[test]
    fn suggestions_can_be_typed_unchanged() {
        let shown = |started: &str| program(Some(started.into()));
        assert_eq!(shown("target/release/gradvine"), "target/release/gradvine");
        assert_eq!(
            (shown("gradvine"), shown("/usr/bin/gradvine")),
            ("gradvine".to_string(), "gradvine".to_string())
        );
        assert_eq!(program(None), "gradvine");
    }
}
