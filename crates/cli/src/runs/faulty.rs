//! `gradvine simulate --faults`: what a network does when something goes wrong.

use std::sync::Arc;

use gradvine::{
    drive::{NoopObserver, RunError},
    faults::{self, Occurrence, Story},
    mixing::Topology,
    run::{Design, Driven, Finished, Session},
    units::Time,
};
use gradvine_report::aligned;
use gradvine_terminal::{Exit, Interrupt, print_json, print_results, run_session, warnings};
use serde::Serialize;

use super::{outcome, run_args::RunArgs};

/// What happened in a run with faults, for `--json`.
#[derive(Serialize)]
struct Costs<'a> {
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

/// How a run went.
struct Told {
    story: Story,
    digest: Option<String>,
    accuracy: Option<f64>,
}

impl Told {
    fn of(design: &Design, story: Story) -> Result<Told, RunError> {
        let summary = story.summary(design)?;
        let accuracy = summary.as_ref().and_then(|made| made.outcome.test_accuracy_of_mean);
        Ok(Told { story, digest: summary.map(|made| made.digest), accuracy })
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
    let calm = args.select.whole(true, |_| ())?;
    let calm = faults::run(&calm, &[], &mut NoopObserver);
    let calm = calm.and_then(|story| Told::of(&whole.design, story)).map_err(failed)?;
    let interrupt = Interrupt::install()?;
    let mut session = Session::new(Arc::clone(&whole), args.directory(&whole)?, warnings());
    if args.no_baseline {
        session = session.without_baseline();
    }
    let mut told = None;
    let finished = run_session(session, &interrupt, args.speaks(), true, |whole, watch, _| {
        let ran = told.insert(Told::of(&whole.design, faults::run(whole, &faults, watch)?)?);
        ran.story.take_results(&whole.design.topology).map(Driven::from)
    });
    if let (Some(told), true) = (&told, args.speaks()) {
        print_results(&text(told, &calm, &whole.design.topology));
    }
    let (Finished { summary, directory, .. }, Some(told)) = (finished?, told) else {
        return Ok(());
    };
    let topology = &whole.design.topology;
    if args.json {
        let Told { story, .. } = &told;
        print_json(&serde_json::json!({
            "summary": summary,
            "faults": Costs {
                time_s: seconds(story.time),
                undisturbed_time_s: seconds(calm.story.time),
                restarts: story.restarts,
                repeated_rounds: story.repeated,
                same_digest: told.digest == calm.digest,
                occurrences: story.occurrences.iter().map(|it| Line::of(it, topology)).collect(),
            },
        }))?;
        return Ok(summary.check_participation(&whole.design.experiment.run)?);
    }
    outcome::show(args, &whole, &directory, &summary, 0, "simulate")
}

/// What happened, and what it cost.
fn text(told: &Told, calm: &Told, topology: &Topology) -> String {
    let row = |one: &Occurrence| {
        let line = Line::of(one, topology);
        let (time, node) = (format!("{:.3} s", line.time_s), line.node.unwrap_or("network"));
        [time, node.to_string(), line.text.to_string()]
    };
    let mut rows = vec![["time", "where", "what"].map(String::from)];
    rows.extend(told.story.occurrences.iter().map(row));
    let mut text = aligned(&rows, &[1, 2]);
    let accuracy = |told: &Told| Some(format!("{:.1} %", 100.0 * told.accuracy?));
    let mut costs = vec![["", "with faults", "without"].map(String::from)];
    let (with, without) = (&told.story, &calm.story);
    let time = |story: &Story| format!("{:.3} s", seconds(story.time));
    costs.push(["virtual time".into(), time(with), time(without)]);
    if let (Some(with), Some(without)) = (accuracy(told), accuracy(calm)) {
        costs.push(["accuracy of the mean".into(), with, without]);
    }
    let number = |number: u64| number.to_string();
    costs.push(["programs started again".into(), number(with.restarts), number(without.restarts)]);
    costs.push(["rounds done again".into(), number(with.repeated), number(without.repeated)]);
    let digest = match told.digest == calm.digest {
        true => "the same as without faults",
        false => "another one: the members changed, or no node has results",
    };
    text += &format!("\n{}digest: {digest}\n\n", aligned(&costs, &[0]));
    text
}
