//! A study as a page of Markdown, and the list of all pages. No dates and no wall times: the same command gives the same bytes.

use std::fmt::Write as _;

use super::{
    bench::{Outcome, Tuned},
    expect::Check,
    file::Study,
};

/// A study's page. `pictures`: the files of its pictures as the page links them; `again`: the command that makes it; `quick`: whether it
/// was only tried.
pub fn page(
    study: &Study,
    outcomes: &[Outcome],
    checks: &[Check],
    pictures: &[String],
    again: &str,
    quick: bool,
) -> String {
    let mut text = format!("# {}\n\n", study.title);
    if quick {
        text += "**A first look**: a tenth of the rounds, one seed, no tuning. Nothing here is a result.\n\n";
    }
    let _ = write!(
        text,
        "**Claim.** {}\n\n**Source.** {}\n\n**Here.** {}\n\n",
        flat(&study.claim),
        flat(&study.paper),
        flat(&study.setting)
    );
    text += &table(study, outcomes);
    text += &tuning(outcomes, study.tune_to_target);
    for (picture, file) in study.picture.iter().zip(pictures) {
        let _ = write!(text, "\n![{}]({file})\n", picture.title);
    }
    if !checks.is_empty() {
        text += "\n## What was expected\n\n";
        for check in checks {
            let word = if check.agrees { "agrees" } else { "**does not agree**" };
            let _ = writeln!(text, "- {} — {word}. {}", flat(&check.words), check.figures);
        }
    }
    if !study.notes.trim().is_empty() {
        let _ = write!(text, "\n## Notes\n\n{}\n", study.notes.trim());
    }
    let _ = write!(
        text,
        "\n---\n\nMade by `{again}` with gradvine {}, in the simulator; {}. Means over seeds, ± standard deviation; bands in pictures reach from the least \
         seed to the greatest.\n",
        env!("CARGO_PKG_VERSION"),
        seeds(study)
    );
    text
}

/// The page that lists all studies: name, title, claim, how many expectations agree.
pub fn index(studies: &[(&Study, Vec<Check>)], again: &str, quick: bool) -> String {
    let mut text = "# Results\n\nWhat papers claim, tried here: each page has its figures, pictures and what was expected of them, checked by a machine.\n\n".to_string();
    if quick {
        text += "**A first look**: a tenth of the rounds, one seed, no tuning. Nothing here is a result.\n\n";
    }
    text += "| study | claim | expectations that agree |\n|---|---|---|\n";
    for (study, checks) in studies {
        let agree = checks.iter().filter(|check| check.agrees).count();
        let _ = writeln!(
            text,
            "| [{}](results/{}.md) | {} | {agree} of {} |",
            cell(&study.title),
            study.name,
            cell(&flat(&study.claim)),
            checks.len()
        );
    }
    let _ = write!(text, "\nMade by `{again}` with gradvine {}.\n", env!("CARGO_PKG_VERSION"));
    text
}

fn seeds(study: &Study) -> String {
    let last = study.seed + study.seeds - 1;
    if study.seeds == 1 { format!("seed {}", study.seed) } else { format!("seeds {} to {last}", study.seed) }
}

fn table(study: &Study, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    if let Some(target) = &study.rounds_to {
        let _ = write!(text, "The target is {}.\n\n", target.words());
    }
    let _ =
        writeln!(text, "| | {} | |", study.columns.iter().map(|column| column.words()).collect::<Vec<_>>().join(" | "));
    let _ = writeln!(text, "|---|{}---|", "---:|".repeat(study.columns.len()));
    for outcome in outcomes {
        let cells = study.columns.iter().map(|column| {
            let spread = column.over(&outcome.runs, study.rounds_to.as_ref());
            spread.map_or_else(|| "-".to_string(), |spread| column.show_spread(&spread))
        });
        let status = if outcome.is_ok() { String::new() } else { outcome.status() };
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            cell(&outcome.case.name),
            cells.collect::<Vec<_>>().join(" | "),
            cell(&status)
        );
    }
    text
}

/// What tuning chose, a line a row.
fn tuning(outcomes: &[Outcome], to_target: bool) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let Some(tuned) = &outcome.tuned else { continue };
        if text.is_empty() {
            let _ = write!(
                text,
                "\nTuned on seed {}, none of the above, by {}:\n\n",
                tuned.seed,
                if to_target {
                    "the rounds or seconds to the target"
                } else {
                    "the mean model's train loss at the end"
                }
            );
        }
        let _ = writeln!(text, "- {}: {}", outcome.case.name, tuned.words());
    }
    text
}

impl Tuned {
    /// What was chosen out of how many, and what is doubtful about it.
    pub fn words(&self) -> String {
        let lost = self.tried.iter().filter(|tried| tried.loss.is_none()).count();
        if lost == self.tried.len() {
            return format!("none of {} trials ended well; {} was taken", self.tried.len(), chosen(&self.chosen));
        }
        let mut words = format!("{}, best of {}", chosen(&self.chosen), self.tried.len());
        if lost > 0 {
            let _ = write!(words, " ({lost} diverged or were refused)");
        }
        if !self.at_the_edge.is_empty() {
            let _ = write!(words, "; at the grid's edge: {}", self.at_the_edge.join(", "));
        }
        words
    }
}

fn chosen(sets: &[String]) -> String {
    if sets.is_empty() { "the defaults".into() } else { sets.join(", ") }
}

/// One paragraph.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text in a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
