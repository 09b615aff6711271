//! What a neighbour may cost the others: restarts, choices of members, a false word about a key.

use super::{
    signed,
    table::{A, B, C, Table, origin, whole},
    view,
};
use crate::{
    cluster::{
        Input, Restored,
        event::Event,
        members::assembly::{News, View},
        message::Origin,
        statements::Said,
    },
    gossip::{Cause, snapshot::Snapshot},
    units::{NodeId, Round},
};

const RESETS: &str = "open 3 members of change 0, 0 links cut, bans [], reset";
const CHOOSES: &str = "open 3 members of change 0, 0 links cut, bans [], to choose";
const REFUSES: &str = "open 3 members of change 0, 0 links cut, bans [2], to choose";

/// Node b continues after this round, of which all have a checkpoint.
fn continues(b: &mut Table<'_>, rounds: u64) {
    if rounds == 0 {
        b.started();
        return;
    }
    b.opened(&[rounds]);
    b.linked();
    b.reported(&[rounds], &[rounds]);
    b.after(0.1);
    let x = vec![0.0; b.cluster.part().whole.parameters()];
    let snapshot = Snapshot { rounds: Round(rounds), x, ..Snapshot::default() };
    let restored = Restored { snapshot, merged: Vec::new() };
    b.input(Input::Restored(Ok(Some(restored))));
    assert!(b.cluster.is_in_rounds());
}

/// All members have a checkpoint of this round.
fn reaches(b: &mut Table<'_>, rounds: u64) {
    b.event(Event::Durable(rounds));
    b.told(A, A, Said::Saved(rounds));
    b.told(C, C, Said::Saved(rounds));
    let looked = b.after(0.1);
    assert!(looked.iter().any(|effect| effect.starts_with("Retain")), "{looked:?}");
}

/// A machine that is started again every few seconds, while the run gets on, is refused by nobody,
/// however often: also where the others have lost their disks meanwhile, and begin anew.
#[test]
fn restarts_between_which_the_run_gets_further_have_no_limit() {
    for policy in ["wait", "continue"] {
        let whole = whole(&[&format!("absence.policy={policy}"), "run.rounds=100"]);
        for each in [2, 0] {
            let mut b = Table::new(&whole, false);
            for times in 0..50 {
                continues(&mut b, each * times);
                // Now and then it is started again before the next checkpoint.
                if times % 3 != 0 {
                    reaches(&mut b, each * times + 2);
                }
                let effects = b.event(Event::Restarted { peer: C, because: None });
                assert!(effects.last().unwrap().starts_with(RESETS), "{times}: {effects:?}");
                if times % 3 == 0 {
                    continues(&mut b, each * times);
                    reaches(&mut b, each * times + 2);
                    b.event(Event::Restarted { peer: C, because: None });
                }
            }
        }
    }
}

/// A false name for the cause is no new budget.
#[test]
fn one_that_names_others_as_the_cause_is_refused() {
    let whole = whole(&["absence.policy=continue"]);
    let mut b = Table::new(&whole, false);
    for times in 1..=21 {
        b.started();
        let because = Some(Origin { node: A, ..origin(C, times) });
        let effects = b.event(Event::Restarted { peer: C, because });
        let expected = if times == 21 { REFUSES } else { RESETS };
        assert!(effects.last().unwrap().starts_with(expected), "{times}: {effects:?}");
    }
}

/// One that leaves and returns, or says goodbye, again and again is refused.
#[test]
fn one_that_leaves_again_and_again_is_refused() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    let cause = || Cause { node: C, text: "it has failed".into(), leaves: false };
    let leaves = || Event::Left { peer: C, cause: cause() };
    for event in [&leaves as &dyn Fn() -> Event, &|| Event::Goodbye(C)] {
        let mut b = Table::new(&whole, false);
        for times in 1..=21 {
            b.started();
            let effects = b.event(event());
            let expected = if times == 21 { REFUSES } else { CHOOSES };
            assert!(effects.last().unwrap().starts_with(expected), "{times}: {effects:?}");
            if times < 21 {
                all_agree(&mut b, times);
            }
        }
    }
}

/// Nor may it do so before the rounds begin again.
#[test]
fn one_that_leaves_again_and_again_before_the_rounds_is_refused() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    let mut b = Table::new(&whole, false);
    b.started();
    b.event(Event::Restarted { peer: A, because: None });
    b.opened(&[]);
    for times in 1..=21 {
        b.event(Event::Up(C));
        let cause = Cause { node: C, text: "it has failed".into(), leaves: false };
        let effects = b.event(Event::Left { peer: C, cause });
        let refuses = effects.last().is_some_and(|effect| effect.starts_with(REFUSES));
        assert_eq!(refuses, times == 21, "{times}: {effects:?}");
    }
}

/// All three choose members, the same as before.
fn all_agree(b: &mut Table<'_>, choice: u64) {
    b.opened(&[]);
    for peer in [A, C] {
        b.event(Event::Up(peer));
    }
    for (number, agreed) in [(1, false), (2, true)] {
        for from in [A, C] {
            let said = View { choice, agreed, ..view(number, &[B], &[]) };
            let news = News { views: vec![signed(from, said)] };
            b.event(Event::Chooses { from, news });
        }
        assert!(b.after(0.1).iter().all(|effect| effect.starts_with("to ")), "it tells them first");
    }
    assert!(b.after(0.1).iter().any(|effect| effect.starts_with(RESETS)));
}

/// A node that has agreed waits for neighbours that have not: they may await a link of others. If
/// it left alone, it would meet nobody. But once a quorum has agreed, one member cannot hold it.
#[test]
fn a_node_that_continues_waits_until_its_neighbours_do() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    for (agree, seconds) in [(&[][..], 9.9), (&[C], 2.0), (&[A, C], 0.1)] {
        let mut b = Table::new(&whole, false);
        b.started();
        b.event(Event::OtherMembership { peer: C, because: Some(origin(C, 1)) });
        b.opened(&[]);
        let says = |b: &mut Table<'_>, from, number, agreed, adopted| {
            let said = View { choice: 1, agreed, adopted, ..view(number, &[B], &[]) };
            b.event(Event::Chooses { from, news: News { views: vec![signed(from, said)] } });
        };
        for peer in [A, C] {
            b.event(Event::Up(peer));
            says(&mut b, peer, 1, false, 0);
        }
        let continues = |effects: &[String]| effects.iter().any(|one| one.starts_with(RESETS));
        assert!(!continues(&b.after(0.1)));
        for peer in agree {
            says(&mut b, *peer, 2, true, 0);
        }
        assert!(!continues(&b.after(0.1)));
        if *agree == [C] {
            // Nor if it names later memberships.
            says(&mut b, A, 3, false, 7 << 32);
        }
        assert!(!continues(&b.after(seconds - 0.1)), "{agree:?}");
        assert!(continues(&b.after(0.1)), "{agree:?}");
    }
}

/// A member claims to take part in another membership, again and again: each time all choose, and
/// go back. A choice does not begin the count anew, and neither does a restart.
#[test]
fn one_that_makes_all_choose_again_and_again_is_refused() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    for signer in [None, Some(C)] {
        let (mut b, most) = (Table::new(&whole, false), 20);
        for times in 1..=most + 1 {
            let because = signer.map(|signer| origin(signer, times));
            b.started();
            let effects = match times % 2 {
                0 => b.event(Event::OtherMembership { peer: C, because }),
                _ => b.event(Event::Restarted { peer: C, because }),
            };
            let last = effects.last().unwrap();
            match (times > most, times % 2) {
                (true, _) => assert!(last.starts_with(REFUSES), "{times}: {effects:?}"),
                (false, 0) => {
                    assert!(last.starts_with(CHOOSES), "{times}: {effects:?}");
                    all_agree(&mut b, times);
                }
                (false, _) => assert!(last.starts_with(RESETS), "{times}: {effects:?}"),
            }
        }
    }
}

/// A node that chooses says because of whom, so that the next one does not count it as the cause.
#[test]
fn one_that_chooses_because_of_another_says_so() {
    let whole = whole(&["absence.policy=continue"]);
    for (because, said) in [(None, 2), (Some(origin(A, 7)), 0), (Some(origin(C, 7)), 2)] {
        let mut b = Table::new(&whole, false);
        b.started();
        let effects = b.event(Event::OtherMembership { peer: C, because });
        assert_eq!(effects.last().unwrap(), &format!("{CHOOSES}, because of {said}"));
    }
    // An absence is a cause of its own, about that neighbour.
    let mut b = Table::new(&whole, false);
    b.started();
    let effects = b.event(Event::Down { peer: C, reason: "it did not return".into() });
    assert_eq!(effects.last().unwrap(), &format!("{CHOOSES}, because of 2"));
}

/// A neighbour joins the choice only after its own deadline in a rendezvous has passed, because it
/// has waited there for the node that was given up: it is no absent one.
#[test]
fn one_that_comes_late_from_a_rendezvous_is_awaited() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    let says = |from: NodeId, number| {
        let views = vec![signed(from, view(number, &[B], &[]))];
        Event::Chooses { from, news: News { views } }
    };
    let waits = |b: &mut Table<'_>, tenths: usize| {
        let all: Vec<String> = (0..tenths).flat_map(|_| b.after(0.1)).collect();
        all.into_iter().filter(|effect| effect.starts_with("record")).collect::<Vec<_>>()
    };
    let choosing = || {
        let mut b = Table::new(&whole, false);
        b.started();
        b.event(Event::OtherMembership { peer: C, because: None });
        b.opened(&[]);
        b.event(Event::Up(C));
        b.event(says(C, 1));
        b
    };
    let mut b = choosing();
    assert_eq!(waits(&mut b, 45), [""; 0]);
    b.event(Event::Up(A));
    b.event(says(A, 1));
    assert_eq!(waits(&mut b, 20), [""; 0], "they are all there");
    assert_eq!(waits(&mut choosing(), 95), ["record [NodeId(1), NodeId(2)]"]);
}
