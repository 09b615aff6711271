//! The effects of one node, input by input: node b of the path a - b - c, whose parent in the
//! spanning tree is a, and whose child is c. `commit` and `early_end` have those of the end,
//! `budgets` what a neighbour may cost.

mod begin;
mod budgets;
mod commit;
mod early_end;
mod statements;
mod table;
mod three;

use std::time::Duration;

use self::table::{A, B, C, Table, leaves, origin, report, whole};
use super::{
    Effect, Input, Restored,
    event::Event,
    members::{
        assembly::{News, View, statement},
        keys::{Keys, Named},
    },
    statements::{Said, Statement},
};
use crate::{
    drive::{Membership, RunError},
    gossip,
    units::NodeId,
};

#[test]
fn a_first_start_with_a_late_node() {
    let whole = whole(&[]);
    let mut b = Table::new(&whole, false);
    assert_eq!(b.first, ["open 3 members of change 0, 0 links cut, bans []"]);
    b.opened(&[]);
    assert_eq!(
        b.event(Event::Up(A)),
        ["log: linked with 0 (1 of 2)", "Linked { peer: NodeId(0), up: 1, links: 2 }"]
    );
    b.facts.missing = vec![(C, "no contact yet".into())];
    assert_eq!(b.after(0.1), ["tell 1 reports []"]);
    assert_eq!(b.after(0.1), [] as [&str; 0], "nothing is new");
    let waits = b.after(5.0);
    assert_eq!(
        waits[..2],
        ["tell 1 reports [], 1 is linked with 0 of 2", "warn: node 1 waits for 2 (no contact yet)"]
    );
    // It comes late, with a frame that is held.
    b.facts.missing.clear();
    b.event(Event::Up(C));
    b.reported(&[], &[]);
    let begins = b.after(0.1);
    assert!(begins[0].ends_with("1 is linked with 2 of 2"), "{begins:?}");
    assert_eq!(begins[1..], ["restore round 0"]);
    let started = b.input(Input::Restored(Ok(None)));
    assert_eq!(started[0], "begin after 0");
    assert!(b.cluster.is_in_rounds());
}

#[test]
fn a_node_that_waits_in_vain_says_for_whom_and_ends() {
    let whole = whole(&["run.connect_s=20"]);
    let mut b = Table::new(&whole, false);
    b.opened(&[]);
    b.event(Event::Up(A));
    b.facts.missing = vec![(C, "connection refused".into())];
    b.after(0.1);
    let text = "after 20 s node 1 waits for 2 (connection refused)";
    let ended = b.after(20.0);
    assert_eq!(
        ended[1..],
        [
            "SaveNewest",
            &format!("log: {text}"),
            &format!("close, over false, reason Some({text:?})")
        ]
    );
    assert_eq!(b.input(Input::Closed), [format!("end: {text}")]);
    assert_eq!(b.input(Input::Closed), [] as [&str; 0]);
}

#[test]
fn a_restart_of_a_neighbour_in_each_phase() {
    let whole = whole(&[]);
    let again = [
        "warn: node 2 was started again: this node returns to the newest checkpoint that all \
         nodes have",
        "open 3 members of change 0, 0 links cut, bans [], reset, because of 2",
    ];
    // Before the rounds only its frames are forgotten.
    let mut b = Table::new(&whole, false);
    b.opened(&[]);
    b.event(Event::Up(C));
    assert_eq!(b.event(Event::Restarted { peer: C, because: None }), [] as [&str; 0]);
    // In the rounds all go back.
    let mut b = Table::new(&whole, false);
    b.started();
    let effects = b.event(Event::Restarted { peer: C, because: None });
    assert_eq!(effects[0], "salvage");
    assert_eq!(effects[1..], again);
    // It meets the others with the checkpoints that it has, and resumes where all can.
    b.opened(&[2]);
    b.linked();
    b.reported(&[2], &[2]);
    assert_eq!(b.after(0.1)[1..], ["restore round 2"]);
    let snapshot = gossip::snapshot::Snapshot {
        rounds: crate::units::Round(2),
        x: vec![0.0; whole.design.parameters()],
        ..Default::default()
    };
    let restored = Restored { snapshot, merged: Vec::new() };
    let resumed = b.input(Input::Restored(Ok(Some(restored))));
    assert_eq!(resumed[..2], ["Resumes(Round(2))", "begin after 2"]);
}

/// A neighbour that says goodbye in the rounds is absent: the run continues without it, if it may.
#[test]
fn a_goodbye_in_the_rounds_is_an_absence() {
    for (policy, last) in [
        ("wait", "close, over false, reason Some(\"the link to node 2 broke"),
        ("continue", "open 3 members of change 0, 0 links cut, bans [], to choose"),
    ] {
        let whole = whole(&[&format!("absence.policy={policy}")]);
        let mut b = Table::new(&whole, false);
        b.started();
        let effects = b.event(Event::Goodbye(C));
        assert!(effects.last().unwrap().starts_with(last), "{policy}: {effects:?}");
    }
}

/// A neighbour that starts again and again, while the run gets no further, is given up.
#[test]
fn restarts_have_a_budget() {
    for (policy, last) in [
        ("wait", "close, over false, reason Some(\"node 2 was started again 21 times"),
        ("continue", "open 3 members of change 0, 0 links cut, bans [2], to choose"),
    ] {
        let whole = whole(&[&format!("absence.policy={policy}")]);
        let mut b = Table::new(&whole, false);
        for times in 1..=21 {
            b.started();
            let effects = b.event(Event::Restarted { peer: C, because: None });
            let expected = match times {
                21 => last,
                _ => "open 3 members of change 0, 0 links cut, bans [], reset",
            };
            assert!(effects.last().unwrap().starts_with(expected), "{times}: {effects:?}");
        }
        // One that has gone back because of another node is no cause.
        let mut b = Table::new(&whole, false);
        for number in 0..30 {
            b.started();
            b.event(Event::Restarted { peer: C, because: Some(origin(A, number)) });
        }
        assert!(!b.started().is_empty());
    }
}

/// What a node reports of its checkpoints has its signature: who changes that is refused.
#[test]
fn one_that_changes_a_report_is_refused() {
    let whole = whole(&["absence.policy=continue"]);
    let mut b = Table::new(&whole, true);
    b.opened(&[2]);
    b.linked();
    let changed = Said::Report(report(&[]));
    let statement = Statement::signed(&Named(C), (C, C), (0, 0), Said::Report(report(&[2])));
    let batch = vec![Statement { said: changed, ..statement }].into();
    let effects = b.event(Event::Told { from: A, batch });
    let text = "it passes on what node 2 has not signed";
    assert!(effects[0].contains(text), "{effects:?}");
    assert!(effects[0].ends_with("this node refuses node 0 for 60 s"), "{effects:?}");
    assert_eq!(
        effects[1],
        "open 3 members of change 0, 0 links cut, bans [0], to choose, because of 0"
    );
}

/// Fewer nodes than a quorum remove no checkpoints.
#[test]
fn a_node_whose_checkpoints_all_have_had_does_not_begin_without_them() {
    let whole = whole(&[]);
    let mut b = Table::new(&whole, true);
    b.opened(&[2]);
    b.linked();
    b.reported(&[], &[]);
    let ended = b.after(0.1);
    let text = "those of 1 stay as they are: fewer than 2 nodes report the same";
    assert!(ended.iter().any(|effect| effect.contains(text)), "{ended:?}");
}

/// Nodes with checkpoints do not begin at round 0. If fewer than a quorum are left, those do not
/// begin either: they would wait in the rounds for the others.
#[test]
fn nobody_begins_without_checkpoints_that_a_quorum_needs() {
    for (policy, quorum) in [("wait", 2), ("continue", 2), ("continue", 3)] {
        let (policy, least) = (&format!("policy={policy}"), &format!("quorum={quorum}"));
        let whole =
            whole(&[policy, least].map(|set| format!("absence.{set}")).each_ref().map(|s| &**s));
        for (a, c) in [(&[2][..], &[4][..]), (&[], &[4])] {
            let mut b = Table::new(&whole, true);
            b.opened(&[]);
            b.linked();
            b.reported(a, c);
            let effects = b.after(0.1);
            let begins = effects.iter().any(|effect| effect.starts_with("restore"));
            assert_eq!(begins, a.is_empty() && quorum == 2, "{policy} {quorum}: {effects:?}");
        }
    }
}

/// A node hears of a report that it has signed before its clock was put back: its attempts go on
/// from there. In the rounds another report of a node counts only if by it the run begins
/// elsewhere.
#[test]
fn reports_of_earlier_and_later_attempts() {
    let whole = whole(&[]);
    let of = |node: NodeId, attempt, said| {
        Statement::signed(&Named(node), (node, node), (0, attempt), said)
    };
    let told = |statement: Statement| Event::Told { from: A, batch: vec![statement].into() };
    let mut b = Table::new(&whole, true);
    b.opened(&[2]);
    b.linked();
    b.event(told(of(B, 7, Said::Report(report(&[])))));
    let tick = b.tick(0.1);
    let effects = b.effects(tick);
    let [Effect::Tell(all)] = &effects[..] else { panic!("{effects:?}") };
    assert!(all.statements[0].1.attempt > 7);
    // Reports of other attempts than those with which the neighbours are linked begin nothing.
    b.reported(&[2], &[2]);
    assert!(!b.after(0.1).iter().any(|effect| effect.starts_with("restore")));

    let mut b = Table::new(&whole, false);
    b.started();
    assert_eq!(b.event(told(of(C, 1, Said::Report(report(&[]))))), [""; 0], "started again");
    assert_eq!(b.event(told(of(C, 2, Said::Report(report(&[2]))))), [""; 0], "one is no quorum");
    let effects = b.event(told(of(A, 1, Said::Report(report(&[2])))));
    assert_eq!(effects[0], "salvage");
    assert!(effects[1].starts_with("warn: node 0 was started again"), "{effects:?}");
}

#[test]
fn a_link_that_breaks_in_each_phase() {
    let whole = whole(&[]);
    let lost = || Event::Lost { peer: C, reason: "reset".into() };
    let mut b = Table::new(&whole, false);
    b.opened(&[]);
    b.event(Event::Up(C));
    assert_eq!(
        b.event(lost()),
        ["warn: the link to 2 broke before the run began: reset; waiting for it", "lost 2: reset"]
    );
    let mut b = Table::new(&whole, false);
    b.started();
    assert_eq!(
        b.event(lost()),
        ["warn: the link to 2 is lost: reset; reconnecting", "lost 2: reset"]
    );
    let absent = Duration::from_secs(3);
    assert_eq!(
        b.event(Event::Back { peer: C, absent, resent: 1 }),
        [
            "warn: the link to 2 has returned after 3.0 s; frames sent again: 1",
            "Linked { peer: NodeId(2), up: 2, links: 2 }"
        ]
    );
    // It does not return: with `wait` the run ends, and names it.
    let ended = b.event(Event::Down { peer: C, reason: "it did not return".into() });
    assert_eq!(ended[0], "lost 2: it did not return");
    assert_eq!(ended[1], "salvage");
    assert!(
        ended[3].starts_with("close, over false, reason Some(\"the link to node 2 broke"),
        "{ended:?}"
    );
}

/// The failure of one member is its own affair: what it says of others, or of all, is not believed.
#[test]
fn a_member_that_fails_or_leaves_does_not_end_a_run_that_continues() {
    let whole = whole(&["absence.policy=continue"]);
    for (names, says) in [(C, true), (C, false), (A, false)] {
        let mut b = Table::new(&whole, false);
        b.started();
        let effects = b.event(Event::Left { peer: C, cause: leaves(names, says) });
        let chooses = "open 3 members of change 0, 0 links cut, bans [], to choose, because of 2";
        assert_eq!(effects.last().unwrap(), chooses, "{effects:?}");
        assert!(effects.contains(&"salvage".to_string()));
        assert!(!effects.iter().any(|effect| effect.starts_with("close")), "{effects:?}");
    }
}

fn view(number: u64, linked: &[NodeId], late: &[NodeId]) -> View {
    let (linked, late) = (linked.to_vec(), late.to_vec());
    View { number, linked, late, started: true, ..View::default() }
}

/// A view with the signature of its node.
fn signed(node: NodeId, view: View) -> (NodeId, View) {
    let signature = Named(node).sign(&statement(node, &view));
    (node, View { signature, ..view })
}

/// A loss, the choice of the others, a second loss during it, and the record before any node hears
/// of it.
#[test]
fn a_loss_is_decided_by_the_others() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    let mut b = Table::new(&whole, false);
    b.started();
    b.event(Event::Down { peer: C, reason: "it did not return".into() });
    b.opened(&[]);
    assert_eq!(b.event(Event::Up(A))[..], ["Linked { peer: NodeId(0), up: 1, links: 2 }"]);
    assert_eq!(b.after(0.1), ["to 0: 1 views, change Some(0)"]);
    let said = News { views: vec![signed(A, view(3, &[B], &[]))] };
    b.event(Event::Chooses { from: A, news: said });
    // Two of three are a quorum, and it is the same for a second.
    assert_eq!(b.after(0.1), ["to 0: 2 views, change Some(0)"]);
    assert_eq!(b.after(1.1), ["record [NodeId(0), NodeId(1)]"], "first of all");
    assert_eq!(b.after(0.1), [] as [&str; 0], "until it is durable");
    assert_eq!(
        b.input(Input::Recorded(Ok(()))),
        ["warn: the run continues with 2 of 3 nodes, without 2"]
    );
    assert_eq!(b.after(0.1), ["to 0: 2 views, change Some(1)"]);
    // Node a has agreed too: this node continues.
    let members = Membership::after([0].into_iter(), vec![A, B], Vec::new());
    let agreed = View { adopted: members.id, agreed: true, ..view(5, &[B], &[]) };
    let said = News { views: vec![signed(A, agreed)] };
    b.event(Event::Chooses { from: A, news: said });
    assert_eq!(b.after(0.1), ["to 0: 2 views, change Some(1)"], "all that it knows");
    let opened = "open 2 members of change 1, 0 links cut, bans [], reset, because of 2";
    assert_eq!(b.after(0.1), [opened]);
    assert_eq!(b.cluster.part().numbers, [A, B, C]);
}

#[test]
fn a_minority_waits_and_decides_nothing() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3", "absence.wait_s=60"]);
    let mut b = Table::new(&whole, false);
    b.started();
    b.event(Event::Down { peer: C, reason: "it did not return".into() });
    b.opened(&[]);
    let mut all = Vec::new();
    for _ in 0..590 {
        all.extend(b.after(0.1));
    }
    assert!(all.iter().all(|effect| !effect.starts_with("record")), "{all:?}");
    let text = "1 of 3 nodes are present, at least 2 continue; node 1 waits for 0, 2";
    assert!(all.iter().any(|effect| *effect == format!("warn: {text}")), "{all:?}");
    let mut ended = Vec::new();
    while !ended.iter().any(|effect: &String| effect.starts_with("close")) {
        ended = b.after(0.1);
    }
    assert_eq!(b.input(Input::Closed), [format!("end: after 60 s {text}")]);
}

/// A node that has lost its disk records nothing, and ends.
#[test]
fn a_disk_that_does_not_record_ends_the_choice() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    let mut b = Table::without_c(&whole);
    let said = News { views: vec![signed(A, view(3, &[B], &[]))] };
    b.event(Event::Chooses { from: A, news: said });
    b.after(0.1);
    assert_eq!(b.after(1.1), ["record [NodeId(0), NodeId(1)]"]);
    let error = RunError::Host("the disk is full".into());
    let effects = b.input(Input::Recorded(Err(error)));
    assert_eq!(effects.last().unwrap(), "close, over false, reason Some(\"the disk is full\")");
}

/// The link to a node breaks and returns all the time: it is awaited no longer, although it never
/// misses a deadline.
#[test]
fn a_link_that_breaks_again_and_again_is_not_awaited() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3", "absence.quorum=2"]);
    let late = |breaks: usize| {
        let mut b = Table::without_c(&whole);
        for _ in 0..breaks {
            b.event(Event::Up(C));
            b.event(Event::Lost { peer: C, reason: "reset".into() });
            // A refusal in between does not count.
            let cause = gossip::Cause { node: C, text: "refuses this node".into(), leaves: true };
            b.event(Event::Left { peer: C, cause });
            b.after(0.3);
        }
        b.event(Event::Up(C));
        let said = News { views: vec![signed(A, view(3, &[B], &[C]))] };
        b.event(Event::Chooses { from: A, news: said });
        b.after(0.1);
        b.after(1.1)
    };
    let records = ["record [NodeId(0), NodeId(1)]"];
    assert_ne!(late(19), records, "C is there");
    assert_eq!(late(20), records);
}

/// The neighbour has shown that another program has this node's key (`net::link::handshake`).
#[test]
fn a_program_whose_key_another_one_has_ends() {
    let whole = whole(&["absence.policy=continue"]);
    for begun in [false, true] {
        let mut b = Table::new(&whole, false);
        if begun {
            b.started();
        } else {
            b.opened(&[]);
        }
        let effects = b.event(Event::Rival { peer: A, text: "two programs".into() });
        assert!(effects.iter().any(|effect| effect.contains("stop one of them")), "{effects:?}");
    }
}

/// A second node is lost while the first loss is decided: no membership has a quorum any more.
#[test]
fn a_second_loss_during_a_decision_leaves_a_minority() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    let mut b = Table::without_c(&whole);
    let said = News { views: vec![signed(A, view(3, &[B], &[]))] };
    b.event(Event::Chooses { from: A, news: said });
    b.after(0.5);
    let lost = b.event(Event::Lost { peer: A, reason: "reset".into() });
    assert_eq!(lost, ["lost 0: reset"]);
    let mut all = Vec::new();
    for _ in 0..100 {
        all.extend(b.after(0.1));
    }
    assert!(all.iter().all(|effect| !effect.starts_with("record")), "{all:?}");
    // It comes up again, with the same node: both decide.
    b.event(Event::Up(A));
    let said = News { views: vec![signed(A, view(4, &[B], &[]))] };
    b.event(Event::Chooses { from: A, news: said });
    b.after(0.1);
    assert_eq!(b.after(1.1), ["record [NodeId(0), NodeId(1)]"]);
}

/// What a reader looks for: a node that was away returns. The members go on until all have another
/// checkpoint, then choose again, and this time with it.
#[test]
fn a_node_that_returns_takes_part_after_the_next_checkpoint() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    let members = Membership::after([0].into_iter(), vec![A, B], Vec::new());
    let mut b = Table::with(&whole, true, Some(members.clone()));
    assert_eq!(b.first, ["open 2 members of change 1, 0 links cut, bans []"]);
    b.opened(&[]);
    b.event(Event::Up(A));
    assert_eq!(b.after(0.1), ["tell 1 reports []"]);
    b.reports(A, &[], 1);
    assert_eq!(b.after(0.1)[1..], ["restore round 0"]);
    b.input(Input::Restored(Ok(None)));
    // Node c visits: it is no member.
    let visitor = b.cluster.part().neighbours[1].node;
    assert_eq!(
        b.event(Event::OtherMembership { peer: visitor, because: None }),
        ["warn: node 2 has returned: it takes part after the next checkpoint"]
    );
    assert_eq!(
        b.event(Event::OtherMembership { peer: visitor, because: None }),
        [] as [&str; 0],
        "once"
    );
    b.after(0.1);
    // All members have a checkpoint of round 2.
    b.event(Event::Durable(2));
    b.told(A, A, Said::Saved(2));
    let looked = b.after(0.1);
    assert_eq!(looked[..2], ["Retain(0)", "tell 1 saved 2, 0 saved 2"]);
    let chooses = "open 3 members of change 0, 0 links cut, bans [], to choose";
    assert_eq!(looked[2..], ["salvage", chooses]);
    // It is awaited for a while, although its link was not used.
    b.opened(&[2]);
    b.event(Event::Up(A));
    b.event(Event::Up(C));
    let views = vec![
        signed(A, View { adopted: members.id, ..view(1, &[B], &[]) }),
        signed(C, view(1, &[B], &[])),
    ];
    let said = News { views };
    b.event(Event::Chooses { from: A, news: said });
    assert_eq!(b.after(0.1).last().unwrap(), "record [NodeId(0), NodeId(1), NodeId(2)]");
}

/// A node that has lost its disk continues from the mean of the others' models.
#[test]
fn a_lost_disk() {
    let whole = whole(&[]);
    let mut b = Table::new(&whole, false);
    b.opened(&[]);
    b.linked();
    b.reported(&[2], &[2]);
    assert_eq!(b.after(0.1)[1..], ["restore round 2"]);
    let started = b.input(Input::Restored(Ok(None)));
    assert_eq!(
        started[..3],
        [
            "Resumes(Round(2))",
            "warn: no checkpoint of round 2 at 1: all nodes continue from the mean of the other \
         nodes' models, with rule and optimizer as at the beginning of a run",
            "begin after 2"
        ]
    );
}

/// A member says that others have said something: it is refused, and named.
#[test]
fn a_statement_without_its_signature_costs_its_bringer_the_link() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    let mut b = Table::without_c(&whole);
    let forged = View { over: true, ..view(9, &[], &[]) };
    let signature = Named(A).sign(&statement(C, &forged));
    let said = News { views: vec![(C, View { signature, ..forged })] };
    let effects = b.event(Event::Chooses { from: A, news: said });
    assert_eq!(
        effects,
        [
            "warn: node 0 sent a frame that cannot be used: it passes on what node 2 has not said; \
         this node refuses node 0 for 60 s",
            "open 3 members of change 0, 0 links cut, bans [0], to choose, because of 0"
        ]
    );
}

#[test]
fn the_wish_of_the_user_in_each_phase() {
    let whole = whole(&[]);
    let mut b = Table::new(&whole, false);
    b.opened(&[]);
    let ended = b.input(Input::Stop);
    assert_eq!(ended[0], "SaveNewest");
    assert_eq!(b.input(Input::Closed), ["end: interrupted in round 0"]);
    let mut b = Table::new(&whole, false);
    b.started();
    assert_eq!(b.input(Input::Stop)[0], "salvage");
    assert_eq!(b.input(Input::Closed), ["end: interrupted in round 0"]);
    assert_eq!(b.input(Input::Stop), [] as [&str; 0]);
}
