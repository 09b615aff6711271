//! Two charts of a classification: the receiver operating characteristic of each class, and
//! accuracy over confidence.

use gradvine::run::{Calibration, ClassFigures, Figures};
use gradvine_page::{Block, Cell, Chart, Curve, Table};

use super::words::{grouped, percent, short};

/// The maximum number of classes with a curve of their own.
const MOST_CLASSES: usize = 20;
/// The maximum length of a name, in characters.
const LONGEST: usize = 40;

/// The curve of each class against all others, and a table; nothing if no class has one.
pub(super) fn roc(all: &Figures) -> Vec<Block> {
    let mut drawn: Vec<_> = all.classes.iter().filter(|class| !class.roc.is_empty()).collect();
    if drawn.is_empty() {
        return Vec::new();
    }
    let name = |class: &ClassFigures| short(&class.class, LONGEST);
    let mut note = String::from("The mean model on all test rows, over all thresholds.");
    if let [first, second] = all.classes.as_slice()
        && drawn.len() == 2
    {
        drawn.remove(0);
        note += &format!(
            " Of two classes the curve of one says all: a row is found if it is taken for “{}”, \
             and falsely if it is “{}”.",
            name(second),
            name(first)
        );
    }
    if drawn.len() > MOST_CLASSES {
        // Those with the least area are of interest.
        drawn.sort_by(|a, b| a.auc.unwrap_or(1.0).total_cmp(&b.auc.unwrap_or(1.0)));
        drawn.truncate(MOST_CLASSES);
        note += &format!(" The {MOST_CLASSES} classes with the least area are drawn.");
    }
    let row = |class: &&ClassFigures| {
        // Found at the least share of others that is at most this.
        let at = |most: f64| {
            let below = class.roc.iter().take_while(|point| point[0] <= most);
            Cell::Figure(percent(below.last().map_or(0.0, |point| point[1])))
        };
        let area = class.auc.map_or(Cell::Nothing, |area| Cell::Figure(format!("{area:.4}")));
        vec![Cell::Name(name(class)), area, at(0.01), at(0.05), at(0.1)]
    };
    let head = ["class", "AUC", "found at 1 % false", "at 5 %", "at 10 %"];
    let curve = |class: &&ClassFigures| Curve { name: name(class), points: class.roc.clone() };
    vec![
        Block::Chart(Chart {
            title: "ROC of each class against the rest".into(),
            across: "other rows taken for the class".into(),
            upwards: "rows of the class that are found".into(),
            note,
            curves: drawn.iter().map(curve).collect(),
        }),
        Block::Table(Table::new(
            "ROC: the share that is found, by the share of others that is taken for it",
            &head,
            drawn.iter().map(row).collect(),
        )),
    ]
}

/// Accuracy over confidence, and a table; nothing if it was not counted.
pub(super) fn calibration(all: &Figures) -> Vec<Block> {
    let bins = &all.calibration;
    if bins.is_empty() {
        return Vec::new();
    }
    let row = |bin: &Calibration| {
        vec![
            Cell::Figure(percent(bin.confidence)),
            Cell::Figure(percent(bin.accuracy)),
            Cell::Figure(grouped(bin.rows)),
        ]
    };
    let points = bins.iter().map(|bin| [bin.confidence, bin.accuracy]).collect();
    let head = ["greatest probability", "accuracy", "test rows"];
    vec![
        Block::Chart(Chart {
            title: "Calibration".into(),
            across: "mean of the greatest probability".into(),
            upwards: "share classified correctly".into(),
            note: "The mean model on all test rows, in tenths of the greatest probability. Below \
                   the diagonal it is too sure of itself, above it not sure enough. Bins with few \
                   rows say little."
                .into(),
            curves: vec![
                Curve { name: "mean model".into(), points },
                Curve { name: "perfectly calibrated".into(), points: vec![[0.0, 0.0], [1.0, 1.0]] },
            ],
        }),
        Block::Table(Table::new(
            "Calibration, in tenths of the greatest probability",
            &head,
            bins.iter().map(row).collect(),
        )),
    ]
}
