//! A grid: values of a key from which tuning takes the best.

use serde::Serialize;

use super::case::Case;
use gradvine::{
    compress::COMPRESSORS,
    config::{self, ConfigError},
    experiment::cut,
    gossip::rule::RULES,
};

/// The value in a grid that leaves a key unchanged.
const UNCHANGED: &str = "default";

/// Values of a key from which tuning takes the best.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grid {
    /// The key, such as `optimizer.step`.
    pub key: String,
    /// Its values, as for `--set`; `default` leaves the key unchanged.
    pub values: Vec<String>,
    /// Keys that change with it, each with the same number of values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<(String, Vec<String>)>,
}

impl Grid {
    /// Parses `optimizer.step=0.05,0.1,0.2`, or with keys that change together
    /// `optimizer.local_steps=1,10; network.compute_ms=5,50`.
    ///
    /// # Errors
    /// If it is not a key and values, or keys that change together have different numbers of
    /// values.
    ///
    /// ```
    /// let grid = gradvine_study::Grid::parse("--grid", "optimizer.step=0.05,0.1").unwrap();
    /// assert_eq!((grid.key.as_str(), grid.values.len()), ("optimizer.step", 2));
    /// ```
    pub fn parse(place: &str, text: &str) -> Result<Grid, ConfigError> {
        let wrong = || {
            let problem =
                "expected section.key=value,value,..., such as optimizer.step=0.05,0.1,0.2";
            ConfigError::new(place, format!("\"{text}\""), problem)
        };
        let mut keys = Vec::new();
        for part in cut(text, &[';']) {
            let (key, values) = part.split_once('=').ok_or_else(wrong)?;
            let values = cut(values, &[',']);
            let key = key.trim();
            if !key.contains('.')
                || key.starts_with("run.seed")
                || values.iter().any(String::is_empty)
            {
                return Err(wrong());
            }
            check_key(place, text, key)?;
            keys.push((key.to_string(), values));
        }
        let (key, values) = keys.remove(0);
        if let Some((other, found)) = keys.iter().find(|(_, found)| found.len() != values.len()) {
            let problem = format!(
                "{key} has {} values and {other} {}: as many are needed",
                values.len(),
                found.len()
            );
            return Err(ConfigError::new(place, format!("\"{text}\""), problem));
        }
        Ok(Grid { key, values, with: keys })
    }

    /// Whether a case has this key: constants belong to their rules and compressors.
    pub(super) fn fits(&self, case: &Case) -> bool {
        let Ok(experiment) = case.experiment(&[]) else { return true };
        let known =
            |table: &toml::Table, name: &str, constants: &dyn Fn(&str) -> Vec<&'static str>| {
                let kind = table.get("kind").and_then(toml::Value::as_str).unwrap_or_default();
                constants(kind).contains(&name)
            };
        match self.key.split_once('.') {
            Some(("rule" | "compressor", "kind")) => true,
            Some(("rule", name)) => known(&experiment.rule, name, &|kind| {
                let entries = RULES.iter().filter(|entry| entry.name == kind);
                entries.flat_map(|entry| entry.constants.iter().map(|(key, _)| *key)).collect()
            }),
            Some(("compressor", name)) => known(&experiment.compressor, name, &|kind| {
                let entries = COMPRESSORS.iter().filter(|entry| entry.name == kind);
                entries.flat_map(|entry| entry.constants.iter().map(|(key, _)| *key)).collect()
            }),
            _ => true,
        }
    }

    /// Whether the grid may be widened: only the step and fractions. Whole numbers and words are a
    /// choice.
    pub(super) fn widens(&self) -> bool {
        let numbers: Vec<f64> = self.values.iter().filter_map(|value| value.parse().ok()).collect();
        let fractions = numbers.iter().any(|x| x.fract() != 0.0);
        self.with.is_empty()
            && numbers.len() > 1
            && numbers.iter().all(|x| x.is_finite() && *x > 0.0)
            && (self.key == "optimizer.step" || fractions)
    }

    /// The settings for a value and its companions; none for the value that leaves the key
    /// unchanged.
    pub(crate) fn sets(&self, value: &str) -> Vec<String> {
        let own = (value != UNCHANGED).then(|| format!("{}={value}", self.key));
        let index = self.values.iter().position(|other| other == value);
        let with = self.with.iter().filter_map(|(key, values)| {
            let value = values.get(index?)?;
            (value != UNCHANGED).then(|| format!("{key}={value}"))
        });
        own.into_iter().chain(with).collect()
    }
}

/// Whether `value` is the least or greatest of several numbers; `Some(true)` if the greatest.
pub(crate) fn edge(values: &[String], value: &str) -> Option<bool> {
    let numbers: Vec<f64> = values.iter().filter_map(|value| value.parse().ok()).collect();
    let own: f64 = value.parse().ok()?;
    if numbers.iter().all(|x| *x == own) {
        return None;
    }
    if numbers.iter().all(|x| *x <= own) {
        return Some(true);
    }
    numbers.iter().all(|x| *x >= own).then_some(false)
}

/// The next value beyond an end, at the same logarithmic distance as the neighbour; `None` without
/// a neighbour.
pub(crate) fn beyond(values: &[String], above: bool) -> Option<String> {
    let mut numbers: Vec<f64> = values.iter().filter_map(|value| value.parse().ok()).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    if above {
        numbers.reverse();
    }
    let (end, neighbour) = (numbers.first()?, numbers.get(1)?);
    let next: f64 = format!("{:.6e}", end * end / neighbour).parse().ok()?;
    (next > 0.0 && next.is_finite()).then(|| next.to_string())
}

/// All combinations of the grids' values, the first key slowest; none if there is no grid.
pub(crate) fn product(grids: &[&Grid]) -> Vec<Vec<String>> {
    if grids.is_empty() {
        return Vec::new();
    }
    let mut points = vec![Vec::new()];
    for grid in grids {
        let with = |point: &Vec<String>, value: &String| {
            point.iter().cloned().chain([value.clone()]).collect::<Vec<_>>()
        };
        points = points
            .iter()
            .flat_map(|point| grid.values.iter().map(move |value| with(point, value)))
            .collect();
    }
    points
}

/// Refuses a constant that no rule or compressor has; cases without a constant that others have
/// leave it out.
fn check_key(place: &str, text: &str, key: &str) -> Result<(), ConfigError> {
    let constants: Vec<&str> = match key.split_once('.') {
        Some(("rule", _)) => {
            RULES.iter().flat_map(|entry| entry.constants).map(|(name, _)| *name).collect()
        }
        Some(("compressor", _)) => {
            COMPRESSORS.iter().flat_map(|entry| entry.constants).map(|(name, _)| *name).collect()
        }
        _ => return Ok(()),
    };
    let name = key.split_once('.').map_or(key, |(_, name)| name);
    if name == "kind" || constants.contains(&name) {
        return Ok(());
    }
    let problem =
        format!("no rule or compressor has a constant `{name}`{}", config::hint(name, constants));
    Err(ConfigError::new(place, format!("\"{text}\""), problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::case::Base;

    fn case(sets: &[&str]) -> Case {
        Case {
            name: "c".into(),
            base: Base::Default,
            sets: sets.iter().map(ToString::to_string).collect(),
        }
    }

    fn grid(text: &str) -> Grid {
        Grid::parse("--grid", text).unwrap()
    }

    #[test]
    fn grids_multiply_and_default_leaves_a_key_alone() {
        let (step, gamma) = (grid("optimizer.step=0.1,0.2"), grid("rule.gamma=default,0.3"));
        assert_eq!(product(&[&step, &gamma]).len(), 4);
        assert_eq!(product(&[&step, &gamma])[1], ["0.1", "0.3"]);
        assert_eq!(
            (gamma.sets("default").len(), gamma.sets("0.3")),
            (0, vec!["rule.gamma=0.3".to_string()])
        );
        assert!(product(&[]).is_empty());
        for text in ["step=1,2", "optimizer.step", "optimizer.step=0.1,,0.2", "run.seed=1,2"] {
            assert!(
                Grid::parse("--grid", text)
                    .unwrap_err()
                    .to_string()
                    .contains("such as optimizer.step="),
                "{text}"
            );
        }
    }

    #[test]
    fn keys_can_change_together() {
        let steps = grid("optimizer.local_steps=1,10; network.compute_ms=5,50");
        assert_eq!(steps.sets("10"), ["optimizer.local_steps=10", "network.compute_ms=50"]);
        assert!(!steps.widens(), "a choice");
        let error = Grid::parse("--grid", "optimizer.local_steps=1,10; run.rounds=5")
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with(
                "optimizer.local_steps has 2 values and run.rounds 1: as many are needed"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_constant_is_tuned_only_if_the_rule_has_it() {
        let gamma = grid("rule.gamma=0.1,0.3");
        assert!(gamma.fits(&case(&["rule.kind=choco"])) && !gamma.fits(&case(&["rule.kind=dcd"])));
        let levels = grid("compressor.levels=1,3");
        assert!(
            levels.fits(&case(&["compressor.kind=qsgd"]))
                && !levels.fits(&case(&["compressor.kind=sign"]))
        );
        assert!(grid("optimizer.step=1,2").fits(&case(&["rule.kind=dcd"])));
    }

    #[test]
    fn fractions_widen_and_whole_numbers_are_a_choice() {
        assert!(grid("optimizer.step=1,2").widens() && grid("rule.gamma=default,0.1,0.3").widens());
        assert!(
            !grid("optimizer.local_steps=1,10").widens() && !grid("rule.kind=dcd,choco").widens()
        );
        let values = |text: &str| text.split(',').map(String::from).collect::<Vec<_>>();
        assert_eq!(beyond(&values("0.1,0.2,0.4"), true).as_deref(), Some("0.8"));
        assert_eq!(beyond(&values("0.1,0.3,0.9"), false).as_deref(), Some("0.03333333"));
        assert_eq!(beyond(&values("0.1"), true), None);
        assert_eq!(
            [edge(&values("1,2,4"), "4"), edge(&values("1,2,4"), "1")],
            [Some(true), Some(false)]
        );
        assert_eq!(
            [edge(&values("1,2,4"), "2"), edge(&values("1"), "1"), edge(&values("1,2"), "default")],
            [None; 3]
        );
    }
}
