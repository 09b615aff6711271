//! How good a model is on test rows: the figures of a summary, from the counts in nodes' records.

use serde::{Deserialize, Serialize};

use super::record::{Closing, Score, or_nan};
use crate::{
    data::Task,
    learn::{Bin, ClassCounts, ClassQuality, Counts, Model, ValueQuality, ValueSums},
    run::Design,
    units::NodeId,
};

/// Confusion matrices and classes of single nodes are in the summaries of so many nodes only.
const MOST_DETAILED: usize = 64;

/// The greatest class has this many times as many rows as the mean one where classes are called
/// unbalanced.
pub const UNBALANCED: f64 = 1.5;

/// A site stands out if its accuracy is so far below that of the rows of all others, and this many
/// standard errors.
const FAR_BELOW: f64 = 0.1;
const STANDARD_ERRORS: f64 = 2.0;

/// A site stands out if its RMSE is this many times that of the rows of all others.
const FAR_ABOVE: f64 = 1.5;

/// The least step of a curve, and how its shares are rounded.
const STEP: f64 = 0.01;
const DIGITS: f64 = 1e4;

/// How many names a warning lists.
const SHOWN: usize = 20;

/// How good a model is on test rows. Unknown values are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The number of test rows.
    pub rows: u64,
    /// The mean loss over them.
    #[serde(with = "or_nan")]
    pub loss: f64,
    /// The share of rows classified correctly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The mean recall of the classes that have rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balanced_accuracy: Option<f64>,
    /// The mean of each class's area under the receiver operating characteristic against the rest,
    /// from bins of scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auc: Option<f64>,
    /// The mean distance of confidence and accuracy, in ten bins of the greatest probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<f64>,
    /// Of the mean model on all test rows: these bins, as far as they have rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calibration: Vec<Calibration>,
    /// Always predicting the most frequent class of all training rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// The figures of each class, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassFigures>,
    /// Rows of each class (down) by predicted class (across).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confusion: Vec<Vec<u64>>,
    /// The figures of each predicted number, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputFigures>,
}

/// The rows whose greatest probability is in one tenth of [0, 1].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Calibration {
    /// The number of rows.
    pub rows: u64,
    /// The mean of their greatest probabilities.
    pub confidence: f64,
    /// The share of them that was classified correctly.
    pub accuracy: f64,
}

/// How good it is to predict the same class always.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Baseline {
    /// The name of the class that is predicted.
    pub class: String,
    /// The share of rows that are of this class.
    pub accuracy: f64,
}

/// The figures of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClassFigures {
    /// The name of the class.
    pub class: String,
    /// The test rows that are of it.
    pub rows: u64,
    /// The rows that were predicted to be of it.
    pub predicted: u64,
    /// The share of its rows that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<f64>,
    /// The share of the rows predicted to be of it that are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// The area under its curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auc: Option<f64>,
    /// Of the mean model on all test rows: that curve, in steps of at least one percent. A point
    /// has the shares of the rows of other classes, and of its own, with at least some score.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roc: Vec<[f64; 2]>,
}

/// The figures of a predicted number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutputFigures {
    /// The name of the predicted column.
    pub output: String,
    /// The mean of |predicted - true|.
    pub mae: f64,
    /// The root of the mean square error.
    pub rmse: f64,
    /// The share of the variance that is explained; none if all values are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// The RMSE of always predicting the mean of all training rows.
    pub baseline_rmse: f64,
}

/// The figures of a run on test rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Judged {
    /// The mean model on the test rows of all nodes.
    pub of_all: Option<Figures>,
    /// Each node's own model on its test rows, in the order of the records.
    pub own: Vec<Option<Figures>>,
    /// The mean model on each node's test rows; empty if all nodes test on the same ones.
    pub of_mean: Vec<Option<Figures>>,
    /// What a reader of the figures could miss.
    pub warnings: Vec<String>,
}

impl Judged {
    /// The figures that follow from the records of some nodes.
    pub(crate) fn of(design: &Design, closings: &[(NodeId, Closing)]) -> Judged {
        let judge = Judge::new(design, closings);
        let records = || closings.iter().map(|(_, closing)| closing);
        let detailed = closings.len() <= MOST_DETAILED;
        let own = records()
            .map(|one| Some(judge.figures(one.test?, one.counts.as_ref(), detailed)))
            .collect();
        let parts: Vec<Part<'_>> = closings.iter().filter_map(Part::of_mean).collect();
        let are_shared = parts.len() > 1 && parts.iter().all(|part| part.is_like(&parts[0]));
        let counted = if are_shared { &parts[..1] } else { &parts[..] };
        let Some((score, counts)) = pooled(counted) else {
            return Judged { own, ..Judged::default() };
        };
        let mut of_all = judge.figures(score, counts.as_ref(), true);
        if let Some(Counts::Classes(counts)) = &counts {
            draw(&mut of_all, counts);
        }
        let mut warnings = judge.warnings(&of_all);
        let mut of_mean = Vec::new();
        if !are_shared {
            of_mean = records()
                .map(|one| {
                    Some(judge.figures(one.test_of_mean?, one.counts_of_mean.as_ref(), detailed))
                })
                .collect();
            warnings.extend(sites(design, &parts));
        }
        Judged { of_all: Some(of_all), own, of_mean, warnings }
    }
}

/// Adds the curves of each class and of the calibration.
fn draw(figures: &mut Figures, counts: &ClassCounts) {
    for (class, one) in figures.classes.iter_mut().enumerate() {
        one.roc = counts.characteristic(class).map(|points| thinned(&points)).unwrap_or_default();
    }
    let of_bin = |bin: &Bin| Calibration {
        rows: bin.rows,
        confidence: bin.confidence / bin.rows as f64,
        accuracy: bin.correct as f64 / bin.rows as f64,
    };
    figures.calibration = counts.bins().iter().filter(|bin| bin.rows > 0).map(of_bin).collect();
}

/// The first point, the last one, and those between them that are a step from the one before and
/// not on a straight line up or across.
fn thinned(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let rounded = |point: &[f64; 2]| point.map(|share| (share * DIGITS).round() / DIGITS);
    let mut kept: Vec<[f64; 2]> = Vec::new();
    for (at, point) in points.iter().enumerate() {
        let is_far = |last: &[f64; 2]| (0..2).any(|side| point[side] - last[side] >= STEP);
        if at + 1 == points.len() || kept.last().is_none_or(is_far) {
            let point = rounded(point);
            let is_between = |pair: &[[f64; 2]]| {
                (0..2).any(|side| pair.iter().all(|other| other[side] == point[side]))
            };
            if kept.last_chunk::<2>().is_some_and(|pair| is_between(pair)) {
                kept.pop();
            }
            kept.push(point);
        }
    }
    kept
}

/// The mean model on one node's test rows.
struct Part<'a> {
    node: NodeId,
    score: Score,
    counts: Option<&'a Counts>,
}

impl<'a> Part<'a> {
    fn of_mean((node, closing): &'a (NodeId, Closing)) -> Option<Part<'a>> {
        let counts = closing.counts_of_mean.as_ref();
        Some(Part { node: *node, score: closing.test_of_mean?, counts })
    }

    /// Whether both are of the same rows. Sums of other rows differ in some bit, except those of a
    /// model that predicts the same everywhere; then all figures are equal, too.
    fn is_like(&self, other: &Part<'_>) -> bool {
        let key =
            |part: &Part<'_>| (part.score.rows, part.score.correct, part.score.loss.to_bits());
        key(self) == key(other) && self.counts == other.counts
    }
}

/// The score and the counts of all these rows; `None` of none.
fn pooled(parts: &[Part<'_>]) -> Option<(Score, Option<Counts>)> {
    let score = Score::merged(&parts.iter().map(|part| part.score).collect::<Vec<_>>())?;
    let mut all = parts.iter().map(|part| part.counts);
    let first = all.next()?.cloned();
    let counts = first.and_then(|first| all.try_fold(first, |sum, counts| sum.merged(counts?)));
    Some((score, counts))
}

struct Judge {
    names: Vec<String>,
    /// The most frequent class of all training rows; of equal ones the first.
    most: Option<usize>,
    /// The mean of each predicted number over all training rows; empty if it is not known.
    middles: Vec<f64>,
}

impl Judge {
    fn new(design: &Design, closings: &[(NodeId, Closing)]) -> Judge {
        let mut rows = vec![0u64; design.outputs];
        let mut known = false;
        for (_, closing) in closings {
            known |= !closing.classes.is_empty();
            for (sum, rows) in rows.iter_mut().zip(&closing.classes) {
                *sum = sum.saturating_add(*rows);
            }
        }
        let most = (0..rows.len()).rev().max_by_key(|&class| rows[class]).filter(|_| known);
        let all: f64 = closings.iter().map(|(_, closing)| closing.rows as f64).sum();
        let is_whole = |(_, one): &(NodeId, Closing)| one.targets.len() == design.outputs;
        let middle = |output: usize| {
            let part = |(_, one): &(NodeId, Closing)| one.targets[output] * (one.rows as f64 / all);
            closings.iter().map(part).sum()
        };
        let middles = match closings.iter().all(is_whole) {
            true => (0..design.outputs).map(middle).collect(),
            false => Vec::new(),
        };
        Judge { names: design.output_names(), most, middles }
    }

    /// The figures of a model; with `detailed` also those of each class.
    fn figures(&self, score: Score, counts: Option<&Counts>, detailed: bool) -> Figures {
        let figures = Figures {
            rows: score.rows,
            loss: score.loss,
            accuracy: score.accuracy(),
            balanced_accuracy: None,
            auc: None,
            calibration_error: None,
            calibration: Vec::new(),
            baseline: None,
            classes: Vec::new(),
            confusion: Vec::new(),
            outputs: Vec::new(),
        };
        match counts {
            Some(Counts::Classes(counts)) => self.of_classes(figures, counts, detailed),
            Some(Counts::Values(sums)) => Figures { outputs: self.of_values(sums), ..figures },
            None => figures,
        }
    }

    fn of_classes(&self, figures: Figures, counts: &ClassCounts, detailed: bool) -> Figures {
        let quality = ClassQuality::of_counts(counts);
        let all = 0..quality.classes();
        let name = |class: usize| self.names.get(class).cloned().unwrap_or(class.to_string());
        let class = |class: usize| ClassFigures {
            class: name(class),
            rows: quality.rows()[class],
            predicted: quality.predicted()[class],
            recall: quality.recall(class),
            precision: quality.precision(class),
            auc: quality.area(class),
            roc: Vec::new(),
        };
        let line = |class: usize| all.clone().map(|other| quality.confused(class, other)).collect();
        let baseline = |class: usize| Baseline {
            class: name(class),
            accuracy: quality.rows()[class] as f64 / figures.rows as f64,
        };
        Figures {
            accuracy: Some(quality.accuracy()),
            balanced_accuracy: Some(quality.balanced_accuracy()),
            auc: quality.mean_area(),
            calibration_error: Some(quality.calibration_error()),
            baseline: self.most.map(baseline),
            classes: if detailed { all.clone().map(class).collect() } else { Vec::new() },
            confusion: match detailed && counts.is_detailed() {
                true => all.clone().map(line).collect(),
                false => Vec::new(),
            },
            ..figures
        }
    }

    fn of_values(&self, sums: &[ValueSums]) -> Vec<OutputFigures> {
        let figures = |(output, sums): (usize, &ValueSums)| {
            let middle = self.middles.get(output).copied().unwrap_or(sums.mean);
            let quality = ValueQuality::of_sums(sums, middle);
            OutputFigures {
                output: self.names.get(output).cloned().unwrap_or(format!("y{output}")),
                mae: quality.mae,
                rmse: quality.rmse,
                r2: quality.r2,
                baseline_rmse: quality.baseline,
            }
        };
        sums.iter().enumerate().map(figures).collect()
    }

    /// What a reader of the mean model's figures could miss.
    fn warnings(&self, all: &Figures) -> Vec<String> {
        let mut warnings = Vec::new();
        let present = all.classes.iter().filter(|class| class.rows > 0).count();
        if let (Some(accuracy), Some(baseline)) = (all.accuracy, &all.baseline)
            && accuracy <= baseline.accuracy
            && present > 1
        {
            warnings.push(format!(
                "the mean model ({}) is not better than always predicting \"{}\" ({})",
                percent(accuracy),
                baseline.class,
                percent(baseline.accuracy)
            ));
        }
        let greatest = all.classes.iter().max_by_key(|class| class.rows);
        if let Some(greatest) = greatest.filter(|_| present > 1)
            && (greatest.rows as f64 * present as f64) > UNBALANCED * all.rows as f64
        {
            warnings.push(format!(
                "the classes are not balanced: {} of the test rows are \"{}\": compare the \
                 balanced accuracy, and the recall of each class",
                percent(greatest.rows as f64 / all.rows as f64),
                greatest.class
            ));
        }
        let missing: Vec<&str> = all
            .classes
            .iter()
            .filter(|class| class.rows == 0)
            .map(|class| class.class.as_str())
            .collect();
        if !missing.is_empty() {
            let more = if missing.len() > SHOWN { ", ..." } else { "" };
            let shown = missing[..missing.len().min(SHOWN)].join(", ");
            warnings.push(format!("no test row is of class {shown}{more}"));
        }
        for output in &all.outputs {
            if output.rmse >= output.baseline_rmse && output.baseline_rmse > 0.0 {
                warnings.push(format!(
                    "{}: the mean model (RMSE {:.4}) is not better than always predicting the \
                     mean of the training rows ({:.4})",
                    output.output, output.rmse, output.baseline_rmse
                ));
            }
        }
        warnings
    }
}

/// A loss on the training rows this many times that of equal probabilities is worth a warning.
const WORSE: f64 = 100.0;

/// A warning if there is one class only, or if the mean model does far worse on the training rows
/// than one that knows nothing.
pub(super) fn training_warning(design: &Design, loss: Option<f64>) -> Option<String> {
    let is_of_classes = |model: Model| model.task() == Task::Classification;
    if !design.table_model().is_ok_and(is_of_classes) {
        return None;
    }
    if design.outputs == 1 {
        let names = design.output_names();
        let name = names.first().map_or("0", String::as_str);
        return Some(format!("\"{name}\" is the only class: a model of it is always right"));
    }
    let (loss, even) = (loss?, libm::log(design.outputs as f64));
    (loss.is_nan() || loss > WORSE * even).then(|| {
        format!(
            "the loss of the mean model on the training rows is {loss:.4}, that of equal \
             probabilities {even:.4}: the step is too large, or the features differ too much in \
             size"
        )
    })
}

/// Sites on whose rows the mean model is far worse than on the rows of all others.
fn sites(design: &Design, parts: &[Part<'_>]) -> Vec<String> {
    let rows = parts.iter().map(|part| part.score.rows as f64).sum::<f64>();
    let correct = |part: &Part<'_>| part.score.correct.map(|correct| correct as f64);
    let square = |part: &Part<'_>| match part.counts {
        Some(Counts::Values(sums)) if sums.len() == 1 => Some(sums[0].square),
        _ => None,
    };
    let all_correct: Option<f64> = parts.iter().map(correct).sum();
    let all_square: Option<f64> = parts.iter().map(square).sum();
    let mut warnings: Vec<String> = single_class(design, parts).into_iter().collect();
    for part in parts {
        let (own, name) = (part.score.rows as f64, &design.topology.node(part.node).name);
        let others = rows - own;
        if others == 0.0 {
            continue;
        }
        if let (Some(all), Some(right)) = (all_correct, correct(part)) {
            let (here, there) = (right / own, (all - right) / others);
            let error = (there * (1.0 - there) / own).sqrt();
            if there - here > FAR_BELOW.max(STANDARD_ERRORS * error) {
                warnings.push(format!(
                    "site {name}: the mean model classifies {} of its {} test rows correctly, and \
                     {} of the others'",
                    percent(here),
                    part.score.rows,
                    percent(there)
                ));
            }
        }
        if let (Some(all), Some(sum)) = (all_square, square(part)) {
            let (here, there) = ((sum / own).sqrt(), ((all - sum) / others).max(0.0).sqrt());
            if here > FAR_ABOVE * there && there > 0.0 {
                warnings.push(format!(
                    "site {name}: the mean model's RMSE is {here:.4} on its {} test rows, and \
                     {there:.4} on the others'",
                    part.score.rows
                ));
            }
        }
    }
    warnings
}

/// A warning of sites whose test rows are all of one class.
fn single_class(design: &Design, parts: &[Part<'_>]) -> Option<String> {
    let single = |part: &&Part<'_>| match part.counts {
        Some(Counts::Classes(counts)) => {
            let quality = ClassQuality::of_counts(counts);
            quality.classes() > 1 && quality.rows().iter().filter(|rows| **rows > 0).count() == 1
        }
        _ => false,
    };
    let single: Vec<&Part<'_>> = parts.iter().filter(single).collect();
    let names: Vec<&str> = (single.iter().take(SHOWN))
        .map(|part| design.topology.node(part.node).name.as_str())
        .collect();
    let more = if single.len() > SHOWN { ", ..." } else { "" };
    (!single.is_empty()).then(|| {
        format!(
            "site {}{more}: all test rows are of one class: no accuracy there, balanced or not, \
             says anything about the others",
            names.join(", ")
        )
    })
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}
