//! What a node makes of statements: node 1 of the ring 0 - 1 - 2 - 3, whose neighbours are 0 and 2.

use std::{collections::BTreeSet, sync::Arc, time::Duration, time::Instant};

use super::{commit::NOTHING, table, three::Three};
use crate::{
    cluster::{
        begin::reports::Report,
        members::keys::Named,
        message::{CheckpointId, CheckpointSchedule},
        part::Part,
        statements::{Links, Said, Shared, Statement, Statements, next_attempt},
    },
    drive::Membership,
    run::Whole,
    units::NodeId,
};

const NO: &str = "it passes on a statement that no node of this run makes";
const PATIENCE: Duration = Duration::from_secs(20);

fn whole() -> Whole {
    table::whole(&["topology.file=ring:4", "rule.kind=dcd", "run.rounds=100000"])
}

fn statements(whole: &Whole) -> Statements {
    let part = Part::new(&whole.design, NodeId(1), Membership::all(4)).unwrap();
    Statements::new(&part, Arc::new(Named(NodeId(1))), 7)
}

/// What a node says in an attempt.
fn of(node: u32, attempt: u64, said: Said) -> Statement {
    let node = NodeId(node);
    Statement::signed(&Named(node), (node, node), (0, attempt), said)
}

/// What a node without checkpoints reports.
fn reports(node: u32, attempt: u64) -> Statement {
    of(node, attempt, Said::Report(Report::default()))
}

fn vector(round: u64, byte: u8) -> Shared {
    Shared { round, flight: 0, fingerprint: [byte; 16] }
}

fn shared(node: u32, attempt: u64, round: u64, byte: u8) -> Statement {
    of(node, attempt, Said::Shared(vector(round, byte)))
}

/// A neighbour brings these: who has broken the protocol, if one has.
fn brought(to: &mut Statements, from: u32, all: &[Statement]) -> Result<(), String> {
    to.hear(NodeId(from), all.to_vec().into()).map_err(|failure| failure.to_string())
}

/// What the neighbours are told, if anything.
fn told(statements: &mut Statements) -> Option<Vec<Statement>> {
    let all = statements.tell_now()?;
    Some(all.statements.iter().map(|(_, statement)| Statement::clone(statement)).collect())
}

fn blames(node: u32, why: &str) -> Result<(), String> {
    Err(format!("node {node} sent a frame that cannot be used: {why}"))
}

fn differs(node: u32, round: u64) -> Result<(), String> {
    blames(
        node,
        &format!(
            "after round {round} its vector here is not the one that it has signed for all its \
         neighbours"
        ),
    )
}

#[test]
fn the_newest_of_each_kind_is_passed_on_once() {
    let whole = whole();
    let mut all = statements(&whole);
    all.say(Said::Saved(20));
    let own = of(1, 7, Said::Saved(20));
    assert_eq!(told(&mut all), Some(vec![own.clone()]));
    assert_eq!(told(&mut all), None);
    let schedule = |number| CheckpointSchedule { number, next: 40 };
    let (saved, schedules) = (of(3, 1, Said::Saved(20)), of(0, 2, Said::Schedule(schedule(1))));
    assert_eq!(brought(&mut all, 2, &[saved.clone(), schedules.clone()]), Ok(()));
    assert_eq!(told(&mut all), Some(vec![own.clone(), saved, schedules.clone()]));
    // Another neighbour brings the same, and what is older.
    let older = [of(3, 1, Said::Saved(20)), of(3, 1, Said::Saved(19)), schedules.clone()];
    assert_eq!(brought(&mut all, 0, &older), Ok(()));
    assert_eq!(brought(&mut all, 0, &[of(1, 9, Said::Saved(99))]), Ok(()), "it knows its own");
    assert_eq!(told(&mut all), None);
    let newer = of(3, 1, Said::Saved(40));
    assert_eq!(brought(&mut all, 0, std::slice::from_ref(&newer)), Ok(()));
    assert_eq!(told(&mut all), Some(vec![own, schedules, newer]));
    let known = [1, 3, 2].map(|node| all.saved(NodeId(node)));
    assert_eq!(known, [Some(20), Some(40), None]);
    assert_eq!(all.schedule(NodeId(0)), Some(schedule(1)));
    // Results are written once.
    let wrote = |number| of(3, 1, Said::Written(number));
    assert_eq!(brought(&mut all, 0, &[wrote(5), wrote(6)]), Ok(()));
    assert_eq!(all.written(NodeId(3)), Some(5));
}

#[test]
fn who_brings_what_no_node_says_is_named() {
    let whole = whole();
    let bring = |said: Statement| brought(&mut statements(&whole), 0, &[said]);
    let changed = Statement { said: Said::Saved(21), ..of(3, 1, Said::Saved(20)) };
    let unsigned = blames(0, "it passes on what node 3 has not signed");
    assert_eq!(bring(changed), unsigned);
    let repeated = Statement { attempt: 2, ..of(3, 1, Said::Saved(20)) };
    assert_eq!(bring(repeated), unsigned, "the attempt is signed");
    let node = NodeId(3);
    let other = Statement::signed(&Named(node), (node, node), (1 << 32, 1), Said::Saved(20));
    assert_eq!(bring(other), unsigned, "so is the membership");
    let schedule = CheckpointSchedule { number: 1, next: 100_001 };
    for said in [
        of(3, 1, Said::Saved(100_001)),
        of(3, 1, Said::Schedule(schedule)),
        of(4, 1, Said::Saved(1)),
        shared(3, 1, 17, 1),
        shared(3, 1, 100_000, 1),
        of(3, 1, Said::Shared(Shared { flight: 9, ..vector(16, 1) })),
        Statement { signature: vec![0; 97], ..of(3, 1, Said::Saved(1)) },
    ] {
        assert_eq!(bring(said.clone()), blames(0, NO), "{said:?}");
    }
    // As many of one node as no honest neighbour has to tell.
    let many: Vec<_> = (0..42).map(|round| of(3, 1, Said::Saved(round))).collect();
    assert_eq!(brought(&mut statements(&whole), 0, &many[..39]), Ok(()));
    assert_eq!(brought(&mut statements(&whole), 0, &many), blames(0, NO));
}

#[test]
fn a_neighbour_that_sends_others_something_else_is_proved_to() {
    let whole = whole();
    for sees_first in [false, true] {
        // What node 2 has signed, and what this node got from it.
        let compared = |said: &[Statement], got: Shared| {
            let mut all = statements(&whole);
            brought(&mut all, 2, &[reports(2, 5)])?;
            if sees_first {
                all.see(NodeId(2), got).map_err(|failure| failure.to_string())?;
            }
            brought(&mut all, 0, said)?;
            if !sees_first {
                all.see(NodeId(2), got).map_err(|failure| failure.to_string())?;
            }
            Ok(())
        };
        assert_eq!(compared(&[shared(2, 5, 16, 1)], vector(16, 1)), Ok(()));
        assert_eq!(compared(&[shared(2, 5, 16, 1)], vector(16, 2)), differs(2, 16));
        assert_eq!(compared(&[shared(2, 5, 32, 1)], vector(16, 2)), Ok(()), "another frame");
        let both = [shared(2, 5, 16, 1), shared(2, 5, 16, 2)];
        assert!(compared(&both, vector(16, 1)).is_err());
        let twice = blames(2, "after round 16 it has signed two different vectors");
        assert_eq!(compared(&both, vector(64, 1)), twice);
    }
    // Of a node that is no neighbour, both statements go on to its neighbours.
    let mut all = statements(&whole);
    let both = [shared(3, 5, 16, 1), shared(3, 5, 16, 2)];
    assert_eq!(brought(&mut all, 0, &both), Ok(()));
    assert_eq!(told(&mut all).map(|all| all.len()), Some(2));
    assert_eq!(brought(&mut all, 0, &[shared(3, 5, 16, 3)]), Ok(()));
    assert_eq!(told(&mut all), None, "two are enough");
}

/// A node that was started again may compute other bits: what it signed before accuses nobody.
#[test]
fn statements_of_another_attempt_accuse_nobody() {
    let whole = whole();
    let (old, new) = (shared(2, 5, 16, 1), shared(2, 6, 16, 2));
    let (late, other) = (of(2, 5, Said::Saved(40)), shared(2, 5, 32, 1));
    // The newest attempt counts, whatever others still pass on, in any order.
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut all = statements(&whole);
        for step in order {
            let done = match step {
                0 => brought(&mut all, 0, &[old.clone(), late.clone()]),
                1 => brought(&mut all, 2, &[reports(2, 6), new.clone()]),
                _ => all.see(NodeId(2), vector(16, 2)).map_err(|failure| failure.to_string()),
            };
            assert_eq!(done, Ok(()), "{order:?} {step}");
        }
        assert_eq!(all.saved(NodeId(2)), None, "{order:?}");
        assert_eq!(brought(&mut all, 0, std::slice::from_ref(&other)), Ok(()), "{order:?}");
    }
    let mut all = statements(&whole);
    assert_eq!(brought(&mut all, 0, &[of(3, 6, Said::Saved(20))]), Ok(()));
    assert_eq!(brought(&mut all, 0, &[of(3, 5, Said::Saved(60))]), Ok(()));
    assert_eq!(all.saved(NodeId(3)), Some(20));
    assert_eq!(brought(&mut all, 2, &[reports(3, 7), of(3, 7, Said::Saved(0))]), Ok(()));
    assert_eq!(all.saved(NodeId(3)), Some(0));
    // In the rounds only a report begins another one.
    all.begin(1);
    assert_eq!(brought(&mut all, 2, &[of(3, 8, Said::Saved(80))]), Ok(()));
    assert_eq!(all.saved(NodeId(3)), Some(0));
    assert_eq!(brought(&mut all, 2, &[reports(3, 9), of(3, 9, Said::Saved(9))]), Ok(()));
    assert_eq!((all.take_report(), all.saved(NodeId(3))), (Some(NodeId(3)), Some(9)));
    all.forget(NodeId(3));
    assert_eq!(all.saved(NodeId(3)), None);
}

/// A neighbour that says in every other second only that it is linked has been silent for half of
/// the time. One that says so once it is linked has not, however long the others take.
#[test]
fn who_takes_back_that_it_is_linked_is_silent_meanwhile() {
    let whole = whole();
    let part = Part::new(&whole.design, NodeId(1), Membership::all(4)).unwrap();
    let links = |number: u64, attempt: Option<u64>| {
        of(2, 5, Said::Links(Links { number, attempts: vec![attempt, Some(8)] }))
    };
    for (takes_back, silent) in [(true, vec![NodeId(0), NodeId(2)]), (false, vec![NodeId(0)])] {
        let (mut all, mut now) = (statements(&whole), Instant::now());
        brought(&mut all, 2, &[reports(2, 5)]).unwrap();
        let (most, mut lacking, mut first) = (Duration::from_secs(5), Vec::new(), None);
        for second in 0..12 {
            let says = (!takes_back || second % 2 == 1).then_some(7);
            brought(&mut all, 2, &[links(second + 1, says)]).unwrap();
            lacking = all.lacking(now, part.topology(), &BTreeSet::new(), most);
            if first.is_none() && lacking.contains(&NodeId(2)) {
                first = Some(second);
            }
            now += Duration::from_secs(1);
        }
        // After three seconds without it: it has half of the time.
        assert_eq!(first, takes_back.then_some(6));
        // Now it does not say so.
        if takes_back {
            brought(&mut all, 2, &[links(13, None)]).unwrap();
            lacking = all.lacking(now, part.topology(), &BTreeSet::new(), most);
        }
        assert_eq!(lacking, silent, "{takes_back}");
        // Once the link was lost, the time begins at zero again.
        let lost = BTreeSet::from([NodeId(0), NodeId(2)]);
        assert_eq!(all.lacking(now, part.topology(), &lost, most), []);
    }
}

/// Numbers ascend, also where the clock is put back, and two programs never have the same one.
#[test]
fn attempts_have_numbers_of_their_own() {
    let mut numbers = vec![0];
    for (clock, random) in [(70, 1), (70, 2), (0, 3), (u64::MAX, 4)] {
        numbers.push(next_attempt(*numbers.last().unwrap(), clock, random));
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert_ne!(next_attempt(0, 70, 1), next_attempt(0, 70, 2));
    assert_ne!(next_attempt(numbers[1], 0, 1), next_attempt(numbers[1], 0, 2));
}

/// Two different reports of one attempt prove that their node is at fault.
#[test]
fn one_that_signs_two_reports_is_proved_to() {
    let whole = whole();
    let other = |node| {
        let kept = vec![CheckpointId::new(0, 20, &[])];
        of(node, 5, Said::Report(Report { kept, ..Report::default() }))
    };
    let mut all = statements(&whole);
    let twice = blames(2, "it has signed two different reports of its checkpoints");
    assert_eq!(brought(&mut all, 0, &[reports(2, 5), other(2)]), twice);
    // Of a node that is no neighbour, both go on to its neighbours, and neither counts.
    let mut all = statements(&whole);
    assert_eq!(brought(&mut all, 0, &[reports(3, 5), other(3)]), Ok(()));
    assert_eq!(told(&mut all).map(|all| all.len()), Some(2));
    assert_eq!(all.report_of(NodeId(3)), None);
}

/// Node 2 sends frames of rounds 0 and 16; what is said, and for how long the links are up and
/// down, decides whether it is late.
#[test]
fn a_neighbour_that_signs_nothing_while_its_frames_go_on_is_late() {
    let whole = whole();
    let (nobody, lost) = (BTreeSet::new(), BTreeSet::from([NodeId(2)]));
    let late = |frames: &[u64], said: &[Statement], ticks: &[(u64, bool)]| {
        let (mut all, mut now) = (statements(&whole), Instant::now());
        all.late(now, 0, &nobody, PATIENCE);
        for &round in frames {
            all.see(NodeId(2), vector(round, 1)).unwrap();
        }
        brought(&mut all, 2, &[reports(2, 5)]).unwrap();
        brought(&mut all, 2, said).unwrap();
        let mut found = None;
        for &(seconds, up) in ticks {
            now += Duration::from_secs(seconds);
            let gone = if up { &nobody } else { &lost };
            found = found.or(all.late(now, 16, gone, PATIENCE));
        }
        found
    };
    let seconds = |count: usize| vec![(1, true); count];
    assert_eq!(late(&[0, 16], &[], &seconds(19)), None);
    assert_eq!(late(&[0, 16], &[], &seconds(20)), Some(NodeId(2)));
    assert_eq!(late(&[0], &[], &seconds(500)), None, "its frames do not go on");
    assert_eq!(late(&[0, 16], &[shared(2, 5, 0, 1)], &seconds(500)), None, "the newest may come");
    let both = [shared(2, 5, 0, 1), shared(2, 5, 16, 1)];
    assert_eq!(late(&[0, 16, 32], &both, &seconds(500)), None);
    assert_eq!(late(&[0, 16, 32], &both[1..], &seconds(20)), Some(NodeId(2)));
    // A process that was held up has not waited, and a link that was lost begins anew.
    assert_eq!(late(&[0, 16], &[], &[(100_000, true); 19]), None);
    let again = [seconds(19), vec![(1, false)], seconds(19)].concat();
    assert_eq!(late(&[0, 16], &[], &again), None);
}

/// What a node says of frames far ahead does not hide what it says of those that are compared.
#[test]
fn a_flood_of_statements_takes_no_memory_and_hides_nothing() {
    let whole = whole();
    let mut all = statements(&whole);
    brought(&mut all, 2, &[reports(2, 5)]).unwrap();
    for round in (1..300).map(|place| 256 * place) {
        assert_eq!(brought(&mut all, 2, &[shared(2, 5, round, 9)]), Ok(()));
        told(&mut all);
    }
    assert_eq!(brought(&mut all, 2, &[shared(2, 5, 0, 1), shared(2, 5, 16, 1)]), Ok(()));
    assert_eq!(told(&mut all).map(|all| all.len()), Some(33));
    let seen = all.see(NodeId(2), vector(16, 2)).map_err(|failure| failure.to_string());
    assert_eq!(seen, differs(2, 16));
}

/// A checkpoint is reported once the disk has it, and not when it is about to be written.
#[test]
fn a_checkpoint_that_is_not_durable_is_not_reported() {
    let whole = table::whole(&[]);
    let mut three = Three::new(&whole, true, None);
    three.has_slow_disks = true;
    three.run_rounds();
    assert!(three.rows_of(NodeId(1), "").iter().any(|row| row.contains("write round 2")));
    three.new_rows();
    three.tick(0.1);
    let rows = three.new_rows();
    let says = ["0: tick -> tell 0 wrote", "1: tick -> tell 1 wrote", "2: tick -> tell 2 wrote"];
    assert_eq!(rows[..3], says);
    assert_ne!(rows[3..], NOTHING);
}
