//! A study as a page of Markdown, and the list of all pages. Without dates and wall times, so the
//! same command gives the same bytes.

use std::fmt::Write as _;

use crate::{
    expect::{Check, Verdict},
    figure::{Figure, Target, rounded},
    file::{Against, Study},
    runs::{outcome::Outcome, trace::Status, tune::Tuned},
};
use gradvine_report::interval::Interval;

/// A study's page. `pictures`: the files of its pictures, as the page links them; `again`: the
/// command that makes it; `quick`: whether it was shortened for a first look.
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
        text += "**A first look**: a tenth of the rounds, one seed, no tuning. Nothing here is a \
                 result.\n\n";
    }
    let _ = write!(
        text,
        "**Claim.** {}\n\n**Source.** {}\n\n**Here.** {}\n\n",
        flat(&study.claim),
        flat(&study.paper),
        flat(&study.setting)
    );
    text += &table(study, outcomes);
    text += &other_targets(study, outcomes);
    text += &tuning(outcomes, study.tune_to_target);
    for (picture, file) in study.picture.iter().zip(pictures) {
        let _ = write!(text, "\n![{}]({file})\n", picture.title);
    }
    if !checks.is_empty() {
        text += "\n## What was expected\n\n";
        for check in checks {
            text += &finding(check);
        }
    }
    if !study.notes.trim().is_empty() {
        let _ = write!(text, "\n## Notes\n\n{}\n", study.notes.trim());
    }
    let _ = write!(
        text,
        "\n---\n\nMade by `{again}` with gradvine {}, in the simulator; {}.{}\n",
        env!("CARGO_PKG_VERSION"),
        seeds(study),
        if study.seeds > 1 { SPREADS } else { "" }
    );
    text
}

/// An explanation of figures with a spread.
const SPREADS: &str = " Means over seeds, ± half their 95 % interval (Student's t); ratios, \
                       differences and slopes are of rows paired by \
                       seed, with the 95 % interval of their mean, and agree with what was \
                       expected if the whole interval does. Bands in \
                       pictures reach from the least seed to the greatest.";

fn verdict(verdict: Verdict) -> String {
    if verdict == Verdict::Agrees {
        verdict.words().into()
    } else {
        format!("**{}**", verdict.words())
    }
}

/// The page that lists all studies: name, title, claim, number of expectations that agree. A study
/// without checks keeps its line from the list `before`, if there is one.
pub fn index(
    studies: &[(&Study, Option<Vec<Check>>)],
    before: &str,
    again: &str,
    quick: bool,
) -> String {
    let mut text = "# Results\n\nWhat papers claim, tried here: each page has its figures, \
                    pictures and what was expected of them, checked by a machine.\n\n"
        .to_string();
    if quick {
        text += "**A first look**: a tenth of the rounds, one seed, no tuning. Nothing here is a \
                 result.\n\n";
    }
    for (study, checks) in studies.iter().filter(|(study, _)| study.headline) {
        let _ = write!(
            text,
            "## [{}](results/{}.md)\n\n{}\n\n",
            study.title,
            study.name,
            flat(&study.claim)
        );
        match checks {
            Some(checks) => {
                for check in checks {
                    text += &finding(check);
                }
            }
            None => before
                .lines()
                .filter(|line| line.starts_with("- "))
                .for_each(|line| text += &format!("{line}\n")),
        }
        text += "\n## All studies\n\n";
    }
    text += "| study | claim | expectations that agree |\n|---|---|---|\n";
    let shown = studies.iter().filter(|(study, _)| study.not_shown.is_none());
    for (study, checks) in shown {
        let link = format!("](results/{}.md)", study.name);
        match checks {
            Some(checks) => text += &line(study, checks, &link),
            None => before
                .lines()
                .filter(|line| line.starts_with("| [") && line.contains(&link))
                .for_each(|line| text += &format!("{line}\n")),
        }
    }
    let not: Vec<(&Study, &String)> =
        studies.iter().filter_map(|(study, _)| Some((*study, study.not_shown.as_ref()?))).collect();
    if !not.is_empty() {
        text += "\n## Not shown\n\n| | claim | why not |\n|---|---|---|\n";
        for (study, why) in not {
            let words = [&study.title, &flat(&study.claim), &flat(why)]
                .map(|words| cell(words))
                .join(" | ");
            let _ = writeln!(text, "| {words} |");
        }
    }
    let _ = write!(text, "\nMade by `{again}` with gradvine {}.\n", env!("CARGO_PKG_VERSION"));
    text
}

fn finding(check: &Check) -> String {
    format!("- {} — {}. {}\n", flat(&check.words), verdict(check.verdict), check.figures)
}

fn line(study: &Study, checks: &[Check], link: &str) -> String {
    let count = |verdict: Verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let mut agree = format!("{} of {}", count(Verdict::Agrees), checks.len());
    for verdict in [Verdict::Contradicted, Verdict::Undecided, Verdict::NoEvidence] {
        if count(verdict) > 0 {
            let _ = write!(agree, "; {} {}", count(verdict), verdict.words());
        }
    }
    format!("| [{}{link} | {} | {agree} |\n", cell(&study.title), cell(&flat(&study.claim)))
}

fn seeds(study: &Study) -> String {
    let last = study.seed + study.seeds - 1;
    match &study.single {
        Some(why) => format!("seed {}: {}", study.seed, flat(why).trim_end_matches('.')),
        None if study.seeds == 1 => format!("seed {}", study.seed),
        None => format!("seeds {} to {last}", study.seed),
    }
}

fn table(study: &Study, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    if let Some(target) = &study.rounds_to {
        let _ = write!(text, "The target is {}.\n\n", target.words());
    }
    let mut heads: Vec<String> =
        study.columns.iter().map(|column| column.words().to_string()).collect();
    heads.extend(
        study
            .against
            .iter()
            .map(|against| format!("{}, times that of {}", against.metric.words(), against.row)),
    );
    let _ = writeln!(text, "| | {} | |", heads.join(" | "));
    let _ = writeln!(text, "|---|{}---|", "---:|".repeat(heads.len()));
    let target = study.rounds_to.as_ref();
    for outcome in outcomes {
        let mut cells: Vec<String> =
            study.columns.iter().map(|column| shown(*column, outcome, target)).collect();
        cells
            .extend(study.against.iter().map(|against| beside(against, outcome, outcomes, target)));
        let status = if outcome.is_ok() { String::new() } else { outcome.status() };
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            cell(&outcome.case.name),
            cells.join(" | "),
            cell(&status)
        );
    }
    text
}

/// Times and rounds to other values of the target's figure, beside the row of `against`.
fn other_targets(study: &Study, outcomes: &[Outcome]) -> String {
    let Some(last) = study.rounds_to.filter(|_| !study.also_to.is_empty()) else {
        return String::new();
    };
    let targets: Vec<Target> =
        study.also_to.iter().map(|value| Target { value: *value, ..last }).collect();
    let mut text = "\nTime after the setup, and rounds, to other targets".to_string();
    if let Some(against) = &study.against {
        let _ = write!(text, "; then the time divided by that of {}", against.row);
    }
    let heads: Vec<String> = targets.iter().map(Target::words).collect();
    let _ = write!(text, ":\n\n| | {} |\n|---|", heads.join(" | "));
    let _ = writeln!(text, "{}", "---:|".repeat(heads.len()));
    for outcome in outcomes {
        let cells = targets.iter().map(|target| {
            let target = Some(target);
            let time = shown(Figure::TrainingTo, outcome, target);
            if time.starts_with("not reached") {
                return time;
            }
            let rounds = shown(Figure::RoundsTo, outcome, target);
            let ratio = study.against.as_ref().map_or(String::new(), |against| {
                let against = Against { metric: Figure::TrainingTo, ..against.clone() };
                format!("; {}", beside(&against, outcome, outcomes, target))
            });
            format!("{time}; {rounds} rounds{ratio}")
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "| {} | {} |", cell(&outcome.case.name), cells.join(" | "));
    }
    text
}

/// A row's figure, with its interval.
fn shown(column: Figure, outcome: &Outcome, target: Option<&Target>) -> String {
    let Some(spread) = column.over(&outcome.runs, target) else { return "-".into() };
    let values = column.values(&outcome.runs, target).unwrap_or_default();
    let missed = values.iter().filter(|value| value.is_infinite()).count();
    if column.is_to_target() && missed > 0 && missed < values.len() {
        return format!("not reached in {missed} of {}", values.len());
    }
    column.show_spread(&spread)
}

/// A row's figure as a ratio to another row's, seed by seed.
fn beside(
    against: &Against,
    outcome: &Outcome,
    outcomes: &[Outcome],
    target: Option<&Target>,
) -> String {
    let of = |outcome: &Outcome| against.metric.values(&outcome.runs, target);
    let other = outcomes.iter().find(|other| other.case.name == against.row);
    let pair = of(outcome).zip(other.and_then(of));
    let fine = pair
        .filter(|(a, b)| a.len() == b.len() && a.iter().chain(b).all(|value| value.is_finite()));
    let Some(ratio) = fine.and_then(|(a, b)| Interval::of_ratios(&a, &b)) else {
        return "-".into();
    };
    if ratio.half() == 0.0 {
        return rounded(ratio.mean, 3);
    }
    format!("{} ({} to {})", rounded(ratio.mean, 3), rounded(ratio.low, 3), rounded(ratio.high, 3))
}

/// The chosen settings, one line per row.
fn tuning(outcomes: &[Outcome], to_target: bool) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let Some(tuned) = &outcome.tuned else { continue };
        if text.is_empty() {
            let _ = write!(
                text,
                "\nTuned on seeds {}, none of the above, by the mean of {}:\n\n",
                tuned.on(),
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
    /// The seeds of tuning, separated by commas.
    pub fn on(&self) -> String {
        let words: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        words.join(", ")
    }

    /// Describes the choice: how many trials, where the grid was widened, and what is doubtful.
    pub fn words(&self) -> String {
        let late = self.tried.iter().filter(|tried| tried.status == Status::GivenUp).count();
        let lost = self.tried.iter().filter(|tried| tried.loss.is_none()).count() - late;
        if lost + late == self.tried.len() {
            return format!(
                "none of {} trials ended well; {} was taken",
                self.tried.len(),
                chosen(&self.chosen)
            );
        }
        let mut words = format!("{}, best of {}", chosen(&self.chosen), self.tried.len());
        let counts = [(late, "given up at twice the best's time"), (lost, "diverged or refused")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        if !counts.is_empty() {
            let _ = write!(words, " ({})", counts.join(", "));
        }
        if !self.added.is_empty() {
            let _ = write!(words, "; beyond the grid: {}", self.added.join(", "));
        }
        if !self.at_the_edge.is_empty() {
            let _ =
                write!(words, "; at the edge of what was tried: {}", self.at_the_edge.join(", "));
        }
        words
    }
}

fn chosen(sets: &[String]) -> String {
    if sets.is_empty() { "the defaults".into() } else { sets.join(", ") }
}

/// Joins a text into one paragraph.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Escapes a text for a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
