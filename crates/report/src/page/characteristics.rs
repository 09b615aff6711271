//! Two charts of a classification: the receiver operating characteristic of each class, and
//! accuracy over confidence.

use gradvine::run::{Calibration, ClassFigures, Figures};
use serde_json::{Value, json};

use super::{
    Figure,
    markup::{Cell, Table, grouped, percent, short},
    style::in_the_dark,
};
use crate::chart::{Axis, Chart, Dot, Line, Spacing, Unit, style};

/// The maximum number of classes with a curve of their own.
const MOST_CLASSES: usize = 20;
/// The maximum length of a name, in characters.
const LONGEST: usize = 40;
/// Points of one x are drawn so far apart: a chart has one y at an x.
const APART: f64 = 1e-9;

/// A chart of shares over shares.
struct Square {
    id: String,
    title: &'static str,
    subtitle: &'static str,
    x: &'static str,
    y: &'static str,
    caption: String,
    /// The curves: names and points.
    lines: Vec<(String, Vec<[f64; 2]>)>,
    table: Table,
}

/// The curve of each class against all others; `None` if no class has one.
pub(super) fn roc(all: &Figures, prefix: &str) -> Option<(Figure, Value)> {
    let mut drawn: Vec<_> = all.classes.iter().filter(|class| !class.roc.is_empty()).collect();
    let mut caption = String::new();
    if let [first, second] = all.classes.as_slice()
        && drawn.len() == 2
    {
        drawn.remove(0);
        caption = format!(
            "Of two classes the curve of one says all: a row is found if it is taken for “{}”, and \
             falsely if it is “{}”. ",
            short(&second.class, LONGEST),
            short(&first.class, LONGEST)
        );
    }
    let more = drawn.len().saturating_sub(MOST_CLASSES);
    if more > 0 {
        // Those with the least area are of interest.
        drawn.sort_by(|a, b| a.auc.unwrap_or(1.0).total_cmp(&b.auc.unwrap_or(1.0)));
        drawn.truncate(MOST_CLASSES);
        caption += &format!("The {MOST_CLASSES} classes with the least area are drawn. ");
    }
    let name = |class: &ClassFigures| short(&class.class, LONGEST);
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
    Square {
        id: format!("{prefix}roc"),
        title: "ROC of each class against the rest",
        subtitle: "the mean model on all test rows, over all thresholds of the probability",
        x: "other rows taken for the class",
        y: "rows of the class that are found",
        caption,
        lines: drawn.iter().map(|class| (name(class), class.roc.clone())).collect(),
        table: Table {
            caption: "ROC: the share that is found, by the share of others that is taken for it"
                .into(),
            head: head.map(String::from).into(),
            rows: drawn.iter().map(row).collect(),
            left_out: String::new(),
        },
    }
    .figure()
}

/// Accuracy over confidence; `None` if it was not counted.
pub(super) fn calibration(all: &Figures, prefix: &str) -> Option<(Figure, Value)> {
    let bins = &all.calibration;
    let points: Vec<[f64; 2]> = bins.iter().map(|bin| [bin.confidence, bin.accuracy]).collect();
    let row = |bin: &Calibration| {
        vec![
            Cell::Figure(percent(bin.confidence)),
            Cell::Figure(percent(bin.accuracy)),
            Cell::Figure(grouped(bin.rows)),
        ]
    };
    let head = ["greatest probability", "accuracy", "test rows"];
    let lines = if points.is_empty() {
        Vec::new()
    } else {
        vec![
            ("mean model".to_string(), points),
            ("perfectly calibrated".to_string(), vec![[0.0, 0.0], [1.0, 1.0]]),
        ]
    };
    Square {
        id: format!("{prefix}calibration"),
        title: "Calibration",
        subtitle: "the mean model on all test rows, in tenths of the greatest probability",
        x: "mean of the greatest probability",
        y: "share classified correctly",
        caption: "Below the diagonal the model is too sure of itself, above it not sure enough. \
                  Bins with few rows say little."
            .into(),
        lines,
        table: Table {
            caption: "Calibration, in tenths of the greatest probability".into(),
            head: head.map(String::from).into(),
            rows: bins.iter().map(row).collect(),
            left_out: String::new(),
        },
    }
    .figure()
}

impl Square {
    /// The still picture and the data of the chart; `None` without a line.
    fn figure(self) -> Option<(Figure, Value)> {
        if self.lines.is_empty() {
            return None;
        }
        let axis = |words: &str| Axis {
            words: words.into(),
            unit: Unit::Percent,
            spacing: Spacing::Linear,
        };
        let dot = |&[x, y]: &[f64; 2]| Dot { x, y, low: y, high: y };
        let line = |(name, points): &(String, Vec<[f64; 2]>)| Line {
            name: name.clone(),
            dots: points.iter().map(dot).collect(),
            broken: false,
        };
        let chart = Chart {
            title: self.title.into(),
            subtitle: self.subtitle.into(),
            x: axis(self.x),
            y: axis(self.y),
            ceiling: None,
            lines: self.lines.iter().map(line).collect(),
        };
        let series = |(index, (name, points)): (usize, &(String, Vec<[f64; 2]>))| {
            let (colour, dash) = style(index);
            let x = |(at, point): (usize, &[f64; 2])| point[0] + at as f64 * APART;
            json!({
                "name": name,
                "colour": [colour, in_the_dark(colour)],
                "dash": dash,
                "share": points.iter().enumerate().map(x).collect::<Vec<_>>(),
                "mean": points.iter().map(|point| point[1]).collect::<Vec<_>>(),
            })
        };
        let data = json!({
            "title": self.title,
            "unit": "percent",
            "log": null,
            "axes": { "share": { "name": self.x, "words": self.x, "unit": "percent" } },
            "series": self.lines.iter().enumerate().map(series).collect::<Vec<_>>(),
            "marks": [],
        });
        let names: Vec<&str> = self.lines.iter().map(|(name, _)| name.as_str()).collect();
        let description = format!("{} over {}: {}.", self.y, self.x, names.join(", "));
        let figure = Figure {
            svg: chart.drawn(&format!("clip-{}", self.id), &description),
            narrow: Some(chart.narrow(&format!("clip-{}-narrow", self.id), &description)),
            title: chart.title,
            caption: self.caption.trim_end().into(),
            still: String::new(),
            table: self.table,
            id: self.id,
        };
        Some((figure, data))
    }
}
