//! How good the models of a run are on test rows: the figures of each node beside the baseline,
//! curves of ROC and calibration, each class, the confusion matrix.

use std::fmt::Write as _;

use super::{
    Draft, characteristics,
    markup::{Cell, Table, count, grouped, number, percent, short, text},
};
use gradvine::run::{Figures, Run, Summary};

/// The maximum number of nodes in the table of figures, and of rows in that of numbers.
const MOST_NODES: usize = 64;
const MOST_ROWS: usize = 200;
/// Of more classes than this the largest confusions are listed, as many, and the classes that are
/// found least.
const MOST_CLASSES: usize = 20;
/// The maximum length of a name, in characters: in a table, and above a column of the matrix.
const LONGEST: usize = 40;
const LONGEST_HEAD: usize = 16;
/// Longer names together are turned upright.
const LONGEST_HEADS: usize = 26;

/// Writes the part of the page; nothing of a run without figures. Its anchors begin with `prefix`.
pub(super) fn section(run: &Run, prefix: &str, draft: &mut Draft) {
    let Some(summary) = &run.summary else { return };
    let Some(all) = &summary.outcome.test else {
        draft.paragraph("No figures on test rows: there were none, or the run did not end.");
        return;
    };
    draft.body += &nodes(summary, all).html();
    draft.paragraph(
        "The mean model is the result. A node's own model is the one that it trained. The baseline \
         always predicts the most frequent class, or the mean, of the training rows of all nodes.",
    );
    let charts = [characteristics::roc(all, prefix), characteristics::calibration(all, prefix)];
    for (figure, data) in charts.into_iter().flatten() {
        let _ = writeln!(draft.body, "<h3>{}</h3>", text(&figure.title));
        draft.chart(vec![figure], &data);
    }
    if !all.classes.is_empty() {
        draft.body += &classes(all).html();
    }
    if (1..=MOST_CLASSES).contains(&all.confusion.len()) {
        draft.body += &matrix(all);
    } else if !all.confusion.is_empty() {
        draft.body += &confusions(all).html();
    } else if !all.classes.is_empty() {
        draft.paragraph("Of so many classes no confusion matrix is counted.");
    }
}

/// A site and the figures of two models on its test rows.
struct Site<'a> {
    node: &'a str,
    trained: u64,
    of_mean: Option<&'a Figures>,
    of_own: Option<&'a Figures>,
}

/// What a column is about: the mean model and the node's own one have a column each.
enum About {
    Rows,
    Models,
}

/// A column: its name, what it is about, and the figure of a predicted number.
type Column = (&'static str, About, fn(&Figures, usize) -> Option<String>);

const OF_CLASSES: [Column; 6] = [
    ("accuracy", About::Models, |of, _| of.accuracy.map(percent)),
    ("accuracy of the baseline", About::Rows, |of, _| {
        of.baseline.as_ref().map(|baseline| percent(baseline.accuracy))
    }),
    ("balanced accuracy", About::Models, |of, _| of.balanced_accuracy.map(percent)),
    ("AUC", About::Models, |of, _| of.auc.map(|area| format!("{area:.4}"))),
    ("calibration error", About::Models, |of, _| of.calibration_error.map(percent)),
    ("test loss", About::Models, |of, _| Some(number(of.loss))),
];

const OF_NUMBERS: [Column; 5] = [
    ("RMSE", About::Models, |of, at| Some(number(of.outputs.get(at)?.rmse))),
    ("RMSE of the baseline", About::Rows, |of, at| Some(number(of.outputs.get(at)?.baseline_rmse))),
    ("MAE", About::Models, |of, at| Some(number(of.outputs.get(at)?.mae))),
    ("R2", About::Models, |of, at| of.outputs.get(at)?.r2.map(|r2| format!("{r2:.4}"))),
    ("test loss", About::Models, |of, _| Some(number(of.loss))),
];

/// The figures of all nodes, then those of each: one row a site, or one a site and predicted
/// number.
fn nodes(summary: &Summary, all: &Figures) -> Table {
    let rows = summary.participation.values().map(|part| part.rows);
    let trained = rows.fold(0, u64::saturating_add);
    let mut sites = vec![Site { node: "all nodes", trained, of_mean: Some(all), of_own: None }];
    sites.extend(summary.participation.iter().take(MOST_NODES).filter_map(|(node, part)| {
        let of_own = part.test.as_ref();
        // Where all test on the same rows, the summary has the mean model's figures once.
        let is_shared = |own: &&Figures| own.rows == all.rows;
        let of_mean = part.test_of_mean.as_ref().or(of_own.filter(is_shared).map(|_| all));
        (of_mean.is_some() || of_own.is_some()).then_some(Site {
            node,
            trained: part.rows,
            of_mean,
            of_own,
        })
    }));
    let of_numbers = !all.outputs.is_empty();
    let columns: &[Column] = if of_numbers { &OF_NUMBERS } else { &OF_CLASSES };
    let lines = || {
        let outputs = 0..all.outputs.len().max(1);
        sites.iter().flat_map(move |site| outputs.clone().map(move |output| (site, output)))
    };
    let several = all.outputs.len() > 1;
    let mut table = Table {
        caption: match (of_numbers, &all.baseline) {
            (true, _) => "Figures on test rows; the baseline is always the mean".into(),
            (false, Some(baseline)) => format!(
                "Figures on test rows; the baseline is always “{}”",
                short(&baseline.class, LONGEST)
            ),
            (false, None) => "Figures on test rows".into(),
        },
        head: ["node", "training rows", "test rows"].map(String::from).into(),
        rows: Vec::new(),
        left_out: String::new(),
    };
    let mut cells: Vec<Vec<Cell>> = lines().take(MOST_ROWS).map(|(site, _)| site.begin()).collect();
    if several {
        table.head.push("number".into());
        for (line, (_, output)) in cells.iter_mut().zip(lines()) {
            line.push(Cell::Word(short(&all.outputs[output].output, LONGEST)));
        }
    }
    for (name, about, figure) in columns {
        let models: &[(String, Of)] = &match about {
            About::Rows => vec![(name.to_string(), Of::Any)],
            About::Models => vec![(name.to_string(), Of::Mean), (format!("own {name}"), Of::Own)],
        };
        for (name, of) in models {
            let all = || lines().map(|(site, output)| figure(site.figures(*of)?, output));
            if all().all(|figure| figure.is_none()) {
                continue;
            }
            table.head.push(name.clone());
            for (line, figure) in cells.iter_mut().zip(all()) {
                line.push(self::figure(figure));
            }
        }
    }
    table.rows = cells;
    let left = lines().count() - table.rows.len();
    if left > 0 {
        table.left_out += &format!("{} more are not shown. ", count(left, "row"));
    }
    let more = summary.participation.len().saturating_sub(MOST_NODES);
    if more > 0 {
        table.left_out += &format!("{} more are not shown.", count(more, "node"));
    }
    table
}

/// The model of a column.
#[derive(Clone, Copy)]
enum Of {
    Mean,
    Own,
    Any,
}

impl Site<'_> {
    fn begin(&self) -> Vec<Cell> {
        let rows = self.figures(Of::Any).map(|figures| grouped(figures.rows));
        vec![
            Cell::Name(short(self.node, LONGEST)),
            Cell::Figure(grouped(self.trained)),
            figure(rows),
        ]
    }

    fn figures(&self, of: Of) -> Option<&Figures> {
        match of {
            Of::Mean => self.of_mean,
            Of::Own => self.of_own,
            Of::Any => self.of_mean.or(self.of_own),
        }
    }
}

fn figure(value: Option<String>) -> Cell {
    value.map_or(Cell::Nothing, Cell::Figure)
}

/// Each class of the mean model; of many those that are found least.
fn classes(all: &Figures) -> Table {
    let mut shown: Vec<usize> = (0..all.classes.len()).collect();
    let many = shown.len() > MOST_CLASSES;
    if many {
        let recall = |class: usize| all.classes[class].recall.unwrap_or(2.0);
        shown.sort_by(|&a, &b| recall(a).total_cmp(&recall(b)).then(a.cmp(&b)));
        shown.truncate(MOST_CLASSES);
    }
    let row = |class: usize| {
        let class = &all.classes[class];
        vec![
            Cell::Name(short(&class.class, LONGEST)),
            Cell::Figure(grouped(class.rows)),
            Cell::Figure(grouped(class.predicted)),
            figure(class.recall.map(percent)),
            figure(class.precision.map(percent)),
            figure(class.auc.map(|area| format!("{area:.4}"))),
        ]
    };
    let head = ["class", "test rows", "predicted", "recall", "precision", "AUC"];
    Table {
        caption: match many {
            true => format!("The {MOST_CLASSES} classes with the least recall: the mean model"),
            false => "Each class: the mean model on all test rows".into(),
        },
        head: head.map(String::from).into(),
        rows: shown.iter().map(|&class| row(class)).collect(),
        left_out: match all.classes.len() - shown.len() {
            0 => String::new(),
            more => format!("{} more classes are in summary.json.", grouped(more as u64)),
        },
    }
}

/// The confusion matrix as a table whose cells are coloured: the root of their share of the class,
/// so that few errors are seen, too.
fn matrix(all: &Figures) -> String {
    let names: Vec<String> = all.classes.iter().map(|class| class.class.clone()).collect();
    let name = |class: usize| names.get(class).cloned().unwrap_or_else(|| class.to_string());
    let size = all.confusion.len();
    let heads = (0..size).map(|class| short(&name(class), LONGEST_HEAD).chars().count());
    let upright = heads.sum::<usize>() > LONGEST_HEADS;
    let caption = format!(
        "Confusion matrix: the mean model on {}, by class (down) and predicted class (across)",
        count(usize::try_from(all.rows).unwrap_or(usize::MAX), "test row")
    );
    let mut html = format!(
        "<div class=\"table\" tabindex=\"0\" role=\"group\" aria-label=\"{0}\"><table \
         class=\"confusion\"><caption>{0}</caption><thead><tr><th scope=\"col\">class</th>",
        text(&caption)
    );
    for class in 0..size {
        let (whole, cut) = (name(class), short(&name(class), LONGEST_HEAD));
        let turned = if upright { " class=\"up\"" } else { "" };
        let _ = write!(
            html,
            "<th scope=\"col\" title=\"{}\"><span{turned}>{}</span></th>",
            text(&whole),
            text(&cut)
        );
    }
    html += "</tr></thead><tbody>\n";
    for (class, line) in all.confusion.iter().enumerate() {
        let rows = line.iter().fold(0u64, |sum, rows| sum.saturating_add(*rows));
        let _ = write!(
            html,
            "<tr><th scope=\"row\" title=\"{}\">{}</th>",
            text(&name(class)),
            text(&short(&name(class), LONGEST_HEAD))
        );
        for (other, &cell) in line.iter().enumerate() {
            html += &shaded(cell, rows, class == other);
        }
        html += "</tr>\n";
    }
    html += "</tbody></table></div>\n<p class=\"note\">Blue rows are classified correctly, orange \
             ones not: the stronger, the larger the share of the class.</p>\n";
    html
}

/// A cell of the matrix: `rows` are those of its class.
fn shaded(cell: u64, rows: u64, right: bool) -> String {
    if cell == 0 {
        return "<td class=\"n z\">0</td>".into();
    }
    let shade = (cell as f64 / rows as f64).sqrt();
    let side = if right { "hit" } else { "miss" };
    // Light letters on a strong colour.
    let strong = if shade > 0.6 { " strong" } else { "" };
    let figure = grouped(cell);
    format!("<td class=\"n {side}{strong}\" style=\"--s:{shade:.2}\">{figure}</td>")
}

/// The largest confusions of a class with another.
fn confusions(all: &Figures) -> Table {
    let name = |class: usize| {
        let known = all.classes.get(class).map(|class| class.class.clone());
        short(&known.unwrap_or_else(|| class.to_string()), LONGEST)
    };
    let mut pairs: Vec<(u64, usize, usize)> = Vec::new();
    for (class, line) in all.confusion.iter().enumerate() {
        let wrong = line.iter().enumerate().filter(|(other, rows)| *other != class && **rows > 0);
        pairs.extend(wrong.map(|(other, &rows)| (rows, class, other)));
    }
    pairs.sort_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let more = pairs.len().saturating_sub(MOST_CLASSES);
    let row = |&(rows, class, other): &(u64, usize, usize)| {
        let own = all.confusion[class].iter().fold(0u64, |sum, rows| sum.saturating_add(*rows));
        vec![
            Cell::Name(name(class)),
            Cell::Word(name(other)),
            Cell::Figure(grouped(rows)),
            Cell::Figure(percent(rows as f64 / own as f64)),
        ]
    };
    let head = ["class", "predicted as", "test rows", "share of the class"];
    Table {
        caption: "The largest confusions: the mean model on all test rows".into(),
        head: head.map(String::from).into(),
        rows: pairs.iter().take(MOST_CLASSES).map(row).collect(),
        left_out: match more {
            0 => String::new(),
            more => format!("{} more pairs are in summary.json.", grouped(more as u64)),
        },
    }
}
