//! `gradvine compare`

mod shown;

use std::{num::NonZeroUsize, path::PathBuf, thread};

use gradvine::{compress, config::ConfigError, gossip::rule, mixing::Topology};
use gradvine_study::{
    Base, Bench, Case, Grid, LEAST_SEEDS, LEAST_TUNING_SEEDS, Outcome, Pick, Status, TUNING, picks,
};

use super::{Exit, interrupt::Interrupt, run_args::whole, tally::Tally};

/// The arguments of `gradvine compare`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Commas separate names, and colons separate a name from its constants: no quotes are needed.

Examples:
  gradvine compare --rules d-psgd,dcd,choco --seeds 3
  gradvine compare my.toml --rules dcd,choco:gamma=0.3 --compressors \
  min-max:bits=4,top-k:fraction=0.01,sign
  gradvine compare --rules choco --topologies ring:8,torus:2x4,complete:8 --out runs/topologies
  gradvine compare --rules naive,dcd --compressors min-max:bits=2 --grid \
  optimizer.step=0.05,0.1,0.2,0.4

Every rule runs with every compressor on every topology; a rule that sends uncompressed vectors
runs once, with identity. Combinations that cannot work or that diverge have a row in the table too.
Figures are means over seeds with their 95 % interval (Student's t), and rows are compared with the
first one seed by seed.

--grid tunes each combination before the comparison, which then takes five seeds or more: all
combinations of the grids' values run with three other seeds (from the first seed + 1000 on), and
the least mean of the mean model's train loss at the end wins; a value that loses by more than a
factor of two on the first of them is not run with the others. A grid of fractions with its best at
the edge is widened, by up to six points; whole numbers are a choice and stay. A constant that a
rule or compressor does not have is left out for it; the value `default` leaves a key unchanged;
a semicolon joins keys that change together:
\"optimizer.local_steps=1,10; run.rounds=1000,100\".

Runs are those of `gradvine simulate`, several at a time; their number does not change the results.
With --out a folder gets compare.json, compare.csv and pictures.")]
pub struct Args {
    /// The experiment file; without one, the default experiment on the embedded digits
    experiment: Option<PathBuf>,
    /// Rules, with constants after colons [default: the experiment's]
    #[arg(long, value_name = "LIST")]
    rules: Option<String>,
    /// Compressors, with constants after colons [default: the experiment's]
    #[arg(long, value_name = "LIST")]
    compressors: Option<String>,
    /// Topology files or specs such as ring:8 [default: the experiment's]
    #[arg(long, value_name = "LIST")]
    topologies: Option<String>,
    /// Set a value of the experiment for all; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Tune this key for each combination over these values; may be repeated
    #[arg(long = "grid", value_name = "KEY=VALUE,VALUE...")]
    grids: Vec<String>,
    /// Number of seeds for each combination [default: 1; 5 with --grid]
    #[arg(long, value_name = "NUMBER", value_parser = |text: &str| whole(text, 1).and_then(few))]
    seeds: Option<u64>,
    /// The first seed [default: the experiment's]
    #[arg(long, value_name = "NUMBER", value_parser = |text: &str| whole(text, 0))]
    seed: Option<u64>,
    /// Number of rounds
    #[arg(long, value_name = "NUMBER", value_parser = |text: &str| whole(text, 1))]
    rounds: Option<u64>,
    /// Simultaneous runs [default: one per processor]
    #[arg(long, value_name = "NUMBER", alias = "threads")]
    jobs: Option<NonZeroUsize>,
    /// A folder for compare.json, compare.csv and pictures; may exist
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the comparison as JSON on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// No progress, no table: only errors
    #[arg(long, short)]
    quiet: bool,
}

fn few(seeds: u64) -> Result<u64, String> {
    if seeds <= TUNING {
        Ok(seeds)
    } else {
        Err(format!("expected a whole number from 1 to {TUNING}"))
    }
}

/// One row: the parts of a combination, and its result.
pub struct Row {
    rule: String,
    compressor: String,
    topology: String,
    outcome: Outcome,
}

/// Runs all combinations and prints them.
pub fn run(args: &Args) -> Result<(), Exit> {
    let (heads, cases) = args.cases()?;
    let first = args.seed.map_or_else(|| base_seed(&cases), Ok)?;
    if first > u64::MAX - 2 * TUNING {
        let problem =
            format!("expected at most {}: the seeds of tuning follow", u64::MAX - 2 * TUNING);
        return Err(ConfigError::new("--seed", first, problem).into());
    }
    let seeds: Vec<u64> = (first..first + args.seeds()?).collect();
    let interrupt = Interrupt::install()?;
    let tally = Tally::new(!args.quiet && !args.json);
    let stop = || interrupt.is_set();
    let outcomes = Bench {
        seeds: seeds.clone(),
        tuning_seeds: (first + TUNING..first + TUNING + LEAST_TUNING_SEEDS).collect(),
        goal: None,
        until: None,
        jobs: jobs(args.jobs),
        optimum: false,
        stop: &stop,
        done: &|done, total, what| tally.show(done, total, what),
    }
    .run(&cases);
    tally.finish();
    if interrupt.is_set() {
        return Err(Exit::Interrupted(
            "stopped before the comparison was complete; no files were written".into(),
        ));
    }
    let row = |([rule, compressor, topology], outcome): ([String; 3], Outcome)| Row {
        rule,
        compressor,
        topology,
        outcome,
    };
    let rows: Vec<Row> = heads.into_iter().zip(outcomes).map(row).collect();
    let shown = shown::Comparison { again: args.again(first), seeds: &seeds, rows: &rows };
    if let Some(out) = &args.out {
        shown.write(out)?;
    }
    if args.json {
        super::print_json(&shown.json())?;
    } else if !args.quiet {
        let place = args
            .out
            .as_ref()
            .map_or_else(String::new, |out| format!("\nwritten to {}\n", out.display()));
        super::print(&(shown.table() + &place))?;
    }
    refused(&rows)
}

/// If no combination could run, their common part is wrong.
fn refused(rows: &[Row]) -> Result<(), Exit> {
    let mut runs = rows.iter().flat_map(|row| &row.outcome.runs);
    let first = rows.first().and_then(|row| row.outcome.runs.first()).map(|run| &run.status);
    match first {
        Some(Status::Refused(why)) if runs.all(|run| matches!(run.status, Status::Refused(_))) => {
            Err(Exit::Config(why.clone()))
        }
        _ => Ok(()),
    }
}

/// The number of threads: the argument, or one per processor.
pub fn jobs(asked: Option<NonZeroUsize>) -> usize {
    asked.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

fn base_seed(cases: &[(Case, Vec<Grid>)]) -> Result<u64, Exit> {
    let (case, _) = cases.first().expect("a list has at least one item");
    Ok(case.experiment(&[])?.run.seed)
}

type Combinations = (Vec<[String; 3]>, Vec<(Case, Vec<Grid>)>);

impl Args {
    /// The number of seeds: at least five if settings are tuned.
    fn seeds(&self) -> Result<u64, ConfigError> {
        let least = if self.grids.is_empty() { 1 } else { LEAST_SEEDS };
        match self.seeds {
            Some(seeds) if seeds < least => {
                let problem = format!(
                    "settings tuned by --grid are compared over {LEAST_SEEDS} seeds or more"
                );
                Err(ConfigError::new("--seeds", seeds, problem))
            }
            seeds => Ok(seeds.unwrap_or(least)),
        }
    }

    /// The names of each combination, and its run.
    fn cases(&self) -> Result<Combinations, Exit> {
        let base = self.experiment.clone().map_or(Base::Default, Base::File);
        let mut sets = self.sets.clone();
        sets.extend(self.rounds.map(|rounds| format!("run.rounds={rounds}")));
        let plain = Case { name: String::new(), base: base.clone(), sets: sets.clone() };
        let experiment = plain.experiment(&[])?;
        let rules = self.picks("--rules", self.rules.as_ref(), &experiment.rule)?;
        let compressors =
            self.picks("--compressors", self.compressors.as_ref(), &experiment.compressor)?;
        for pick in rules.iter().flatten() {
            rule::find(&pick.kind)
                .map_err(|error| ConfigError { place: "--rules".into(), ..error })?;
        }
        for pick in compressors.iter().flatten() {
            compress::build(&pick.table("compressor")?).map_err(|error| ConfigError {
                problem: format!("{error}"),
                ..ConfigError::at("--compressors", "")
            })?;
        }
        let topologies: Vec<Option<String>> = match &self.topologies {
            None => vec![None],
            Some(list) => list.split(',').map(|spec| Some(spec.trim().to_string())).collect(),
        };
        for spec in topologies.iter().flatten() {
            Topology::parse(spec, 1).map_err(|error| match error.file {
                Some(_) => error,
                None => ConfigError {
                    place: "--topologies".into(),
                    value: Some(format!("\"{spec}\"")),
                    ..error
                },
            })?;
        }
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
        Ok((heads, cases))
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

    /// The command line that repeats this comparison, without its output options.
    fn again(&self, first: u64) -> String {
        let mut words = vec!["gradvine".to_string(), "compare".to_string()];
        words.extend(self.experiment.iter().map(|path| path.display().to_string()));
        let one = |flag: &str, value: Option<String>| {
            value.into_iter().flat_map(|value| [flag.to_string(), value]).collect::<Vec<_>>()
        };
        words.extend(one("--rules", self.rules.clone()));
        words.extend(one("--compressors", self.compressors.clone()));
        words.extend(one("--topologies", self.topologies.clone()));
        words.extend(self.sets.iter().flat_map(|set| one("--set", Some(set.clone()))));
        words.extend(self.grids.iter().flat_map(|grid| one("--grid", Some(grid.clone()))));
        words.extend(one("--rounds", self.rounds.map(|rounds| rounds.to_string())));
        words.extend(one("--seed", Some(first.to_string())));
        words.extend(one("--seeds", self.seeds().ok().map(|seeds| seeds.to_string())));
        words.iter().map(|word| super::run_args::quoted(word)).collect::<Vec<_>>().join(" ")
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
