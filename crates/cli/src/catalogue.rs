//! `gradvine rules` and `gradvine compressors`: the registries as tables.

use crate::runs::run_args::between;
use gradvine_plan::{CompressorList, Prices, RuleList};
use gradvine_reference::{self as reference, File};
use gradvine_terminal::{Exit, print, print_either};

/// The most parameters that are priced.
const MOST: u64 = 1 << 40;

/// The arguments of `gradvine rules`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine rules                          what there is, with papers, conditions and constants
  gradvine rules dcd                      one of them
  gradvine rules --parameters 1000000 --topology torus:4x4 --compressor top-k:fraction=0.01
  gradvine train --set rule.kind=dcd --set compressor.kind=min-max --set compressor.bits=8

With --parameters each rule says what it keeps and sends for a model of that many numbers at its \
                        defaults, or why it is refused: read off
the plan that a run would follow.

A run of any rule has diverged, and ends with exit code 4, when a model is not finite or longer \
                        than 1000 (|x_0| + sqrt(d) + S G): S is the sum of
the steps so far, G the longest gradient of the first 16 rounds. Models are looked at in every \
                        16th round and at the end.")]
pub(crate) struct RulesArgs {
    /// Only this rule
    name: Option<String>,
    /// Print an array of objects
    #[arg(long)]
    json: bool,
    /// Price the rules for models of this many numbers
    #[arg(long, value_name = "NUMBER", value_parser = dimension)]
    parameters: Option<usize>,
    /// On this topology: a file or a spec such as ring:8 [default: ring:8]
    #[arg(long, value_name = "FILE|SPEC", requires = "parameters")]
    topology: Option<String>,
    /// With this compressor, constants after colons, where a rule compresses [default: min-max]
    #[arg(long, value_name = "NAME", requires = "parameters")]
    compressor: Option<String>,
}

/// The arguments of `gradvine compressors`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine compressors                        what there is, with papers and constants
  gradvine compressors min-max                one of them
  gradvine compressors --parameters 1000000   payload, nominal delta and worst case for that many \
  numbers, at the defaults
  gradvine compressors --json                 for programs")]
pub(crate) struct CompressorsArgs {
    /// Only this compressor
    name: Option<String>,
    /// Print an array of objects
    #[arg(long)]
    json: bool,
    /// Say what each makes of a vector of this many numbers
    #[arg(long, value_name = "NUMBER", value_parser = dimension)]
    parameters: Option<usize>,
}

/// The arguments of `gradvine experiment`
#[derive(clap::Args, Debug)]
pub(crate) struct ExperimentArgs {
    /// As Markdown: docs/experiment.md
    #[arg(long)]
    markdown: bool,
}

/// The arguments of `gradvine files`
#[derive(clap::Args, Debug)]
pub(crate) struct FilesArgs {
    /// Only this kind of file
    #[arg(value_name = "KIND", value_enum, conflicts_with = "markdown")]
    kind: Option<Kind>,
    /// All of them as Markdown: docs/files.md
    #[arg(long)]
    markdown: bool,
}

/// A kind of file that is no experiment.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Kind {
    /// Where the files of a node are
    Node,
    /// Whom a relay serves, and how much it carries
    Relay,
    /// Who is linked with whom
    Topology,
    /// What a paper claims, and rows that try it
    Study,
}

/// Prints what an experiment file may say.
pub(crate) fn experiment(args: &ExperimentArgs) -> Result<(), Exit> {
    let text = if args.markdown { reference::experiment() } else { File::Experiment.plain() };
    Ok(print(&text)?)
}

/// Prints what files other than experiments may say.
pub(crate) fn files(args: &FilesArgs) -> Result<(), Exit> {
    let text = match args.kind {
        Some(Kind::Node) => File::Node.plain(),
        Some(Kind::Relay) => File::Relay.plain(),
        Some(Kind::Topology) => File::Topology.plain(),
        Some(Kind::Study) => File::Study.plain(),
        None if args.markdown => reference::others(),
        None => reference::others_plain(),
    };
    Ok(print(&text)?)
}

fn dimension(text: &str) -> Result<usize, String> {
    Ok(between(text, 1, MOST)? as usize)
}

pub(crate) fn rules(args: &RulesArgs) -> Result<(), Exit> {
    let topology = args.topology.as_deref().unwrap_or("ring:8");
    let compressor = args.compressor.as_deref().unwrap_or("min-max");
    let prices = |parameters| Prices::of(parameters, topology, compressor);
    let prices = args.parameters.map(prices).transpose()?;
    let rules = RuleList::new(args.name.as_deref(), prices.as_ref())?;
    Ok(print_either(args.json, || rules.to_json(), || rules.text())?)
}

pub(crate) fn compressors(args: &CompressorsArgs) -> Result<(), Exit> {
    let compressors = CompressorList::new(args.name.as_deref(), args.parameters)?;
    Ok(print_either(args.json, || compressors.to_json(), || compressors.text())?)
}
