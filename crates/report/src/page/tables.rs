//! The open tables of the page: final figures, and settings that differ between the runs.

use std::cmp::Ordering;

use super::{
    MOST_RUNS,
    words::{bytes, grouped, number, percent, short},
};
use gradvine::run::{Outcome, OutputFigures, Run, Status, Summary};
use gradvine_page::{Cell, Table};

/// The maximum length of a setting's value, in characters.
const LONGEST: usize = 80;
/// The maximum number of settings listed if runs differ.
const MOST_SETTINGS: usize = 200;

/// A figure of a run at its end.
#[derive(Clone, Copy)]
struct Column {
    head: &'static str,
    of: fn(&Run) -> Option<f64>,
    show: fn(f64) -> String,
    /// Whether less or more is better; `None` for neither.
    better: Option<Ordering>,
}

const COLUMNS: [Column; 15] = [
    Column {
        head: "test accuracy, mean model",
        of: |run| outcome(run)?.test_accuracy_of_mean,
        show: percent,
        better: Some(Ordering::Greater),
    },
    Column {
        head: "test accuracy, baseline",
        of: |run| Some(outcome(run)?.test.as_ref()?.baseline.as_ref()?.accuracy),
        show: percent,
        better: None,
    },
    Column {
        head: "balanced accuracy, mean model",
        of: |run| outcome(run)?.test.as_ref()?.balanced_accuracy,
        show: percent,
        better: Some(Ordering::Greater),
    },
    Column {
        head: "test accuracy, worst node's own model",
        of: |run| outcome(run)?.test_accuracy_min,
        show: percent,
        better: Some(Ordering::Greater),
    },
    Column {
        head: "AUC, mean model",
        of: |run| outcome(run)?.test.as_ref()?.auc,
        show: |area| format!("{area:.4}"),
        better: Some(Ordering::Greater),
    },
    Column {
        head: "RMSE on test rows, mean model",
        of: |run| Some(output(run)?.rmse),
        show: number,
        better: Some(Ordering::Less),
    },
    Column {
        head: "RMSE on test rows, baseline",
        of: |run| Some(output(run)?.baseline_rmse),
        show: number,
        better: None,
    },
    Column {
        head: "R2 on test rows, mean model",
        of: |run| output(run)?.r2,
        show: |r2| format!("{r2:.4}"),
        better: Some(Ordering::Greater),
    },
    Column {
        head: "test loss, mean model",
        of: |run| outcome(run)?.test_loss_of_mean,
        show: number,
        better: Some(Ordering::Less),
    },
    Column {
        head: "training loss, mean model",
        of: |run| outcome(run)?.train_loss,
        show: number,
        better: Some(Ordering::Less),
    },
    Column {
        head: "consensus distance",
        of: |run| outcome(run)?.consensus,
        show: number,
        better: Some(Ordering::Less),
    },
    Column {
        head: "payload a node",
        of: |run| sent(run, 0),
        show: bytes,
        better: Some(Ordering::Less),
    },
    Column {
        head: "on the wire a node",
        of: |run| sent(run, 1),
        show: bytes,
        better: Some(Ordering::Less),
    },
    Column {
        head: "times less than dense",
        of: |run| run.summary.as_ref().and_then(Summary::ratio),
        show: |x| format!("{x:.2}"),
        better: Some(Ordering::Greater),
    },
    Column {
        head: "time",
        of: |run| run.summary.as_ref().map(|summary| summary.time_s).filter(|time| *time > 0.0),
        show: |x| format!("{x:.2} s"),
        better: None,
    },
];

fn outcome(run: &Run) -> Option<&Outcome> {
    run.summary.as_ref().map(|summary| &summary.outcome)
}

/// The one number that a run's model predicts; `None` if there are several, or classes.
fn output(run: &Run) -> Option<&OutputFigures> {
    match outcome(run)?.test.as_ref()?.outputs.as_slice() {
        [output] => Some(output),
        _ => None,
    }
}

/// The mean over the known nodes; over all nodes if the summary has all.
fn sent(run: &Run, which: usize) -> Option<f64> {
    let known: Vec<f64> =
        (0..run.topology.nodes()).filter_map(|node| Some(run.sent(node)?[which] as f64)).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// Describes briefly how a run ended.
pub(super) fn ended(run: &Run) -> String {
    match run.status() {
        Status::Done => match run.summary.as_ref().filter(|summary| summary.stopped_early) {
            Some(summary) => format!("stopped early after round {}", grouped(summary.rounds)),
            None => "done".into(),
        },
        Status::Diverged(round) => format!("diverged in round {}", grouped(round)),
        Status::Interrupted(round) => format!("interrupted after round {}", grouped(round)),
        Status::Failed(_) => "failed".into(),
        Status::Short(names) => {
            format!("{} of {} nodes missed rounds", names.len(), run.topology.nodes())
        }
        Status::Unfinished => "unfinished".into(),
    }
}

/// One line per run; the best of each column is marked. Of a single run one line per figure, which
/// narrow screens can show.
pub(super) fn summary(runs: &[&Run]) -> Table {
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|column| runs.iter().any(|run| (column.of)(run).is_some())).collect();
    let mut head: Vec<String> =
        ["run", "rule, compressor, topology", "rounds", "ended"].map(String::from).into();
    head.extend(columns.iter().map(|column| column.head.to_string()));
    let row = |run: &&Run| {
        let kind = |table: &toml::Table| {
            table.get("kind").and_then(toml::Value::as_str).unwrap_or("-").to_string()
        };
        let schedule = run.summary.as_ref().and_then(|summary| summary.schedule.clone());
        let mut what = vec![
            kind(&run.experiment.rule),
            kind(&run.experiment.compressor),
            run.topology.name().into(),
        ];
        what.extend(schedule);
        let mut row = vec![
            Cell::Name(short(&run.name, LONGEST)),
            Cell::Word(short(&what.join(", "), LONGEST)),
            Cell::Figure(grouped(run.rounds())),
            Cell::Word(ended(run)),
        ];
        row.extend(columns.iter().map(|column| cell(column, run, runs)));
        row
    };
    let rows: Vec<Vec<Cell>> = runs.iter().take(MOST_RUNS).map(row).collect();
    if let [only] = &rows[..]
        && runs.len() == 1
    {
        let lines = head.into_iter().zip(only.iter().cloned());
        let word = |cell| match cell {
            Cell::Name(text) | Cell::Figure(text) => Cell::Word(text),
            other => other,
        };
        let rows = lines.map(|(name, cell)| vec![Cell::Name(name), word(cell)]).collect();
        let caption = "Figures at the end of the run".into();
        let head = vec!["figure".into(), "value".into()];
        return Table { caption, head, rows, left_out: String::new() };
    }
    let left_out = match runs.len() - rows.len() {
        0 => String::new(),
        more => format!("{more} more runs are not shown."),
    };
    Table { caption: "Figures at the end of each run".into(), head, rows, left_out }
}

fn cell(column: &Column, run: &Run, runs: &[&Run]) -> Cell {
    let Some(own) = (column.of)(run) else { return Cell::Nothing };
    let text = (column.show)(own);
    let sound = |run: &Run| matches!(run.status(), Status::Done | Status::Short(_));
    let Some(better) = column.better.filter(|_| own.is_finite() && sound(run)) else {
        return Cell::Figure(text);
    };
    let others = || {
        runs.iter()
            .filter(|run| sound(run))
            .filter_map(|run| (column.of)(run))
            .filter(|x| x.is_finite())
    };
    // A column of equal values has no best.
    let differ = others().any(|other| other != own);
    let best = others().all(|other| other == own || own.total_cmp(&other) == better);
    if differ && best { Cell::Best(text) } else { Cell::Figure(text) }
}

/// The settings whose values differ between runs; `None` if there are none, or only one run.
pub(super) fn differences(runs: &[&Run]) -> Option<Table> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in runs.iter().flat_map(|run| &run.settings) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let of = |run: &Run, key: &str| {
        run.settings.iter().find(|(own, _)| own == key).map(|(_, value)| value.clone())
    };
    let mut lines: Vec<(String, Vec<Option<String>>)> = keys
        .iter()
        .map(|key| ((*key).to_string(), runs.iter().map(|run| of(run, key)).collect()))
        .collect();
    let graph = |run: &&Run| Some(run.topology.name().to_string());
    lines.retain(|(_, values)| values.iter().any(|value| *value != values[0]));
    let first = super::graph::content(&runs[0].topology);
    if runs.iter().any(|run| super::graph::content(&run.topology) != first) {
        lines.push((
            "links or weights, here by the topology's name".into(),
            runs.iter().map(graph).collect(),
        ));
    }
    if lines.is_empty() {
        return None;
    }
    let shown = runs.len().min(super::MOST_CURVES);
    let mut left_out = String::new();
    if lines.len() > MOST_SETTINGS {
        left_out += &format!("{} more keys differ. ", lines.len() - MOST_SETTINGS);
    }
    if runs.len() > shown {
        left_out += &format!("Only the first {shown} runs are shown.");
    }
    let cell = |value: Option<String>| {
        Cell::Word(value.map_or_else(|| "–".into(), |value| short(&value, LONGEST)))
    };
    let row = |(key, values): (String, Vec<Option<String>>)| {
        let cells = values.into_iter().take(shown).map(cell);
        std::iter::once(Cell::Name(key)).chain(cells).collect()
    };
    Some(Table {
        caption: "Settings whose values differ".into(),
        head: std::iter::once("key".into())
            .chain(runs.iter().take(shown).map(|run| short(&run.name, LONGEST)))
            .collect(),
        rows: lines.into_iter().take(MOST_SETTINGS).map(row).collect(),
        left_out: left_out.trim_end().into(),
    })
}
