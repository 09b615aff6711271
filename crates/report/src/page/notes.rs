//! Notes that matter for the comparison of figures.

use gradvine::run::{Run, Status};
use gradvine_page::{Block, Level, Note};

use super::{
    MOST_RUNS, tables,
    words::{count, short},
};
use crate::summary::{describe, which_is_the_result};

/// The maximum length of a note, in characters.
const LONGEST: usize = 600;
/// The maximum number of nodes named in a note.
const MOST_NAMES: usize = 20;

/// What a reader of these runs' figures could miss; nothing if there is nothing.
pub(super) fn notes(runs: &[&Run]) -> Option<Block> {
    let notes: Vec<Note> = runs.iter().take(MOST_RUNS).flat_map(|run| of(run)).collect();
    (!notes.is_empty()).then_some(Block::Notes { notes })
}

fn of(run: &Run) -> Vec<Note> {
    let note = |level: Level, text: &str| {
        let text = short(text, LONGEST);
        Note { level, name: run.name.clone(), text }
    };
    let mut notes = Vec::new();
    match run.status() {
        Status::Done => {}
        Status::Failed(why) => notes.push(note(Level::Error, &format!("It failed: {why}"))),
        Status::Diverged(_) | Status::Interrupted(_) => {
            notes.push(note(Level::Error, &format!("It {}.", tables::ended(run))));
        }
        Status::Short(names) => {
            let some: Vec<String> =
                names.iter().take(MOST_NAMES).map(|name| short(name, 40)).collect();
            let more = if names.len() > MOST_NAMES { ", and others" } else { "" };
            let text = format!("Not in all rounds: {}{more}.", some.join(", "));
            notes.push(note(Level::Warning, &text));
        }
        Status::Unfinished => {
            notes.push(note(Level::Warning, "It has no summary.json: it runs, or was killed."));
        }
    }
    if let Some(summary) = &run.summary {
        let warnings = summary.warnings.iter().cloned().chain(which_is_the_result(summary));
        notes.extend(warnings.map(|text| note(Level::Warning, &(text + "."))));
        notes.extend(summary.history.iter().map(|change| {
            let text = format!("After round {}, {}.", change.round, describe(change));
            note(Level::Info, &text)
        }));
    }
    if run.partial > 0 {
        let what = count(run.partial, "evaluation");
        let text = format!("Left out, because not all of its nodes have written theirs: {what}.");
        notes.push(note(Level::Info, &text));
    }
    if run.last.is_empty() {
        notes.push(note(Level::Info, "It has no evaluation: metrics.jsonl is empty."));
    } else if run.last.len() < run.topology.nodes() {
        let nodes = count(run.topology.nodes(), "node");
        let text = format!("Its metrics are those of {} of {nodes}.", run.last.len());
        notes.push(note(Level::Info, &text));
    }
    notes
}
