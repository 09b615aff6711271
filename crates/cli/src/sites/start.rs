//! `gradvine start`

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gradvine::{
    config::ConfigError,
    experiment::{Experiment, RunVersion},
    inputs,
    net::{Desk, VERSION},
    node::{Node, NodeResult},
    run::NodeFile,
};
use gradvine_doctor::{Level, Options, examine};
use gradvine_enrol::{
    Book, NotYet, Run, Site, Stage, Told, Training, answers, is_current, lock_file, newest_of,
    write_files,
};
use gradvine_terminal::{Exit, Interrupt, note, warnings};

use super::{
    Folder,
    place::{addresses_of, announce, port_of, warn_of},
    watch::{Common, Watch},
};
use crate::nodes::node::{Shown, run_node};

/// Between two looks whether training can begin.
const LOOK: Duration = Duration::from_millis(200);

/// How long a site that ended early waits for the reason: where the losses may have ended the run,
/// and where only a change can have.
const HEARS: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(120);

/// The time between two questions of a site to others.
const TURN: Duration = Duration::from_secs(1);

/// The experiment of the present stage.
const EXPERIMENT: &str = "run/experiment.toml";

/// The mean model of a run directory.
const MEAN: &str = "model-mean.safetensors";

/// The arguments of `gradvine start`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine start                 in the folder of this site
  gradvine start --dir /srv/hospitals
  gradvine start --address lyon.example.org     at another address than before

It answers sites that join, waits until all are there, examines this site's files and machine, and
runs its node. When the sites have agreed on a change, all end their stage after the same round, and
the next stage begins from the mean model. Start it again after it was stopped: it continues.

Other commands in the same folder take effect while it runs: invite, approve, propose, accept.")]
pub(crate) struct Args {
    #[command(flatten)]
    folder: Folder,
    /// Where other sites reach this one from now on, in place of what was said before: a name or an
    /// IP address, with a port if it is not the node's, or a multiaddress; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    address: Vec<String>,
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
    if !args.address.is_empty() {
        let addresses = addresses_of(&args.address, port_of(&listen))?;
        site.change(|book| {
            book.addresses = addresses;
            Ok(())
        })?;
    }
    warn_of(&announce(&site, &listen)?);
    let told = Told::default();
    let common = Common {
        listen,
        answers: answers(&site, &told),
        told,
        site: Arc::clone(&site),
        stage: Arc::new(Mutex::new(None)),
        ends: Arc::new(AtomicBool::new(false)),
        cut: Arc::new(AtomicBool::new(false)),
    };
    let _watch = Watch::start(common.clone())?;
    loop {
        let Some(stage) = gather(&common, &interrupt)? else { return Ok(()) };
        let out = NodeFile::load(&site.node())?.out;
        set_aside(&site, &out, &stage)?;
        check(&site)?;
        let ran = train(args, &common, &stage, &interrupt);
        let within = patience(&site, &ran)?;
        let goes_on = continues(&common, &stage, within, &interrupt)?;
        // Whoever has left may return to this stage.
        let book = site.book()?;
        let training = book.training.last().filter(|one| one.begins == stage.begins);
        let is_over = book.stage().is_none_or(|now| now.digest() != stage.begins);
        if let Some(training) = training.filter(|_| is_over || matches!(ran, Ok(Some(_)))) {
            conclude(&site, &out, training)?;
        }
        if site.book()?.me().is_none() {
            note!("this site was removed from the run; its model is in {}", out.display());
            return Ok(());
        }
        // What sites said of the stage before may have come to them one after the other, so that
        // they began with other models.
        let again = goes_on || ran.is_err() && !is_current(&site, &site.book()?, &stage);
        match (again, ran) {
            (true, _) => {}
            (false, Ok(Some(result))) => {
                let experiment = Experiment::load(&site.folder.join(EXPERIMENT), &[])?;
                return Ok(result.summary.check_participation(&experiment.run)?);
            }
            (false, Ok(None)) => return Ok(()),
            (false, Err(why)) => return Err(why),
        }
    }
}

/// How long a site that has ended a stage waits for the news that another one follows. If the
/// others have ended it early because they have agreed on a change, it may hear of the change a
/// moment later.
fn patience(site: &Site, ran: &Result<Option<NodeResult>, Exit>) -> Result<Duration, Exit> {
    let experiment = Experiment::load(&site.folder.join(EXPERIMENT), &[])?;
    Ok(match ran {
        Ok(Some(result)) if result.summary.rounds < experiment.run.rounds => {
            match experiment.run.stop_early {
                Some(_) => HEARS,
                None => LONGEST,
            }
        }
        // Another site may have cut the stage off.
        Err(Exit::Failed(_)) => HEARS,
        _ => Duration::ZERO,
    })
}

/// Whether another stage follows this one, or this site is no member any more.
fn continues(
    common: &Common,
    stage: &Stage,
    within: Duration,
    interrupt: &Interrupt,
) -> Result<bool, Exit> {
    let site = &common.site;
    let file = NodeFile::load(&site.node())?;
    let mut desk = None;
    let began = Instant::now();
    loop {
        let book = site.book()?;
        if interrupt.is_set() {
            return Ok(false);
        }
        if book.stage().is_none_or(|now| now.digest() != stage.begins) || book.me().is_none() {
            return Ok(true);
        }
        if began.elapsed() >= within {
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
    let desk = Desk::open(
        (&common.site.key, common.site.proxy.as_ref()),
        &file.listen,
        &own,
        &common.answers,
    );
    desk.map(Some).map_err(|error| Exit::Config(error.to_string()))
}

/// Keeps a second program out of this folder.
fn alone(site: &Site) -> Result<fs::File, ConfigError> {
    let path = site.folder.join("start.lock");
    let wrong = |problem: String| ConfigError::at("--dir", problem).within(path.display());
    let file = lock_file(&path).map_err(|error| wrong(error.to_string()))?;
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
        if let Some(training) = book.unsaid() {
            // This program was stopped in the middle of that stage.
            let is_last = book.training.last() == Some(training);
            let folder = if is_last { file.out.clone() } else { aside(&file.out, training.stage) };
            conclude(site, &folder, training)?;
        }
        match write_files(site, &site.book()?) {
            Ok(stage) => return Ok(Some(stage)),
            Err(NotYet::Over(rounds)) => {
                let since = *over.get_or_insert_with(|| {
                    note!("all {rounds} rounds of the run are done");
                    Instant::now()
                });
                // The others may not know it yet. They ask each site in turn; one that has ended
                // does not answer any more.
                let within = HEARS + TURN * book.run().members.len() as u32;
                if common.told.all(&book) || since.elapsed() >= within {
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

/// Runs the node in a stage to its end. Without a result its user has let it leave.
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
    common.cut.store(false, Ordering::Relaxed);
    let book = site.book()?;
    builder = builder.versions(versions(&book, stage));
    let me = book.site;
    if let Some(first) = stage.first.as_ref().filter(|first| first.site == me) {
        builder = builder.own_init(model_in(&aside(&out, first.stage), &me, first.mean));
    }
    common.trains(Some(stage.begins.clone()));
    let shown = Shown { json: args.json, quiet: args.quiet };
    let stops = || common.cut.load(Ordering::Relaxed);
    let ran = run_node(builder, (&path, None), shown, interrupt, &stops);
    common.trains(None);
    Ok(ran?.map(|(result, _)| result))
}

/// The versions of the run up to a stage.
fn versions(book: &Book, stage: &Stage) -> Vec<RunVersion> {
    let so_far = book.history.iter().map(|version| &version.run);
    let so_far = so_far.take_while(|run| run.number <= stage.number);
    let one = |run: &Run| RunVersion {
        number: run.number,
        change: run.change.clone(),
        digest: run.digest(),
    };
    so_far.map(one).collect()
}

/// The model file of a run directory: of the mean, or of this site.
pub(crate) fn model_in(folder: &Path, site: &str, mean: bool) -> PathBuf {
    folder.join(if mean { MEAN.into() } else { format!("model-{site}.safetensors") })
}

/// Says how a stage has ended here, from what its run directory holds: the mean model, or the one
/// that this site had when the stage was cut off, or none.
fn conclude(site: &Site, out: &Path, training: &Training) -> Result<(), Exit> {
    let (me, before) = (site.book()?.site, training.rounds_before);
    let summary = fs::read(out.join("summary.json")).ok();
    let summary = summary.and_then(|bytes| serde_json::from_slice::<Ended>(&bytes).ok());
    let newest = match summary {
        Some(Ended { rounds: rounds @ 1.., mean_digest }) => {
            let made = |mean: bool| {
                let model = model_in(out, &me, mean);
                model.is_file().then(|| newest_of(&model, before + rounds, mean)).transpose()
            };
            // A file of an earlier mean, of `run.mean_every`, is not that of the end.
            match made(true)?.filter(|newest| newest.digest == mean_digest) {
                None => made(false)?,
                mean => mean,
            }
        }
        _ => None,
    };
    let history = site.change(|book| {
        let stage = book.begun(training).cloned();
        if let Some(stage) = stage.filter(|run| book.notes.end_of(run, &book.site).is_none()) {
            site.ended(book, &stage, newest)?;
            site.tend(book);
        }
        Ok(book.history.clone())
    })?;
    if out.is_dir() {
        let text = serde_json::to_string_pretty(&history).map_err(io::Error::from)?;
        fs::write(out.join("run.json"), text + "\n")?;
    }
    Ok(())
}

/// What is read of a summary.
#[derive(serde::Deserialize)]
struct Ended {
    rounds: u64,
    #[serde(default)]
    mean_digest: String,
}

/// The folder of an earlier stage.
pub(crate) fn aside(out: &Path, stage: u64) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_os_string();
    name.push(format!("-{stage}"));
    out.with_file_name(name)
}

/// Moves the run directory of an earlier stage aside.
fn set_aside(site: &Site, out: &Path, stage: &Stage) -> Result<(), Exit> {
    let book = site.book()?;
    let before = book.training.last().filter(|before| before.begins != stage.begins);
    if let Some(before) = before
        && out.exists()
    {
        let mut to = aside(out, before.stage);
        if book.begun(before).is_none() {
            // It is of a version that has lost against another one with its number.
            to.as_mut_os_string().push(format!("-{}", &before.begins[..12]));
        }
        fs::rename(out, &to).map_err(|error| {
            let problem = format!("cannot be moved to {}: {error}", to.display());
            ConfigError::new("node.out", out.display(), problem)
        })?;
    }
    Ok(site.change(|book| {
        let Stage { number, begins, rounds_before, .. } = stage.clone();
        book.training.retain(|one| one.begins != begins);
        book.training.push(Training { stage: number, begins, rounds_before });
        Ok(())
    })?)
}
