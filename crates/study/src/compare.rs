//! Rules, compressors and topologies compared with each other: the combinations of lists, run and
//! shown.

use std::path::{Path, PathBuf};

use gradvine::{
    compress,
    config::ConfigError,
    data::check_unread,
    experiment::{Pick, picks},
    gossip::rule,
    mixing::Topology,
};
use gradvine_report::command_line;

use crate::{
    Base, Bench, Case, Grid, LEAST_SEEDS, LEAST_TUNING_SEEDS, Outcome, Status, TUNING, table::files,
};

/// The lists of rules, compressors and topologies of which all combinations run.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The experiment file; `None`: the default experiment.
    pub experiment: Option<PathBuf>,
    /// Rules, with constants after colons; `None`: the experiment's.
    pub rules: Option<String>,
    /// Compressors, with constants after colons; `None`: the experiment's.
    pub compressors: Option<String>,
    /// Topology files or specs, separated by commas.
    pub topologies: Option<String>,
    /// Settings of all combinations, each `key=value`.
    pub sets: Vec<String>,
    /// The number of rounds, if it is not the experiment's.
    pub rounds: Option<u64>,
    /// Keys that are tuned for each combination, each `key=value,value...`.
    pub grids: Vec<String>,
}

/// One combination and its result.
pub struct Row {
    /// The rule with its constants.
    pub rule: String,
    /// The compressor with its constants.
    pub compressor: String,
    /// The topology file or spec.
    pub topology: String,
    /// What the runs of this combination did, over all seeds.
    pub outcome: Outcome,
}

/// Combinations that can be run.
pub struct Combinations {
    /// Rule, compressor and topology of each.
    heads: Vec<[String; 3]>,
    cases: Vec<(Case, Vec<Grid>)>,
}

impl Combinations {
    /// The seed of the experiment.
    ///
    /// # Errors
    /// If the experiment is wrong.
    pub fn seed(&self) -> Result<u64, ConfigError> {
        let (case, _) = self.cases.first().expect("a list has at least one item");
        Ok(case.experiment(&[])?.run.seed)
    }

    /// Refuses a folder in which the comparison would write over a file that it reads.
    ///
    /// # Errors
    /// If it would; `place` is `--out`.
    pub fn check_output(&self, out: &Path) -> Result<(), ConfigError> {
        self.cases.iter().for_each(|(case, _)| case.note_files());
        files().try_for_each(|name| check_unread("--out", &out.join(name)))
    }

    /// Runs all combinations with these seeds, `jobs` runs at a time; they are tuned on seeds from
    /// the first one + [`TUNING`] on. `done` is called after each run with the number of runs that
    /// are over, that of all, and a name.
    pub fn run(
        self,
        seeds: &[u64],
        jobs: usize,
        stop: &(dyn Fn() -> bool + Sync),
        done: &(dyn Fn(usize, usize, &str) + Sync),
    ) -> Vec<Row> {
        let tuning = seeds[0] + TUNING;
        let outcomes = Bench {
            seeds: seeds.to_vec(),
            tuning_seeds: (tuning..tuning + LEAST_TUNING_SEEDS).collect(),
            finalists: None,
            goal: None,
            until: None,
            jobs,
            kept: None,
            optimum: false,
            stop,
            done,
        }
        .run(&self.cases);
        let row = |([rule, compressor, topology], outcome): ([String; 3], Outcome)| Row {
            rule,
            compressor,
            topology,
            outcome,
        };
        self.heads.into_iter().zip(outcomes).map(row).collect()
    }
}

/// The reason if no combination could run: then their common part is wrong.
pub fn refusal(rows: &[Row]) -> Option<&str> {
    let mut runs = rows.iter().flat_map(|row| &row.outcome.runs);
    let first = rows.first().and_then(|row| row.outcome.runs.first()).map(|run| &run.status);
    match first {
        Some(Status::Refused(why)) if runs.all(|run| matches!(run.status, Status::Refused(_))) => {
            Some(why)
        }
        _ => None,
    }
}

impl Comparison {
    /// The seeds: from `first` on, or the experiment's; `count`, or one, or the least number if
    /// settings are tuned.
    ///
    /// # Errors
    /// If settings are tuned and `count` is too small, or the seeds of tuning would be too large;
    /// `place` is `--seeds` or `--seed`. If the experiment is wrong.
    pub fn seeds(
        &self,
        combinations: &Combinations,
        first: Option<u64>,
        count: Option<u64>,
    ) -> Result<Vec<u64>, ConfigError> {
        let first = first.map_or_else(|| combinations.seed(), Ok)?;
        if first > u64::MAX - 2 * TUNING {
            let problem =
                format!("expected at most {}: the seeds of tuning follow", u64::MAX - 2 * TUNING);
            return Err(ConfigError::new("--seed", first, problem));
        }
        let least = if self.grids.is_empty() { 1 } else { LEAST_SEEDS };
        if let Some(count) = count.filter(|count| *count < least) {
            let problem =
                format!("settings tuned by --grid are compared over {LEAST_SEEDS} seeds or more");
            return Err(ConfigError::new("--seeds", count, problem));
        }
        Ok((first..first + count.unwrap_or(least)).collect())
    }

    /// The command line that repeats this comparison with these seeds, which follow each other.
    pub fn command(&self, seeds: &[u64]) -> String {
        let mut words = vec!["gradvine".to_string(), "compare".to_string()];
        words.extend(self.experiment.iter().map(|path| path.display().to_string()));
        let numbers = [self.rounds, seeds.first().copied(), Some(seeds.len() as u64)]
            .map(|number| number.map(|number| number.to_string()));
        let [rounds, first, count] = numbers;
        let many = |flag: &'static str, values: &[String]| -> Vec<(&str, Option<String>)> {
            values.iter().map(|value| (flag, Some(value.clone()))).collect()
        };
        let lists = [
            ("--rules", self.rules.clone()),
            ("--compressors", self.compressors.clone()),
            ("--topologies", self.topologies.clone()),
        ];
        let rest = [("--rounds", rounds), ("--seed", first), ("--seeds", count)];
        let flags = lists.into_iter().chain(many("--set", &self.sets));
        for (flag, value) in flags.chain(many("--grid", &self.grids)).chain(rest) {
            words.extend(value.into_iter().flat_map(|value| [flag.to_string(), value]));
        }
        command_line(words)
    }

    /// Every rule with every compressor on every topology; a rule that sends uncompressed vectors
    /// once.
    ///
    /// # Errors
    /// If a list names something that does not exist, or the experiment is wrong.
    pub fn combinations(&self) -> Result<Combinations, ConfigError> {
        let base = self.experiment.clone().map_or(Base::Default, Base::File);
        let mut sets = self.sets.clone();
        sets.extend(self.rounds.map(|rounds| format!("run.rounds={rounds}")));
        let plain = Case { name: String::new(), base: base.clone(), sets: sets.clone() };
        let experiment = plain.experiment(&[])?;
        let rules = self.picks("--rules", self.rules.as_ref(), &experiment.rule)?;
        let compressors =
            self.picks("--compressors", self.compressors.as_ref(), &experiment.compressor)?;
        for pick in rules.iter().flatten() {
            rule::find(&pick.kind).map_err(|error| error.with_place("--rules"))?;
        }
        for pick in compressors.iter().flatten() {
            compress::build(&pick.table("compressor")?)
                .map_err(|error| ConfigError::at("--compressors", error.to_string()))?;
        }
        let topologies = self.topologies()?;
        let grids = self
            .grids
            .iter()
            .map(|grid| Grid::parse("--grid", grid))
            .collect::<Result<Vec<_>, _>>()?;
        let identity = Some(Pick { kind: "identity".into(), constants: Vec::new() });
        let (mut heads, mut cases) = (Vec::new(), Vec::new());
        for topology in &topologies {
            for rule in &rules {
                let kind = rule
                    .as_ref()
                    .map_or_else(|| kind_of(&experiment.rule), |pick| pick.kind.clone());
                let whole = rule::RULES.iter().any(|entry| entry.name == kind && !entry.compresses);
                let chosen = if whole { std::slice::from_ref(&identity) } else { &compressors[..] };
                for compressor in chosen {
                    let mut sets = sets.clone();
                    sets.extend(rule.iter().flat_map(|pick| pick.sets("rule")));
                    sets.extend(compressor.iter().flat_map(|pick| pick.sets("compressor")));
                    sets.extend(
                        topology.iter().map(|spec| {
                            format!("topology.file={}", toml::Value::from(spec.as_str()))
                        }),
                    );
                    let head = [
                        rule.as_ref().map_or_else(|| kind.clone(), Pick::to_string),
                        compressor
                            .as_ref()
                            .map_or_else(|| kind_of(&experiment.compressor), Pick::to_string),
                        topology
                            .clone()
                            .or_else(|| experiment.topology.file.clone())
                            .unwrap_or_default(),
                    ];
                    cases.push((
                        Case {
                            name: called(&head, compressors.len() > 1, topologies.len() > 1),
                            base: base.clone(),
                            sets,
                        },
                        grids.clone(),
                    ));
                    heads.push(head);
                }
            }
        }
        Ok(Combinations { heads, cases })
    }

    /// The topologies of the list; without one that of the experiment.
    fn topologies(&self) -> Result<Vec<Option<String>>, ConfigError> {
        let topologies: Vec<Option<String>> = match &self.topologies {
            None => vec![None],
            Some(list) => list.split(',').map(|spec| Some(spec.trim().to_string())).collect(),
        };
        for spec in topologies.iter().flatten() {
            Topology::parse(spec, 1).map_err(ConfigError::from).map_err(|error| {
                match error.file {
                    Some(_) => error,
                    None => error.with_place("--topologies").with_value(format!("\"{spec}\"")),
                }
            })?;
        }
        Ok(topologies)
    }

    /// The items of a list; without one, a single item that keeps the experiment's value.
    fn picks(
        &self,
        place: &str,
        list: Option<&String>,
        table: &toml::Table,
    ) -> Result<Vec<Option<Pick>>, ConfigError> {
        match list {
            Some(list) => Ok(picks(place, list)?.into_iter().map(Some).collect()),
            None if table.is_empty() && place == "--rules" => Err(ConfigError::at(
                place,
                "which rules? the experiment names none; `gradvine rules` lists them",
            )),
            None => Ok(vec![None]),
        }
    }
}

/// The parts in which combinations differ.
fn called(
    [rule, compressor, topology]: &[String; 3],
    compressors: bool,
    topologies: bool,
) -> String {
    let mut words = vec![rule.as_str()];
    words.extend(compressors.then_some(compressor.as_str()));
    words.extend(topologies.then_some(topology.as_str()));
    words.join(", ")
}

fn kind_of(table: &toml::Table) -> String {
    table.get("kind").and_then(toml::Value::as_str).unwrap_or("identity").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(grids: &[&str]) -> Comparison {
        Comparison {
            rules: Some("dcd,choco:gamma=0.3".into()),
            sets: vec!["run.rounds=3".into()],
            rounds: Some(2),
            grids: grids.iter().map(ToString::to_string).collect(),
            ..Comparison::default()
        }
    }

    #[test]
    fn the_command_repeats_the_comparison() {
        let tuned = comparison(&["optimizer.step=0.1,0.2"]);
        assert_eq!(
            tuned.command(&[7, 8]),
            "gradvine compare --rules dcd,choco:gamma=0.3 --set run.rounds=3 --grid \
             optimizer.step=0.1,0.2 --rounds 2 --seed 7 --seeds 2"
        );
    }

    #[test]
    fn tuned_settings_are_compared_over_more_seeds() {
        let tuned = comparison(&["optimizer.step=0.1,0.2"]);
        let combinations = tuned.combinations().unwrap();
        assert_eq!(tuned.seeds(&combinations, Some(3), None).unwrap(), [3, 4, 5, 6, 7]);
        let error = tuned.seeds(&combinations, None, Some(2)).unwrap_err().to_string();
        assert!(error.starts_with("--seeds = 2: settings tuned by --grid"), "{error}");
        let plain = comparison(&[]);
        let combinations = plain.combinations().unwrap();
        assert_eq!(plain.seeds(&combinations, Some(3), None).unwrap(), [3]);
        let error = plain.seeds(&combinations, Some(u64::MAX), None).unwrap_err();
        assert_eq!(error.place, "--seed");
    }
}
