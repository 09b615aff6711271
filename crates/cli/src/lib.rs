//! The `gradvine` command: one file per subcommand. [`run`] is the whole command, for the program
//! of this package and for the Python package.
#![forbid(unsafe_code)]

mod catalogue;
mod completions;
mod data;
mod man;
mod models;
mod nodes;
mod report;
mod runs;
mod sites;
mod topology;

use std::{
    ffi::{OsStr, OsString},
    sync::OnceLock,
};

use clap::{
    CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use gradvine::{experiment::SECTIONS, inputs};
use gradvine_reference::{File, others_plain};
use gradvine_terminal::{LogFormat, exit_code, log_to_stderr, refuse};

use self::{
    models::{evaluate, export, predict},
    nodes::{doctor, identity, leave, members, node, relay, status},
    runs::{compare, lab, plan, simulate, study, train},
    sites::{approve, consent, init, invite, join, run as the_run, start},
};

pub use gradvine_processes::Program;

/// What starts this command again, for nodes that are processes of their own.
static PROGRAM: OnceLock<Program> = OnceLock::new();

const EXAMPLES: &str = "\
Examples:
  gradvine train                         the default experiment: 8 libp2p hosts on this machine
  gradvine train --set rule.kind=dcd --set compressor.bits=8
  gradvine simulate my.toml --topology torus:4x4     the same core on a virtual network
  gradvine plan --topology topologies/four-regions.toml     seconds per round, the bottleneck, \
  alternatives
  gradvine compare --rules d-psgd,dcd,choco          several rules on the same work, in one table
  gradvine report runs/*                 runs compared: curves, bytes, settings that differ
  gradvine topology show ring:16         spectral gap, mixing time, a drawing
  gradvine init hospitals --data rows.csv --sites 5     a run of several sites, with this one
  gradvine invite lyon                   a ticket; at lyon: gradvine join gv1... --data rows.csv
  gradvine start                         runs this site: waits for the others, then trains
  gradvine identity new node.key         a key for a node whose files are written by hand
  gradvine node node.toml                one node of a network of machines
  gradvine status node.toml              what all nodes do, and who holds the run up
  gradvine doctor node.toml              what prevents or slows its run, and what to do
  gradvine relay relay.toml              carries links between nodes without a public address
  gradvine evaluate runs/first/model-mean.safetensors digits
  gradvine export runs/first --to onnx               for onnxruntime and others
  gradvine export runs/first --to csv                its curves as a table; or --to tensorboard
  gradvine data describe patients.csv    what is in its columns, and a draft of an experiment

Exit codes:
  0    done, and all nodes took part
  1    a study's expectations do not agree with its figures
  2    the configuration or a file is wrong
  3    the run ended, but participation fell short, or records of nodes are missing
  4    the run could not continue; the existing models are saved
  130  interrupted; the results so far are written

Logs go to standard error; RUST_LOG=gradvine=debug shows links and handshakes.";

/// Train one model on many machines with no server and no shared data.
///
/// Each node keeps its own data, computes gradients on it, and exchanges compressed model
/// differences with its neighbours over libp2p, weighted by a doubly stochastic matrix W. `gradvine
/// train` shows a whole run on this machine.
#[derive(Parser)]
#[command(name = "gradvine", version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a run of several sites, with this one
    Init(init::Args),
    /// Print a ticket with which another site joins the run
    Invite(invite::Args),
    /// Join a run with a ticket
    Join(join::Args),
    /// Admit a site that asks to join
    Approve(approve::Args),
    /// Run this site: wait for the others, then train
    Start(start::Args),
    /// Propose other settings of the run to all sites
    Propose(consent::ProposeArgs),
    /// Propose to remove a site
    Remove(consent::RemoveArgs),
    /// Accept a proposal
    Accept(consent::AcceptArgs),
    /// Decline a proposal
    Decline(consent::DeclineArgs),
    /// Choose one of two versions of the run that have one number
    Settle(consent::SettleArgs),
    /// Show the run of this site, and its history
    Run(the_run::Args),
    /// Run every node of an experiment on this machine, each a libp2p host of its own
    Train(train::Args),
    /// Run one node of a network of machines
    Node(node::Args),
    /// Examine a node before a run: files, machine, links, the time of a round
    Doctor(doctor::Args),
    /// Carry links between nodes without a public address
    Relay(relay::Args),
    /// Show what all nodes of a run do, and who holds it up
    Status(status::Args),
    /// Show who takes part in a run, and who is away
    Members(members::Args),
    /// Ask a node on this machine to leave its run; the others continue
    Leave(leave::Args),
    /// Run an experiment on a virtual network, in this process, without sockets
    Simulate(simulate::Args),
    /// Predict the time and bytes of an experiment and its alternatives
    Plan(plan::Args),
    /// Run real nodes on this machine over emulated links, and compare with prediction and
    /// simulation (Linux)
    Lab(lab::Args),
    /// Compare several rules, compressors and topologies in the simulator
    Compare(compare::Args),
    /// Run study files: claims of papers, tested, as a report
    Study(study::Args),
    /// Pictures and tables of one or several runs, as one page
    Report(report::Args),
    /// Show topologies, make and check topology files
    Topology(topology::Args),
    /// Explain every section and key of an experiment file
    #[command(after_long_help = File::Experiment.plain())]
    Experiment(catalogue::ExperimentArgs),
    /// Explain every key of node, relay, topology and study files
    #[command(after_long_help = others_plain())]
    Files(catalogue::FilesArgs),
    /// List the update rules: paper, state, messages, conditions
    Rules(catalogue::RulesArgs),
    /// List the compressors: paper, class, constants
    Compressors(catalogue::CompressorsArgs),
    /// Make or show a node's key and PeerId
    Identity(identity::Args),
    /// Accuracy and loss of a saved model on a data file
    Evaluate(evaluate::Args),
    /// A saved model's predictions for a data file, as CSV
    Predict(predict::Args),
    /// Write a saved model, or the curves of a run, for other programs: ONNX, CSV, TensorBoard
    Export(export::Args),
    /// Look at data files before a run
    Data(data::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Write the manual pages of all commands to a folder
    Man(man::Args),
}

/// Parses the arguments (without the program's name), runs the command, and returns the exit code.
/// `program` is what starts this command again on this machine. Ends the process after `--help`,
/// wrong arguments, and a second Ctrl-C.
pub fn run(program: Program, arguments: Vec<OsString>) -> u8 {
    // Only the first call counts: a process is one command.
    let _ = PROGRAM.set(program);
    let name = std::iter::once(OsString::from("gradvine"));
    let command = arguments.first().cloned().unwrap_or_default();
    let cli = Cli::try_parse_from(name.chain(arguments));
    let cli = cli.unwrap_or_else(|error| match error.use_stderr() {
        true => {
            let code = error.exit_code();
            refuse(&with_tip(error, &command).to_string(), code)
        }
        false => error.exit(),
    });
    log_to_stderr(match &cli.command {
        Command::Node(args) => args.log_format.into(),
        Command::Relay(args) => args.log_format.into(),
        Command::Start(args) => args.log_format.into(),
        _ => LogFormat::Text,
    });
    inputs::protect();
    gradvine_tables::register();
    let result = match cli.command {
        Command::Init(args) => init::run(args),
        Command::Invite(args) => invite::run(&args),
        Command::Join(args) => join::run(args),
        Command::Approve(args) => approve::run(&args),
        Command::Start(args) => start::run(&args),
        Command::Propose(args) => consent::propose(&args),
        Command::Remove(args) => consent::remove(&args),
        Command::Accept(args) => consent::accept(&args),
        Command::Decline(args) => consent::decline(&args),
        Command::Settle(args) => consent::settle(&args),
        Command::Run(args) => the_run::run(&args),
        Command::Train(args) => train::run(args),
        Command::Node(args) => node::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Relay(args) => relay::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Members(args) => members::run(&args),
        Command::Leave(args) => leave::run(&args),
        Command::Simulate(args) => simulate::run(args),
        Command::Plan(args) => plan::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::Compare(args) => compare::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Topology(args) => topology::run(args),
        Command::Experiment(args) => catalogue::experiment(&args),
        Command::Files(args) => catalogue::files(&args),
        Command::Rules(args) => catalogue::rules(&args),
        Command::Compressors(args) => catalogue::compressors(&args),
        Command::Identity(args) => identity::run(args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Export(args) => export::run(&args),
        Command::Data(args) => data::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    exit_code(result)
}

/// The error of an argument that is a section of experiments and like no argument there is, with
/// the way to give a setting.
fn with_tip(mut error: clap::Error, command: &OsStr) -> clap::Error {
    let is_section = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => {
            let name = argument.trim_start_matches('-').split(['.', '=']).next();
            name.is_some_and(|name| SECTIONS.contains(&name))
        }
        _ => false,
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument
        && error.get(ContextKind::SuggestedArg).is_none();
    let takes_settings = || {
        let commands = Cli::command();
        let found = commands.find_subcommand(command);
        found.is_some_and(|one| one.get_arguments().any(|it| it.get_long() == Some("set")))
    };
    if is_unknown && is_section && takes_settings() {
        let tip = "give settings of the experiment as '--set SECTION.KEY=VALUE', such as '--set \
                   data.source=FILE'; 'gradvine experiment' explains all of them";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// What starts this command again.
fn program() -> Program {
    PROGRAM.get().expect("it is set before a command runs").clone()
}
