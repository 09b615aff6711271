//! `gradvine node`

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use gradvine::{
    memory,
    node::{Event, Node, NodeBuilder, NodeResult},
    run::{Design, EndError},
};
use gradvine_report::node_table;
use gradvine_terminal::{
    Display, Exit, Interrupt, note, note_warnings, output_width, print_json, print_results,
    show_reading, warnings,
};
use gradvine_watch::{Page, Watcher};

/// The arguments of `gradvine node`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
NODE.toml (paths are relative to it):
  key        = \"london.key\"                  made by `gradvine identity new`
  listen     = [\"/ip4/0.0.0.0/tcp/4001\"]     or /ip4/0.0.0.0/udp/4001/quic-v1
  topology   = \"four-regions.toml\"           the same on every node: peers, addresses
  experiment = \"experiment.toml\"             the same on every node
  data       = \"london.csv\"                  this node's own rows, which never leave it
  test       = \"test.csv\"                    optional: rows to test on
  out        = \"runs/first\"                  the run directory to make

Examples:
  gradvine node london.toml
  gradvine node london.toml --out runs/second
  gradvine node london.toml --fresh            start from the beginning

A node that was stopped or killed is started again by the same command: it continues from its newest
checkpoint, the others go back to theirs of the same round, and the result is the same to the bit.

`gradvine files node` explains every key.
Nodes may be started in any order, and restarted, until all are linked; each waits run.connect_s
seconds for the others and names the missing ones. `gradvine train --processes` writes such files
for all nodes of a run, as an example of a deployment.")]
pub(crate) struct Args {
    /// The node's file
    node: PathBuf,
    /// The run directory to create, or to continue with, instead of the file's
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Begin again: remove what an earlier run has left in the run directory
    #[arg(long)]
    fresh: bool,
    /// Print the summary as JSON on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// No progress, no table: only warnings and errors
    #[arg(long, short)]
    quiet: bool,
    /// Stop as if interrupted when standard input ends (for programs that start nodes)
    #[arg(long)]
    until_stdin_ends: bool,
    /// Start even if memory or disk seem too small for the run
    #[arg(long)]
    no_space_check: bool,
    /// How lines on standard error are written
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: super::Format,
}

/// Runs one node of a network of machines.
pub(crate) fn run(args: Args) -> Result<(), Exit> {
    if args.no_space_check {
        memory::trust();
    }
    if !args.quiet {
        show_reading();
    }
    let mut builder = Node::builder(&args.node)?.warn(warnings());
    if let Some(out) = &args.out {
        builder = builder.out(out);
    }
    if args.fresh {
        builder = builder.fresh();
    }
    let interrupt = Interrupt::install()?;
    if args.until_stdin_ends {
        interrupt.raise_when_stdin_ends()?;
    }
    let shown = Shown { json: args.json, quiet: args.quiet };
    // As the user wanted, if it has left.
    let out = args.out.as_deref();
    let result = run_node(builder, (&args.node, out), shown, &interrupt, &|| false)?;
    let Some((result, design)) = result else { return Ok(()) };
    Ok(result.summary.check_participation(&design.experiment.run)?)
}

/// What a node shows of its run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The summary as JSON, and nothing else.
    pub json: bool,
    /// Only warnings and errors.
    pub quiet: bool,
}

/// Runs a node to its end and shows its run. Without a result it has left the run. It ends early
/// once `stops` returns true.
pub(crate) fn run_node(
    builder: NodeBuilder,
    (file, out): (&Path, Option<&Path>),
    shown: Shown,
    interrupt: &Interrupt,
    stops: &dyn Fn() -> bool,
) -> Result<Option<(NodeResult, Arc<Design>)>, Exit> {
    // Before the run directory is made.
    let page = Page::open(builder.status()).map_err(|error| error.within(file.display()))?;
    let prepared = builder.prepare().map_err(|error| match out {
        Some(_) if error.key() == Some("node.out") => {
            let mut error = error.with_place("--out");
            error.file = None;
            error
        }
        _ => error,
    })?;
    let design = Arc::clone(prepared.design());
    let recorder = prepared.recorder();
    if let (Some(recorder), Some(directory)) = (&recorder, prepared.directory()) {
        interrupt.otherwise_write(recorder, directory);
    }
    let speaks = !shown.quiet && !shown.json;
    if speaks {
        note_warnings(design.warnings());
        note!("{}", prepared.describe());
    }
    let rounds = design.experiment.run.rounds;
    let address = page.as_ref().map(Page::address);
    let watcher = Watcher::of(&prepared, page, warnings());
    if let Some(address) = address.filter(|_| speaks) {
        note!("the run is shown at http://{address}/");
    }
    let mut display = Display::new(rounds, speaks, false, interrupt);
    let mut show = |event: Event| display.follow(event);
    let ended = prepared.run(recorder, &mut show, &mut || interrupt.is_set() || stops());
    drop(watcher);
    let result = match ended {
        Err(EndError::Left(ending)) => {
            note!("left: {ending}");
            return Ok(None);
        }
        result => result?,
    };
    note_warnings(result.summary.record_warnings());
    if shown.json {
        print_json(&result.summary)?;
    } else if !shown.quiet {
        let folder = result.directory.clone().unwrap_or_default();
        let width = output_width();
        print_results(&node_table(&result.summary, result.tree_bytes, &folder, width));
    }
    Ok(Some((result, design)))
}
