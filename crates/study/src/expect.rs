//! The expectations of a study about its rows, checked by a machine.
//!
//! An expectation is an inequality about a figure, about its ratio to or its difference from that
//! of another row, or about a slope over several rows; or it states how a row ends. The 95 %
//! interval over seeds decides (see [`Interval`]), with rows paired by seed:
//!
//! | verdict | the interval |
//! |---|---|
//! | agrees | lies on the expected side of the bound, as a whole |
//! | contradicted | lies on the other side, as a whole |
//! | undecided | contains the bound |
//! | no evidence | missing: a row diverged, was refused, missed its target or lacks the figure |
//!
//! Only the first counts as agreement. An expectation that cannot fail is refused when the study is
//! read.

use serde::{Deserialize, Serialize};

use crate::{
    figure::{Figure, Target, rounded},
    runs::{outcome::Outcome, trace::Status},
};
use gradvine::config::ConfigError;
use gradvine_report::interval::Interval;

/// `[[expect]]`: an inequality about a row, or how a row ends. Accepted are `row` and `metric` with
/// `above` or `below` (and with `times` or `minus`, another row), `slope` and `at` with `metric`
/// and `above` or `below`, or `row` with `status`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The row that it is about.
    ///
    /// Accepts: the name of a row.
    pub row: Option<String>,
    /// The figure of the row.
    pub metric: Option<Figure>,
    /// The figure (ratio, difference, slope) is above this.
    ///
    /// Accepts: a number from 0; with `minus` from -1 where the figure is a share, else any; with
    /// `slope` any.
    pub above: Option<f64>,
    /// The figure (ratio, difference, slope) is below this.
    ///
    /// Accepts: any number; to 1 where the figure is a share, without `times` and `slope`.
    pub below: Option<f64>,
    /// The other row of a ratio: the figure of `row` divided by that of this row.
    ///
    /// Accepts: the name of another row; not together with `minus`.
    pub times: Option<String>,
    /// The other row of a difference: the figure of `row` less that of this row. Accuracies are
    /// shares: 0.01 is a point.
    ///
    /// Accepts: the name of another row; not together with `times`.
    pub minus: Option<String>,
    /// Instead of one row, those over which the slope of the figure's logarithm is taken.
    ///
    /// Accepts: a list of names of two or more rows.
    #[serde(default)]
    pub slope: Vec<String>,
    /// What the slope's rows stand at along the axis, such as numbers of nodes. The slope is over
    /// the logarithms of these.
    ///
    /// Accepts: a list of as many numbers as `slope` has rows.
    #[serde(default)]
    pub at: Vec<f64>,
    /// How the run of every seed ends.
    ///
    /// Accepts: `"ok"`, `"diverged"` or `"refused"`.
    pub status: Option<String>,
    /// Its meaning.
    pub words: String,
}

/// The result of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies on the expected side.
    Agrees,
    /// It lies on the other side.
    Contradicted,
    /// The bound lies in the interval.
    Undecided,
    /// A row diverged, was refused, missed its target or has no such figure.
    NoEvidence,
}

/// An expectation with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Whether the interval of the figure lies on the expected side of the bound.
    pub verdict: Verdict,
    /// The expectation, in the study's words.
    pub words: String,
    /// The rows' figures with their spread, and the bound, in words.
    pub figures: String,
}

impl Verdict {
    /// The text for pages and terminals.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Contradicted => "does not agree",
            Verdict::Undecided => "undecided",
            Verdict::NoEvidence => "no evidence",
        }
    }
}

impl Check {
    /// Whether the verdict is [`Verdict::Agrees`].
    pub fn agrees(&self) -> bool {
        self.verdict == Verdict::Agrees
    }
}

/// The rows of a study, each with its name.
type Rows<'a> = [(&'a str, &'a Outcome)];

impl Expectation {
    /// Checks its form, that its rows exist and that it can fail.
    ///
    /// # Errors
    /// If it has too few or too many keys, names an unknown row, or cannot fail.
    pub fn check(&self, place: &str, rows: &[&str]) -> Result<(), ConfigError> {
        for row in self.row.iter().chain(&self.times).chain(&self.minus).chain(&self.slope) {
            if !rows.contains(&row.as_str()) {
                let problem = format!("there is no such row; there are {}", rows.join("; "));
                return Err(ConfigError::new(place, format!("\"{row}\""), problem));
            }
        }
        let bounded = self.above.is_some() || self.below.is_some();
        let others = usize::from(self.times.is_some()) + usize::from(self.minus.is_some());
        let sloped = self.slope.len() > 1
            && self.slope.len() == self.at.len()
            && self.row.is_none()
            && others == 0;
        let single =
            self.slope.is_empty() && self.at.is_empty() && self.row.is_some() && others < 2;
        let form = match (&self.status, self.metric) {
            (Some(status), None) => {
                matches!(status.as_str(), "ok" | "diverged" | "refused")
                    && !bounded
                    && others == 0
                    && single
            }
            (None, Some(_)) => bounded && (single || sloped),
            _ => false,
        };
        if !form {
            let problem = "expected a row and a metric with above or below (and times or minus, \
                           another row), or slope, two or more \
                           rows, with at, as many numbers, or a row with status \
                           = \"ok\", \"diverged\" or \"refused\"";
            return Err(ConfigError::at(place, problem));
        }
        if self.slope.is_empty() && self.status.is_none() { self.can_fail(place) } else { Ok(()) }
    }

    /// Refuses an expectation that cannot fail: a row compared with itself, or a bound that the
    /// figure cannot reach.
    fn can_fail(&self, place: &str) -> Result<(), ConfigError> {
        if self.row == self.times || self.row == self.minus {
            return Err(ConfigError::at(
                place,
                "compares a row with itself, which no figure could contradict",
            ));
        }
        let most = if self.metric.is_some_and(Figure::is_share) && self.times.is_none() {
            1.0
        } else {
            f64::INFINITY
        };
        let least = if self.minus.is_some() { -most } else { 0.0 };
        for (word, bound, vacuous) in [
            ("above", self.above, self.above < Some(least)),
            ("below", self.below, self.below > Some(most)),
        ] {
            if let (Some(bound), true) = (bound, vacuous) {
                return Err(ConfigError::new(
                    place,
                    format!("{word} = {bound}"),
                    "holds for every figure: an expectation must be able to fail",
                ));
            }
        }
        Ok(())
    }

    fn judge(&self, rows: &Rows<'_>, target: Option<&Target>) -> Check {
        let check = |verdict, figures| Check {
            verdict,
            words: self.words.trim().trim_end_matches('.').into(),
            figures,
        };
        if let Some(status) = &self.status {
            return self.ends(status, rows, check);
        }
        let metric = self.metric.unwrap_or(Figure::TrainLoss);
        let names: Vec<&str> = self
            .row
            .iter()
            .chain(&self.times)
            .chain(&self.minus)
            .chain(&self.slope)
            .map(String::as_str)
            .collect();
        let mut values = Vec::new();
        for name in &names {
            match evidence(name, rows, metric, target) {
                Ok(of_row) => values.push(of_row),
                Err(why) => return check(Verdict::NoEvidence, why),
            }
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (kind, interval) = self.interval(&values);
        let Some(interval) = interval else {
            return check(
                Verdict::NoEvidence,
                format!("{}: {} has no slope", names.join("; "), metric.words()),
            );
        };
        let figures: Vec<String> = (names.iter().zip(&values).enumerate())
            .map(|(index, (name, values))| {
                let words = if index == 0 { format!("{} ", metric.words()) } else { String::new() };
                format!("{name}: {words}{}", metric.show(mean(values)))
            })
            .collect();
        let mut bounds = Vec::new();
        let mut verdict = Verdict::Agrees;
        for (word, bound) in [("above", self.above), ("below", self.below)] {
            let Some(bound) = bound else { continue };
            bounds.push(format!("{word} {}", kind.show(metric, bound)));
            let (holds, fails) = if word == "above" {
                (interval.low > bound, interval.high <= bound)
            } else {
                (interval.high < bound, interval.low >= bound)
            };
            verdict = match (verdict, holds, fails) {
                (Verdict::Contradicted, ..) | (_, _, true) => Verdict::Contradicted,
                (before, true, _) => before,
                _ => Verdict::Undecided,
            };
        }
        let range = if interval.half() > 0.0 {
            format!(", {} to {}", kind.show(metric, interval.low), kind.show(metric, interval.high))
        } else {
            String::new()
        };
        let middle = kind.show(metric, interval.mean);
        let bounds = bounds.join(" and ");
        check(
            verdict,
            format!("{}; {} {middle}{range} ({bounds} expected)", figures.join("; "), kind.words()),
        )
    }

    fn ends(
        &self,
        status: &str,
        rows: &Rows<'_>,
        check: impl Fn(Verdict, String) -> Check,
    ) -> Check {
        let name = self.row.as_deref().unwrap_or_default();
        let Some(row) = find(name, rows) else {
            return check(Verdict::NoEvidence, format!("{name}: not run"));
        };
        let is = |run: &Status| match run {
            Status::Ok => status == "ok",
            Status::Diverged(_) => status == "diverged",
            Status::Refused(_) => status == "refused",
            Status::Failed(_) | Status::GivenUp | Status::Interrupted => false,
        };
        let all = row.runs.iter().all(|run| is(&run.status));
        let verdict = if all { Verdict::Agrees } else { Verdict::Contradicted };
        check(verdict, format!("{name}: {}", row.status()))
    }

    /// The quantity to compare with the bounds, from the rows' values.
    fn interval(&self, values: &[Vec<f64>]) -> (Kind, Option<Interval>) {
        if !self.slope.is_empty() {
            return (Kind::Slope, Interval::of_slopes(&self.at, values));
        }
        match (&self.times, &self.minus, values) {
            (Some(_), _, [a, b]) => match Interval::of_ratios(a, b) {
                Some(ratio) => (Kind::Ratio, Some(ratio)),
                None => (Kind::Ratio, of_means(a, b)),
            },
            (_, Some(_), [a, b]) => (Kind::Difference, Interval::of_differences(a, b)),
            _ => (Kind::Plain, Interval::of(&values[0])),
        }
    }
}

/// The ratio for rows with values of 0, where single seeds have no ratio: of the means over all
/// seeds but one, with an interval from their spread. `None` if a mean of the divisor is 0.
fn of_means(a: &[f64], b: &[f64]) -> Option<Interval> {
    let mean = |values: &[f64], without: usize| {
        let kept = values
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != without)
            .map(|(_, value)| value);
        kept.sum::<f64>()
    };
    let count = if a.len() == 1 { 0..1 } else { 0..a.len() };
    let without = |index: usize| if a.len() == 1 { usize::MAX } else { index };
    let ratios: Vec<f64> =
        count.map(|index| mean(a, without(index)) / mean(b, without(index))).collect();
    // The jackknife: n - 1 times the spread of the means without one seed (Efron and Stein, 1981).
    let interval = Interval::of(&ratios)?;
    let half = interval.half() * (a.len() as f64 - 1.0).max(0.0);
    Some(Interval { mean: interval.mean, low: interval.mean - half, high: interval.mean + half })
}

/// The quantity of an interval.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Ratio,
    Difference,
    Slope,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Plain => "mean",
            Kind::Ratio => "ratio",
            Kind::Difference => "difference",
            Kind::Slope => "slope",
        }
    }

    fn show(self, metric: Figure, value: f64) -> String {
        match self {
            Kind::Plain => metric.show(value),
            Kind::Difference if metric.is_accuracy() => format!("{:+.2} points", 100.0 * value),
            Kind::Difference => rounded(value, 3),
            Kind::Ratio | Kind::Slope => rounded(value, 3),
        }
    }
}

fn find<'a>(name: &str, rows: &Rows<'a>) -> Option<&'a Outcome> {
    rows.iter().find(|(row, _)| *row == name).map(|(_, outcome)| *outcome)
}

/// A row's figure for every seed, or why there is no evidence.
fn evidence(
    name: &str,
    rows: &Rows<'_>,
    metric: Figure,
    target: Option<&Target>,
) -> Result<Vec<f64>, String> {
    let Some(row) = find(name, rows) else { return Err(format!("{name}: not run")) };
    if !row.is_ok() {
        return Err(format!("{name}: {}", row.status()));
    }
    let Some(values) = metric.values(&row.runs, target) else {
        return Err(format!("{name}: {} is not known", metric.words()));
    };
    let lost = values.iter().filter(|value| !value.is_finite()).count();
    if lost == 0 {
        return Ok(values);
    }
    let what = if metric.is_to_target() {
        "the target was not reached"
    } else {
        "the figure is not finite"
    };
    Err(format!("{name}: {what} in {lost} of {} seeds", values.len()))
}

/// Checks all expectations against the figures.
pub fn judge(
    expectations: &[Expectation],
    outcomes: &[(&str, &Outcome)],
    target: Option<&Target>,
) -> Vec<Check> {
    expectations.iter().map(|expectation| expectation.judge(outcomes, target)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::{
        case::{Base, Case},
        trace::{Point, Trace},
    };

    fn run(loss: f64, status: Status) -> Trace {
        let point = |rounds, train_loss| Point {
            time_s: 0.0,
            computing_s: 0.0,
            rounds,
            train_loss,
            test_accuracy: Some(train_loss / 10.0),
            node_accuracy: None,
            worst_accuracy: None,
            consensus: 0.0,
            payload: 0.0,
            wire: 0.0,
        };
        Trace {
            seed: 1,
            status,
            points: vec![point(0, 8.0), point(10, loss)],
            optimum: None,
            parameters: 1,
            rho: 0.0,
            local_steps: 1,
            setup_s: 0.0,
            warnings: Vec::new(),
            digest: String::new(),
            seconds: 0.0,
        }
    }

    fn outcome(losses: &[f64], status: &Status) -> Outcome {
        let case = Case { name: String::new(), base: Base::Default, sets: Vec::new() };
        Outcome {
            case,
            tuned: None,
            runs: losses.iter().map(|loss| run(*loss, status.clone())).collect(),
        }
    }

    fn expectation(text: &str) -> Expectation {
        toml::from_str(&format!("words = 'w'\n{text}")).unwrap()
    }

    #[test]
    fn intervals_decide() {
        use Verdict::{Agrees, Contradicted, NoEvidence, Undecided};
        let ok = |losses: &[f64]| outcome(losses, &Status::Ok);
        // Seeds differ by more than rows do; row by row b is 10 to 12 % above a; c varies freely.
        let (a, b, c) = (ok(&[1.0, 2.0, 4.0]), ok(&[1.1, 2.22, 4.48]), ok(&[4.0, 1.0, 2.0]));
        let lost = outcome(&[f64::NAN; 3], &Status::Diverged(3));
        let zero = ok(&[0.0, 0.0, 3e-9]);
        let rows = [("a", &a), ("b", &b), ("c", &c), ("lost", &lost), ("zero", &zero)];
        for (text, verdict) in [
            ("row='b'\nmetric='train_loss'\nabove=1.05\ntimes='a'", Agrees),
            ("row='b'\nmetric='train_loss'\nbelow=1.05\ntimes='a'", Contradicted),
            ("row='b'\nmetric='train_loss'\nabove=1.11\ntimes='a'", Undecided),
            ("row='b'\nmetric='train_loss'\nabove=1.05\nbelow=1.2\ntimes='a'", Agrees),
            ("row='b'\nmetric='train_loss'\nabove=1.05\nbelow=1.06\ntimes='a'", Contradicted),
            ("row='c'\nmetric='train_loss'\nbelow=2.0\ntimes='a'", Undecided),
            ("row='a'\nmetric='train_loss'\nbelow=9.0", Agrees),
            ("row='a'\nmetric='train_loss'\nbelow=3.0", Undecided),
            ("row='b'\nmetric='test_accuracy'\nabove=-0.06\nminus='a'", Agrees),
            ("row='a'\nmetric='test_accuracy'\nabove=0.2\nminus='b'", Contradicted),
            ("row='zero'\nmetric='train_loss'\nbelow=0.001\ntimes='a'", Agrees),
            // A row that diverged is neither above nor below any bound.
            ("row='lost'\nmetric='train_loss'\nabove=0.1", NoEvidence),
            ("row='a'\nmetric='train_loss'\nbelow=0.5\ntimes='lost'", NoEvidence),
            ("row='lost'\nmetric='train_loss'\nabove=0.5\ntimes='a'", NoEvidence),
            ("row='a'\nmetric='node_accuracy'\nabove=0.5", NoEvidence),
            ("row='lost'\nstatus='diverged'", Agrees),
            ("row='a'\nstatus='diverged'", Contradicted),
            ("row='a'\nstatus='ok'", Agrees),
            ("slope=['a', 'b']\nat=[1.0, 2.0]\nmetric='train_loss'\nbelow=0.5", Agrees),
            ("slope=['a', 'b']\nat=[1.0, 2.0]\nmetric='train_loss'\nabove=0.5", Contradicted),
            ("slope=['a', 'lost']\nat=[1.0, 2.0]\nmetric='train_loss'\nabove=0.5", NoEvidence),
        ] {
            let expectation = expectation(text);
            expectation.check("expect 1", &["a", "b", "c", "lost", "zero"]).unwrap();
            let check = expectation.judge(&rows, None);
            assert_eq!(check.verdict, verdict, "{text}: {check:?}");
        }
        let check =
            expectation("row='b'\nmetric='train_loss'\nabove=1\ntimes='a'").judge(&rows, None);
        let figures =
            "b: train loss 2.600; a: 2.333; ratio 1.11, 1.09 to 1.14 (above 1.00 expected)";
        assert_eq!(check.figures, figures);
    }

    #[test]
    fn a_target_that_was_missed_is_no_evidence() {
        let (early, late) = (outcome(&[1.0, 1.0], &Status::Ok), outcome(&[1.0, 3.0], &Status::Ok));
        let rows = [("early", &early), ("late", &late)];
        let target = Target { metric: Figure::TrainLoss, value: 2.0 };
        let text = "row='early'\nmetric='rounds_to'\nbelow=0.5\ntimes='late'";
        let check = expectation(text).judge(&rows, Some(&target));
        assert_eq!(check.verdict, Verdict::NoEvidence);
        assert_eq!(check.figures, "late: the target was not reached in 1 of 2 seeds");
    }

    #[test]
    fn incomplete_and_unfalsifiable_expectations_are_refused() {
        let rows = ["a", "b"];
        let error =
            |text: &str| expectation(text).check("expect 1", &rows).unwrap_err().to_string();
        for text in [
            "row='a'",
            "row='a'\nmetric='train_loss'",
            "row='a'\nstatus='fine'",
            "row='a'\nstatus='ok'\nabove=1",
            "metric='train_loss'\nabove=1",
            "row='a'\nmetric='train_loss'\nabove=1\ntimes='b'\nminus='b'",
            "slope=['a', 'b']\nat=[1]\nmetric='train_loss'\nabove=1",
        ] {
            assert!(
                error(text).starts_with("expect 1: expected a row and a metric"),
                "{}",
                error(text)
            );
        }
        for text in [
            "row='a'\nmetric='train_loss'\nabove=-1.0",
            "row='a'\nmetric='test_accuracy'\nbelow=1.01",
            "row='a'\nmetric='test_accuracy'\nabove=-1.01\nminus='b'",
        ] {
            assert!(
                error(text).ends_with("an expectation must be able to fail"),
                "{}",
                error(text)
            );
        }
        assert!(
            error("row='a'\nmetric='train_loss'\nabove=1\ntimes='a'").contains("a row with itself")
        );
        assert_eq!(
            error("row='c'\nstatus='ok'"),
            "expect 1 = \"c\": there is no such row; there are a; b"
        );
    }
}
