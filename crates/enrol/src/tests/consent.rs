//! Whose consent a version needs, and what may follow.

use super::*;
use crate::notes::Notes;

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
    let open = places[2].book().notes.proposals.len();
    assert_eq!(open, 0, "adopted at once, and the other one is over");
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
    removes(&places[0], "c").unwrap();
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

/// Where all must agree, nobody who is removed is asked: one member alone must not use that.
#[test]
fn nobody_decides_alone_by_removing_the_others() {
    for consent in [Consent::All, Consent::Majority] {
        let places = started(&["a", "b", "c", "d", "e"], consent);
        let book = places[0].book();
        let refused = |next: &Run| next.follows(Some(book.run())).unwrap_err();
        let mut next = book.run().next(now(), "removes the others".into(), None);
        next.members.truncate(1);
        assert!(refused(&next).contains("a run needs two sites"), "{}", refused(&next));
        let mut next = book.run().next(now(), "removes two".into(), None);
        next.members.truncate(3);
        assert!(refused(&next).contains("removes one site, and changes nothing else"));
        // One, and a setting, the consent, the wire format, a key or a second order.
        let mut one = book.run().next(now(), "removes e".into(), None);
        one.remove("e").unwrap();
        one.follows(Some(book.run())).unwrap();
        let experiment = with_set(&book, "optimizer.step=0.5").experiment;
        let invitation = Invitation {
            site: "f".into(),
            ticket: key("f").public().to_peer_id().to_string(),
            version: one.number,
            expires: now() + 100,
            by: "a".into(),
        };
        for wrong in [
            Run { experiment, ..one.clone() },
            Run { topology: "complete".into(), ..one.clone() },
            Run { wire: 999, ..one.clone() },
            Run { sites: 2, ..one.clone() },
            Run { invitations: vec![invitation], ..one.clone() },
        ] {
            assert!(refused(&wrong).contains("changes nothing else"));
        }
        let (voters, need) = book.run().voters(&one);
        let expected = if consent == Consent::All { (4, 4) } else { (5, 3) };
        assert_eq!((voters.len(), need), expected);
    }
    // Of two the second one is needed.
    let places = started(&["a", "b", "c"], Consent::All);
    let book = places[0].book();
    let mut one = book.run().next(now(), "removes c".into(), None);
    one.remove("c").unwrap();
    assert!(places[0].site.sign("a", one).check(Some(book.run())).is_err());
}

/// A topology file names its sites: whoever leaves takes its node along.
#[test]
fn a_site_of_a_topology_file_can_be_removed() {
    let mut run = started(&["a", "b", "c", "d"], Consent::Majority)[0].book().run().clone();
    run.topology = run.network(&Default::default()).unwrap().to_toml();
    let mut next = run.next(now(), "removes b".into(), None);
    next.remove("b").unwrap();
    next.follows(Some(&run)).unwrap();
    assert_eq!(next.places().unwrap().unwrap(), ["a", "c", "d"]);
    // A ring of four without one is a path, whose middle cannot go.
    let mut last = next.next(now(), "removes d".into(), None);
    assert!(last.remove("d").is_err());
}

#[test]
fn a_member_that_signs_two_versions_with_one_number_is_named() {
    let berlin = founded("berlin", 3, Consent::Majority);
    let ticket = invited(&berlin, "lyon", now() + 100, true);
    let lyon = site(key("lyon"));
    joins(&berlin, &lyon, &ticket).unwrap();
    let history = history_for(&berlin, &lyon);
    let lyon = Place::new(lyon, "lyon", history.clone());
    let last = history.last().unwrap().run.clone();
    let version =
        |by: &Place, words: &str| by.site.sign("berlin", last.next(now(), words.into(), None));
    let why = lyon.change(|book| {
        book.extend(vec![version(&berlin, "one")]).unwrap();
        Ok(book.extend(vec![version(&berlin, "two")]).unwrap_err())
    });
    assert!(why.contains("berlin signed what contradicts itself"), "{why}");
    assert!(lyon.book().conflict.is_some());
    // Whoever is nobody contradicts nothing, nor does one who signs in another's name, nor who
    // invents a whole run with this id.
    let stranger = Place::new(site(key("stranger")), "stranger", history.clone());
    let mut book = Book::new("lyon", lyon.site.peer(), history);
    book.extend(vec![version(&berlin, "one")]).unwrap();
    assert!(book.extend(vec![version(&stranger, "three")]).is_err() && book.conflict.is_none());
    let mut other = version(&berlin, "one");
    other.signatures.insert("lyon".into(), other.signatures["berlin"].clone());
    assert!(other.check(Some(&last)).unwrap_err().contains("no signature of lyon"));
    let own = stranger.site.sign("x", first(&stranger.site, "x", 3, Consent::Majority));
    own.check(None).unwrap();
    assert!(book.extend(vec![own]).is_err() && book.conflict.is_none());
}

#[test]
fn what_strangers_say_and_what_was_altered_counts_for_nothing() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let stranger = site(key("stranger"));
    let book = places[0].book();
    let current = book.run();
    let propose = |by: &str, key: &Keypair| {
        let run = with_set(&book, "optimizer.step=9.0");
        let accepts = [(by.to_string(), Accept::new(key, &run.digest(), Vec::new()))].into();
        Proposal { run, by: by.into(), accepts, declines: Default::default() }
    };
    let key = &stranger.key;
    let mut notes = Notes::default();
    let merge = |notes: &mut Notes, one: Proposal| {
        let before = notes.proposals.clone();
        notes.merge(News { proposals: vec![one], ..News::default() }, &book.history, now());
        notes.proposals != before
    };
    // In its own name, in a member's, and with answers in the names of others.
    assert!(!merge(&mut notes, propose("d", key)));
    assert!(!merge(&mut notes, propose("a", key)));
    let mut one = propose("b", &places[1].site.key);
    for name in ["a", "c"] {
        let accept = Accept::new(&places[1].site.key, &one.run.digest(), Vec::new());
        one.accepts.insert(name.into(), accept);
    }
    assert!(merge(&mut notes, one.clone()));
    assert_eq!(notes.proposals[0].accepts.keys().collect::<Vec<_>>(), ["b"]);
    assert!(notes.adopted(current).is_none());
    // A signature of one kind is none of another.
    let mut other = propose("c", &places[2].site.key);
    let refusal = Refusal::new(&places[2].site.key, &other.run.digest(), "no".into());
    let accept = Accept { instead_of: Vec::new(), signature: refusal.signature };
    other.accepts.insert("c".into(), accept);
    assert!(!merge(&mut notes, other));
    // Altered after it was signed.
    let mut other = propose("c", &places[2].site.key);
    other.run.change = "good".into();
    assert!(!merge(&mut notes, other));
    // Dated in the future: all later versions would be so.
    let mut other = propose("c", &places[2].site.key);
    other.run.time = now() + 2 * 86_400;
    let accept = Accept::new(&places[2].site.key, &other.run.digest(), Vec::new());
    other.accepts.insert("c".into(), accept);
    assert!(!merge(&mut notes, other));
    // An address in the name of another.
    let one = Announcement {
        run: current.id.clone(),
        site: "a".into(),
        number: now() * 1000,
        addresses: vec!["/ip4/6.6.6.6/tcp/6".into()],
        signature: String::new(),
    };
    let news = News { announcements: vec![one.signed(key)], ..News::default() };
    notes.merge(news, &book.history, now());
    assert!(notes.announcements.is_empty());
}

#[test]
fn a_run_does_not_go_back() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let book = places[0].book();
    let current = book.run();
    let next = current.next(now(), "x".into(), None);
    for (run, why) in [
        (Run { started: false, ..next.clone() }, "stays so"),
        (Run { id: "ff".into(), ..next.clone() }, "another run"),
        (Run { founder: "b".into(), ..next.clone() }, "another run"),
        (Run { number: 9, ..next.clone() }, "does not continue"),
        (Run { previous: Some("0".into()), ..next.clone() }, "does not continue"),
        (Run { experiment: "run.rounds = 'many'".into(), ..next.clone() }, "its experiment"),
        (Run { topology: "cloud".into(), ..next.clone() }, "cloud"),
        (Run { topology: "ring:9".into(), ..next.clone() }, "expected a topology file"),
        (Run { format: 1, ..next.clone() }, "format 1"),
        (Run { time: current.time - 1, ..next.clone() }, "dated before"),
        (Run { sites: 9, ..next.clone() }, "may not change"),
    ] {
        let found = run.follows(Some(current)).unwrap_err();
        assert!(found.contains(why), "{found}");
    }
    // A member that nobody has invited, and members in another order.
    let mut run = next.clone();
    run.members.push(site(key("d")).member("d", Vec::new()));
    assert!(run.follows(Some(current)).unwrap_err().contains("d was not invited"));
    let mut run = next;
    run.members.swap(0, 1);
    assert!(run.follows(Some(current)).unwrap_err().contains("another order"));
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
    declines(&places[3], "a");
    answers(&places[1], "a", None).unwrap();
    answers(&places[2], "a", None).unwrap();
    gossip(&places);
    gossip(&places);
    let names: Vec<String> =
        places[0].book().run().members.iter().map(|member| member.name.clone()).collect();
    assert_eq!(names, ["a", "b", "c"], "nobody's user was asked");
}

/// Three of seven decline, and wish to leave at the same moment, each by a version of its own.
#[test]
fn sites_that_leave_at_once_all_leave() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let places = started(&names, Consent::Majority);
    proposes(&places[0], "optimizer.step=0.05").unwrap();
    gossip(&places);
    (4..7).for_each(|at| declines(&places[at], "a"));
    (1..4).for_each(|at| answers(&places[at], "a", None).unwrap());
    // Each hears of the change, and proposes, before it hears of another one's wish.
    let book = places[3].book();
    for place in &places[4..] {
        place.change(|own| Ok(own.extend(book.history.clone()).unwrap()));
        place.tend();
    }
    let left = |place: &Place| {
        let run = place.book().run().clone();
        run.members.into_iter().map(|one| one.name).collect::<Vec<String>>()
    };
    let mut dice = Dice(1);
    for _ in 0..4000 {
        let (one, other) = dice.two(places.len());
        let _ = places[one].sync(&places[other]);
        places[one].tend();
        if left(&places[0]) == ["a", "b", "c", "d"] {
            return;
        }
    }
    panic!("{:?} are left", left(&places[0]));
}

/// Nobody types anything at the last site.
#[test]
fn what_a_node_file_forbids_takes_no_effect_there() {
    for (forbidden, leaves) in [("optimizer.step", true), ("optimizer", true), ("rule", false)] {
        let mut places = started(&["a", "b", "c", "d"], Consent::Majority);
        places[3].forbid(&[forbidden]);
        places.iter().for_each(|place| drop(begins(place)));
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
        places[3].change(|own| Ok(own.extend(book.history.clone()).unwrap()));
        match places[3].stage() {
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
    removes(&places[0], "b").unwrap();
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
