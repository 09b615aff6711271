//! The steps of the command on Linux.

use std::path::PathBuf;

use gradvine::run::EndError;
use gradvine_lab::{self as lab, Laboratory, Scratch, Setup, Wiring};
use gradvine_terminal::{Exit, Interrupt, note, output_width, print, print_json};

use super::args::{Args, ROUNDS};
use crate::runs::{run_args::RunArgs, train::follow};

pub(super) fn run(mut args: Args) -> Result<(), Exit> {
    lab::check().map_err(EndError::from)?;
    let setup = Setup::parse(args.congestion.as_deref(), &args.sysctl)?;
    prepare(&mut args);
    let whole = args.run.select.whole(args.run.quiet, lab::measure_gradients)?;
    let wiring = Wiring::of(&whole, &args.cut, args.reorder)?;
    let laboratory = Laboratory::new(&whole, setup, wiring, args.warm)?;
    let run = &whole.design.experiment.run;
    let keep = args.run.out.is_some() || run.out.is_some();
    let scratch = Scratch::new(keep);
    let interrupt = Interrupt::install()?;
    if args.run.speaks() {
        let (rounds, parameters) = (run.rounds, whole.design.parameters());
        note!("simulating {rounds} rounds of {parameters} parameters");
    }
    let expected = laboratory.expect(&whole, &|| interrupt.is_set())?;
    let place = RunArgs {
        out: args.run.out.clone().or_else(|| scratch.folder().map(PathBuf::from)),
        ..args.run.clone()
    };
    let mut directory = place.directory(&whole)?;
    interrupt.before_leaving(scratch.clean_up(whole.shards.len()));
    interrupt.otherwise_save(&whole, &directory);
    let figures = follow(run.rounds, args.run.speaks(), &interrupt, |control| {
        laboratory.figures(&whole, &expected, &mut directory, control)
    });
    let figures = figures.map_err(|error| scratch.explain(error, interrupt.rounds()))?;
    if args.run.json {
        print_json(&figures)?;
    }
    if args.run.speaks() {
        let kept = keep.then(|| format!("kept in          {}\n", directory.path().display()));
        print(&(figures.table(output_width()) + &kept.unwrap_or_default()))?;
    }
    if figures.same_digest_as_simulated == Some(false) {
        let problem = "the nodes ended with another digest than the simulation";
        return Err(Exit::Disagrees(problem.into()));
    }
    Ok(())
}

/// Checks the arguments for settings, and sets the laboratory's own defaults, which `--set`
/// overrides.
fn prepare(args: &mut Args) {
    let select = &mut args.run.select;
    select.rounds = select.rounds.or(Some(ROUNDS));
    // Then the metrics have the end of every round.
    select.sets.insert(0, "run.evaluate_every=1".into());
    select.sets.extend(args.transport.iter().map(|name| format!("run.transport={name}")));
}
