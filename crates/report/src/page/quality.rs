//! How good the models of a run are on test rows: the figures of each node beside the baseline,
//! each class, the confusion matrix.

use std::fmt::Write as _;

use super::{
    Draft,
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

/// Writes the part of the page; nothing of a run without figures.
pub(super) fn section(run: &Run, draft: &mut Draft) {
    let Some(summary) = &run.summary else { return };
    let Some(all) = &summary.outcome.test else {
        draft.paragraph("No figures on test rows: there were none, or the run did not end.");
        return;
    };
    draft.body += &nodes(summary, all).html();
    draft.paragraph(
        "The baseline always predicts the most frequent class, or the mean, of the training rows \
         of all nodes. A node's own model is the one that it trained; the mean model is the \
         result.",
    );
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

/// A model and its figures: the node, the model's name, the node's training rows.
struct Judged<'a> {
    node: &'a str,
    model: &'static str,
    trained: Option<u64>,
    figures: &'a Figures,
}

/// The figures of the mean model on all rows, and of each node.
fn nodes(summary: &Summary, all: &Figures) -> Table {
    let rows = summary.participation.values().map(|part| part.rows);
    let mut judged = vec![Judged {
        node: "all nodes",
        model: "mean model",
        trained: Some(rows.fold(0, u64::saturating_add)),
        figures: all,
    }];
    for (node, part) in summary.participation.iter().take(MOST_NODES) {
        let models = [("mean model", &part.test_of_mean), ("own model", &part.test)];
        for (model, figures) in models {
            if let Some(figures) = figures {
                judged.push(Judged { node, model, trained: Some(part.rows), figures });
            }
        }
    }
    let mut table = if all.outputs.is_empty() { of_classes(&judged) } else { of_numbers(&judged) };
    let more = summary.participation.len().saturating_sub(MOST_NODES);
    if more > 0 {
        table.left_out += &format!("{} more are not shown.", count(more, "node"));
    }
    table
}

fn figure(value: Option<String>) -> Cell {
    value.map_or(Cell::Nothing, Cell::Figure)
}

impl Judged<'_> {
    fn begin(&self) -> Vec<Cell> {
        vec![
            Cell::Name(short(self.node, LONGEST)),
            Cell::Word(self.model.into()),
            figure(self.trained.map(grouped)),
            Cell::Figure(grouped(self.figures.rows)),
        ]
    }
}

const BEGIN: [&str; 4] = ["node", "model", "training rows", "test rows"];

/// A column: its name, and a model's figure.
type Column = (&'static str, fn(&Figures) -> Option<String>);

fn of_classes(judged: &[Judged<'_>]) -> Table {
    let columns: [Column; 6] = [
        ("accuracy", |of| of.accuracy.map(percent)),
        ("accuracy of the baseline", |of| {
            of.baseline.as_ref().map(|baseline| percent(baseline.accuracy))
        }),
        ("balanced accuracy", |of| of.balanced_accuracy.map(percent)),
        ("AUC", |of| of.auc.map(|area| format!("{area:.4}"))),
        ("calibration error", |of| of.calibration_error.map(percent)),
        ("test loss", |of| Some(number(of.loss))),
    ];
    let known = |column: &&Column| judged.iter().any(|one| (column.1)(one.figures).is_some());
    let columns: Vec<&Column> = columns.iter().filter(known).collect();
    let row = |one: &Judged<'_>| {
        let cells = columns.iter().map(|column| figure((column.1)(one.figures)));
        one.begin().into_iter().chain(cells).collect()
    };
    let baseline = judged[0].figures.baseline.as_ref();
    let always = baseline.map_or_else(String::new, |baseline| {
        format!("; the baseline is always “{}”", short(&baseline.class, LONGEST))
    });
    Table {
        caption: format!("Figures on test rows{always}"),
        head: (BEGIN.into_iter().chain(columns.iter().map(|column| column.0)))
            .map(String::from)
            .collect(),
        rows: judged.iter().map(row).collect(),
        left_out: String::new(),
    }
}

/// One row per model and predicted number.
fn of_numbers(judged: &[Judged<'_>]) -> Table {
    let several = judged.iter().any(|one| one.figures.outputs.len() > 1);
    let mut rows = Vec::new();
    let mut all = 0;
    for one in judged {
        for output in &one.figures.outputs {
            all += 1;
            if rows.len() == MOST_ROWS {
                continue;
            }
            let mut row = one.begin();
            if several {
                row.push(Cell::Word(short(&output.output, LONGEST)));
            }
            row.extend([
                Cell::Figure(number(output.rmse)),
                Cell::Figure(number(output.baseline_rmse)),
                Cell::Figure(number(output.mae)),
                figure(output.r2.map(|r2| format!("{r2:.4}"))),
                Cell::Figure(number(one.figures.loss)),
            ]);
            rows.push(row);
        }
    }
    let mut head: Vec<String> = BEGIN.map(String::from).into();
    if several {
        head.push("number".into());
    }
    let figures = ["RMSE", "RMSE of the baseline", "MAE", "R2", "test loss"];
    head.extend(figures.map(String::from));
    let left_out = match all - rows.len() {
        0 => String::new(),
        more => format!("{} more are not shown. ", count(more, "row")),
    };
    let caption = "Figures on test rows; the baseline is always the mean".into();
    Table { caption, head, rows, left_out }
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
