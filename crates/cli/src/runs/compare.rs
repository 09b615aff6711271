//! `gradvine compare`

use std::{num::NonZeroUsize, path::PathBuf};

use gradvine_study::{Comparison, TUNING, Table, jobs, refusal};
use gradvine_terminal::{Exit, Interrupt, Tally, output_width, print, print_json};

use super::run_args::{between, from_0, from_1};

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
pub(crate) struct Args {
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
    #[arg(long, value_name = "NUMBER", value_parser = seeds)]
    seeds: Option<u64>,
    /// The first seed [default: the experiment's]
    #[arg(long, value_name = "NUMBER", value_parser = from_0)]
    seed: Option<u64>,
    /// Number of rounds
    #[arg(long, value_name = "NUMBER", value_parser = from_1)]
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

fn seeds(text: &str) -> Result<u64, String> {
    between(text, 1, TUNING)
}

/// Runs all combinations and prints them.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let comparison = Comparison {
        experiment: args.experiment.clone(),
        rules: args.rules.clone(),
        compressors: args.compressors.clone(),
        topologies: args.topologies.clone(),
        sets: args.sets.clone(),
        rounds: args.rounds,
        grids: args.grids.clone(),
    };
    let combinations = comparison.combinations()?;
    args.out.iter().try_for_each(|out| combinations.check_output(out))?;
    let seeds = comparison.seeds(&combinations, args.seed, args.seeds)?;
    let interrupt = Interrupt::install()?;
    let tally = Tally::new(!args.quiet && !args.json);
    let stop = || interrupt.is_set();
    let rows = combinations.run(&seeds, jobs(args.jobs), &stop, &|done, total, what| {
        tally.show(done, total, what);
    });
    tally.finish();
    if interrupt.is_set() {
        let what = "stopped before the comparison was complete; no files were written";
        return Err(Exit::Interrupted(what.into()));
    }
    let table = Table { again: comparison.command(&seeds), seeds: &seeds, rows: &rows };
    if let Some(out) = &args.out {
        table.write(out)?;
    }
    if args.json {
        print_json(&table.json())?;
    } else if !args.quiet {
        let place = args.out.iter().map(|out| format!("\nwritten to {}\n", out.display()));
        print(&(table.text(output_width()) + &place.collect::<String>()))?;
    }
    refusal(&rows).map_or(Ok(()), |why| Err(Exit::Config(why.into())))
}
