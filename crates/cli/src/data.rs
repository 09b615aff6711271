//! `gradvine data`

use gradvine::{config::ConfigError, data::Options};
use gradvine_report::{description_json, description_table};
use gradvine_tables::{describe, draft};
use gradvine_terminal::{Exit, output_width, print_either, show_reading};

/// The arguments of `gradvine data`
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show what is in the columns of a CSV, Parquet or Arrow file, and draft a schema for an
    /// experiment
    Describe(DescribeArgs),
}

/// The arguments of `gradvine data describe`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine data describe patients.csv --target diagnosis\n  \
    gradvine data describe patients.csv --target diagnosis --toml > experiment.toml\n  \
    gradvine train experiment.toml\n\n\
    Nothing is sent anywhere. Read and correct the draft: it lists the values of categories,\n\
    which all nodes of a run must list alike.")]
struct DescribeArgs {
    /// A CSV file (also .gz), a Parquet or Arrow file, or a folder of such files
    file: String,
    /// The column to predict, by name or position [default: the last]
    #[arg(long, allow_hyphen_values = true)]
    target: Option<String>,
    /// Whether the first line of a text file names the columns [default: as its lines suggest]
    #[arg(long, value_name = "BOOL")]
    header: Option<bool>,
    /// Print only the draft: an experiment that can be run
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    /// Print an object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let Command::Describe(args) = &args.command;
    let DescribeArgs { target, header, .. } = args;
    let options = Options { target: target.clone(), header: *header, ..Options::default() };
    show_reading();
    let names = [("data.target", "--target"), ("data.source", "FILE")];
    let described =
        describe(&args.file, &options).map_err(|error| ConfigError::from(error).renamed(&names))?;
    let table = || {
        if args.toml { String::new() } else { description_table(&described, output_width()) + "\n" }
    };
    let text = || table() + &draft(&described, &args.file);
    Ok(print_either(args.json, || description_json(&described), text)?)
}
