//! `gradvine node`

use std::{io::Read, path::PathBuf};

use gradvine::{
    config::ConfigError,
    drive::{Elapsed, Ended, Lent, Observer, RunError},
    experiment::Experiment,
    gossip::{OwnModel, RoundDone},
    memory,
    mixing::Topology,
    net::{self, Place, identity},
    run::{NodeFile, Progress, RunDirectory, Saves, Single, Summary, metrics::Metric},
    units::NodeId,
};

use super::{
    Exit,
    interrupt::Interrupt,
    keep::{Keep, Known},
    outcome, print_json,
    progress::Display,
    run_args::room,
    train::warn,
};

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

Nodes may be started in any order, and again, until all are linked; each waits for that for \
                        run.connect_s seconds and says who is missing.
`gradvine train --processes` writes such files for all nodes of a run, so that you can see what a \
                        deployment looks like.")]
pub struct Args {
    /// The node's file
    node: PathBuf,
    /// The run directory to make, instead of the file's
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the summary as JSON on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// No progress, no table: only warnings and errors
    #[arg(long, short)]
    quiet: bool,
    /// Stop as if interrupted when standard input ends (for programs that start nodes)
    #[arg(long)]
    until_stdin_ends: bool,
    /// Start though memory or disk seem to have no room for the run
    #[arg(long)]
    no_space_check: bool,
}

/// Runs one node of a network of machines.
pub fn run(args: Args) -> Result<(), Exit> {
    if args.no_space_check {
        memory::trust();
    }
    let file = NodeFile::load(&args.node)?;
    let key = identity::load(&file.key)?;
    let topology = Topology::load(&file.topology)?;
    // What stands in the node's file is blamed on it; the rest of what a place is made of stands in
    // the topology's.
    let written = |error: ConfigError| match error.place.as_str() {
        place if place == "listen" || place.starts_with("node.") => {
            let place = format!("node.{}", place.trim_start_matches("node."));
            ConfigError { place, ..error }.within(args.node.display())
        }
        _ => error,
    };
    let place = Place::new(key, &file.listen, &topology)
        .map_err(|error| written(error).within(file.topology.display()))?;
    let experiment = Experiment::load(&file.experiment, &[])?;
    let name = topology.node(place.node).name.clone();
    let mut single = Single::new(&file, experiment, topology, place.node).map_err(written)?;
    let out = args.out.as_ref().unwrap_or(&file.out);
    let made = room(&single.design, Saves::One, out).and_then(|()| RunDirectory::create(out));
    let mut directory = made.map_err(|error| match &args.out {
        Some(_) => ConfigError { place: "--out".into(), ..error },
        None => written(ConfigError { place: "node.out".into(), ..error }),
    })?;
    directory.write("experiment.toml", &single.design.experiment.moved().to_toml())?;
    directory.write("topology.toml", &single.design.topology.to_toml())?;
    let keep = Keep::new(Known::from(&single), &directory);
    let interrupt = Interrupt::install()?;
    interrupt.otherwise_write(&keep, &directory);
    if args.until_stdin_ends {
        interrupt_when_stdin_ends(&interrupt);
    }
    let speaks = !args.quiet && !args.json;
    if speaks {
        for warning in &single.design.rule.warnings {
            note!("warning: {warning}");
        }
        note!("{}", banner(&single, &name, &place));
    }
    let seat = single.seat.take().expect("a node has its seat before it runs");
    let display = Display::new(single.design.experiment.run.rounds, speaks, false);
    let mut witness = Witness {
        single: &single,
        keep: &keep,
        interrupt: &interrupt,
        directory: &mut directory,
        display,
    };
    let mut stop = || interrupt.is_set();
    let result = net::alone(place, seat, &single.design, &mut witness, &mut stop);
    witness.display.finish();
    let end = match result {
        Ok(ended) => conclude(&args, &single, &keep, &directory, &ended),
        Err(RunError::Setup(error)) => Err(keep.failed(
            &directory,
            RunError::Setup(written(error)),
            interrupt.rounds(),
            Some(single.node),
        )),
        Err(error) => Err(keep.failed(&directory, error, interrupt.rounds(), Some(single.node))),
    };
    // Last: where the disk was full, there is room now if there is any.
    warn(directory.finish());
    end
}

/// Shows and writes what the node does.
struct Witness<'a> {
    single: &'a Single,
    keep: &'a Keep,
    interrupt: &'a Interrupt,
    directory: &'a mut RunDirectory,
    display: Display,
}

impl Observer for Witness<'_> {
    fn round(&mut self, _node: NodeId, elapsed: Elapsed, done: RoundDone) {
        self.interrupt.reached(done.round.0 + 1);
        let (metric, progress) = seen(self.single, elapsed, &done);
        if let Some(metric) = metric {
            warn(self.directory.metric(&metric));
        }
        self.display.show(&progress);
    }

    fn begins(&mut self, node: NodeId, lent: &Lent) {
        self.keep.begins(node, lent);
    }

    fn save(&mut self, node: NodeId, elapsed: Elapsed, own: &OwnModel) {
        self.keep.save(node, elapsed, own);
    }

    fn mean(&mut self, mean: &[f32]) {
        self.keep.mean(mean);
    }
}

/// A round as a metric, where it is to be evaluated, and as progress.
fn seen(single: &Single, elapsed: Elapsed, done: &RoundDone) -> (Option<Metric>, Progress) {
    let score = done.model.as_ref().and_then(|model| single.score(model));
    let accuracy = score.and_then(|score| score.accuracy());
    let metric = done.model.is_some().then(|| Metric {
        round: done.round.0 + 1,
        node: single.node.0,
        time_s: elapsed.time.seconds(),
        computing_s: elapsed.computing.seconds(),
        train_loss: Some(done.loss),
        test_loss: score.map(|score| score.loss),
        test_accuracy: accuracy,
        consensus: None,
        bytes_payload: done.traffic.payload,
        bytes_wire: done.traffic.wire,
        bytes_dense: done.traffic.dense,
    });
    let progress = Progress {
        rounds: done.round.0 + 1,
        loss: done.loss,
        consensus: None,
        accuracy,
        payload: done.traffic.payload,
        time: elapsed.time,
    };
    (metric, progress)
}

/// Every node writes the same summary; the models are saved.
fn conclude(
    args: &Args,
    single: &Single,
    keep: &Keep,
    directory: &RunDirectory,
    ended: &Ended,
) -> Result<(), Exit> {
    let kept = keep.finish(true);
    let summary = match Summary::new(&single.design, &ended.records) {
        Ok(summary) => summary,
        Err(why) => return Err(keep.unusable(directory, why, kept)),
    };
    outcome::warn_of_records(&summary);
    let written = directory.summary(&summary);
    kept?;
    written?;
    if args.json {
        print_json(&summary)?;
    } else if !args.quiet {
        let (table, folder) =
            (outcome::table(&summary, ended.traffic.tree), directory.path().display());
        outcome::show_table(&format!(
            "{table}\nrun directory    {folder}\n\nTry next:\n  gradvine evaluate \
             {folder}/model-mean.safetensors DATA\n  \
             compare the digest with the other nodes': all write the same\n"
        ));
    }
    outcome::participation(&summary, single.design.experiment.run.rounds)
}

/// Stops the run as a signal does, once standard input has ended.
fn interrupt_when_stdin_ends(interrupt: &Interrupt) {
    let interrupt = interrupt.clone();
    std::thread::spawn(move || {
        let mut byte = [0; 64];
        while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
        interrupt.raise();
    });
}

fn banner(single: &Single, name: &str, place: &Place) -> String {
    let design = &single.design;
    format!(
        "node {name} ({}) of {} on {}: {} with {}, {} parameters, {} rounds",
        place.peer(),
        design.topology.nodes(),
        design.topology.name(),
        design.rule_name(),
        design.compressor.name(),
        design.parameters(),
        design.experiment.run.rounds
    )
}
