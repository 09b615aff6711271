//! `gradvine join`

use std::{
    fs, io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use gradvine::{config::ConfigError, experiment::Experiment, run::NodeFile};
use gradvine_enrol::{
    Book, Joining, NoAnswer, Site, Ticket, Version, invitation, join, joined, look,
};
use gradvine_terminal::{Exit, Interrupt, note, print, show_reading};

use super::{
    Folder,
    place::{Place, found_addresses, warn_of},
    rows::{check_rows, describe, what_others_see},
};

/// How long a ticket may be unknown: the run may be about to accept it, or its program to change
/// from one stage to the next.
const UNKNOWN: Duration = Duration::from_secs(20);

/// Between two questions whether the site is approved.
const PAUSE: Duration = Duration::from_millis(1000);

/// The arguments of `gradvine join`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine join gv1q...                      shows the run, and the columns that it needs
  gradvine join gv1q... --data rows.csv      asks to join it with these rows
  gradvine join - --data rows.csv            reads the ticket from standard input
  gradvine join --ticket FILE --data rows.csv     or from a file

Other users of a machine may see the arguments of programs, and a shell keeps them: there a ticket
in a file, or on standard input, is safer.

It makes the key and the node file of this site, and checks the rows against the run's columns. The
key and the rows stay here. Then it prints a fingerprint: read it aloud to whoever has invited you,
who types it after `gradvine approve`. Then: gradvine start")]
pub(crate) struct Args {
    /// The ticket; "-" reads it from standard input
    #[arg(required_unless_present = "file")]
    ticket: Option<String>,
    /// A file that holds the ticket
    #[arg(long = "ticket", value_name = "FILE", conflicts_with = "ticket")]
    file: Option<PathBuf>,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    place: Place,
}

/// The first letters of a ticket.
const PREFIX: &str = "gv1";

/// The most bytes of a file with a ticket.
const LONGEST: u64 = 64 << 10;

impl Args {
    /// The ticket, from where it is given.
    fn ticket(&self) -> Result<Ticket, Exit> {
        let from = |read: &mut dyn io::Read, name: &str| {
            let mut text = String::new();
            io::Read::read_to_string(&mut io::Read::take(read, LONGEST), &mut text)
                .map_err(|error| ConfigError::new("--ticket", name, error.to_string()))?;
            // The ticket alone, which a mail program may have broken, or the line of `invite`.
            let is_alone = text.trim_start().starts_with(PREFIX);
            let word = text.split_whitespace().find(|word| word.starts_with(PREFIX) && !is_alone);
            Ok::<String, ConfigError>(word.unwrap_or(&text).to_string())
        };
        let text = match (&self.file, self.ticket.as_deref()) {
            (Some(path), _) => {
                let name = path.display().to_string();
                let file = fs::File::open(path);
                let file =
                    file.map_err(|error| ConfigError::new("--ticket", &name, error.to_string()));
                from(&mut file?, &name)?
            }
            (None, Some("-")) => from(&mut io::stdin().lock(), "-")?,
            (None, text) => text.unwrap_or_default().into(),
        };
        Ok(text.parse().map_err(|why: String| ConfigError::at("TICKET", why))?)
    }
}

/// Joins a run.
pub(crate) fn run(args: Args) -> Result<(), Exit> {
    let ticket = args.ticket()?;
    if Site::has_run(&args.folder.dir) {
        return already(&args.folder, &ticket);
    }
    let interrupt = Interrupt::install()?;
    let proxy = args.place.proxy()?;
    let seen = match patiently(&interrupt, &ticket, || look(&ticket, proxy.as_ref())) {
        Ok(seen) => seen,
        Err(Ended::Used(peer)) => return resume(args, &interrupt, &ticket, &peer),
        Err(Ended::Exit(exit)) => return Err(exit),
    };
    let newest = &seen.last().expect("it has a version").run;
    let Some(data) = args.place.data.clone() else {
        return Ok(print(&(describe(newest)? + "next: the same with --data FILE\n"))?);
    };
    show_reading();
    let given = args.place.addresses()?;
    let site = args.place.make(&args.folder.dir, &what(&ticket))?;
    let listen = NodeFile::load(&site.node())?.listen;
    let addresses = if given.is_empty() { found_addresses(&listen) } else { given.clone() };
    check_rows(&site, &newest.experiment, &data)?;
    note!("{}", what_others_see(&Experiment::parse(&newest.experiment, &[])?));
    let member = site.member(&ticket.site, addresses.clone());
    let invitation = invitation(&ticket, &seen).map_err(|why| refused(&why))?;
    let mut has_said = false;
    let history = loop {
        let asked = || join(&site, (&ticket, &invitation), &member);
        match patiently(&interrupt, &ticket, asked)? {
            Joining::Joined(history) => break history,
            Joining::Waits(fingerprint) => {
                if !has_said {
                    print(&format!(
                        "fingerprint {fingerprint}: read it aloud to whoever has invited you\n"
                    ))?;
                    note!("waiting for `gradvine approve {} {fingerprint}`", ticket.site);
                    has_said = true;
                }
                pause(&interrupt)?;
            }
        }
    };
    keep(&site, &ticket, given, history)?;
    warn_of(&addresses);
    Ok(())
}

fn what(ticket: &Ticket) -> String {
    format!("site {} in the run {}", ticket.site, ticket.title)
}

/// Goes on where an earlier `join` of this folder ended, after it was approved.
fn resume(args: Args, interrupt: &Interrupt, ticket: &Ticket, peer: &str) -> Result<(), Exit> {
    let is_here = args.folder.dir.join("node.key").exists() && args.place.data.is_some();
    let site = is_here.then(|| args.place.make(&args.folder.dir, &what(ticket))).transpose()?;
    let Some(site) = site.filter(|site| site.peer() == peer) else {
        return Err(refused(&NoAnswer::Used(peer.into())).into());
    };
    let given = args.place.addresses()?;
    let history = patiently(interrupt, ticket, || joined(&site, ticket))?;
    keep(&site, ticket, given, history)
}

/// Writes the book of a site that has joined.
fn keep(
    site: &Site,
    ticket: &Ticket,
    given: Vec<String>,
    history: Vec<Version>,
) -> Result<(), Exit> {
    let book = Book { addresses: given, ..Book::new(&ticket.site, site.peer(), history) };
    site.begin(&book)?;
    let run = book.run();
    Ok(print(&format!(
        "{} is a site of the run {}, version {}, digest {}\nnext: gradvine start\n",
        book.site,
        run.name,
        run.number,
        &run.digest()[..12]
    ))?)
}

/// The folder has a run already.
fn already(folder: &Folder, ticket: &Ticket) -> Result<(), Exit> {
    let book = folder.site()?.book()?;
    if book.run().id != ticket.run {
        let problem = format!("this folder holds another run, {}", book.run().name);
        return Err(ConfigError::new("--dir", folder.dir.display(), problem).into());
    }
    Ok(print(&format!("{} has joined already: gradvine start\n", book.site))?)
}

/// Why nothing more is asked.
enum Ended {
    /// The site with this PeerId has joined with the ticket.
    Used(String),
    Exit(Exit),
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Exit {
        match ended {
            Ended::Used(peer) => refused(&NoAnswer::Used(peer)).into(),
            Ended::Exit(exit) => exit,
        }
    }
}

impl From<Exit> for Ended {
    fn from(exit: Exit) -> Ended {
        Ended::Exit(exit)
    }
}

fn refused(why: &NoAnswer) -> ConfigError {
    ConfigError::at("TICKET", why.to_string())
}

/// Tries again while nobody answers; other errors end it.
fn patiently<T>(
    interrupt: &Interrupt,
    ticket: &Ticket,
    mut ask: impl FnMut() -> Result<T, NoAnswer>,
) -> Result<T, Ended> {
    let mut said = String::new();
    let mut since = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(NoAnswer::Used(peer)) => return Err(Ended::Used(peer)),
            Err(why @ NoAnswer::Refused(_)) => return Err(Exit::from(refused(&why)).into()),
            Err(NoAnswer::Unknown) if since.elapsed() >= UNKNOWN => {
                let why = "the site that has invited you does not accept this ticket: it was \
                           used or replaced, it is for another run, or the other sites have not \
                           agreed to the invitation yet. Ask that site";
                return Err(Exit::from(ConfigError::at("TICKET", why)).into());
            }
            Err(NoAnswer::Unknown) => pause(interrupt)?,
            Err(NoAnswer::Unreached(why)) => {
                if said != why {
                    note!(
                        "nobody answers at {} ({why}): waiting until `gradvine start` runs there",
                        ticket.addresses.join(", ")
                    );
                    said = why;
                }
                since = Instant::now();
                pause(interrupt)?;
            }
        }
    }
}

fn pause(interrupt: &Interrupt) -> Result<(), Exit> {
    thread::sleep(PAUSE);
    match interrupt.is_set() {
        true => Err(Exit::Interrupted("the same command goes on where this one ends".into())),
        false => Ok(()),
    }
}
