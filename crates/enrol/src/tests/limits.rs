//! What one member sends is bounded, and nothing is sent twice.

use super::*;
use crate::notes::{AHEAD, Notes};

fn exchanged(one: &Place, other: &Place) -> (usize, usize) {
    let asked = exchange(&one.book());
    let length = asked.to_bytes().unwrap().len();
    let reply = other.asked(&one.site.caller, asked).unwrap();
    (length, serde_json::to_vec(&reply).unwrap().len())
}

#[test]
fn two_sites_that_know_the_same_send_names_alone() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    places[0].change(|book| {
        places[0].site.announce(book, vec!["/ip4/9.9.9.9/tcp/9".into()]);
        Ok(())
    });
    proposes(&places[1], "optimizer.step=0.05").unwrap();
    gossip(&places);
    let (asked, reply) = exchanged(&places[0], &places[2]);
    assert!(asked < 1000 && reply < 200, "{asked} and {reply} bytes");
    // An answer is sent without the version that it is about.
    answers(&places[2], "b", Some("no")).unwrap();
    let (_, reply) = exchanged(&places[0], &places[2]);
    assert!(reply < 1000, "{reply} bytes");
}

/// A member proposes what is as long as it may be: the addresses of others come first, and it is
/// sent once.
#[test]
fn a_long_note_of_one_member_keeps_no_other_back() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let mut run = with_set(&places[1].book(), "optimizer.step=0.05");
    run.experiment += &format!("# {}\n", "x".repeat(1_000_000));
    places[1].change(|book| places[1].site.propose(book, run.clone()));
    for place in &places[1..] {
        place.change(|book| {
            place.site.announce(book, vec!["/ip4/9.9.9.9/tcp/9".into()]);
            Ok(())
        });
    }
    // The addresses first, then the long one.
    for _ in 0..2 {
        assert!(places[2].book().notes.proposals.is_empty());
        places[2].sync(&places[1]).unwrap();
    }
    places[0].sync(&places[2]).unwrap();
    let book = places[0].book();
    assert_eq!((book.notes.announcements.len(), book.notes.proposals.len()), (2, 0));
    places[0].sync(&places[2]).unwrap();
    assert_eq!(places[0].book().notes.proposals.len(), 1);
    let (_, reply) = exchanged(&places[0], &places[2]);
    assert!(reply < 1000, "{reply} bytes");
    // Longer ones count for nothing, and so are not sent again.
    run.experiment += &"#".repeat(100_000);
    assert!(run.follows(Some(book.run())).unwrap_err().contains("more than 1048576 bytes"));
    let mut run = with_set(&places[1].book(), "optimizer.step=0.06");
    run.reason = Some("x".repeat(501));
    assert!(run.follows(Some(book.run())).unwrap_err().contains("its reason"));
    run.reason = Some("x\nversion 9 of the run: removes b".into());
    assert!(run.follows(Some(book.run())).unwrap_err().contains("printable"));
}

#[test]
fn a_note_that_counts_for_nothing_is_not_sent_again() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let book = places[1].book();
    let one = Announcement {
        run: book.run().id.clone(),
        site: "b".into(),
        number: now() * 1000,
        addresses: vec!["no address".into()],
        signature: String::new(),
    };
    let one = one.signed(&places[1].site.key);
    let mut other = places[0].book();
    other.learn(News { announcements: vec![one.clone()], ..News::default() });
    assert!(other.notes.announcements.is_empty());
    let known = other.notes.known();
    let of_b = Notes { announcements: vec![one], ..Notes::default() };
    assert!(of_b.news(|id| !known.contains(id)).is_empty());
}

#[test]
fn what_is_no_longer_of_the_run_is_forgotten() {
    let places = started(&["a", "b", "c", "d"], Consent::Majority);
    places.iter().for_each(|place| drop(begins(place)));
    for place in &places {
        place.change(|book| {
            place.site.announce(book, vec!["/ip4/9.9.9.9/tcp/9".into()]);
            Ok(())
        });
    }
    removes(&places[0], "d").unwrap();
    gossip(&places);
    answers(&places[1], "a", None).unwrap();
    answers(&places[2], "a", None).unwrap();
    gossip(&places[..3]);
    let _ = places[3].sync(&places[0]);
    places.iter().take(3).for_each(|place| ends(place, newest(3, true, "m")));
    gossip(&places[..3]);
    let book = places[0].book();
    assert_eq!((book.notes.ends.len(), book.notes.announcements.len()), (3, 3));
    proposes(&places[0], "optimizer.step=0.05").unwrap();
    gossip(&places[..3]);
    answers(&places[1], "a", None).unwrap();
    gossip(&places[..3]);
    assert!(places[0].book().notes.proposals.is_empty());
    assert_eq!(places[0].book().notes.ends.len(), 3, "of each member the newest");
}

/// A member signs any number of proposals.
#[test]
fn a_member_has_few_proposals() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let book = places[1].book();
    let news = |at: usize| {
        let run = with_set(&book, &format!("optimizer.step=0.{at}1"));
        let Version { run, signatures: accepts } = places[1].site.sign("b", run);
        let one = Proposal { run, by: "b".into(), accepts, declines: Default::default() };
        News { proposals: vec![one], ..News::default() }
    };
    (0..40).for_each(|at| {
        places[0].change(|book| {
            book.learn(news(at));
            Ok(())
        });
    });
    assert_eq!(places[0].book().notes.proposals.len(), 2);
    // One that another member has accepted is known to all: else nobody can decline it.
    places[2].change(|book| {
        book.learn(news(7));
        Ok(())
    });
    answers(&places[2], "b", None).ok();
    gossip(&places);
    gossip(&places);
    let open = |place: &Place| place.book().run().number;
    assert_eq!(open(&places[0]), open(&places[2]));
}

/// The clock of a site was a year ahead, and is set right.
#[test]
fn addresses_count_again_after_a_clock_that_was_ahead() {
    let places = started(&["a", "b"], Consent::Majority);
    let ahead = now() + 365 * 86_400;
    let (run, site) = (places[0].book().run().id.clone(), "b".to_string());
    let addresses = vec!["/ip4/6.6.6.6/tcp/6".to_string()];
    let number = ahead * 1000;
    let one = Announcement { run, site, number, addresses, signature: String::new() };
    let one = one.signed(&places[1].site.key);
    let known = |place: &Place| {
        place
            .book()
            .notes
            .announcements
            .iter()
            .map(|one| one.addresses[0].clone())
            .collect::<Vec<_>>()
    };
    // It was noted while the clocks of both were ahead.
    for place in &places {
        place.change(|book| {
            let news = News { announcements: vec![one.clone()], ..News::default() };
            book.notes.merge(news, &book.history, ahead);
            Ok(())
        });
        assert_eq!(known(place), ["/ip4/6.6.6.6/tcp/6"]);
    }
    for at in ["/ip4/6.6.6.6/tcp/6", "/ip4/7.7.7.7/tcp/7", "/ip4/8.8.8.8/tcp/8"] {
        places[1].change(|book| {
            places[1].site.announce(book, vec![at.into()]);
            Ok(())
        });
        gossip(&places);
        assert_eq!(
            (known(&places[0]), known(&places[1])),
            (vec![at.to_string()], vec![at.to_string()])
        );
    }
    let newest = places[0].book().notes.announcements[0].number;
    assert!(newest <= (now() + AHEAD) * 1000);
}

/// Where all must agree, and one declines whatever needs no user, the others keep room for what
/// their users accept.
#[test]
fn what_one_declines_again_and_again_leaves_room_for_its_removal() {
    let mut places = started(&["a", "h", "b", "c", "d"], Consent::All);
    places[1].forbid(&["sites"]);
    for attempt in 0..14 {
        for at in 2..5 {
            let place = &places[at];
            let _ = place.tried(|book| {
                let change = format!("{} leaves, attempt {attempt}", book.site);
                let mut next = book.run().next(now(), change, None);
                next.remove(&book.site)?;
                place.site.propose(book, next)
            });
            for (asks, other) in [(0, at), (1, 0), (0, 1), (at, 0)] {
                places[asks].sync(&places[other]).unwrap();
            }
        }
    }
    let accepted = |place: &Place| {
        let book = place.book();
        book.notes.proposals.iter().filter(|one| one.accepts.contains_key(&book.site)).count()
    };
    assert_eq!(accepted(&places[0]), 33);
    removes(&places[0], "h").unwrap();
    for place in &places[2..] {
        place.sync(&places[0]).unwrap();
        answers(place, "a", None).unwrap();
        places[0].sync(place).unwrap();
    }
    assert!(places[0].book().run().member("h").is_none());
}
