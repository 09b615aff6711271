//! What a site does beside its node: it exchanges the run with the other sites, and tells its user
//! what is new.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gradvine::net::{Answers, Multiaddr, PeerId};
use gradvine_enrol::{Book, Member, NoAnswer, Run, Site, Told, fingerprint, sync};
use gradvine_terminal::note;

use super::place::announce;

/// Between two looks at the book.
const LOOK: Duration = Duration::from_millis(200);

/// How long all nodes have to end a stage together. They wait for a node that is gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks at this machine's addresses.
const LOCATE: Duration = Duration::from_secs(2);

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
    /// The addresses on which its node listens.
    pub listen: Vec<String>,
    pub answers: Answers,
    /// Who knows how stages have ended here.
    pub told: Told,
    /// The digest of the version with which the stage begins in which the node runs, if it does.
    pub stage: Arc<Mutex<Option<String>>>,
    /// Set once the stage is to end, because training changes.
    pub ends: Arc<AtomicBool>,
    /// Set if the stage has not ended by that: a site is gone, and the others wait for it.
    pub cut: Arc<AtomicBool>,
}

impl Common {
    /// The node runs in this stage from now on, or in none.
    pub(super) fn trains(&self, stage: Option<String>) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }
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
    /// The sites that are asked next.
    due: VecDeque<String>,
    /// What all others have been told, or are about to be, and how many of them at once.
    told: Option<(String, BTreeSet<String>)>,
    hurry: usize,
    /// Since when the stage is to end.
    ending: Option<Instant>,
    /// When this machine's addresses were looked up last.
    located: Instant,
    asked: Option<Instant>,
}

impl Keeper {
    fn new(common: Common) -> Keeper {
        let (said, due) = (BTreeSet::new(), VecDeque::new());
        Keeper {
            common,
            said,
            due,
            told: None,
            hurry: 0,
            ending: None,
            located: Instant::now(),
            asked: None,
        }
    }

    fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            if self.located.elapsed() >= LOCATE {
                self.located = Instant::now();
                // Addresses of this machine come and go.
                if let Err(error) = announce(&self.common.site, &self.common.listen) {
                    self.say(&format!("warning: {error}"));
                }
            }
            let tended = self.common.site.change(|book| {
                let problems = self.common.site.tend(book);
                Ok((book.clone(), problems))
            });
            match tended {
                Ok((book, problems)) => {
                    problems.iter().for_each(|why| self.say(&format!("warning: {why}")));
                    self.upon(&book);
                }
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
        let stage = self.common.stage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = book.stage().map(Run::digest);
        let other = now.is_some() && now != stage || book.me().is_none();
        if stage.is_some() && other {
            self.common.ends.store(true, Ordering::Relaxed);
            let since = *self.ending.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                self.common.cut.store(true, Ordering::Relaxed);
            }
        } else {
            self.ending = None;
        }
        self.tell(book);
        let now = (book.run().digest(), book.notes.known());
        if self.told.as_ref() != Some(&now) {
            // All are to hear it soon.
            self.told = Some(now);
            self.due.clear();
            self.hurry = book.run().members.len();
        }
        let pause = match self.hurry {
            0 if stage.is_none() => GATHERING,
            0 => TRAINING,
            _ => Duration::ZERO,
        };
        self.hurry = self.hurry.saturating_sub(1);
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
            let own = self.common.site.peer();
            let print = fingerprint(&run.id, &request.ticket, &own, &request.member);
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
            if self.said.insert(one.run.digest()) {
                let why = one.run.reason.as_ref();
                let reason = why.map_or(String::new(), |why| format!(" ({why})"));
                note!(
                    "{} proposes: {}{reason}: gradvine accept, or gradvine decline",
                    one.by,
                    one.run.change
                );
                // Its own words may say anything.
                one.run.difference(run).iter().for_each(|line| note!("  {line}"));
            }
        }
        if let Some(conflict) = &book.conflict {
            self.say(&format!(
                "warning: {conflict}: this site goes no further; talk to the others, then gradvine \
                 settle"
            ));
        }
        for one in book.proofs() {
            self.say(&format!("warning: {one}; it is settled: `gradvine remove` takes a site out"));
        }
    }

    /// Exchanges the run with the next site that is due.
    fn exchange(&mut self, book: &Book) {
        let is_other =
            |member: &&Member| member.name != book.site && !book.addresses_of(member).is_empty();
        let others: Vec<&Member> = book.run().members.iter().filter(is_other).collect();
        if self.due.is_empty() {
            self.due.extend(others.iter().map(|member| member.name.clone()));
        }
        let Some(name) = self.due.pop_front() else { return };
        let member = others.into_iter().find(|member| member.name == name);
        let Some(member) = member.filter(|_| book.me().is_some()) else { return };
        // A site that does not run yet says nothing.
        match sync(&self.common.site, member, book.addresses_of(member), &self.common.told) {
            Err(NoAnswer::Refused(why)) => self.say(&format!("warning: {name}: {why}")),
            Ok(()) | Err(NoAnswer::Unreached(_) | NoAnswer::Unknown | NoAnswer::Used(_)) => {}
        }
    }
}

/// The newest addresses of the other sites' nodes.
fn addresses(book: &Book) -> BTreeMap<PeerId, Vec<Multiaddr>> {
    let of = |member: &Member| {
        let all = book.addresses_of(member).iter().filter_map(|one| one.parse().ok()).collect();
        Some((member.peer.parse().ok()?, all))
    };
    book.run().members.iter().filter_map(of).collect()
}
