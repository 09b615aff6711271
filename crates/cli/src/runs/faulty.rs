//! `gradvine simulate --faults`: what a network does when something goes wrong.

use gradvine::{
    drive::RunError,
    faults::{self, Occurrence, Story},
    mixing::Topology,
    run::Whole,
    units::Time,
};
use gradvine_report::aligned;
use gradvine_terminal::{Exit, print_json, print_results};
use serde::Serialize;

use super::{outcome, run_args::RunArgs};

/// What happened in a run with faults, for `--json`.
#[derive(Serialize)]
struct Told<'a> {
    /// Virtual seconds of this run, and of the same run without faults.
    time_s: f64,
    undisturbed_time_s: f64,
    restarts: u64,
    /// Rounds that nodes did again after they went back to a checkpoint, over all nodes.
    repeated_rounds: u64,
    /// Whether the digest is that of the run without faults.
    same_digest: bool,
    occurrences: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    time_s: f64,
    /// `null` for the network.
    node: Option<&'a str>,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn of(one: &'a Occurrence, topology: &'a Topology) -> Line<'a> {
        let node = one.node.map(|node| topology.node(node).name.as_str());
        Line { time_s: seconds(one.time), node, text: &one.text }
    }
}

fn seconds(time: Time) -> f64 {
    (time.0 / 1_000_000) as f64 / 1e3
}

/// Runs an experiment with these faults, and without any.
pub(super) fn run(args: &RunArgs, argument: &str) -> Result<(), Exit> {
    let whole = args.whole()?;
    let faults = faults::faults_of(argument, &whole.design)?;
    let failed = |error: RunError| match error {
        RunError::Setup(error) => Exit::from(error),
        error => Exit::Failed(error.describe(&whole.design.topology)),
    };
    let calm = faults::run(&*args.select.whole(true, |_| ())?, &[]).map_err(failed)?;
    let directory = args.directory(&whole)?;
    let story = faults::run(&whole, &faults);
    let story = story.inspect_err(|_| directory.discard()).map_err(failed)?;
    let wait: Vec<&str> =
        story.stuck.iter().map(|node| whole.design.topology.node(*node).name.as_str()).collect();
    let Some(summary) = &story.summary else {
        directory.discard();
        if args.speaks() {
            print_results(&text(&story, &calm, &whole));
        }
        let why = match wait.is_empty() {
            true => "no node has ended with results".to_string(),
            false => {
                format!("long after the last fault these nodes still wait: {}", wait.join(", "))
            }
        };
        return Err(Exit::Failed(why));
    };
    directory.summary(summary)?;
    let topology = &whole.design.topology;
    if args.json {
        print_json(&serde_json::json!({
            "summary": summary,
            "faults": Told {
                time_s: seconds(story.time),
                undisturbed_time_s: seconds(calm.time),
                restarts: story.restarts,
                repeated_rounds: story.repeated,
                same_digest: is_same(&story, &calm),
                occurrences: story.occurrences.iter().map(|it| Line::of(it, topology)).collect(),
            },
        }))?;
        return Ok(summary.check_participation(&whole.design.experiment.run)?);
    }
    if args.speaks() {
        print_results(&text(&story, &calm, &whole));
    }
    outcome::show(args, &whole, directory.path(), summary, 0, "simulate")
}

/// Whether two runs end with the same bits.
fn is_same(story: &Story, calm: &Story) -> bool {
    let digest = |story: &Story| story.summary.as_ref().map(|summary| summary.digest.clone());
    digest(story) == digest(calm)
}

/// What happened, and what it cost.
fn text(story: &Story, calm: &Story, whole: &Whole) -> String {
    let topology = &whole.design.topology;
    let row = |one: &Occurrence| {
        let line = Line::of(one, topology);
        let (time, node) = (format!("{:.3} s", line.time_s), line.node.unwrap_or("network"));
        [time, node.to_string(), line.text.to_string()]
    };
    let mut rows = vec![["time", "where", "what"].map(String::from)];
    rows.extend(story.occurrences.iter().map(row));
    let mut text = aligned(&rows, &[1, 2]);
    let accuracy = |story: &Story| {
        let summary = story.summary.as_ref()?;
        Some(format!("{:.1} %", 100.0 * summary.outcome.test_accuracy_of_mean?))
    };
    let mut costs = vec![["", "with faults", "without"].map(String::from)];
    let time = |story: &Story| format!("{:.3} s", seconds(story.time));
    costs.push(["virtual time".into(), time(story), time(calm)]);
    if let (Some(with), Some(without)) = (accuracy(story), accuracy(calm)) {
        costs.push(["accuracy of the mean".into(), with, without]);
    }
    let number = |number: u64| number.to_string();
    costs.push(["programs started again".into(), number(story.restarts), number(calm.restarts)]);
    costs.push(["rounds done again".into(), number(story.repeated), number(calm.repeated)]);
    let digest = match is_same(story, calm) {
        true => "the same as without faults",
        false => "another one: the members changed, or no node has results",
    };
    text += &format!("\n{}digest: {digest}\n\n", aligned(&costs, &[0]));
    text
}
