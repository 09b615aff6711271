//! What a study expects of its rows, checked by a machine.

use serde::{Deserialize, Serialize};

use super::{
    bench::Outcome,
    figure::{Figure, Target, rounded},
    trace::Status,
};
use crate::config::ConfigError;

/// An inequality, or how a row ends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The row that it is about.
    pub row: String,
    /// Which of its figures, as mean over seeds.
    pub metric: Option<Figure>,
    /// The figure is above this (times that of another row).
    pub above: Option<f64>,
    /// The figure is below this (times that of another row).
    pub below: Option<f64>,
    /// The other row.
    pub times: Option<String>,
    /// `ok`, `diverged` or `refused`: every seed.
    pub status: Option<String>,
    /// What it means.
    pub words: String,
}

/// An expectation beside the figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Whether the figures agree.
    pub agrees: bool,
    /// What was expected, in the study's words.
    pub words: String,
    /// The figures.
    pub figures: String,
}

impl Expectation {
    /// Checks its form and that its rows exist.
    ///
    /// # Errors
    /// If it says too little or too much, or names a row that there is not.
    pub fn check(&self, place: &str, rows: &[&str]) -> Result<(), ConfigError> {
        for row in std::iter::once(&self.row).chain(&self.times) {
            if !rows.contains(&row.as_str()) {
                let problem = format!("there is no such row; there are {}", rows.join("; "));
                return Err(ConfigError::new(place, format!("\"{row}\""), problem));
            }
        }
        let bounds = usize::from(self.above.is_some()) + usize::from(self.below.is_some());
        let form = match (&self.status, self.metric) {
            (Some(status), None) => {
                matches!(status.as_str(), "ok" | "diverged" | "refused") && bounds == 0 && self.times.is_none()
            }
            (None, Some(_)) => bounds > 0,
            _ => false,
        };
        let problem = "expected a metric with above or below (and times, another row), or status = \"ok\", \"diverged\" or \"refused\"";
        if form { Ok(()) } else { Err(ConfigError::at(place, problem)) }
    }

    fn judge(&self, outcomes: &[(&str, &Outcome)], target: Option<&Target>) -> Check {
        let find = |name: &str| outcomes.iter().find(|(row, _)| *row == name).map(|(_, outcome)| *outcome);
        let check = |agrees, figures| Check { agrees, words: self.words.trim().trim_end_matches('.').into(), figures };
        let Some(row) = find(&self.row) else { return check(false, format!("{}: not run", self.row)) };
        if let Some(status) = &self.status {
            let is = |run: &Status| match run {
                Status::Ok => status == "ok",
                Status::Diverged(_) => status == "diverged",
                Status::Refused(_) => status == "refused",
                Status::Failed(_) | Status::Interrupted => false,
            };
            return check(row.runs.iter().all(|run| is(&run.status)), format!("{}: {}", self.row, row.status()));
        }
        let metric = self.metric.unwrap_or(Figure::TrainLoss);
        let mean = |outcome: &Outcome| metric.over(&outcome.runs, target).map(|spread| spread.mean);
        let Some(own) = mean(row) else {
            return check(false, format!("{}: {} is not known ({})", self.row, metric.words(), row.status()));
        };
        let mut figures = format!("{}: {} {}", self.row, metric.words(), said(metric, own));
        let mut unit = 1.0;
        if let Some(times) = &self.times {
            let Some(other) = find(times).and_then(mean) else {
                return check(false, format!("{figures}; {times}: not known"));
            };
            figures += &format!("; {times}: {}", said(metric, other));
            unit = other;
            if own.is_finite() && other.is_finite() && other != 0.0 {
                figures += &format!("; ratio {}", rounded(own / other, 3));
            }
        }
        let above = self.above.is_none_or(|bound| own > bound * unit);
        let below = self.below.is_none_or(|bound| own < bound * unit);
        let bounds: Vec<String> = [("above", self.above), ("below", self.below)]
            .into_iter()
            .filter_map(|(word, bound)| bound.map(|bound| format!("{word} {bound}")))
            .collect();
        let times = if self.times.is_some() { " times" } else { "" };
        check(above && below, format!("{figures} ({}{times} expected)", bounds.join(" and ")))
    }
}

fn said(metric: Figure, value: f64) -> String {
    if value.is_infinite() && !matches!(metric, Figure::RoundsTo | Figure::PayloadTo) {
        return "diverged".into();
    }
    metric.show(value)
}

/// All expectations beside the figures.
pub fn judge(expectations: &[Expectation], outcomes: &[(&str, &Outcome)], target: Option<&Target>) -> Vec<Check> {
    expectations.iter().map(|expectation| expectation.judge(outcomes, target)).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            case::{Base, Case},
            trace::{Point, Trace},
        },
        *,
    };

    fn outcome(loss: f64, status: Status) -> Outcome {
        let point = |rounds, train_loss| Point {
            time_s: 0.0,
            computing_s: 0.0,
            rounds,
            train_loss,
            test_accuracy: None,
            node_accuracy: None,
            worst_accuracy: None,
            consensus: 0.0,
            payload: 0.0,
            wire: 0.0,
        };
        let trace = Trace {
            seed: 1,
            status,
            points: vec![point(0, 8.0), point(10, loss)],
            optimum: None,
            parameters: 1,
            rho: 0.0,
            warnings: Vec::new(),
            digest: String::new(),
            seconds: 0.0,
        };
        let case = Case { name: String::new(), base: Base::Default, sets: Vec::new() };
        Outcome { case, tuned: None, runs: vec![trace] }
    }

    fn expectation(text: &str) -> Expectation {
        toml::from_str(&format!("words = 'w'\n{text}")).unwrap()
    }

    #[test]
    fn inequalities_can_agree_and_disagree() {
        let (naive, dcd) = (outcome(0.6, Status::Ok), outcome(0.1, Status::Ok));
        let lost = outcome(f64::NAN, Status::Diverged(3));
        let rows = [("naive", &naive), ("dcd", &dcd), ("lost", &lost)];
        for (text, agrees) in [
            ("row='naive'\nmetric='train_loss'\nabove=3.0\ntimes='dcd'", true),
            ("row='naive'\nmetric='train_loss'\nabove=7.0\ntimes='dcd'", false),
            ("row='dcd'\nmetric='train_loss'\nbelow=0.2", true),
            ("row='dcd'\nmetric='train_loss'\nabove=0.05\nbelow=0.09", false),
            ("row='lost'\nmetric='train_loss'\nabove=1e9", true),
            ("row='lost'\nmetric='train_loss'\nbelow=1e9", false),
            ("row='dcd'\nmetric='train_loss'\nbelow=0.5\ntimes='lost'", true),
            ("row='dcd'\nmetric='test_accuracy'\nabove=0.0", false),
            ("row='lost'\nstatus='diverged'", true),
            ("row='dcd'\nstatus='diverged'", false),
            ("row='dcd'\nstatus='ok'", true),
        ] {
            let check = expectation(text).judge(&rows, None);
            assert_eq!(check.agrees, agrees, "{text}: {check:?}");
        }
        let check = expectation("row='naive'\nmetric='train_loss'\nabove=3\ntimes='dcd'").judge(&rows, None);
        assert_eq!(check.figures, "naive: train loss 0.6000; dcd: 0.1000; ratio 6.00 (above 3 times expected)");
    }

    #[test]
    fn what_says_too_little_is_refused() {
        let rows = ["a", "b"];
        for text in
            ["row='a'", "row='a'\nmetric='train_loss'", "row='a'\nstatus='fine'", "row='a'\nstatus='ok'\nabove=1"]
        {
            let error = expectation(text).check("expect 1", &rows).unwrap_err().to_string();
            assert!(error.starts_with("expect 1: expected a metric"), "{error}");
        }
        let error = expectation("row='c'\nstatus='ok'").check("expect 1", &rows).unwrap_err().to_string();
        assert_eq!(error, "expect 1 = \"c\": there is no such row; there are a; b");
    }
}
