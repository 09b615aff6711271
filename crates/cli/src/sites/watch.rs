//! What a site does beside its node: it exchanges the run with the other sites, and tells its user
//! what is new.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gradvine::net::{Answers, Multiaddr, PeerId};
use gradvine_enrol::{Book, NoAnswer, Site, fingerprint, sync};
use gradvine_terminal::note;

/// Between two looks at the book.
const LOOK: Duration = Duration::from_millis(200);

/// Between two exchanges with another site, before the node runs and while it does.
const GATHERING: Duration = Duration::from_millis(700);
const TRAINING: Duration = Duration::from_secs(3);

/// A thread that keeps the book of a site. It ends when this is dropped.
pub(super) struct Watch {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the site's node have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub site: Arc<Site>,
    pub answers: Answers,
    /// The stage in which the node runs, 0 if it does not.
    pub stage: Arc<AtomicU64>,
    /// Set once the stage is to end, because training changes.
    pub ends: Arc<AtomicBool>,
}

impl Watch {
    /// Begins to keep the book.
    pub(super) fn start(common: Common) -> std::io::Result<Watch> {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let keep = move || Keeper::new(common).run(&is_over);
        let thread = thread::Builder::new().name("gradvine-sites".into()).spawn(keep)?;
        Ok(Watch { over, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Keeper {
    common: Common,
    said: BTreeSet<String>,
    /// Why members did not answer when they were asked last.
    silent: BTreeMap<String, String>,
    next: usize,
    asked: Option<Instant>,
}

impl Keeper {
    fn new(common: Common) -> Keeper {
        Keeper { common, said: BTreeSet::new(), silent: BTreeMap::new(), next: 0, asked: None }
    }

    fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let tended = self.common.site.change(|book| {
                self.common.site.tend(book)?;
                Ok(book.clone())
            });
            match tended {
                Ok(book) => self.upon(&book),
                Err(error) => self.say(&format!("warning: {error}")),
            }
            thread::sleep(LOOK);
        }
    }

    /// Says a line once.
    fn say(&mut self, line: &str) {
        if self.said.insert(line.to_string()) {
            note!("{line}");
        }
    }

    fn upon(&mut self, book: &Book) {
        self.common.answers.let_in(book.callers());
        self.common.answers.announce(addresses(book));
        let stage = self.common.stage.load(Ordering::Relaxed);
        let other = book.stage().is_some_and(|now| now.number != stage) || book.me().is_none();
        if stage != 0 && other {
            self.common.ends.store(true, Ordering::Relaxed);
        }
        self.tell(book);
        let pause = if stage == 0 { GATHERING } else { TRAINING };
        if self.asked.is_none_or(|at| at.elapsed() >= pause) {
            self.exchange(book);
            self.asked = Some(Instant::now());
        }
    }

    /// Tells the user what has changed.
    fn tell(&mut self, book: &Book) {
        let run = book.run();
        for version in &book.history {
            let run = &version.run;
            let line = format!("version {} of the run: {}", run.number, run.change);
            self.say(&line);
        }
        for request in &book.requests {
            let name = &request.member.name;
            let print = fingerprint(&run.id, &request.ticket, &request.member.peer);
            // The user is to hear it from the other site, so it is not shown whole.
            let line = format!(
                "{name} asks to join; its fingerprint begins with {}: gradvine approve {name} \
                 FINGERPRINT",
                &print[..2]
            );
            self.say(&line);
        }
        for one in book.notes.proposals.iter().filter(|one| one.by != book.site) {
            if one.accepts.contains_key(&book.site) || one.declines.contains_key(&book.site) {
                continue;
            }
            let reason = one.run.reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            let line = format!(
                "{} proposes: {}{reason}: gradvine accept, or gradvine decline",
                one.by, one.run.change
            );
            self.say(&line);
        }
        if let Some(conflict) = &book.conflict {
            self.say(&format!("warning: {conflict}: this site goes no further; ask both"));
        }
    }

    /// Exchanges the run with the next site that has an address.
    fn exchange(&mut self, book: &Book) {
        let others: Vec<_> = (book.run().members.iter())
            .filter(|member| member.name != book.site && !book.addresses_of(member).is_empty())
            .collect();
        if others.is_empty() || book.me().is_none() {
            return;
        }
        let member = others[self.next % others.len()];
        self.next += 1;
        match sync(&self.common.site, member, book.addresses_of(member)) {
            Ok(_) => {
                self.silent.remove(&member.name);
            }
            // A site that does not run yet says nothing.
            Err(NoAnswer::Unreached(why)) => {
                self.silent.insert(member.name.clone(), why);
            }
            Err(NoAnswer::Refused(why)) => {
                self.say(&format!("warning: {}: {why}", member.name));
            }
        }
    }
}

/// The newest addresses of the other sites' nodes.
fn addresses(book: &Book) -> BTreeMap<PeerId, Vec<Multiaddr>> {
    let of = |member: &gradvine_enrol::Member| {
        let all = book.addresses_of(member).iter().filter_map(|one| one.parse().ok()).collect();
        Some((member.peer.parse().ok()?, all))
    };
    book.run().members.iter().filter_map(of).collect()
}
