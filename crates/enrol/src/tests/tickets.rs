//! Who may join with a ticket, and what its bearer sees.

use std::sync::Arc;

use gradvine::net::{Desk, ask};

use super::*;
use crate::{
    book::Request,
    follows::words_of_admission,
    notes::Notes,
    sign::{About, sign},
};

#[test]
fn sites_come_together_and_agree_by_one_digest() {
    let places = started(&["berlin", "lyon", "rome"], Consent::Majority);
    let all = digests(&places);
    assert!(all.iter().all(|one| *one == all[0]));
    let stage = places[2].book().stage().unwrap().number;
    assert_eq!(stage, places[2].book().run().number);
}

#[test]
fn a_ticket_is_good_once_until_it_expires_for_its_name_and_its_run() {
    let berlin = founded("berlin", 3, Consent::Majority);
    let (lyon, thief) = (site(key("lyon")), site(key("thief")));
    let late = invited_at(&berlin, "rome", (now() - 500, now() - 1), false);
    let why = joins(&berlin, &lyon, &late).unwrap_err();
    assert!(why.contains("has expired"), "{why}");

    let ticket = invited(&berlin, "lyon", now() + 100, false);
    let invitation = invitation_of(&berlin, &ticket);
    // Another name than the ticket's.
    let other = Ticket { site: "oslo".into(), ..ticket.clone() };
    let why = berlin.asked(&ticket.key(), joining(&lyon, &other, &invitation)).unwrap_err();
    assert!(why.contains("the ticket is for the name lyon"), "{why}");
    // A request that was signed for another ticket, or by no ticket.
    let other = Invitation { ticket: late.peer().to_string(), ..invitation.clone() };
    let why = berlin.asked(&ticket.key(), joining(&lyon, &ticket, &other)).unwrap_err();
    assert!(why.contains("not signed by the key of its site"), "{why}");
    let question = joining(&lyon, &ticket, &invitation);
    let Question::Join { member, signature, .. } = question else { unreachable!() };
    let bearer = signature.clone();
    let question = Question::Join { member, signature, bearer };
    let why = berlin.asked(&ticket.key(), question).unwrap_err();
    assert!(why.contains("not signed by the key of its ticket"), "{why}");

    assert!(matches!(joins(&berlin, &lyon, &ticket), Ok(Reply::Waits)));
    let why = joins(&berlin, &thief, &ticket).unwrap_err();
    assert!(why.contains("was used already") && why.contains(&lyon.peer()), "{why}");

    let request: Request = berlin.book().requests[0].clone();
    berlin.change(|book| berlin.site.approve(book, &request.ticket));
    let again = joins(&berlin, &lyon, &ticket).unwrap();
    assert!(matches!(again, Reply::Joined(peer) if peer == lyon.peer()), "it may ask again");
    let why = joins(&berlin, &thief, &ticket).unwrap_err();
    assert!(why.contains("was used already"), "{why}");
    assert_eq!(history_for(&berlin, &lyon).len(), 4);
    // Nobody who has no ticket gets past the gate, and a bearer is no member.
    assert_eq!(berlin.asked(&thief.caller, Question::Look).unwrap_err(), "the gate");
    let (run, digests, known) = (ticket.run.clone(), Vec::new(), Vec::new());
    let sync = Question::Sync { run, digests, known };
    let why = berlin.asked(&late.key(), sync).unwrap_err();
    assert!(why.contains("no member"), "{why}");
}

/// The digits of the site that joins, and those of the site that approves it.
fn digits(at: &Place, ticket: &Ticket, site: &Site) -> [String; 2] {
    let member = site.member(&ticket.site, vec!["/ip4/127.0.0.1/tcp/2".into()]);
    let peer = ticket.peer().to_string();
    let joins = fingerprint(&ticket.run, &peer, &ticket.peer, &member);
    let book = at.book();
    let request = book.requests.iter().find(|one| one.member.name == ticket.site).unwrap();
    let approves = fingerprint(&book.run().id, &request.ticket, &at.site.peer(), &request.member);
    [joins, approves]
}

#[test]
fn both_compute_the_fingerprint_from_what_they_have_proved() {
    let berlin = founded("berlin", 3, Consent::Majority);
    let lyon = site(key("lyon"));
    let ticket = invited(&berlin, "lyon", now() + 100, false);
    joins(&berlin, &lyon, &ticket).unwrap();
    let [joins_with, approves] = digits(&berlin, &ticket, &lyon);
    assert_eq!(joins_with, approves);
    let groups: Vec<&str> = approves.split('-').collect();
    let is_letters = |group: &&str| group.len() == 4 && group.bytes().all(|c| c.is_ascii());
    assert!(groups.len() == 3 && groups.iter().all(is_letters), "{approves}");
}

/// Who reads a ticket in the mail sends another one on, which leads to a site of its own, and uses
/// the first one with a key of its own.
#[test]
fn who_alters_a_ticket_in_the_mail_leads_to_other_digits() {
    let berlin = founded("berlin", 3, Consent::Majority);
    let (lyon, thief) = (site(key("lyon")), site(key("thief")));
    let ticket = invited(&berlin, "lyon", now() + 100, false);
    joins(&berlin, &thief, &ticket).unwrap();
    let all = [
        // Its own site, with the secret of the ticket or with another one; or another run.
        Ticket { peer: thief.peer(), ..ticket.clone() },
        Ticket { peer: thief.peer(), secret: [7; 32], ..ticket.clone() },
        Ticket { secret: [7; 32], ..ticket.clone() },
        Ticket { run: "ff".into(), ..ticket.clone() },
        ticket.clone(),
    ];
    for altered in all {
        let [victim, approves] = digits(&berlin, &altered, &lyon);
        assert_ne!(victim, approves, "{altered:?}");
    }
}

#[test]
fn a_replaced_ticket_shows_nothing_and_its_request_is_gone() {
    let berlin = founded("berlin", 3, Consent::Majority);
    let (lyon, thief) = (site(key("lyon")), site(key("thief")));
    let stolen = invited(&berlin, "lyon", now() + 100, false);
    joins(&berlin, &thief, &stolen).unwrap();
    let ticket = invited(&berlin, "lyon", now() + 100, false);
    assert!(berlin.book().requests.is_empty() && berlin.book().used.is_empty());
    assert!(berlin.asked(&stolen.key(), Question::Look).is_err());
    let key = stolen.key().public().to_peer_id();
    assert!(!berlin.book().callers().contains(&key), "the gate");
    joins(&berlin, &lyon, &ticket).unwrap();
    let book = berlin.book();
    let names: Vec<&str> = book.requests.iter().map(|one| one.member.peer.as_str()).collect();
    assert_eq!(names, [lyon.peer()], "the true one is seen");
    let approved = berlin.tried(|book| berlin.site.approve(book, &stolen.peer().to_string()));
    assert!(approved.unwrap_err().to_string().contains("no site asks"));
}

#[test]
fn a_used_ticket_reads_nothing_once_its_key_has_joined() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let ticket = invited(&places[0], "d", now() + 100, true);
    gossip(&places);
    answers(&places[1], "a", None).unwrap();
    gossip(&places);
    let d = site(key("d"));
    joins(&places[0], &d, &ticket).unwrap();
    gossip(&places);
    let d = Place::new(d, "d", history_for(&places[0], &site(key("d"))));
    // It is removed, and asks as the bearer of its ticket.
    removes(&places[0], "d").unwrap();
    gossip(&places);
    answers(&places[1], "a", None).unwrap();
    gossip(&places);
    answers(&places[2], "a", None).ok();
    gossip(&places);
    proposes(&places[0], "optimizer.step=0.05").unwrap();
    assert!(places[0].book().run().member("d").is_none());
    let look = places[0].asked(&ticket.key(), Question::Look).unwrap();
    assert!(matches!(look, Reply::Joined(peer) if peer == d.site.peer()));
    assert!(matches!(joins(&places[0], &d.site, &ticket), Ok(Reply::Joined(_))));
    // As a former member it hears that it was removed, and no proposal.
    d.sync(&places[0]).unwrap();
    assert!(d.book().me().is_none() && d.book().notes.proposals.is_empty());
}

/// A member that takes an invitation of another one with a key of its own.
#[test]
fn a_member_admits_nobody_without_the_ticket_and_its_inviter() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    for name in ["d", "c"] {
        // For a new site, and for the next key of a member.
        let ticket = invited(&places[0], name, now() + 100, false);
        gossip(&places);
        answers(&places[1], "a", None).unwrap();
        gossip(&places);
        let invitation = invitation_of(&places[1], &ticket);
        let own = site(key("another of b"));
        let member = own.member(name, Vec::new());
        let mut next = places[1].book().run().next(now(), format!("{name} joins"), None);
        next.admit(member.clone());
        let refused = |next: &Run| next.follows(Some(places[1].book().run())).unwrap_err();
        assert!(refused(&next).contains("not admitted by the key of its ticket"));
        let words = words(&places[1].book().run().id, &invitation, &member);
        let by = |key: &Keypair, about| sign(key, about, &words);
        let admission = |bearer, approval| Admission {
            site: name.into(),
            ticket: ticket.peer().to_string(),
            bearer,
            approval,
        };
        let (b, a) = (&places[1].site.key, &places[0].site.key);
        let of_ticket = by(&ticket.key(), About::Joins);
        next.admissions = vec![admission(by(b, About::Joins), by(b, About::Admits))];
        assert!(refused(&next).contains("not admitted by the key of its ticket"));
        next.admissions = vec![admission(of_ticket.clone(), by(b, About::Admits))];
        assert!(refused(&next).contains("not admitted by a"));
        // What both have signed is another key.
        next.admissions = vec![admission(of_ticket.clone(), by(a, About::Admits))];
        assert!(next.follows(Some(places[1].book().run())).is_ok());
        next.admit(site(key("a third of b")).member(name, Vec::new()));
        assert!(refused(&next).contains("not admitted by the key of its ticket"));
        // It may change nothing else.
        next.admit(member);
        next.experiment = with_set(&places[1].book(), "optimizer.step=0.5").experiment;
        assert!(refused(&next).contains("changes nothing else"));
    }
}

fn words(run: &str, invitation: &Invitation, member: &Member) -> Vec<u8> {
    words_of_admission(run, invitation, member)
}

/// The inviter dates a version back, so that an expired ticket seems good.
#[test]
fn an_expired_ticket_admits_nobody() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let ticket = invited_at(&places[0], "d", (now(), now() + 1), true);
    gossip(&places);
    answers(&places[1], "a", None).unwrap();
    gossip(&places);
    let d = site(key("d"));
    // It asks in time, and the inviter keeps the request back.
    let invitation = invitation_of(&places[0], &ticket);
    let Question::Join { member, bearer, .. } = joining(&d, &ticket, &invitation) else {
        unreachable!()
    };
    while now() < invitation.expires {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let words = words(&ticket.run, &invitation, &member);
    let approval = sign(&places[0].site.key, About::Admits, &words);
    let version = |time| {
        let mut next = places[0].book().run().next(time, "d joins".into(), None);
        let (site, ticket) = ("d".to_string(), ticket.peer().to_string());
        let (bearer, approval) = (bearer.clone(), approval.clone());
        next.admissions.push(Admission { site, ticket, bearer, approval });
        next.admit(member.clone());
        next
    };
    let honest = version(now());
    assert!(honest.follows(Some(places[0].book().run())).unwrap_err().contains("had expired"));
    let late = version(invitation.expires - 1);
    places[0].change(|book| places[0].site.propose(book, late.clone()));
    for _ in 0..3 {
        gossip(&places);
    }
    for place in &places[1..] {
        assert!(place.book().run().member("d").is_none(), "others look at their clocks");
        let why = answers(place, "a", None).unwrap_err().to_string();
        assert!(why.contains("has expired"), "{why}");
    }
}

/// The site's disk is lost: it joins again, by the same name, with another key.
#[test]
fn a_member_gets_a_new_key_by_an_invitation_only() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let first = places[0].book().stage().unwrap().number;
    let fresh = site(key("c again"));
    let current = places[0].book();
    // Not by a proposal alone.
    let mut run = current.run().next(now(), "c has another key".into(), None);
    run.members[2] = fresh.member("c", Vec::new());
    assert!(run.follows(Some(current.run())).unwrap_err().contains("c was not invited"));
    // Nor does the key change with which it asks other sites, nor its addresses.
    let mut run = current.run().next(now(), "c asks with another key".into(), None);
    run.members[2].caller = fresh.caller.public().to_peer_id().to_string();
    assert!(run.follows(Some(current.run())).unwrap_err().contains("c was not invited"));

    let ticket = invited(&places[0], "c", now() + 100, true);
    gossip(&places[..2]);
    answers(&places[1], "a", None).unwrap();
    gossip(&places[..2]);
    let stage = places[0].book().stage().unwrap().number;
    assert_eq!(stage, first, "an invitation changes no training");
    // Its admission needs nobody's answer: the invitation was accepted.
    joins(&places[0], &fresh, &ticket).unwrap();
    gossip(&places[..2]);
    let book = places[1].book();
    let names: Vec<&str> = book.run().members.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "it has the number that it had");
    assert_eq!(book.run().member("c").unwrap().peer, fresh.peer());
    assert!(book.stage().unwrap().number > first && book.run().invitations.is_empty());
    let history = history_for(&places[0], &fresh);
    let mut fresh = Place::new(fresh, "c", history);
    assert!(fresh.book().me().is_some());
    // What its name was not asked with the old key does not make it leave.
    fresh.forbid(&["sites"]);
    assert!(fresh.site.refused(&fresh.book()).is_none());
    // What the old key says counts no more, and its site learns that it is out.
    places[2].sync(&places[0]).unwrap();
    let book = places[2].book();
    assert!(book.run().member("c").is_some() && book.me().is_none());
    places[2].change(|book| {
        places[2].site.announce(book, vec!["/ip4/9.9.9.9/tcp/9".into()]);
        Ok(())
    });
    assert!(places[2].book().notes.announcements.iter().all(|one| one.site != "c"));
}

/// So many keys that nobody has invited ask a site, over its real host; its member is answered.
fn guess(count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let places = started(&["a", "b", "c"], Consent::Majority);
    let of = |place: &Place| {
        let folder = folder.path().join(&place.book().site);
        std::fs::create_dir(&folder).unwrap();
        let site = Site::with(&folder, place.site.key.clone(), None).unwrap();
        site.begin(&Book { notes: Notes::default(), ..place.book() }).unwrap();
        Arc::new(site)
    };
    let [first, second] = [&places[0], &places[1]].map(of);
    let told = Told::default();
    let all = crate::answers(&first, &told);
    all.let_in(places[0].book().callers());
    let listen = ["/ip4/127.0.0.1/tcp/0".to_string()];
    let desk = Desk::open((&first.key, None), &listen, &[], &all).unwrap();
    let peer = first.key.public().to_peer_id();
    let within = std::time::Duration::from_secs(20);
    for _ in 0..count {
        let guessed = Keypair::generate_ed25519();
        let question = Question::Look.to_bytes().unwrap();
        let reply = ask((&guessed, None), (peer, &desk.listen), &question, within);
        // The gate may also drop one of many at once.
        assert!(reply.is_err(), "{reply:?}");
    }
    let member = first.member("a", Vec::new());
    let address = [desk.listen[0].to_string()];
    let told = Told::default();
    second
        .change(|book| {
            second.announce(book, vec!["/ip4/127.0.0.1/tcp/3".into()]);
            Ok(())
        })
        .unwrap();
    sync(&second, &member, &address, &told).unwrap();
    let at = |site: &Site| site.book().unwrap().notes.announcements;
    assert_eq!(at(&first), at(&second), "what is new was told");
    assert!(told.all(&Book { site: "b".into(), ..first.book().unwrap() }), "no stage has ended");
    // A program of another format is told so.
    let old = b"\"Look\"";
    let reply = ask((&second.caller, None), (peer, &desk.listen), old, within).unwrap();
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.contains("format 1") && reply.contains("the same version"), "{reply}");
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
