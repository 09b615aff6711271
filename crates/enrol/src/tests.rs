//! Sites in folders, whose desks are asked without a network: the gate of the network is the same
//! list of callers.

use std::sync::Arc;

use gradvine::{
    config::ConfigError,
    experiment::Experiment,
    net::{Desk, Keypair, VERSION, ask, identity},
};
use tempfile::TempDir;

use super::*;
use crate::{
    book::{Request, check_names, now},
    desk::{Question, Reply, answer},
    sign::{About, sign},
};

/// A site in a folder of its own.
struct Place {
    _folder: TempDir,
    site: Arc<Site>,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let key = identity::create(&folder.path().join("node.key")).unwrap();
        let site = Arc::new(Site::with(folder.path(), key, None).unwrap());
        Place { _folder: folder, site }
    }

    /// As its node file may say.
    fn forbid(&mut self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        check_names(&names, self.book().run()).unwrap();
        Arc::get_mut(&mut self.site).unwrap().forbid = names;
    }

    fn book(&self) -> Book {
        self.site.book().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Book) -> Result<T, ConfigError>) -> T {
        self.site.change(change).unwrap()
    }

    /// Asks this site, as its host would after the gate.
    fn asked(&self, caller: &Keypair, question: &Question) -> Result<Reply, String> {
        let caller = caller.public().to_peer_id();
        if !self.book().callers().contains(&caller) {
            return Err("the gate".into());
        }
        match answer(&self.site, caller, &serde_json::to_vec(question).unwrap()).unwrap() {
            Reply::Refused(why) => Err(why),
            reply => Ok(reply),
        }
    }

    /// One exchange with another site, as [`sync`] does it over the network.
    fn sync(&self, other: &Place) -> Result<(), String> {
        let book = self.book();
        let (run, number, digest) = (book.run().id.clone(), book.run().number, book.run().digest());
        let question = Question::Sync { run, number, digest, notes: book.notes.clone() };
        let Reply::Sync { versions, notes } = other.asked(&self.site.caller, &question)? else {
            panic!("another kind of reply");
        };
        self.change(|book| {
            let extended = book.extend(versions);
            book.learn(notes);
            self.site.tend(book)?;
            Ok(extended)
        })
        .map(drop)
    }
}

/// A run that this site founds.
fn founded(place: &Place, name: &str, sites: usize, consent: Consent) {
    let experiment =
        Experiment::default_with(&["model.inputs=64".into(), "model.outputs=10".into()]);
    let run = Run {
        id: "0123456789abcdef".into(),
        name: "hospitals".into(),
        number: 1,
        previous: None,
        time: 5,
        change: "made".into(),
        reason: None,
        wire: VERSION,
        consent,
        founder: name.into(),
        sites,
        started: false,
        topology: "ring".into(),
        experiment: experiment.unwrap().to_toml(),
        members: vec![place.site.member(name, vec!["/ip4/127.0.0.1/tcp/1".into()])],
        invitations: Vec::new(),
    };
    place
        .site
        .begin(&Book::new(name, place.site.peer(), vec![place.site.sign(name, run)]))
        .unwrap();
}

/// Invites a site, without a program.
fn invited(place: &Place, name: &str, expires: u64, automatic: bool) -> Ticket {
    place.change(|book| {
        let me = book.me().unwrap();
        let secret = Keypair::generate_ed25519().derive_secret(b"ticket").unwrap();
        let ticket = Ticket {
            run: book.run().id.clone(),
            title: book.run().name.clone(),
            site: name.into(),
            peer: me.peer.clone(),
            addresses: me.addresses.clone(),
            expires,
            secret,
        };
        let mut next = book.run().next(now(), format!("invites {name}"), None);
        next.invitations.push(Invitation {
            site: name.into(),
            ticket: ticket.peer().to_string(),
            expires,
            by: book.site.clone(),
        });
        if automatic {
            book.automatic.insert(ticket.peer().to_string());
        }
        place.site.propose(book, next)?;
        Ok(ticket)
    })
}

fn joining(place: &Place, ticket: &Ticket) -> Question {
    let member = place.site.member(&ticket.site, vec!["/ip4/127.0.0.1/tcp/2".into()]);
    let signature = place.site.sign_request(&ticket.run, &ticket.peer().to_string(), &member);
    Question::Join { member, signature }
}

/// A run of these sites that has started, the first one its founder.
fn started(names: &[&str], consent: Consent) -> Vec<Place> {
    let places: Vec<Place> = names.iter().map(|_| Place::new()).collect();
    founded(&places[0], names[0], names.len(), consent);
    for (place, name) in places.iter().zip(names).skip(1) {
        let ticket = invited(&places[0], name, now() + 100, true);
        places[0].asked(&ticket.key(), &joining(place, &ticket)).unwrap();
        let Ok(Reply::Run(history)) = places[0].asked(&ticket.key(), &Question::Look) else {
            panic!("a bearer of a ticket sees the run");
        };
        check_history(&history).unwrap();
        place.site.begin(&Book::new(*name, place.site.peer(), history)).unwrap();
    }
    for place in &places[1..] {
        place.sync(&places[0]).unwrap();
    }
    places
}

/// Proposes a setting.
fn proposes(place: &Place, set: &str) -> Result<bool, ConfigError> {
    place.site.change(|book| {
        let mut next = book.run().next(now(), format!("sets {set}"), None);
        next.experiment = Experiment::parse(&next.experiment, &[set.into()])?.to_toml();
        place.site.propose(book, next)
    })
}

fn answers(place: &Place, by: &str, refusal: Option<&str>) -> Result<(), ConfigError> {
    place.site.change(|book| {
        let one = book.notes.proposals.iter().find(|one| one.by == by).expect("it is known");
        let digest = one.run.digest();
        place.site.answer(book, &digest, refusal.map(String::from))
    })
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

#[test]
fn sites_come_together_and_agree_by_one_digest() {
    let places = started(&["berlin", "lyon", "rome"], Consent::Majority);
    let all = digests(&places);
    assert!(places[0].book().run().started && all.iter().all(|one| *one == all[0]));
    let stage = places[2].book().stage().unwrap().number;
    assert_eq!(stage, places[2].book().run().number);
}

#[test]
fn a_ticket_is_good_once_until_it_expires_for_its_name_and_its_run() {
    let (berlin, lyon, thief) = (Place::new(), Place::new(), Place::new());
    founded(&berlin, "berlin", 3, Consent::Majority);
    let late = invited(&berlin, "rome", now() - 1, false);
    let why = berlin.asked(&late.key(), &joining(&lyon, &late)).unwrap_err();
    assert!(why.contains("has expired"), "{why}");

    let ticket = invited(&berlin, "lyon", now() + 100, false);
    // Another name than the ticket's.
    let other = Ticket { site: "oslo".into(), ..ticket.clone() };
    let why = berlin.asked(&ticket.key(), &joining(&lyon, &other)).unwrap_err();
    assert!(why.contains("the ticket is for the name lyon"), "{why}");
    // A request that was signed for another ticket, or altered.
    let question = joining(&lyon, &late);
    let Question::Join { member, signature } = question else { unreachable!() };
    let member = Member { name: "lyon".into(), ..member };
    let why = berlin.asked(&ticket.key(), &Question::Join { member, signature }).unwrap_err();
    assert!(why.contains("not signed by the key"), "{why}");

    let waits = berlin.asked(&ticket.key(), &joining(&lyon, &ticket)).unwrap();
    let print = fingerprint(&ticket.run, &ticket.peer().to_string(), &lyon.site.peer());
    assert!(matches!(waits, Reply::Waits(shown) if shown == print));
    let why = berlin.asked(&ticket.key(), &joining(&thief, &ticket)).unwrap_err();
    assert!(why.contains("was used already") && why.contains(&lyon.site.peer()), "{why}");

    let request: Request = berlin.book().requests[0].clone();
    berlin.change(|book| berlin.site.admit(book, &request));
    let again = berlin.asked(&ticket.key(), &joining(&lyon, &ticket)).unwrap();
    assert!(matches!(again, Reply::Run(_)), "the same site may ask again");
    let why = berlin.asked(&ticket.key(), &joining(&thief, &ticket)).unwrap_err();
    assert!(why.contains("was used already"), "{why}");
    // Nobody who has no ticket gets past the gate, and a bearer is no member.
    assert_eq!(berlin.asked(&thief.site.caller, &Question::Look).unwrap_err(), "the gate");
    let sync = Question::Sync {
        run: ticket.run.clone(),
        number: 1,
        digest: String::new(),
        notes: Notes::default(),
    };
    let why = berlin.asked(&late.key(), &sync).unwrap_err();
    assert!(why.contains("no member"), "{why}");
}

/// So many keys that nobody has invited ask a site, over its real host; its member is answered.
fn guess(count: usize) {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let told = Told::default();
    let all = crate::answers(&places[0].site, &told);
    all.let_in(places[0].book().callers());
    let listen = ["/ip4/127.0.0.1/tcp/0".to_string()];
    let desk = Desk::open((&places[0].site.key, None), &listen, &[], &all).unwrap();
    let peer = places[0].site.key.public().to_peer_id();
    let within = std::time::Duration::from_secs(20);
    for _ in 0..count {
        let guessed = Keypair::generate_ed25519();
        let question = serde_json::to_vec(&Question::Look).unwrap();
        let reply = ask((&guessed, None), (peer, &desk.listen), &question, within);
        // The gate may also drop one of many at once.
        assert!(reply.is_err(), "{reply:?}");
    }
    let member = places[0].site.member("a", Vec::new());
    let address = [desk.listen[0].to_string()];
    sync(&places[1].site, &member, &address).unwrap();
    assert!(told.all(&places[0].book()), "no stage has ended");
}

#[test]
fn guessed_tickets_are_refused_and_members_are_answered() {
    guess(30);
}

#[test]
#[ignore = "soak: ten thousand handshakes take more than a minute"]
fn soak_ten_thousand_guessed_tickets_are_refused() {
    guess(10_000);
}

#[test]
fn a_change_needs_a_majority_and_all_take_it_over() {
    let places = started(&["a", "b", "c", "d", "e"], Consent::Majority);
    let before = digests(&places)[0].clone();
    assert!(!proposes(&places[1], "optimizer.step=0.05").unwrap());
    gossip(&places);
    answers(&places[3], "b", None).unwrap();
    gossip(&places);
    assert_eq!(digests(&places)[0], before, "two of five");
    answers(&places[4], "b", Some("not now")).unwrap();
    answers(&places[0], "b", None).unwrap();
    gossip(&places);
    let after = digests(&places);
    assert!(after.iter().all(|one| *one == after[0] && *one != before));
    assert!(places[2].book().run().experiment.contains("step = 0.05"));
    places.iter().for_each(|place| check_history(&place.book().history).unwrap());
    let book = places[2].book();
    assert_eq!(book.stage().unwrap().number, book.run().number);
    assert_eq!(book.stage_before(book.run().number).unwrap().number + 1, book.run().number);
}

#[test]
fn of_two_proposals_at_most_one_is_adopted() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    proposes(&places[0], "optimizer.step=0.05").unwrap();
    proposes(&places[1], "optimizer.step=0.07").unwrap();
    for (one, other) in [(0, 2), (1, 2), (0, 1), (1, 0)] {
        places[one].sync(&places[other]).unwrap();
    }
    // Each author has accepted its own: it accepts no other, and proposes no other.
    let why = answers(&places[0], "b", None).unwrap_err().to_string();
    assert!(why.contains("has accepted a proposal of a"), "{why}");
    let why = proposes(&places[0], "optimizer.step=0.09").unwrap_err().to_string();
    assert!(why.contains("must be adopted or declined first"), "{why}");
    answers(&places[2], "a", None).unwrap();
    let why = places[2].book().notes.proposals.len();
    assert_eq!(why, 0, "adopted at once, and the other one is over");
    gossip(&places);
    let all = digests(&places);
    assert!(all.iter().all(|one| *one == all[0]));
    assert!(places[1].book().run().experiment.contains("step = 0.05"));
    // Whoever has declined a proposal cannot accept it any more; others may propose again.
    proposes(&places[1], "optimizer.step=0.07").unwrap();
    gossip(&places);
    answers(&places[0], "b", Some("no")).unwrap();
    assert!(answers(&places[0], "b", None).unwrap_err().to_string().contains("declined"));
    answers(&places[2], "b", Some("no")).unwrap();
    gossip(&places);
    proposes(&places[0], "optimizer.step=0.09").unwrap();
    gossip(&places);
    answers(&places[1], "a", None).unwrap();
    gossip(&places);
    assert!(places[2].book().run().experiment.contains("step = 0.09"));
}

#[test]
fn all_must_agree_where_the_run_says_so_but_a_removed_site_need_not() {
    let places = started(&["a", "b", "c"], Consent::All);
    proposes(&places[0], "optimizer.step=0.05").unwrap();
    gossip(&places);
    answers(&places[1], "a", None).unwrap();
    gossip(&places);
    assert!(!places[0].book().run().experiment.contains("step = 0.05"));
    answers(&places[2], "a", None).unwrap();
    gossip(&places);
    assert!(places[1].book().run().experiment.contains("step = 0.05"));
    places[0].change(|book| {
        let mut next = book.run().next(now(), "removes c".into(), None);
        next.members.retain(|member| member.name != "c");
        places[0].site.propose(book, next)
    });
    places[1].sync(&places[0]).unwrap();
    answers(&places[1], "a", None).unwrap();
    places[0].sync(&places[1]).unwrap();
    assert_eq!(places[0].book().run().members.len(), 2);
    // It hears that it was removed, and nothing later.
    proposes(&places[0], "optimizer.step=0.01").unwrap();
    places[2].sync(&places[0]).unwrap();
    let book = places[2].book();
    assert!(book.me().is_none() && book.notes.proposals.is_empty());
    assert!(!book.run().experiment.contains("step = 0.01"));
}

#[test]
fn a_member_that_signs_two_versions_with_one_number_is_named() {
    let (berlin, lyon) = (Place::new(), Place::new());
    founded(&berlin, "berlin", 3, Consent::Majority);
    let ticket = invited(&berlin, "lyon", now() + 100, true);
    berlin.asked(&ticket.key(), &joining(&lyon, &ticket)).unwrap();
    let history = berlin.book().history;
    lyon.site.begin(&Book::new("lyon", lyon.site.peer(), history.clone())).unwrap();
    let last = history.last().unwrap().run.clone();
    let one = berlin.site.sign("berlin", last.next(1, "one".into(), None));
    let two = berlin.site.sign("berlin", last.next(1, "two".into(), None));
    let why = lyon.change(|book| {
        book.extend(vec![one]).unwrap();
        Ok(book.extend(vec![two]).unwrap_err())
    });
    assert!(why.contains("berlin signed two versions"), "{why}");
    assert!(lyon.book().conflict.is_some());
    // Whoever is nobody contradicts nothing.
    let stranger = Place::new();
    let three = stranger.site.sign("berlin", last.next(1, "three".into(), None));
    let mut book = Book::new("lyon", berlin.site.peer(), berlin.book().history);
    book.extend(vec![berlin.site.sign("berlin", last.next(1, "one".into(), None))]).unwrap();
    assert!(book.extend(vec![three]).is_err() && book.conflict.is_none());
}

#[test]
fn what_strangers_say_and_what_was_altered_counts_for_nothing() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let stranger = Place::new();
    let book = places[0].book();
    let current = book.run();
    let propose = |by: &str, key: &Keypair| {
        let mut run = current.next(now(), "evil".into(), None);
        run.experiment =
            Experiment::parse(&run.experiment, &["optimizer.step=9".into()]).unwrap().to_toml();
        let signature = sign(key, About::Accepts, run.digest().as_bytes());
        let accepts = [(by.to_string(), signature)].into();
        Proposal { run, by: by.into(), accepts, declines: Default::default() }
    };
    let key = &stranger.site.key;
    let mut notes = Notes::default();
    let merge = |notes: &mut Notes, one: Proposal| {
        notes.merge(Notes { proposals: vec![one], ..Notes::default() }, &book.history)
    };
    // In its own name, in a member's, and with answers in the names of others.
    assert!(!merge(&mut notes, propose("d", key)));
    assert!(!merge(&mut notes, propose("a", key)));
    let mut one = propose("b", &places[1].site.key);
    for name in ["a", "c"] {
        let signature = sign(&places[1].site.key, About::Accepts, one.run.digest().as_bytes());
        one.accepts.insert(name.into(), signature);
    }
    assert!(merge(&mut notes, one.clone()));
    assert_eq!(notes.proposals[0].accepts.keys().collect::<Vec<_>>(), ["b"]);
    assert!(notes.adopted(current).is_none());
    // A signature of one kind is none of another.
    let mut other = propose("c", &places[2].site.key);
    let refusal = sign(&places[2].site.key, About::Declines, other.run.digest().as_bytes());
    other.accepts.insert("c".into(), refusal);
    assert!(!merge(&mut notes, other));
    // Altered after it was signed.
    let mut other = propose("c", &places[2].site.key);
    other.run.change = "good".into();
    assert!(!merge(&mut notes, other));
    // An address in the name of another.
    let one = Announcement {
        run: current.id.clone(),
        site: "a".into(),
        number: u64::MAX,
        addresses: vec!["/ip4/6.6.6.6/tcp/6".into()],
        signature: String::new(),
    };
    let one = Notes { announcements: vec![one.signed(key)], ..Notes::default() };
    assert!(!notes.merge(one, &book.history));
}

#[test]
fn a_run_does_not_go_back() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let book = places[0].book();
    let current = book.run();
    let next = current.next(now(), "x".into(), None);
    for (run, why) in [
        (Run { started: false, ..next.clone() }, "stays so"),
        (Run { id: "other".into(), ..next.clone() }, "another run"),
        (Run { founder: "b".into(), ..next.clone() }, "another run"),
        (Run { number: 9, ..next.clone() }, "does not continue"),
        (Run { previous: Some("0".into()), ..next.clone() }, "does not continue"),
        (Run { experiment: "run.rounds = 'many'".into(), ..next.clone() }, "its experiment"),
        (Run { topology: "cloud".into(), ..next.clone() }, "cloud"),
    ] {
        let found = run.follows(Some(current)).unwrap_err();
        assert!(found.contains(why), "{found}");
    }
    // A member that nobody has invited.
    let mut run = next;
    run.members.push(Place::new().site.member("d", Vec::new()));
    assert!(run.follows(Some(current)).unwrap_err().contains("d was not invited"));
    // An older history changes nothing.
    let mut other = places[1].book();
    let newest = other.run().digest();
    assert!(!other.extend(book.history[..2].to_vec()).unwrap());
    assert_eq!(other.run().digest(), newest);
}

#[test]
fn a_site_that_has_declined_what_is_adopted_leaves() {
    let places = started(&["a", "b", "c", "d"], Consent::Majority);
    proposes(&places[0], "optimizer.step=0.05").unwrap();
    gossip(&places);
    answers(&places[3], "a", Some("too large")).unwrap();
    places[3].change(|book| {
        let digest = book.notes.proposals[0].run.digest();
        book.declined.insert(digest);
        Ok(())
    });
    answers(&places[1], "a", None).unwrap();
    answers(&places[2], "a", None).unwrap();
    gossip(&places);
    gossip(&places);
    let names: Vec<String> =
        places[0].book().run().members.iter().map(|member| member.name.clone()).collect();
    assert_eq!(names, ["a", "b", "c"], "nobody's user was asked");
}

/// The site's disk is lost: it joins again, by the same name, with another key.
#[test]
fn a_member_gets_a_new_key_by_an_invitation_only() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let first = places[0].book().stage().unwrap().number;
    let old = places[2].site.peer();
    let mut fresh = Place::new();
    // Not by a proposal alone.
    let mut run = places[0].book().run().next(now(), "c has another key".into(), None);
    run.members[2] = fresh.site.member("c", Vec::new());
    assert!(run.follows(Some(places[0].book().run())).unwrap_err().contains("c was not invited"));
    // Nor does the key change with which it asks other sites.
    let mut run = places[0].book().run().next(now(), "c asks with another key".into(), None);
    run.members[2].caller = fresh.site.caller.public().to_peer_id().to_string();
    assert!(run.follows(Some(places[0].book().run())).unwrap_err().contains("c was not invited"));

    let ticket = invited(&places[0], "c", now() + 100, true);
    gossip(&places[..2]);
    answers(&places[1], "a", None).unwrap();
    gossip(&places[..2]);
    assert_eq!(
        places[0].book().stage().unwrap().number,
        first,
        "an invitation changes no training"
    );
    // Its admission needs nobody's answer: the invitation was accepted.
    places[0].asked(&ticket.key(), &joining(&fresh, &ticket)).unwrap();
    gossip(&places[..2]);
    gossip(&places[..2]);
    let book = places[1].book();
    let names: Vec<&str> = book.run().members.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "it has the number that it had");
    assert_eq!(book.run().member("c").unwrap().peer, fresh.site.peer());
    assert!(book.stage().unwrap().number > first && book.run().invitations.is_empty());
    let Ok(Reply::Run(history)) = places[0].asked(&ticket.key(), &Question::Look) else {
        panic!("the ticket shows the run");
    };
    fresh.site.begin(&Book::new("c", fresh.site.peer(), history)).unwrap();
    assert!(fresh.book().me().is_some());
    // What its name was not asked with the old key does not make it leave.
    fresh.forbid(&["sites"]);
    assert!(fresh.site.refused(&fresh.book()).is_none());
    // What the old key says counts no more, and its site learns that it is out.
    places[2].sync(&places[0]).unwrap();
    let book = places[2].book();
    assert_ne!(old, fresh.site.peer());
    assert!(book.run().member("c").is_some() && book.me().is_none());
    places[2].change(|book| {
        places[2].site.announce(book, vec!["/ip4/9.9.9.9/tcp/9".into()]);
        Ok(())
    });
    assert!(places[2].book().notes.announcements.iter().all(|one| one.site != "c"));
}

/// Nobody types anything at the last site.
#[test]
fn what_a_node_file_forbids_takes_no_effect_there() {
    for (forbidden, leaves) in [("optimizer.step", true), ("optimizer", true), ("rule", false)] {
        let mut places = started(&["a", "b", "c", "d"], Consent::Majority);
        places[3].forbid(&[forbidden]);
        proposes(&places[0], "optimizer.step=0.05").unwrap();
        gossip(&places);
        let declined = |place: &Place| {
            let book = place.book();
            book.notes.proposals[0].declines.get("d").map(|one| one.reason.clone())
        };
        let why = format!("its node file forbids changes of {forbidden}");
        assert_eq!(declined(&places[0]), leaves.then_some(why));
        answers(&places[1], "a", None).unwrap();
        answers(&places[2], "a", None).unwrap();
        gossip(&places[..3]);
        // It hears of the version only now, and trains no round of it.
        let book = places[0].book();
        places[3].change(|own| {
            own.extend(book.history.clone()).unwrap();
            Ok(())
        });
        match write_files(&places[3].site, &places[3].book()) {
            Err(NotYet::Waits(why)) => {
                let words = if leaves { "this site refuses" } else { "has not said" };
                assert!(why.contains(words), "{why}");
            }
            other => panic!("{other:?}"),
        }
        gossip(&places);
        gossip(&places);
        let is_member = places[0].book().run().member("d").is_some();
        assert_eq!(is_member, !leaves, "{forbidden}");
    }
}

/// A new site and a removed one, where the sites are forbidden to change.
#[test]
fn sites_may_be_forbidden_to_change() {
    let mut places = started(&["a", "b", "c"], Consent::All);
    places[2].forbid(&["sites", "topology"]);
    places[0].change(|book| {
        let mut next = book.run().next(now(), "removes b".into(), None);
        next.members.retain(|one| one.name != "b");
        places[0].site.propose(book, next).map(drop)
    });
    gossip(&places);
    let book = places[0].book();
    assert_eq!(
        book.notes.proposals[0].declines["c"].reason,
        "its node file forbids changes of sites"
    );
    assert_eq!(book.run().members.len(), 3);
    for wrong in ["optimizer.stepp", "modell", "optimizer.step=1", "", "sites.b", "run.rounds.x"] {
        let error = check_names(&[wrong.into()], book.run()).unwrap_err().to_string();
        assert!(error.contains("no such section or key"), "{wrong}: {error}");
    }
    for right in ["data", "data.schema", "optimizer.step", "rule", "compressor.bits", "run"] {
        check_names(&[right.into()], book.run()).unwrap();
    }
}

#[test]
fn the_next_stage_begins_from_what_most_have() {
    let places = started(&["a", "b", "c", "d"], Consent::Majority);
    let first = places[0].book().stage().unwrap().number;
    proposes(&places[1], "optimizer.step=0.05").unwrap();
    gossip(&places);
    answers(&places[2], "b", None).unwrap();
    answers(&places[3], "b", None).unwrap();
    gossip(&places);
    let newest = |rounds, mean, digest: &str| {
        let settings = vec!["data.standardize=false".to_string()];
        Some(Newest { rounds, mean, digest: digest.into(), settings })
    };
    let ends = |at: usize, newest: Option<Newest>| {
        places[at].change(|book| {
            places[at].site.ended(book, first, newest);
            Ok(())
        });
    };
    let stage = |at: usize| write_files(&places[at].site, &places[at].book());
    assert!(matches!(stage(0), Err(NotYet::Waits(why)) if why.contains("a has not said")));
    // The first site lies about its results, and the last one was cut off.
    ends(0, newest(12, true, "lie"));
    ends(1, newest(10, true, "truth"));
    ends(2, newest(10, true, "truth"));
    gossip(&places);
    assert!(matches!(stage(1), Err(NotYet::Waits(why)) if why.contains("d has not said")));
    ends(3, newest(11, false, "own"));
    gossip(&places);
    for at in [1, 2, 3] {
        let stage = stage(at).unwrap();
        let first = FirstModel { site: "b".into(), stage: first, mean: true };
        assert_eq!((stage.rounds_before, stage.first), (10, Some(first)));
        let made = places[at].site.folder.join("run/experiment.toml");
        let made = Experiment::load(&made, &[]).unwrap();
        let all = Experiment::default_with(&[]).unwrap().run.rounds;
        assert_eq!((made.run.rounds, made.optimizer.step), (all - 10, 0.05));
    }
    assert!(
        matches!(stage(0), Err(NotYet::Wrong(why)) if why.to_string().contains("other results"))
    );
    // What was said once stays.
    let again = places[1].book().notes.end_of(first, "b").cloned();
    ends(1, newest(99, true, "later"));
    assert_eq!(places[1].book().notes.end_of(first, "b").cloned(), again);
}

#[test]
fn without_a_mean_the_model_of_the_most_rounds_counts() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let first = places[0].book().stage().unwrap().number;
    proposes(&places[0], "optimizer.step=0.05").unwrap();
    gossip(&places);
    answers(&places[1], "a", None).unwrap();
    gossip(&places);
    let own = |rounds| {
        Some(Newest { rounds, mean: false, digest: rounds.to_string(), settings: Vec::new() })
    };
    for (place, newest) in places.iter().zip([None, own(7), own(8)]) {
        place.change(|book| {
            place.site.ended(book, first, newest);
            Ok(())
        });
    }
    gossip(&places);
    for place in &places {
        let stage = write_files(&place.site, &place.book()).unwrap();
        let first = FirstModel { site: "c".into(), stage: first, mean: false };
        assert_eq!((stage.rounds_before, stage.first), (8, Some(first)));
    }
}

#[test]
fn a_damaged_book_is_named() {
    let place = Place::new();
    founded(&place, "berlin", 2, Consent::Majority);
    let path = place.site.folder.join("run.json");
    let text = std::fs::read_to_string(&path).unwrap();
    for (damaged, why) in [
        (text[..text.len() / 2].to_string(), "it is damaged"),
        (text.replace("\"number\": 1", "\"number\": \"1\""), "it is damaged"),
        (String::from("{\"site\": \"a\", \"peer\": \"b\", \"history\": []}"), "no version"),
    ] {
        std::fs::write(&path, damaged).unwrap();
        let error = place.site.book().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("run.json"), "{error}");
    }
    // What was altered on the disk is no longer signed.
    std::fs::write(&path, text.replace("hospitals", "hospitalz")).unwrap();
    let book = place.site.book().unwrap();
    assert!(check_history(&book.history).unwrap_err().contains("has the consent of 0"));
}
