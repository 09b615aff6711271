//! `gradvine start`

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gradvine::{
    config::ConfigError,
    experiment::Experiment,
    inputs,
    net::{Desk, VERSION},
    node::{Node, NodeResult},
    run::NodeFile,
};
use gradvine_doctor::{Level, Options, examine};
use gradvine_enrol::{Book, NotYet, Site, Stage, Told, answers, settings_of, write_files};
use gradvine_terminal::{Exit, Interrupt, note, warnings};

use super::{
    Folder,
    place::{announce, warn_of},
    watch::{Common, Watch},
};
use crate::nodes::node::{Shown, run_node};

/// Between two looks whether training can begin.
const LOOK: Duration = Duration::from_millis(200);

/// How long a site that ended early waits for the reason: where the losses may have ended the run,
/// and where only a change can have.
const HEARS: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(120);

/// The mean model of a run directory.
const MEAN: &str = "model-mean.safetensors";

/// The arguments of `gradvine start`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine start                 in the folder of this site
  gradvine start --dir /srv/hospitals

It answers sites that join, waits until all are there, examines this site's files and machine, and
runs its node. When the sites have agreed on a change, all end their stage after the same round, and
the next stage begins from the mean model. Start it again after it was stopped: it continues.

Other commands in the same folder take effect while it runs: invite, approve, propose, accept.")]
pub(crate) struct Args {
    #[command(flatten)]
    folder: Folder,
    /// Print the summary of the last stage as JSON on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// No progress, no table: only warnings and errors
    #[arg(long, short)]
    quiet: bool,
    /// How lines on standard error are written
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: crate::nodes::Format,
}

/// Runs a site.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let site = Arc::new(args.folder.site()?);
    let _alone = alone(&site)?;
    let interrupt = Interrupt::install()?;
    let listen = NodeFile::load(&site.node())?.listen;
    warn_of(&announce(&site, &listen)?);
    let told = Told::default();
    let common = Common {
        listen,
        answers: answers(&site, &told),
        told,
        site: Arc::clone(&site),
        stage: Arc::new(AtomicU64::new(0)),
        ends: Arc::new(AtomicBool::new(false)),
    };
    let _watch = Watch::start(common.clone())?;
    loop {
        let Some(stage) = gather(&common, &interrupt)? else { return Ok(()) };
        let out = NodeFile::load(&site.node())?.out;
        set_aside(&site, &out, stage.number)?;
        check(&site)?;
        match train(args, &common, &stage, &interrupt)? {
            Some(result) if site.book()?.me().is_none() => {
                let folder = result.directory.unwrap_or_default();
                note!("this site was removed from the run; its model is in {}", folder.display());
                return Ok(());
            }
            Some(result) => {
                let experiment = Experiment::load(&site.folder.join("run/experiment.toml"), &[])?;
                if !continues(&common, &stage, (&result, &experiment), &interrupt)? {
                    return Ok(result.summary.check_participation(&experiment.run)?);
                }
            }
            None => return Ok(()),
        }
    }
}

/// Whether another stage follows this one. If the others have ended it early because they have
/// agreed on a change, this site may hear of the change a moment later.
fn continues(
    common: &Common,
    stage: &Stage,
    (result, experiment): (&NodeResult, &Experiment),
    interrupt: &Interrupt,
) -> Result<bool, Exit> {
    let site = &common.site;
    let is_short = result.summary.rounds < experiment.run.rounds;
    let is_explained = experiment.run.stop_early.is_some();
    let within = match (is_short, is_explained) {
        (false, _) => Duration::ZERO,
        (true, true) => HEARS,
        (true, false) => LONGEST,
    };
    let file = NodeFile::load(&site.node())?;
    let mut desk = None;
    let began = Instant::now();
    loop {
        let book = site.book()?;
        if book.stage().is_none_or(|now| now.number != stage.number) {
            return Ok(true);
        }
        if began.elapsed() >= within || interrupt.is_set() {
            return Ok(false);
        }
        if desk.is_none() {
            desk = open(common, &file, &book)?;
        }
        thread::sleep(LOOK);
    }
}

/// Answers other sites while the node does not run, if this site listens.
fn open(common: &Common, file: &NodeFile, book: &Book) -> Result<Option<Desk>, Exit> {
    if file.listen.is_empty() {
        return Ok(None);
    }
    let own = book.me().map(|me| book.addresses_of(me).to_vec()).unwrap_or_default();
    let desk = Desk::open(&common.site.key, &file.listen, &own, &common.answers);
    desk.map(Some).map_err(|error| Exit::Config(error.to_string()))
}

/// Keeps a second program out of this folder.
fn alone(site: &Site) -> Result<fs::File, ConfigError> {
    let path = site.folder.join("start.lock");
    let wrong = |problem: String| ConfigError::at("--dir", problem).within(path.display());
    let file = fs::File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| wrong(error.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            Err(wrong("`gradvine start` runs in this folder already".into()))
        }
        Err(fs::TryLockError::Error(error)) => Err(wrong(error.to_string())),
    }
}

/// Answers other sites until training can begin; nothing if there is nothing to train.
fn gather(common: &Common, interrupt: &Interrupt) -> Result<Option<Stage>, Exit> {
    inputs::forget();
    let site = &common.site;
    let file = NodeFile::load(&site.node())?;
    let (mut desk, mut over) = (None, None);
    let mut said = String::new();
    loop {
        let book = site.book()?;
        if let Some(conflict) = &book.conflict {
            return Err(Exit::Failed(conflict.clone()));
        }
        if book.me().is_none() {
            note!(
                "this site is no member of the run {} any more; its model is in {}",
                book.run().name,
                file.out.display()
            );
            return Ok(None);
        }
        if book.run().wire != VERSION {
            let problem = format!(
                "the run is of wire format {}, and this program has {VERSION}: all sites need the \
                 same version of gradvine",
                book.run().wire
            );
            return Err(ConfigError::at("run", problem).into());
        }
        match write_files(site, &book) {
            Ok(stage) => return Ok(Some(stage)),
            Err(NotYet::Over(rounds)) => {
                let since = *over.get_or_insert_with(|| {
                    note!("all {rounds} rounds of the run are done");
                    Instant::now()
                });
                // The others may not know it yet.
                if common.told.all(&book) || since.elapsed() >= LONGEST {
                    return Ok(None);
                }
            }
            Err(NotYet::Wrong(error)) => return Err(error.into()),
            Err(NotYet::Waits(why)) => {
                if said != why {
                    note!("waiting: {why}");
                    said = why;
                }
            }
        }
        if desk.is_none() {
            desk = open(common, &file, &book)?;
        }
        if interrupt.is_set() {
            return Err(Exit::Interrupted("`gradvine start` goes on where this one ends".into()));
        }
        thread::sleep(LOOK);
    }
}

/// Examines the site's files and machine.
fn check(site: &Site) -> Result<(), Exit> {
    let options = Options { offline: true, ..Options::default() };
    let report = examine(&site.node(), options).map_err(|error| Exit::Config(error.to_string()))?;
    let mut wrong = Vec::new();
    for finding in report.findings.iter().filter(|finding| finding.level > Level::Ok) {
        let remedy = finding.remedy.as_ref().map_or(String::new(), |remedy| format!(": {remedy}"));
        let line = format!("{}: {}{remedy}", finding.about, finding.text);
        match finding.level {
            Level::Error => wrong.push(line),
            _ => note!("warning: {line}"),
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Exit::Config(wrong.join("\n"))),
    }
}

/// Runs the node in a stage to its end. Nothing if its user has let it leave.
fn train(
    args: &Args,
    common: &Common,
    stage: &Stage,
    interrupt: &Interrupt,
) -> Result<Option<NodeResult>, Exit> {
    let site = &common.site;
    let path = site.node();
    let out = NodeFile::load(&path)?.out;
    let mut builder = Node::builder(&path)?.warn(warnings()).documents(common.answers.clone());
    common.ends.store(false, Ordering::Relaxed);
    builder = builder.end_once(Arc::clone(&common.ends));
    if let Some((giver, before)) = &stage.model_of
        && *giver == site.book()?.site
    {
        builder = builder.own_init(aside(&out, *before).join(MEAN));
    }
    common.stage.store(stage.number, Ordering::Relaxed);
    let shown = Shown { json: args.json, quiet: args.quiet };
    let ran = run_node(builder, &path, None, shown, interrupt);
    common.stage.store(0, Ordering::Relaxed);
    let Some((result, _)) = ran? else { return Ok(None) };
    let rounds = stage.rounds_before + result.summary.rounds;
    let digest = result.summary.mean_digest.clone();
    let settings = settings_of(&out.join(MEAN))?;
    site.change(|book| {
        site.ended(book, (stage.number, rounds), digest, settings);
        Ok(())
    })?;
    let log = site.book()?.history;
    let text = serde_json::to_string_pretty(&log).map_err(io::Error::from)?;
    fs::write(out.join("run.json"), text + "\n")?;
    Ok(Some(result))
}

/// The folder of an earlier stage.
fn aside(out: &Path, stage: u64) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_os_string();
    name.push(format!("-{stage}"));
    out.with_file_name(name)
}

/// Moves the run directory of an earlier stage aside.
fn set_aside(site: &Site, out: &Path, stage: u64) -> Result<(), ConfigError> {
    site.change(|book| {
        if let Some(before) = book.training.filter(|before| *before != stage)
            && out.exists()
        {
            let to = aside(out, before);
            fs::rename(out, &to).map_err(|error| {
                let problem = format!("cannot be moved to {}: {error}", to.display());
                ConfigError::new("node.out", out.display(), problem)
            })?;
        }
        book.training = Some(stage);
        Ok(())
    })
}
