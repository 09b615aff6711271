//! How good a saved model is on some rows, as text and as JSON.

use std::path::Path;

use gradvine::{
    config::ConfigError,
    data::{Dataset, Target},
    learn::{ClassQuality, MAX_CURVES, SavedModel, ValueQuality},
    run::DataRecord,
};
use gradvine_report::{aligned, fitted, loss, number, on_a_line, wrapped};
use serde_json::{Value, json};

use super::scoring::{Scored, Scoring, Wanted, model_file};

/// Tables of confusion with more classes do not fit into a terminal.
const MAX_TABLE: usize = 12;

/// How many classes and mistakes are shown where there are more.
const SHOWN: usize = 20;

/// The largest class is this many times as frequent as the mean one where classes are called
/// unbalanced.
const UNBALANCED: f64 = 1.5;

/// How good a saved model is on rows, of which is known whether its run has trained on them.
pub struct ScoredModel {
    rows: usize,
    scored: Scored,
    words: String,
    warning: Option<String>,
    loss: f64,
    evaluation: Evaluation,
}

impl ScoredModel {
    /// Scores a model that was read from this file, or run directory, on rows that are not scaled
    /// yet.
    ///
    /// # Errors
    /// If the wanted rows do not exist; `place` is then `rows`. If the rows do not fit the model,
    /// or the record of the run's data cannot be read.
    pub fn new(
        path: &Path,
        saved: &SavedModel,
        data: Dataset,
        wanted: Wanted,
    ) -> Result<ScoredModel, ConfigError> {
        let usage = DataRecord::beside(&model_file(path)?)?.usage(&data)?;
        let Scoring { mut data, scored, words, warning, .. } = Scoring::new(usage, data, wanted)?;
        saved.prepare(&mut data)?;
        Ok(ScoredModel {
            rows: data.rows(),
            scored,
            words,
            warning,
            loss: saved.model.evaluate(&saved.x, &data)?.loss,
            evaluation: Evaluation::new(saved, &data)?,
        })
    }

    /// What a reader of the figures alone could miss.
    pub fn warnings(&self) -> Vec<String> {
        self.warning.iter().cloned().chain(self.evaluation.warnings()).collect()
    }

    /// The figures as a JSON object, with the names of the model and of the data.
    pub fn to_json(&self, model: &Path, data: &str) -> Value {
        let mut value = json!({
            "model": model,
            "data": data,
            "rows": self.rows,
            "rows_are": self.scored,
            "loss": self.loss,
        });
        for (key, figure) in self.evaluation.to_json() {
            value[key] = figure;
        }
        value
    }

    /// The figures as lines and tables. `width`: the columns of the terminal, if they are shown on
    /// one.
    pub fn text(&self, width: Option<usize>) -> String {
        let rows = format!("{} ({})", self.rows, self.words);
        self.evaluation.to_text(&[("rows", rows), ("loss", loss(self.loss))], width)
    }
}

/// How good a model is on some rows.
pub(crate) enum Evaluation {
    Classes {
        /// What was predicted of which class.
        quality: ClassQuality,
        /// The names of the classes.
        names: Vec<String>,
    },
    Values {
        outputs: Vec<(String, ValueQuality)>,
    },
}

impl Evaluation {
    /// Compares a model's predictions with rows that [`SavedModel::prepare`] has scaled.
    ///
    /// # Errors
    /// If the rows do not fit the model, or there are none.
    pub(crate) fn new(saved: &SavedModel, data: &Dataset) -> Result<Evaluation, ConfigError> {
        let predictions = saved.model.predict(&saved.x, data.features.view())?;
        let names = saved.output_names();
        match &data.target {
            Target::Classes { labels, .. } => {
                let quality = ClassQuality::new(predictions.view(), labels)?;
                Ok(Evaluation::Classes { quality, names })
            }
            Target::Values(values) => {
                let outputs = ValueQuality::of_outputs(predictions.view(), values.view())?;
                Ok(Evaluation::Values { outputs: names.into_iter().zip(outputs).collect() })
            }
        }
    }

    /// What a reader of the figures alone could miss.
    pub(crate) fn warnings(&self) -> Vec<String> {
        match self {
            Evaluation::Classes { quality, names } => warnings_of_classes(quality, names),
            Evaluation::Values { outputs } => outputs
                .iter()
                .filter(|(_, quality)| quality.rmse >= quality.baseline && quality.baseline > 0.0)
                .map(|(name, quality)| {
                    format!(
                        "{name}: the model (RMSE {}) is not better than always predicting the mean \
                         of these rows ({})",
                        number(quality.rmse),
                        number(quality.baseline)
                    )
                })
                .collect(),
        }
    }

    /// Keys and values for a JSON object.
    pub(crate) fn to_json(&self) -> Vec<(&'static str, Value)> {
        match self {
            Evaluation::Classes { quality, names } => {
                let (most, share) = quality.baseline();
                let classes: Vec<Value> = (0..names.len())
                    .map(|class| {
                        json!({
                            "name": names[class],
                            "rows": quality.rows()[class],
                            "predicted": quality.predicted()[class],
                            "recall": quality.recall(class),
                            "precision": quality.precision(class),
                            "auc": quality.area(class),
                        })
                    })
                    .collect();
                let confusion = (names.len() <= MAX_CURVES).then(|| {
                    let line = |class| -> Vec<u64> {
                        (0..names.len()).map(|other| quality.confused(class, other)).collect()
                    };
                    (0..names.len()).map(line).collect::<Vec<_>>()
                });
                let bins: Vec<Value> = quality
                    .bins()
                    .iter()
                    .map(|bin| {
                        let of_rows = |sum: f64| (bin.rows > 0).then(|| sum / bin.rows as f64);
                        json!({
                            "rows": bin.rows,
                            "confidence": of_rows(bin.confidence),
                            "accuracy": of_rows(bin.correct as f64),
                        })
                    })
                    .collect();
                vec![
                    ("correct", json!(quality.correct())),
                    ("accuracy", json!(quality.accuracy())),
                    ("balanced_accuracy", json!(quality.balanced_accuracy())),
                    ("auc", json!(quality.mean_area())),
                    ("calibration_error", json!(quality.calibration_error())),
                    ("calibration", json!(bins)),
                    ("baseline", json!({ "class": names[most], "accuracy": share })),
                    ("classes", json!(classes)),
                    ("confusion", json!(confusion)),
                ]
            }
            Evaluation::Values { outputs } => {
                let values: Vec<Value> = outputs
                    .iter()
                    .map(|(name, quality)| {
                        json!({
                            "name": name,
                            "mae": quality.mae,
                            "rmse": quality.rmse,
                            "r2": quality.r2,
                            "baseline_rmse": quality.baseline,
                        })
                    })
                    .collect();
                vec![
                    ("correct", Value::Null),
                    ("accuracy", Value::Null),
                    ("outputs", json!(values)),
                ]
            }
        }
    }

    /// The figures after these lines of name and value, for a terminal of `width` columns.
    pub(crate) fn to_text(&self, head: &[(&str, String)], width: Option<usize>) -> String {
        let mut lines: Vec<(&str, String)> = head.to_vec();
        let tables = match self {
            Evaluation::Classes { quality, names } => {
                let (most, share) = quality.baseline();
                let rows = quality.correct();
                lines.push(("accuracy", format!("{} ({rows} right)", percent(quality.accuracy()))));
                let always = format!("{} (always \"{}\")", percent(share), on_a_line(&names[most]));
                lines.push(("  baseline", always));
                let of = quality.rows().iter().filter(|rows| **rows > 0).count();
                let balanced = percent(quality.balanced_accuracy());
                lines
                    .push(("balanced accuracy", format!("{balanced} (mean recall, {of} classes)")));
                lines.push(("  baseline", format!("{} (any one class)", percent(1.0 / of as f64))));
                if let Some(area) = quality.mean_area() {
                    let text = format!("{area:.4} (mean of each class against the rest)");
                    lines.push(("AUC", text));
                }
                let error = percent(quality.calibration_error());
                let text = format!("{error} (mean distance of confidence and accuracy)");
                lines.push(("calibration error", text));
                let small = (names.len() <= MAX_TABLE).then(|| confusion_table(quality, names));
                let fits = |table: &String| {
                    let mut lines = table.lines();
                    width.is_none_or(|width| lines.all(|line| line.chars().count() <= width))
                };
                let is_cut = small.is_some();
                let mistakes = || {
                    let table = mistakes_table(quality, names);
                    let note = "all confusions: see --json, or a wider terminal";
                    if is_cut { table + &wrapped("", note, width) } else { table }
                };
                let confusion = small.filter(fits).unwrap_or_else(mistakes);
                [classes_table(quality, names, width), confusion].join("\n")
            }
            Evaluation::Values { outputs } => outputs_table(outputs, width),
        };
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines: String =
            lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
        format!("{lines}\n{tables}")
    }
}

fn warnings_of_classes(quality: &ClassQuality, names: &[String]) -> Vec<String> {
    let names: Vec<String> = names.iter().map(|name| on_a_line(name)).collect();
    let mut warnings = Vec::new();
    let (most, share) = quality.baseline();
    let present = quality.rows().iter().filter(|rows| **rows > 0).count();
    if quality.accuracy() <= share && present > 1 {
        warnings.push(format!(
            "the model ({}) is not better than always predicting \"{}\" ({})",
            percent(quality.accuracy()),
            names[most],
            percent(share)
        ));
    }
    if present > 1 && share * present as f64 > UNBALANCED {
        warnings.push(format!(
            "the classes are not balanced: {} of the rows are \"{}\": compare the balanced \
             accuracy, and the recall of each class",
            percent(share),
            names[most]
        ));
    }
    let missing: Vec<&str> = (0..names.len())
        .filter(|&class| quality.rows()[class] == 0)
        .map(|class| names[class].as_str())
        .collect();
    if !missing.is_empty() {
        let more = if missing.len() > SHOWN { ", ..." } else { "" };
        let shown = missing[..missing.len().min(SHOWN)].join(", ");
        warnings.push(format!("no row is of class {shown}{more}"));
    }
    if present == 1 {
        warnings.push(
            "all rows are of one class: no accuracy, balanced or not, says anything about others"
                .into(),
        );
    }
    warnings
}

fn classes_table(quality: &ClassQuality, names: &[String], width: Option<usize>) -> String {
    // Of many classes the ones that are found least.
    let mut order: Vec<usize> = (0..names.len()).collect();
    let hidden = order.len().saturating_sub(SHOWN);
    if hidden > 0 {
        let recall = |class: usize| quality.recall(class).unwrap_or(2.0);
        order.sort_by(|&a, &b| recall(a).total_cmp(&recall(b)));
        order.truncate(SHOWN);
    }
    let mut rows = vec![
        ["class", "rows", "predicted", "recall", "precision", "AUC"].map(String::from).to_vec(),
    ];
    rows.extend(order.iter().map(|&class| {
        vec![
            names[class].clone(),
            quality.rows()[class].to_string(),
            quality.predicted()[class].to_string(),
            quality.recall(class).map_or_else(none, percent),
            quality.precision(class).map_or_else(none, percent),
            quality.area(class).map_or_else(none, |area| format!("{area:.4}")),
        ]
    }));
    let note = match hidden {
        0 => String::new(),
        hidden => format!("({hidden} classes with a greater recall are not shown)\n"),
    };
    fitted(&rows, &[0], &["predicted", "AUC", "precision", "rows"], width) + &note
}

fn confusion_table(quality: &ClassQuality, names: &[String]) -> String {
    let mut rows = vec![vec!["rows by class".to_string()]];
    rows[0].extend(names.iter().map(|name| format!("as {name}")));
    rows.extend((0..names.len()).map(|class| {
        let counts = (0..names.len()).map(|other| quality.confused(class, other).to_string());
        std::iter::once(names[class].clone()).chain(counts).collect()
    }));
    aligned(&rows, &[0])
}

fn mistakes_table(quality: &ClassQuality, names: &[String]) -> String {
    let mut rows = vec![["class", "taken for", "rows"].map(String::from).to_vec()];
    rows.extend(quality.mistakes().iter().take(SHOWN).map(|&(class, as_, count)| {
        vec![names[class].clone(), names[as_].clone(), count.to_string()]
    }));
    format!("the most frequent mistakes\n{}", aligned(&rows, &[0]))
}

fn outputs_table(outputs: &[(String, ValueQuality)], width: Option<usize>) -> String {
    let mut rows =
        vec![["target", "MAE", "RMSE", "baseline RMSE", "R2"].map(String::from).to_vec()];
    rows.extend(outputs.iter().take(SHOWN).map(|(name, quality)| {
        vec![
            name.clone(),
            number(quality.mae),
            number(quality.rmse),
            number(quality.baseline),
            quality.r2.map_or_else(none, |r2| format!("{r2:.4}")),
        ]
    }));
    fitted(&rows, &[0], &["MAE", "R2", "baseline RMSE"], width)
        + "The baseline always predicts the mean of these rows.\n"
}

fn percent(share: f64) -> String {
    format!("{:.2}%", 100.0 * share)
}

fn none() -> String {
    "-".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trivial_predictions_stand_beside_the_figures() {
        let predictions = ndarray::array![[0.75f32, 0.25], [0.5, 0.5], [0.875, 0.125]];
        let quality = ClassQuality::new(predictions.view(), &[0, 1, 0]).unwrap();
        let names = ["it's\nwell", "ill"].map(String::from).to_vec();
        let evaluation = Evaluation::Classes { quality, names };
        let text = evaluation.to_text(&[("rows", "3".into())], None);
        for line in [
            "rows               3",
            "accuracy           66.67% (2 right)",
            "  baseline         66.67% (always \"it's\\nwell\")",
            "it's\\nwell                 2       0",
            "ill                        1       0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let narrow = evaluation.to_text(&[], Some(30));
        assert!(narrow.contains("class       rows   recall\n"), "{narrow}");
        assert!(narrow.contains("not shown: predicted, AUC,"), "{narrow}");
        assert!(narrow.ends_with("all confusions: see --json, or\na wider terminal\n"), "{narrow}");
        assert_eq!(
            evaluation.warnings()[0],
            "the model (66.67%) is not better than always predicting \"it's\\nwell\" (66.67%)"
        );
        assert_eq!(evaluation.to_json()[0], ("correct", json!(2)));
    }
}
