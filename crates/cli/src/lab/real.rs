//! The steps of the command on Linux.

use std::{cell::Cell, fs, path::PathBuf, process, sync::Arc};

use gradvine::{
    config::ConfigError,
    experiment::Compute,
    run::{EndError, Progress, Recorder, RunInfo, Whole},
};
use gradvine_lab::{self as lab, Figures, LabError, Laboratory, Setup, Wiring};
use gradvine_processes::Control;
use gradvine_terminal::{Display, Interrupt, note, print, print_json, warnings};

use super::{super::run_args::RunArgs, Args, Exit, ROUNDS, Transport};

impl From<LabError> for Exit {
    fn from(error: LabError) -> Exit {
        match error {
            LabError::Run(end) => end.into(),
            LabError::Missing(_) => Exit::Config(format!("lab: {error}")),
            _ => Exit::Failed(format!("lab: {error}")),
        }
    }
}

/// Predicts, simulates and measures.
pub fn run(mut args: Args) -> Result<(), Exit> {
    lab::check()?;
    let setup = setup(&args)?;
    prepare(&mut args);
    let whole = args.run.select.whole(args.run.quiet, |experiment| {
        // Real gradients take time, so the simulated ones must too.
        if experiment.network.compute == Compute::None {
            experiment.network.compute = Compute::Measured;
        }
    })?;
    let wiring = Wiring::of(&whole, &args.cut, args.reorder)?;
    let run = &whole.design.experiment.run;
    if args.warm + 1 >= run.rounds {
        let problem = format!(
            "leaves too few of {} rounds to measure: lower it, or raise --rounds",
            run.rounds
        );
        return Err(ConfigError::new("--warm", args.warm, problem).into());
    }
    let keep = args.run.out.is_some() || run.out.is_some();
    let scratch = Scratch::new(keep);
    let interrupt = Interrupt::install()?;
    if args.run.speaks() {
        let (rounds, parameters) = (run.rounds, whole.design.parameters());
        note!("simulating {rounds} rounds of {parameters} parameters");
    }
    let laboratory = Laboratory { setup, wiring, warm: args.warm };
    let expected = laboratory.expect(&whole, &|| interrupt.is_set())?;
    let place = RunArgs {
        out: args.run.out.clone().or_else(|| scratch.folder.clone()),
        ..args.run.clone()
    };
    let mut directory = place.directory(&whole)?;
    clean_up_on_exit(&whole, &scratch, &interrupt);
    let warn = warnings();
    let info = RunInfo::from(&*whole);
    interrupt.otherwise_write(&Recorder::new(info, &directory, Arc::clone(&warn)), &directory);
    let mut display = Display::new(run.rounds, args.run.speaks(), false);
    let mut show = |progress: &Progress| {
        interrupt.reached(progress.rounds);
        display.show(progress);
    };
    let (program, stop) = (crate::program(), || interrupt.is_set());
    let mut control = Control { program, stop: &stop, show: &mut show, warn };
    let measured = laboratory.measure(&whole, &mut directory, &mut control);
    display.finish();
    let measurement = measured.map_err(|error| scratch.explain(error, &interrupt))?;
    let figures = Figures::new(&whole, args.warm, &expected, &measurement);
    directory.write(
        "lab.json",
        &(serde_json::to_string_pretty(&figures).map_err(std::io::Error::from)? + "\n"),
    )?;
    if args.run.json {
        print_json(&figures)?;
    }
    if args.run.speaks() {
        let kept = keep.then(|| format!("kept in          {}\n", directory.path().display()));
        print(&(figures.table() + &kept.unwrap_or_default()))?;
    }
    if figures.same_digest_as_simulated == Some(false) {
        return Err(Exit::Disagrees(
            "the nodes ended with another digest than the simulation".into(),
        ));
    }
    Ok(())
}

/// Removes namespaces and temporary files also if the program exits in the middle of the run.
fn clean_up_on_exit(whole: &Whole, scratch: &Scratch, interrupt: &Interrupt) {
    let (names, folder) = (lab::names(whole.shards.len()), scratch.folder.clone());
    interrupt.before_leaving(move || {
        lab::remove(&names);
        folder.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
    });
}

/// Checks the arguments for settings, and sets the laboratory's own defaults, which `--set`
/// overrides.
fn prepare(args: &mut Args) {
    let select = &mut args.run.select;
    select.rounds = select.rounds.or(Some(ROUNDS));
    // Then the metrics have the end of every round.
    select.sets.insert(0, "run.evaluate_every=1".into());
    if let Some(transport) = args.transport {
        let name = match transport {
            Transport::Tcp => "tcp",
            Transport::Quic => "quic",
        };
        select.sets.push(format!("run.transport={name}"));
    }
}

fn setup(args: &Args) -> Result<Setup, Exit> {
    if let Some(name) = &args.congestion {
        lab::check_congestion(name)?;
    }
    let sysctl = |text: &String| match text.split_once('=') {
        Some((key, value)) if key.starts_with("net.") => {
            Ok((key.trim().to_string(), value.trim().to_string()))
        }
        _ => Err(ConfigError::new(
            "--sysctl",
            text,
            "expected net.KEY=VALUE: only settings below net. belong to a namespace",
        )),
    };
    let sysctls = args.sysctl.iter().map(sysctl).collect::<Result<_, _>>()?;
    Ok(Setup { congestion: args.congestion.clone(), sysctls })
}

/// A temporary folder for the run.
struct Scratch {
    folder: Option<PathBuf>,
    leave: Cell<bool>,
}

impl Scratch {
    fn new(keep: bool) -> Scratch {
        let folder =
            (!keep).then(|| std::env::temp_dir().join(format!("gradvine-lab-{}", process::id())));
        Scratch { folder, leave: Cell::new(false) }
    }

    /// Keeps the folder of a run that failed, because the error refers to the logs in it.
    fn explain(&self, error: LabError, interrupt: &Interrupt) -> Exit {
        match error {
            LabError::Run(EndError::Interrupted(_)) if self.folder.is_some() => {
                let round = interrupt.rounds();
                Exit::Interrupted(format!("stopped in round {round}; no files are kept"))
            }
            LabError::Run(end) => {
                self.leave.set(true);
                end.into()
            }
            error => error.into(),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder
            && !self.leave.get()
        {
            let _ = fs::remove_dir_all(folder);
        }
    }
}
