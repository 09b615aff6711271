//! Two versions with one number: the members choose one of them.

use super::*;

/// Five sites of which the first one signs two changes, and gives each to two others.
fn split() -> Vec<Place> {
    let places = started(&["h", "a", "b", "c", "d"], Consent::Majority);
    places.iter().for_each(|place| drop(begins(place)));
    let book = places[0].book();
    for (set, pair) in [("optimizer.step=0.05", [1, 2]), ("optimizer.step=0.07", [3, 4])] {
        let Version { run, signatures: accepts } = places[0].site.sign("h", with_set(&book, set));
        let one = Proposal { run, by: "h".into(), accepts, declines: Default::default() };
        for at in pair {
            places[at].change(|book| {
                book.learn(News { proposals: vec![one.clone()], ..News::default() });
                Ok(())
            });
        }
        for (at, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            if places[at].book().run().number == book.run().number {
                answers(&places[at], "h", None).unwrap();
            }
            places[other].sync(&places[at]).unwrap();
        }
    }
    places
}

/// All but the first one exchange.
fn exchange_all(places: &[Place]) {
    for a in 1..5 {
        for b in (1..5).filter(|b| *b != a) {
            let _ = places[a].sync(&places[b]);
        }
    }
}

#[test]
fn members_end_a_contradiction_by_choosing_one_version() {
    let places = split();
    let [ours, theirs] = [1, 3].map(|at: usize| places[at].book().run().digest());
    assert_ne!(ours, theirs);
    exchange_all(&places);
    for place in &places[1..] {
        let conflict = place.book().conflict.unwrap();
        assert_eq!(
            conflict.to_string(),
            format!(
                "h signed what contradicts itself: the run has two versions with the number {}",
                conflict.number
            )
        );
        assert!(
            matches!(place.stage(), Err(NotYet::Waits(why)) if why.contains("gradvine settle"))
        );
        assert!(proposes(place, "optimizer.step=0.9").unwrap_err().to_string().contains("settle"));
    }
    let choose = |at: usize, digest: &str| {
        places[at].change(|book| places[at].site.settle(book, digest));
        exchange_all(&places);
    };
    assert!(places[1].tried(|book| places[1].site.settle(book, "ffff")).is_err());
    choose(1, &ours[..12]);
    choose(3, &theirs);
    // The one who signed both has no voice.
    places[0].change(|book| {
        book.extend(places[1].book().history).ok();
        let _ = book.extend(places[3].book().history);
        places[0].site.settle(book, &theirs)
    });
    choose(4, &ours);
    assert!(places[2].book().conflict.is_some(), "two of four");
    choose(3, &ours);
    for place in &places[1..] {
        assert!(place.book().conflict.is_none());
        assert_eq!(place.book().run().digest(), ours);
    }
    check_history(&places[3].book().history).unwrap();
    // The other version contradicts nothing any more.
    let _ = places[1].sync(&places[0]);
    assert!(places[1].book().conflict.is_none());
    // Training goes on from the stage that all have trained.
    places[1..].iter().for_each(|place| ends(place, newest(7, true, "m")));
    exchange_all(&places);
    let why = format!("{:?}", places[1].stage());
    assert!(why.contains("h has not said"), "{why}");
    removes(&places[1], "h").unwrap();
    exchange_all(&places);
    answers(&places[2], "a", None).unwrap();
    exchange_all(&places);
    answers(&places[3], "a", None).ok();
    (0..3).for_each(|_| exchange_all(&places));
    let stages: Vec<Stage> = places[1..].iter().map(|place| place.stage().unwrap()).collect();
    assert!(stages.iter().all(|one| *one == stages[0]) && stages[0].rounds_before == 7);
}

/// The founder signs another version from before the start, and shows it to one site alone.
#[test]
fn a_contradiction_that_one_site_was_shown_is_told_to_all() {
    let places = started(&["h", "a", "b", "c", "d"], Consent::Majority);
    let history = places[1].book().history;
    let before = &history[history.len() - 3].run;
    let run = before.next(now(), "another one".into(), None);
    let rival = places[0].site.sign("h", run);
    let _ = places[1].tried(|book| book.extend(vec![rival.clone()]).map(drop).or(Ok(())));
    exchange_all(&places);
    for place in &places[1..] {
        let conflict = place.book().conflict.expect("it was told");
        assert_eq!((conflict.culprits, conflict.number), (vec!["h".into()], rival.run.number));
    }
    let ours = places[1].book().run().digest();
    let of_conflict = history[history.len() - 2].run.digest();
    for at in [1, 2, 3] {
        places[at].change(|book| places[at].site.settle(book, &of_conflict));
    }
    exchange_all(&places);
    for place in &places[1..] {
        let book = place.book();
        assert!(book.conflict.is_none() && book.run().digest() == ours, "{}", book.site);
    }
}

/// A site has begun a stage of the version that lost.
#[test]
fn a_stage_of_a_version_that_lost_is_left() {
    let places = split();
    places.iter().skip(1).for_each(|place| ends(place, newest(7, true, "m")));
    places[3].change(|book| {
        // As if all had said how the stage before ended.
        let begins = book.run().digest();
        book.training.push(Training { stage: book.run().number, begins, rounds_before: 7 });
        Ok(())
    });
    exchange_all(&places);
    let ours = places[1].book().run().digest();
    for at in [1, 2, 3] {
        places[at].change(|book| places[at].site.settle(book, &ours));
    }
    (0..2).for_each(|_| exchange_all(&places));
    let book = places[3].book();
    assert_eq!(book.run().digest(), ours);
    assert!(book.begun(book.training.last().unwrap()).is_none(), "it is of no version");
    assert!(book.unsaid().is_none() && book.notes.ends.iter().any(|end| end.site == "c"));
}

/// A member declines a change, so that the others accept another one, and then accepts it. Where
/// all must agree, all have signed two versions.
#[test]
fn a_member_that_accepts_what_it_has_declined_is_named_and_nobody_else() {
    let places = started(&["h", "a", "b", "c", "d"], Consent::All);
    let key = &places[0].site.key;
    // What the first one answers, to one site.
    let tells = |at: usize, mut one: Proposal, accepts: bool| {
        let digest = one.run.digest();
        match accepts {
            true => drop(one.accepts.insert("h".into(), Accept::new(key, &digest, Vec::new()))),
            false => drop(one.declines.insert("h".into(), Refusal::new(key, &digest, "no".into()))),
        }
        places[at].change(|book| {
            book.learn(News { proposals: vec![one], ..News::default() });
            places[at].site.adopt(book).map_err(|why| ConfigError::at("run", why))
        });
    };
    let proposal = |at: usize, set: &str| {
        proposes(&places[at], set).unwrap();
        exchange_all(&places);
        places[at].book().notes.proposals.last().unwrap().clone()
    };
    let accept = |at: usize, one: &Proposal| {
        places[at].change(|book| places[at].site.answer(book, &one.run.digest(), None));
        exchange_all(&places);
    };
    let lost = proposal(1, "optimizer.step=0.05");
    (2..5).for_each(|at| accept(at, &lost));
    (1..5).for_each(|at| tells(at, lost.clone(), false));
    let kept = proposal(2, "optimizer.step=0.07");
    [1, 3, 4].iter().for_each(|at| accept(*at, &kept));
    // It shows that others have declined, with its own signature: that counts for nothing.
    let refusal = |of: &Proposal| Refusal::new(key, &of.run.digest(), "no".into());
    for (version, by) in [(lost.run.digest(), "a"), ("0".repeat(64), "h"), (kept.run.digest(), "h")]
    {
        let declines = [(by.to_string(), refusal(&lost))].into();
        let accept = Accept::new(key, &kept.run.digest(), vec![Declined { version, declines }]);
        let one = Proposal { accepts: [("h".into(), accept)].into(), ..kept.clone() };
        places[1].change(|book| {
            book.learn(News { proposals: vec![one], ..News::default() });
            let known = book.notes.proposals.iter().find(|one| one.run == kept.run).unwrap();
            assert!(!known.accepts.contains_key("h"), "{by}");
            Ok(())
        });
    }
    (1..4).for_each(|at| tells(at, kept.clone(), true));
    tells(4, lost.clone(), true);
    let newest = digests(&places);
    assert_eq!([&newest[1], &newest[4]], [&kept.run.digest(), &lost.run.digest()]);
    exchange_all(&places);
    for place in &places[1..] {
        assert_eq!(place.book().conflict.expect("it was told").culprits, ["h"]);
    }
    for at in [1, 2, 4] {
        places[at].change(|book| places[at].site.settle(book, &kept.run.digest()));
    }
    (0..2).for_each(|_| exchange_all(&places));
    for place in &places[1..] {
        let book = place.book();
        assert!(book.conflict.is_none() && *book.run() == kept.run, "{}", book.site);
    }
}

/// A site has met a contradiction before the one that the others have met. All have signed a
/// version after it, and say so.
#[test]
fn of_two_contradictions_the_earlier_one_ends_first() {
    let places = split();
    let [ours, theirs] = [1, 3].map(|at: usize| places[at].book().run().digest());
    let history = places[1].book().history;
    let run = history[history.len() - 3].run.next(now(), "another one".into(), None);
    let rival = places[0].site.sign("h", run);
    let _ = places[3].tried(|book| book.extend(vec![rival.clone()]).map(drop).or(Ok(())));
    assert_eq!(places[3].book().conflict.unwrap().number, rival.run.number);
    (0..2).for_each(|_| exchange_all(&places));
    for place in &places[1..] {
        let book = place.book();
        assert_eq!(book.conflict.unwrap().number, rival.run.number + 1, "{}", book.site);
    }
    assert!(places[3].book().settled.contains_key(&rival.run.number));
    for at in [1, 2, 3, 4] {
        let digest = if at == 4 { &theirs } else { &ours };
        places[at].change(|book| places[at].site.settle(book, digest));
    }
    (0..2).for_each(|_| exchange_all(&places));
    for place in &places[1..] {
        let book = place.book();
        assert!(book.conflict.is_none() && book.run().digest() == ours, "{}", book.site);
    }
}

/// The first one signs another version from before the start, when the run has gone on: a change
/// has the signatures of more than half of the others.
#[test]
fn a_contradiction_of_long_ago_stops_nobody() {
    let places = started(&["h", "a", "b", "c", "d"], Consent::Majority);
    let history = places[1].book().history;
    let run = history[history.len() - 2].run.next(now(), "another start".into(), None);
    let rival = places[0].site.sign("h", run);
    proposes(&places[1], "optimizer.step=0.05").unwrap();
    exchange_all(&places);
    answers(&places[2], "a", None).unwrap();
    exchange_all(&places);
    // One that has slept hears of the contradiction first.
    let sleeper = Place::new(site(key("d")), "d", history);
    answers(&places[3], "a", None).unwrap();
    let _ = sleeper.tried(|book| book.extend(vec![rival.clone()]).map(drop).or(Ok(())));
    assert!(sleeper.book().conflict.is_some());
    exchange_all(&places);
    let newest = places[1].book().run().clone();
    assert_eq!(newest.number, rival.run.number + 1);
    places[1].change(|book| {
        assert!(!book.extend(vec![rival.clone()]).unwrap());
        let mut last = rival.clone();
        last.run.number = u64::MAX;
        assert!(book.extend(vec![last, rival.clone()]).is_err());
        Ok(())
    });
    sleeper.sync(&places[2]).unwrap();
    // One whose version has not the signatures of enough others, in the midst of a contradiction.
    let lacks = Place::new(site(key("b")), "b", places[2].book().history);
    lacks.change(|book| {
        book.history.last_mut().unwrap().signatures.remove("a");
        let _ = book.extend(vec![rival.clone()]);
        assert!(book.conflict.is_some());
        Ok(())
    });
    lacks.sync(&places[1]).unwrap();
    for place in [&places[1], &sleeper, &lacks] {
        let book = place.book();
        assert!(book.conflict.is_none() && *book.run() == newest, "{}", book.site);
        let shown: Vec<String> = book.proofs().map(ToString::to_string).collect();
        let [one] = shown.as_slice() else { panic!("{shown:?}") };
        assert!(one.starts_with("h signed what contradicts itself"), "{one}");
    }
}

/// A member that was removed cannot choose any more.
#[test]
fn members_that_have_left_have_no_say_in_a_contradiction() {
    let places = started(&["h", "a", "b"], Consent::Majority);
    let history = places[1].book().history;
    let run = history[history.len() - 2].run.next(now(), "another start".into(), None);
    let rival = places[0].site.sign("h", run);
    removes(&places[1], "b").unwrap();
    places[0].sync(&places[1]).unwrap();
    answers(&places[0], "a", None).unwrap();
    places[1].sync(&places[0]).unwrap();
    assert_eq!(places[1].book().run().members.len(), 2);
    places[1].change(|book| {
        assert!(!book.extend(vec![rival]).unwrap() && book.conflict.is_none());
        Ok(())
    });
}
