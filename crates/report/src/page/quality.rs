//! How good the models of a run are on test rows: the figures of each node beside the baseline,
//! curves of ROC and calibration, each class, the confusion matrix.

use super::{
    characteristics,
    words::{count, grouped, number, percent, short},
};
use gradvine::run::{Figures, Run, Summary};
use gradvine_page::{Block, Cell, Matrix, Table};

/// The maximum number of nodes in the table of figures, and of rows in that of numbers.
const MOST_NODES: usize = 64;
const MOST_ROWS: usize = 200;
/// Of more classes than this the largest confusions are listed, as many, and the classes that are
/// found least.
const MOST_CLASSES: usize = 20;
/// The maximum length of a name, in characters.
const LONGEST: usize = 40;

/// How good the models of a run are.
pub(super) fn blocks(run: &Run) -> Vec<Block> {
    let text = |text: &str| Block::Text { text: text.into() };
    let known = run.summary.as_ref().and_then(|one| Some((one, one.outcome.test.as_ref()?)));
    let Some((summary, all)) = known else {
        return vec![text("No figures on test rows: there were none, or the run did not end.")];
    };
    let mut blocks = vec![
        Block::Table(nodes(summary, all)),
        text(
            "The mean model is the result. A node's own model is the one that it trained. The \
             baseline always predicts the most frequent class, or the mean, of the training rows \
             of all nodes.",
        ),
    ];
    blocks.extend(characteristics::roc(all));
    blocks.extend(characteristics::calibration(all));
    if !all.classes.is_empty() {
        blocks.push(Block::Table(classes(all)));
    }
    if (1..=MOST_CLASSES).contains(&all.confusion.len()) {
        blocks.push(matrix(all));
    } else if !all.confusion.is_empty() {
        blocks.push(Block::Table(confusions(all)));
    } else if !all.classes.is_empty() {
        blocks.push(text("Of so many classes no confusion matrix is counted."));
    }
    blocks
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

fn matrix(all: &Figures) -> Block {
    let names: Vec<String> = all.classes.iter().map(|class| class.class.clone()).collect();
    let name = |class: usize| names.get(class).cloned().unwrap_or_else(|| class.to_string());
    Block::Matrix(Matrix {
        caption: format!(
            "Confusion matrix: the mean model on {}, by class (down) and predicted class (across)",
            count(usize::try_from(all.rows).unwrap_or(usize::MAX), "test row")
        ),
        classes: (0..all.confusion.len()).map(|class| short(&name(class), LONGEST)).collect(),
        rows: all.confusion.clone(),
    })
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
