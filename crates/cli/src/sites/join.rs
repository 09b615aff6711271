//! `gradvine join`

use std::{
    thread,
    time::{Duration, Instant},
};

use gradvine::{config::ConfigError, run::NodeFile};
use gradvine_enrol::{Book, Joining, NoAnswer, Site, Ticket, join, look};
use gradvine_terminal::{Exit, Interrupt, note, print, show_reading};

use super::{
    Folder,
    place::{Place, found_addresses, warn_of},
    rows::{check_rows, describe},
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

It makes the key and the node file of this site, and checks the rows against the run's columns. The
key and the rows stay here. Then it prints a fingerprint: read it aloud to whoever has invited you,
who types it after `gradvine approve`. Then: gradvine start")]
pub(crate) struct Args {
    /// The ticket
    ticket: String,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    place: Place,
}

/// Joins a run.
pub(crate) fn run(args: Args) -> Result<(), Exit> {
    let ticket: Ticket =
        args.ticket.parse().map_err(|why: String| ConfigError::at("TICKET", why))?;
    if Site::has_run(&args.folder.dir) {
        return already(&args.folder, &ticket);
    }
    let interrupt = Interrupt::install()?;
    let proxy = args.place.proxy()?;
    let history = patiently(&interrupt, &ticket, || look(&ticket, proxy.as_ref()))?;
    let newest = &history.last().expect("it has a version").run;
    let Some(data) = args.place.data.clone() else {
        return Ok(print(&(describe(newest)? + "next: the same with --data FILE\n"))?);
    };
    show_reading();
    let given = args.place.addresses()?;
    let what = format!("site {} in the run {}", ticket.site, ticket.title);
    let site = args.place.make(&args.folder.dir, &what)?;
    let listen = NodeFile::load(&site.node())?.listen;
    let addresses = if given.is_empty() { found_addresses(&listen) } else { given.clone() };
    let newest = &history.last().expect("it has a version").run;
    check_rows(&site, &newest.experiment, &data)?;
    let member = site.member(&ticket.site, addresses.clone());
    let mut has_said = false;
    let history = loop {
        match patiently(&interrupt, &ticket, || join(&site, &ticket, &member))? {
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
    let book = Book { addresses: given, ..Book::new(&ticket.site, site.peer(), history) };
    site.begin(&book)?;
    warn_of(&addresses);
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

/// Tries again while nobody answers; other errors end it.
fn patiently<T>(
    interrupt: &Interrupt,
    ticket: &Ticket,
    mut ask: impl FnMut() -> Result<T, NoAnswer>,
) -> Result<T, Exit> {
    let mut said = String::new();
    let mut since = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(NoAnswer::Refused(why)) => {
                return Err(ConfigError::at("TICKET", why).into());
            }
            Err(NoAnswer::Unknown) if since.elapsed() >= UNKNOWN => {
                let why = "the site that has invited you does not accept this ticket: it was \
                           used or replaced, it is for another run, or the other sites have not \
                           agreed to the invitation yet. Ask that site";
                return Err(ConfigError::at("TICKET", why).into());
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
