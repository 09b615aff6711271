//! A comparison as a table, as JSON, as CSV and as pictures.

use std::{collections::BTreeSet, fs, path::Path};

use gradvine::{config::ConfigError, data::write_atomically};
use gradvine_report::{chart::Chart, fitted};
use serde_json::{Value, json};

use crate::{Curve, Figure, Interval, Outcome, Row, Spread, chart, rounded};

const COLUMNS: [Figure; 6] = [
    Figure::TestAccuracy,
    Figure::WorstAccuracy,
    Figure::TrainLoss,
    Figure::Consensus,
    Figure::Payload,
    Figure::Wire,
];
/// More columns if links or gradients take time.
const TIMED: [Figure; 2] = [Figure::Time, Figure::Computing];
/// Columns that a narrow terminal does not show: the first of them is missing first.
const LEAST: [&str; 9] = [
    "time",
    "wire/node",
    "computing",
    "consensus",
    "rounds",
    "worst node",
    "virtual time",
    "payload/node",
    "train loss",
];
const JSON: &str = "compare.json";
const CSV: &str = "compare.csv";
/// The mark after the best value of a column.
const BEST: &str = "*";

/// Its pictures: the file, the title, and what is drawn over what.
const PICTURES: [(&str, &str, Figure, Figure); 6] = [
    ("loss-rounds.svg", "Train loss over rounds", Figure::Rounds, Figure::TrainLoss),
    ("accuracy-rounds.svg", "Test accuracy over rounds", Figure::Rounds, Figure::TestAccuracy),
    ("loss-payload.svg", "Train loss over bytes sent", Figure::Payload, Figure::TrainLoss),
    ("consensus-rounds.svg", "Consensus distance over rounds", Figure::Rounds, Figure::Consensus),
    ("loss-time.svg", "Train loss over virtual time", Figure::Time, Figure::TrainLoss),
    ("accuracy-time.svg", "Test accuracy over virtual time", Figure::Time, Figure::TestAccuracy),
];

/// A complete comparison, to be shown.
pub struct Table<'a> {
    /// The command that repeats it.
    pub again: String,
    /// The seeds of all combinations.
    pub seeds: &'a [u64],
    /// The combinations in the order of the arguments.
    pub rows: &'a [Row],
}

/// The names of the files that [`Table::write`] may write.
pub(crate) fn files() -> impl Iterator<Item = &'static str> {
    [JSON, CSV].into_iter().chain(PICTURES.iter().map(|(name, ..)| *name))
}

impl Table<'_> {
    /// The table: one line per combination, with the best value of each column marked, then tuning
    /// and warnings. `width`: the columns of the terminal, if it is shown on one.
    pub fn text(&self, width: Option<usize>) -> String {
        let differ =
            |of: fn(&Row) -> &String| self.rows.iter().any(|row| of(row) != of(&self.rows[0]));
        let mut columns = self.columns();
        columns.retain(|figure| self.rows.iter().any(|row| mean(row, *figure).is_some()));
        let mut lines = vec![vec!["rule".to_string(), "compressor".into()]];
        let topologies = differ(|row| &row.topology);
        if topologies {
            lines[0].push("topology".into());
        }
        let names = lines[0].len();
        lines[0].extend(columns.iter().map(|column| column.words().to_string()));
        lines[0].extend(["rounds", "time", "status"].map(String::from));
        for row in self.rows {
            let mut line = vec![row.rule.clone(), row.compressor.clone()];
            if topologies {
                line.push(row.topology.clone());
            }
            for column in &columns {
                let spread = mean(row, *column);
                let mark = if self.is_best(row, *column) { BEST } else { " " };
                line.push(spread.map_or("- ".into(), |spread| column.show_spread(&spread) + mark));
            }
            let runs = &row.outcome.runs;
            let rounds =
                runs.iter().filter_map(|run| run.points.last()).map(|point| point.rounds).max();
            line.push(rounds.map_or("-".into(), |rounds| rounds.to_string()));
            line.push(format!(
                "{:.1} s",
                runs.iter().map(|run| run.seconds).sum::<f64>() / runs.len() as f64
            ));
            line.push(row.outcome.status());
            lines.push(line);
        }
        let left: Vec<usize> = (0..names).chain([lines[0].len() - 1]).collect();
        let mut text = format!("\n{}\n", fitted(&lines, &left, &LEAST, width));
        let count = self.seeds.len();
        let seeds = if count == 1 {
            "one seed".to_string()
        } else {
            format!("mean of {count} seeds ± half its 95 % interval (t)")
        };
        text += &format!("{BEST} the best of its column; {seeds}; time is wall time per run\n");
        for row in self.rows {
            if let Some(tuned) = &row.outcome.tuned {
                text += &format!(
                    "tuned on seeds {}: {}: {}\n",
                    tuned.on(),
                    row.outcome.case.name,
                    tuned.words()
                );
            }
        }
        text += &self.paired();
        // Combinations with the same rule share most warnings.
        let all: BTreeSet<&String> = self
            .rows
            .iter()
            .flat_map(|row| &row.outcome.runs)
            .flat_map(|run| &run.warnings)
            .collect();
        all.iter().for_each(|warning| text += &format!("warning: {warning}\n"));
        text
    }

    /// Compares each row with the first, seed by seed.
    fn paired(&self) -> String {
        let mut text = String::new();
        let (Some(first), true) = (self.rows.first(), self.seeds.len() > 1) else { return text };
        for row in &self.rows[1..] {
            let values = |row: &Row, figure: Figure| figure.values(&row.outcome.runs, None);
            let pair = |figure: Figure| values(row, figure).zip(values(first, figure));
            let points =
                pair(Figure::TestAccuracy).and_then(|(a, b)| Interval::of_differences(&a, &b));
            let ratio = pair(Figure::TrainLoss).and_then(|(a, b)| Interval::of_ratios(&a, &b));
            let comparisons = [
                points.map(|x| {
                    let [mean, low, high] =
                        [x.mean, x.low, x.high].map(|x| format!("{:+.2}", 100.0 * x));
                    format!("accuracy {mean} points ({low} to {high})")
                }),
                ratio.map(|x| {
                    let [mean, low, high] = [x.mean, x.low, x.high].map(|x| rounded(x, 3));
                    format!("train loss {mean} times ({low} to {high})")
                }),
            ];
            let comparisons: Vec<String> = comparisons.into_iter().flatten().collect();
            if !comparisons.is_empty() {
                let [name, of_first] = [row, first].map(|row| &row.outcome.case.name);
                text += &format!(
                    "{name} beside {of_first}, seed by seed: {}\n",
                    comparisons.join(", ")
                );
            }
        }
        text
    }

    /// Whether links or gradients take time in any run.
    fn takes_time(&self) -> bool {
        self.rows.iter().any(|row| mean(row, Figure::Time).is_some_and(|time| time.mean > 0.0))
    }

    fn columns(&self) -> Vec<Figure> {
        let timed = if self.takes_time() { &TIMED[..] } else { &[] };
        COLUMNS.iter().chain(timed).copied().collect()
    }

    fn is_best(&self, row: &Row, figure: Figure) -> bool {
        let (Some(better), Some(own)) = (figure.better(), mean(row, figure)) else { return false };
        let others = self.rows.iter().filter_map(|row| mean(row, figure));
        // A column of equal values has no best.
        let mut differs = false;
        let best = others.into_iter().all(|other| {
            differs |= other.mean != own.mean;
            other.mean == own.mean || own.mean.total_cmp(&other.mean) == better
        });
        best && differs && own.mean.is_finite()
    }

    /// One object with all rows and what repeats them.
    pub fn json(&self) -> Value {
        let rows: Vec<Value> = (self.rows.iter())
            .map(|row| {
                let spreads = |figures: &[Figure]| -> Value {
                    let of = |figure: &Figure| Some((figure.name(), json!(mean(row, *figure)?)));
                    Value::Object(figures.iter().filter_map(of).collect())
                };
                let outcome = &row.outcome;
                json!({
                    "rule": row.rule,
                    "compressor": row.compressor,
                    "topology": row.topology,
                    "settings": outcome.case.sets,
                    "status": outcome.status(),
                    "tuned": outcome.tuned,
                    "figures": spreads(&self.columns()),
                    "runs": outcome.runs,
                })
            })
            .collect();
        json!({
            "command": self.again,
            "version": env!("CARGO_PKG_VERSION"),
            "seeds": self.seeds,
            "combinations": rows,
        })
    }

    /// The comparison as CSV: one line per combination.
    fn csv(&self) -> String {
        let mut text = "rule,compressor,topology,status,rounds".to_string();
        let columns = self.columns();
        for column in &columns {
            text += &format!(",{0}_mean,{0}_deviation,{0}_half", column.name());
        }
        text.push('\n');
        for row in self.rows {
            let rounds = row
                .outcome
                .runs
                .iter()
                .filter_map(|run| run.points.last())
                .map(|point| point.rounds)
                .max();
            let status = row.outcome.status();
            let words = [&row.rule, &row.compressor, &row.topology, &status]
                .map(|word| field(word))
                .join(",");
            text +=
                &format!("{words},{}", rounds.map_or(String::new(), |rounds| rounds.to_string()));
            for column in &columns {
                let spread = mean(row, *column).filter(|spread| spread.mean.is_finite());
                let cells = |spread: Spread| {
                    format!(",{},{},{}", spread.mean, spread.deviation, spread.half)
                };
                text += &spread.map_or(",,,".into(), cells);
            }
            text.push('\n');
        }
        text
    }

    /// Writes `compare.json`, `compare.csv` and pictures.
    ///
    /// # Errors
    /// If the folder or a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<(), ConfigError> {
        let wrong = |error: std::io::Error| {
            ConfigError::new("--out", out.display(), format!("cannot be written: {error}"))
        };
        fs::create_dir_all(out).map_err(wrong)?;
        let put = |name: &str, text: &str| write_atomically(&out.join(name), &[text.as_bytes()]);
        put(JSON, &(format!("{:#}\n", self.json())))?;
        put(CSV, &self.csv())?;
        for (name, picture) in self.pictures() {
            put(name, &picture.svg())?;
        }
        Ok(())
    }

    /// The pictures: loss over rounds and bytes, accuracy over rounds, consensus over rounds; if
    /// links or gradients take time, also loss and accuracy over time.
    fn pictures(&self) -> Vec<(&'static str, Chart)> {
        let outcomes: Vec<(&str, &Outcome)> =
            self.rows.iter().map(|row| (row.outcome.case.name.as_str(), &row.outcome)).collect();
        let count = self.seeds.len();
        let subtitle = if count == 1 {
            "one seed".to_string()
        } else {
            format!("mean of {count} seeds; band from the least to the greatest")
        };
        PICTURES
            .into_iter()
            .filter(|(_, _, x, _)| *x != Figure::Time || self.takes_time())
            .map(|(name, title, x, y)| (name, chart(title, &subtitle, Curve { x, y }, &outcomes)))
            .filter(|(_, chart)| !chart.lines.is_empty())
            .collect()
    }
}

fn mean(row: &Row, figure: Figure) -> Option<Spread> {
    figure.over(&row.outcome.runs, None)
}

/// A field of a CSV file, in quotation marks if it needs them.
fn field(word: &str) -> String {
    if word.contains([',', '"', '\n']) {
        format!("\"{}\"", word.replace('"', "\"\""))
    } else {
        word.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_may_be_missing_are_those_of_the_table() {
        let figures: Vec<&str> =
            COLUMNS.iter().chain(&TIMED).map(|figure| figure.words()).collect();
        for head in LEAST {
            assert!(figures.contains(&head) || ["time", "rounds"].contains(&head), "{head}");
        }
        assert!(!LEAST.contains(&Figure::TestAccuracy.words()), "it says which is the best");
    }
}
