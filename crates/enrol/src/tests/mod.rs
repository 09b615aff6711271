//! Sites whose books are in memory, and whose desks are asked without a network: the gate of the
//! network is the same list of callers.

mod arbitrary;
mod consent;
mod difference;
mod files;
mod limits;
mod races;
mod settle;
mod stages;
mod tickets;

use std::cell::{Cell, RefCell};

use gradvine::{
    config::ConfigError,
    experiment::Experiment,
    net::{Keypair, VERSION, of_seed},
};

use crate::{
    ask::{exchange, take},
    book::{Book, now},
    desk::{Told, reply},
    document::{Consent, FORMAT, Invitation, Member, Run},
    ends::Constants,
    sign::digest,
    site::{Site, check_names},
    stage::{NotYet, Stage, prepare},
    ticket::Ticket,
    wire::{Question, Reply},
    *,
};

thread_local! {
    /// The time of a test that has its own clock.
    pub(crate) static CLOCK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// While it lives only a test moves the clock: versions have the same digests each time.
struct Clock;

impl Clock {
    fn new() -> Clock {
        CLOCK.set(Some(1_800_000_000));
        Clock
    }

    fn pass() {
        CLOCK.set(CLOCK.get().map(|now| now + 1));
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        CLOCK.set(None);
    }
}

/// A site with its book.
struct Place {
    site: Site,
    book: RefCell<Book>,
}

/// 32 bytes that follow from a text.
fn secret(text: &str) -> [u8; 32] {
    let bytes = data_encoding::HEXLOWER.decode(digest(text.as_bytes()).as_bytes()).unwrap();
    bytes.try_into().unwrap()
}

/// A key that follows from a text.
fn key(text: &str) -> Keypair {
    of_seed(secret(text)).unwrap()
}

/// A site with this key that is in no run yet.
fn site(key: Keypair) -> Site {
    Site::with(std::path::Path::new("/nowhere"), key, None).unwrap()
}

impl Place {
    /// A site of this name that knows this history.
    fn new(site: Site, name: &str, history: Vec<Version>) -> Place {
        let book = RefCell::new(Book::new(name, site.peer(), history));
        Place { site, book }
    }

    /// As its node file may say.
    fn forbid(&mut self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        check_names(&names, self.book().run()).unwrap();
        self.site.forbid = names;
    }

    fn book(&self) -> Book {
        self.book.borrow().clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Book) -> Result<T, ConfigError>) -> T {
        self.tried(change).unwrap()
    }

    /// As `Site::change`: nothing changes if it fails.
    fn tried<T>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        let mut book = self.book();
        let result = change(&mut book)?;
        self.book.replace(book);
        Ok(result)
    }

    /// Asks this site, as its host would after the gate.
    fn asked(&self, caller: &Keypair, question: Question) -> Result<Reply, String> {
        let caller = caller.public().to_peer_id();
        if !self.book.borrow().callers().contains(&caller) {
            return Err("the gate".into());
        }
        // As over the network.
        let question = Question::of_bytes(&question.to_bytes().unwrap()).unwrap();
        match reply(&self.site, &mut self.book.borrow_mut(), &Told::default(), caller, question) {
            Reply::Refused(why) => Err(why),
            reply => Ok(reply),
        }
    }

    /// One exchange with another site, as [`sync`] does it over the network.
    fn sync(&self, other: &Place) -> Result<(), String> {
        let asked = other.asked(&self.site.caller, exchange(&self.book()))?;
        let Reply::Sync { versions, news, lacks } = asked else { panic!("another reply") };
        let taken = take(&self.site, &mut self.book.borrow_mut(), (versions, news, &lacks));
        let run = self.book().run().id.clone();
        if !taken.0.is_empty() {
            other.asked(&self.site.caller, Question::Tell { run, news: taken.0 })?;
        }
        taken.1.map(drop)
    }

    fn stage(&self) -> Result<Stage, NotYet> {
        prepare(&self.site, &self.book.borrow()).map(|(stage, _)| stage)
    }

    fn tend(&self) -> Vec<String> {
        self.site.tend(&mut self.book.borrow_mut())
    }
}

/// The first version of a run.
fn first(founder: &Site, name: &str, sites: usize, consent: Consent) -> Run {
    let experiment =
        Experiment::default_with(&["model.inputs=64".into(), "model.outputs=10".into()]);
    Run {
        format: FORMAT,
        id: "0123456789abcdef".into(),
        name: "hospitals".into(),
        number: 1,
        previous: None,
        time: now() - 10_000,
        change: "made".into(),
        reason: None,
        wire: VERSION,
        consent,
        founder: name.into(),
        sites,
        started: false,
        topology: "ring".into(),
        experiment: experiment.unwrap().to_toml(),
        members: vec![founder.member(name, vec!["/ip4/127.0.0.1/tcp/1".into()])],
        invitations: Vec::new(),
        admissions: Vec::new(),
    }
}

/// A run that a new site of this name founds.
fn founded(name: &str, sites: usize, consent: Consent) -> Place {
    let site = site(key(name));
    let version = site.sign(name, first(&site, name, sites, consent));
    Place::new(site, name, vec![version])
}

/// Invites a site, without a program.
fn invited(place: &Place, name: &str, expires: u64, automatic: bool) -> Ticket {
    invited_at(place, name, (now(), expires), automatic)
}

/// The same at another time.
fn invited_at(place: &Place, name: &str, (at, expires): (u64, u64), automatic: bool) -> Ticket {
    place.change(|book| {
        let me = book.me().unwrap();
        let secret = secret(&format!("{name} {}", book.run().number));
        let ticket = Ticket {
            run: book.run().id.clone(),
            title: book.run().name.clone(),
            site: name.into(),
            peer: me.peer.clone(),
            addresses: me.addresses.clone(),
            expires,
            secret,
        };
        let mut next = book.run().next(at, format!("invites {name}"), None);
        next.invitations.retain(|one| one.site != name);
        next.invitations.push(Invitation {
            site: name.into(),
            ticket: ticket.peer().to_string(),
            version: next.number,
            expires,
            by: book.site.clone(),
        });
        place.site.propose(book, next)?;
        if automatic {
            book.automatic.insert(ticket.peer().to_string());
        }
        Ok(ticket)
    })
}

/// The invitation of a ticket, as the site that has made it knows it.
fn invitation_of(place: &Place, ticket: &Ticket) -> Invitation {
    let peer = ticket.peer().to_string();
    let history = place.book().history;
    history.iter().rev().find_map(|one| one.run.invitation(&peer)).unwrap().clone()
}

fn joining(site: &Site, ticket: &Ticket, invitation: &Invitation) -> Question {
    let member = site.member(&ticket.site, vec!["/ip4/127.0.0.1/tcp/2".into()]);
    let words = (ticket.run.as_str(), &ticket.key());
    let (signature, bearer) = site.sign_request(words, invitation, &member);
    Question::Join { member, signature, bearer }
}

/// A site asks to join.
fn joins(at: &Place, site: &Site, ticket: &Ticket) -> Result<Reply, String> {
    at.asked(&ticket.key(), joining(site, ticket, &invitation_of(at, ticket)))
}

/// The run, for a site that has joined it.
fn history_for(at: &Place, site: &Site) -> Vec<Version> {
    let (run, digests, known) = (at.book().run().id.clone(), Vec::new(), Vec::new());
    let asked = at.asked(&site.caller, Question::Sync { run, digests, known });
    let Ok(Reply::Sync { versions, .. }) = asked else { panic!("{asked:?}") };
    check_history(&versions).unwrap();
    versions
}

/// A run of these sites that has started, the first one its founder.
fn started(names: &[&str], consent: Consent) -> Vec<Place> {
    let mut places = vec![founded(names[0], names.len(), consent)];
    for name in &names[1..] {
        let ticket = invited(&places[0], name, now() + 100, true);
        let site = site(key(name));
        assert!(matches!(joins(&places[0], &site, &ticket), Ok(Reply::Joined(_))));
        let history = history_for(&places[0], &site);
        places.push(Place::new(site, name, history));
    }
    for place in &places[1..] {
        place.sync(&places[0]).unwrap();
    }
    assert!(places.iter().all(|place| place.book().run().started));
    places
}

/// The run with another setting, by this site.
fn with_set(book: &Book, set: &str) -> Run {
    let mut next = book.run().next(now(), format!("sets {set}"), None);
    next.experiment = Experiment::parse(&next.experiment, &[set.into()]).unwrap().to_toml();
    next
}

/// Proposes a setting.
fn proposes(place: &Place, set: &str) -> Result<bool, ConfigError> {
    place.tried(|book| place.site.propose(book, with_set(book, set)))
}

/// Proposes to remove a site.
fn removes(place: &Place, name: &str) -> Result<bool, ConfigError> {
    place.tried(|book| {
        let mut next = book.run().next(now(), format!("removes {name}"), None);
        next.remove(name)?;
        place.site.propose(book, next)
    })
}

/// Answers the newest proposal of a member.
fn answers(place: &Place, by: &str, refusal: Option<&str>) -> Result<(), ConfigError> {
    place.tried(|book| {
        let mut all = book.notes.proposals.iter().rev();
        let digest = all.find(|one| one.by == by).expect("it is known").run.digest();
        place.site.answer(book, &digest, refusal.map(String::from))
    })
}

/// As `gradvine decline`.
fn declines(place: &Place, by: &str) {
    place.change(|book| {
        let one = book.notes.proposals.iter().find(|one| one.by == by).expect("it is known");
        let digest = one.run.digest();
        place.site.decline(book, &digest, "no".into())
    });
}

/// All exchange with all, twice.
fn gossip(places: &[Place]) {
    for _ in 0..2 {
        for (a, one) in places.iter().enumerate() {
            for (b, other) in places.iter().enumerate() {
                if a != b {
                    one.sync(other).unwrap();
                }
            }
        }
    }
}

fn digests(places: &[Place]) -> Vec<String> {
    places.iter().map(|place| place.book().run().digest()).collect()
}

fn newest(rounds: u64, mean: bool, of: &str) -> Option<Newest> {
    let constants = Constants::default();
    Some(Newest { rounds, mean, digest: digest(of.as_bytes()), constants })
}

/// The stage with which a place trains begins and ends, with these results.
fn ends(place: &Place, newest: Option<Newest>) {
    place.change(|book| {
        let begun = book.unsaid().cloned().expect("its stage is over");
        let stage = book.begun(&begun).expect("it is one of the history").clone();
        place.site.ended(book, &stage, newest)
    });
}

/// Its node begins the present stage.
fn begins(place: &Place) -> Stage {
    let stage = place.stage().unwrap();
    place.change(|book| {
        let Stage { number, begins, rounds_before, .. } = stage.clone();
        book.training.push(Training { stage: number, begins, rounds_before });
        Ok(())
    });
    stage
}

/// A generator of numbers for seeded tests (SplitMix64).
struct Dice(u64);

impl Dice {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one.
    fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// Two different numbers below this one.
    fn two(&mut self, end: usize) -> (usize, usize) {
        let one = self.below(end);
        (one, (one + 1 + self.below(end - 1)) % end)
    }
}
