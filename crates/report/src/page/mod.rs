//! Runs as one page: HTML with its style sheet, pictures and scripts in it, which needs no network
//! and no other file.
//!
//! Curves are charts that a script draws (uPlot): one for each figure, with a switch of its axis,
//! zoom, and the figures at the cursor. Without scripts their still pictures stay, as in print. The
//! pictures are SVG in the page itself. Each has a title and a description for screen readers
//! and, behind it, a table of its figures. The page follows the reader's choice of light or dark,
//! and prints. It contains no dates and no addresses of its own: the same run directories give the
//! same bytes. Its size is bounded for any runs: curves are thinned, tables and bars are cut, and
//! the page says where.
//!
//! | file | makes |
//! |---|---|
//! | `quality` | how good the models are on test rows: nodes, classes, confusion matrix |
//! | `characteristics` | curves of ROC and calibration |
//! | `curves` | accuracy, losses and consensus over rounds, bytes and time |
//! | `traffic` | bytes of runs, nodes and links |
//! | `graph` | topologies and their spectra |
//! | `tables` | final figures; settings that differ between the runs |
//! | `bars` | a chart of bars |
//! | `markup` | pieces of HTML: every text from a file is escaped there |
//! | `style` | the style sheet, and the colours in the dark |

mod bars;
mod characteristics;
mod curves;
mod graph;
mod markup;
mod quality;
mod style;
mod tables;
mod traffic;
mod write;

pub use write::{check_named_once, check_replaceable};

use std::fmt::Write as _;

use curves::{X, Y};
use gradvine::run::{Run, Status};
use markup::{Table, count, details, grouped, paragraph, short, text};
use serde_json::Value;

use crate::summary::{describe, which_is_the_result};

/// The maximum number of lines of a chart, bars of a picture of runs, columns of the differences.
const MOST_CURVES: usize = 24;
/// The maximum number of rows of the table of runs, and of runs with a section of their own.
const MOST_RUNS: usize = 200;
/// A longer experiment file is cut, in characters.
const LONGEST_FILE: usize = 65_536;

/// What draws the curves in a browser.
const CHARTS: &str = include_str!("../../assets/charts.js");

/// The mark of a page of ours, in its first line.
const MARK: &str = "<!doctype html><!-- gradvine report -->";

/// A picture with its texts.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Letters, digits and hyphens: its anchor on the page, and its name as a file.
    pub id: String,
    /// The line above the picture.
    pub title: String,
    /// Further text; may be empty.
    caption: String,
    /// What is true of this picture only, and not of the chart in its place.
    still: String,
    /// The picture as an `<svg>` element.
    pub svg: String,
    /// The same for narrow screens, where it is not just a smaller one.
    narrow: Option<String>,
    table: Table,
}

/// A page and its pictures.
#[derive(Clone, Debug)]
pub struct Page {
    /// A complete HTML page that loads nothing.
    pub html: String,
    /// Each picture that is on it, in order.
    pub figures: Vec<Figure>,
    /// The number of runs on it.
    pub runs: usize,
}

/// A page while it is written.
#[derive(Default)]
struct Draft {
    body: String,
    contents: String,
    figures: Vec<Figure>,
}

impl Draft {
    fn heading(&mut self, id: &str, title: &str) {
        let _ = writeln!(self.body, "<h2 id=\"{id}\">{}</h2>", text(title));
        let _ = writeln!(self.contents, "<li><a href=\"#{id}\">{}</a></li>", text(title));
    }

    fn paragraph(&mut self, words: &str) {
        self.body += &paragraph(words);
    }

    fn figure(&mut self, figure: Figure) {
        self.show(&figure, None, &[&figure]);
        self.figures.push(figure);
    }

    /// A chart of these figures, one over each axis. The first one is its still picture.
    fn chart(&mut self, figures: Vec<Figure>, data: &Value) {
        let all: Vec<&Figure> = figures.iter().collect();
        if let Some(first) = all.first() {
            let mut caption = String::new();
            for sentence in all.iter().flat_map(|figure| figure.caption.split_inclusive(". ")) {
                if !caption.contains(sentence.trim_end()) {
                    caption = format!("{} {sentence}", caption.trim_end());
                }
            }
            let caption = caption.trim().to_string();
            self.show(&Figure { caption, ..(*first).clone() }, Some(data), &all);
        }
        self.figures.extend(figures);
    }

    /// A picture, with its data if it is a chart, and the figures behind these.
    fn show(&mut self, figure: &Figure, data: Option<&Value>, tables: &[&Figure]) {
        let Figure { id, title, caption, still, svg, narrow, .. } = figure;
        let label = text(title);
        let wide = if narrow.is_some() { " wide" } else { "" };
        let _ = write!(
            self.body,
            "<figure id=\"{id}\"{}><div class=\"picture{wide}\" tabindex=\"0\" role=\"group\" \
             aria-label=\"{label}\">\n{svg}</div>\n",
            if data.is_some() { " class=\"curves\"" } else { "" }
        );
        if let Some(data) = data {
            // No text in it can end the element.
            let json = data.to_string().replace('<', "\\u003c");
            let _ = writeln!(self.body, "<script type=\"application/json\">{json}</script>");
        }
        if let Some(svg) = narrow {
            let _ = write!(self.body, "<div class=\"picture narrow\">\n{svg}</div>\n");
        }
        for (class, words) in [("", caption), (" class=\"drawn\"", still)] {
            if !words.is_empty() {
                let _ = writeln!(self.body, "<figcaption{class}>{}</figcaption>", text(words));
            }
        }
        for Figure { title, table, .. } in tables {
            self.body += &details(&format!("Figures of “{title}”"), &table.html());
        }
        self.body += "</figure>\n";
    }
}

/// The page of some runs, in their order.
///
/// # Panics
/// If there are none.
pub fn page(mut runs: Vec<Run>) -> Page {
    assert!(!runs.is_empty(), "a page shows at least one run");
    distinguish(&mut runs);
    let mut draft = Draft::default();
    draft.heading("runs", if runs.len() == 1 { "The run" } else { "The runs" });
    draft.body += &tables::summary(&runs).html();
    if runs.len() > 1 {
        draft.body += "<p class=\"note\">* the best of its column among runs that came to their \
                       end. Lower is better for losses, \
                       distances and bytes.</p>\n";
    }
    notes(&runs, &mut draft);
    if let [run] = &runs[..] {
        draft.heading("quality", "How good the model is");
        quality::section(run, "", &mut draft);
    }
    if runs.len() > 1 {
        draft.heading("differences", "What differs");
        match tables::differences(&runs) {
            Some(table) => draft.body += &table.html(),
            None => draft.paragraph("Nothing: all settings and topologies are the same."),
        }
    }
    let mut timeless = false;
    for y in [Y::Accuracy, Y::TestLoss, Y::TrainLoss, Y::Consensus] {
        draft.heading(y.slug(), y.title());
        timeless |= curves(&runs, y, timeless, &mut draft);
    }
    draft.heading("traffic", "Bytes");
    match traffic::of_runs(&runs) {
        Some(figure) => draft.figure(figure),
        None => draft.paragraph("No bytes are recorded."),
    }
    draft.heading("topologies", if runs.len() == 1 { "Topology" } else { "Topologies" });
    let (figures, more) = graph::figures(&runs);
    figures.into_iter().for_each(|figure| draft.figure(figure));
    if more > 0 {
        draft.paragraph(&format!("{more} more topologies are not drawn."));
    }
    for (index, run) in runs.iter().enumerate().take(MOST_RUNS) {
        section(run, index + 1, runs.len() > 1, &mut draft);
    }
    Page { html: html(&runs, &draft), figures: draft.figures, runs: runs.len() }
}

/// Uses paths as names for runs whose folders have the same name. No name has a character that
/// pictures cannot show.
fn distinguish(runs: &mut [Run]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in &mut *runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.path.display().to_string();
        }
        run.name = markup::visible(&run.name);
    }
}

/// Notes that matter for the comparison of figures.
fn notes(runs: &[Run], draft: &mut Draft) {
    let mut notes = Vec::new();
    for run in runs.iter().take(MOST_RUNS) {
        let name = &run.name;
        match run.status() {
            Status::Done => {}
            Status::Failed(why) => notes.push((format!("{name} failed"), short(&why, 600))),
            Status::Diverged(_) | Status::Interrupted(_) => {
                notes.push((name.clone(), format!("{}.", tables::ended(run))));
            }
            Status::Short(names) => {
                let some = names
                    .iter()
                    .take(20)
                    .map(|name| short(name, 40))
                    .collect::<Vec<_>>()
                    .join(", ");
                let more = if names.len() > 20 { ", and others" } else { "" };
                notes.push((name.clone(), format!("not in all rounds: {some}{more}.")));
            }
            Status::Unfinished => {
                notes
                    .push((name.clone(), "it has no summary.json: it runs, or was killed.".into()));
            }
        }
        for warning in warnings(run) {
            notes.push((format!("Warning, {name}"), warning));
        }
        for change in run.summary.iter().flat_map(|summary| &summary.history) {
            let what = format!("after round {}, {}.", change.round, describe(change));
            notes.push((name.clone(), short(&what, 600)));
        }
        if run.partial > 0 {
            let what = format!(
                "left out, because not all of its nodes have written theirs: {}.",
                count(run.partial, "evaluation")
            );
            notes.push((name.clone(), what));
        }
        if run.last.is_empty() {
            notes.push((name.clone(), "it has no evaluation: metrics.jsonl is empty.".into()));
        } else if run.last.len() < run.topology.nodes() {
            let what = format!(
                "its metrics are those of {} of {}.",
                run.last.len(),
                count(run.topology.nodes(), "node")
            );
            notes.push((name.clone(), what));
        }
    }
    if notes.is_empty() {
        return;
    }
    draft.body += "<ul>\n";
    for (name, what) in notes {
        let _ = writeln!(
            draft.body,
            "<li><span class=\"bad\">{}</span>: {}</li>",
            text(&name),
            text(&what)
        );
    }
    draft.body += "</ul>\n";
}

/// What a reader of a run's figures could miss, as sentences.
fn warnings(run: &Run) -> Vec<String> {
    let Some(summary) = &run.summary else { return Vec::new() };
    let all = summary.warnings.iter().cloned().chain(which_is_the_result(summary));
    all.map(|warning| short(&warning, 600) + ".").collect()
}

/// The pictures of a figure. Returns whether there is none over time; the page says so once, unless
/// it is `said`.
fn curves(runs: &[Run], y: Y, said: bool, draft: &mut Draft) -> bool {
    if runs.len() > MOST_CURVES {
        draft.paragraph(&format!(
            "Of {} the first {MOST_CURVES} are drawn.",
            count(runs.len(), "run")
        ));
    }
    let axes: &[X] =
        if y == Y::Consensus { &[X::Rounds] } else { &[X::Rounds, X::Payload, X::Time] };
    let (mut figures, mut timeless) = (Vec::new(), false);
    for &x in axes {
        match curves::figure(runs, x, y) {
            Some(figure) => figures.push(figure),
            None => timeless |= !figures.is_empty() && x == X::Time,
        }
    }
    let any = !figures.is_empty();
    if let Some(data) = curves::data(runs, y) {
        draft.chart(figures, &data);
    }
    if timeless && !said {
        draft.paragraph(
            "There is no picture over time: all times are 0, as they are on an ideal virtual \
             network (see [network]).",
        );
    }
    if !any {
        draft.paragraph(y.absent());
    }
    timeless
}

/// A run's own section; with its quality if it is one of several.
fn section(run: &Run, number: usize, several: bool, draft: &mut Draft) {
    draft.heading(&format!("run-{number}"), &run.name);
    let digest = run
        .summary
        .as_ref()
        .map(|summary| summary.digest.as_str())
        .filter(|digest| !digest.is_empty());
    let mut words = format!(
        "{}: {}, {}.",
        run.path.display(),
        tables::ended(run),
        count(run.rounds() as usize, "round")
    );
    if let Some(summary) = &run.summary {
        let _ = write!(
            words,
            " {} on {}.",
            count(summary.parameters, "parameter"),
            count(summary.nodes, "node")
        );
        if let Some(pooled) = &summary.pooled {
            let _ = write!(
                words,
                " Plain SGD on all rows in one place: training loss {}",
                markup::number(pooled.train_loss)
            );
            let accuracy = pooled.test_accuracy.map_or_else(String::new, |share| {
                format!(", test accuracy {}", markup::percent(share))
            });
            words += &(accuracy + ".");
        }
    }
    draft.paragraph(&words);
    if let Some(digest) = digest {
        draft.paragraph(&format!("Digest {}", short(digest, 128)));
    }
    if several {
        quality::section(run, &format!("run-{number}-"), draft);
    }
    match traffic::of_nodes(run, number) {
        Some(figure) => draft.figure(figure),
        None => draft.paragraph("No node has bytes recorded."),
    }
    match traffic::of_links(run, number) {
        Some(figure) => draft.figure(figure),
        None => draft.paragraph(
            "Bytes by link are not recorded: the run did not come to its end, \
                                 or every node has more than 64 neighbours.",
        ),
    }
    let file = run.experiment.to_toml();
    let pre = format!("<pre>{}</pre>\n", text(&short(&file, LONGEST_FILE)));
    draft.body += &details("Its configuration, with every default and derived constant", &pre);
}

fn html(runs: &[Run], draft: &Draft) -> String {
    let names = runs.iter().take(3).map(|run| short(&run.name, 60)).collect::<Vec<_>>().join(", ");
    let more = if runs.len() > 3 {
        format!(" and {} more", grouped(runs.len() as u64 - 3))
    } else {
        String::new()
    };
    let title = text(&format!("{names}{more}"));
    let Draft { body, contents, .. } = draft;
    format!(
        "{MARK}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>{title} - gradvine</title>\n<style>\n{}{}</style></head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n\
         <nav aria-label=\"Contents\"><ul>\n{contents}</ul></nav>\n{body}</main>\n\
         <footer>Made by gradvine {} from {}.</footer>\n\
         <script>\n{}</script>\n<script>\n{CHARTS}</script>\n</body></html>\n",
        style::sheet(),
        crate::UPLOT_STYLE,
        env!("CARGO_PKG_VERSION"),
        count(runs.len(), "run directory").replace("directorys", "directories"),
        crate::UPLOT,
    )
}
