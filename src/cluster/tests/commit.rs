//! From the last round to the end: node b has its results, and waits until all nodes have theirs.

use std::time::Duration;

use super::{
    signed,
    table::{A, B, C, Table, leaves, origin, whole},
    three::Three,
};
use crate::{
    cluster::{
        Effect, Input, Restored,
        event::Event,
        members::{
            assembly::{News, View},
            keys::Named,
        },
        message::CheckpointSchedule,
        statements::{Said, Statement},
    },
    drive::RunError,
    gossip::{self, snapshot::Snapshot},
    run::Whole,
    units::{NodeId, Round},
};

pub(super) const NOTHING: [&str; 0] = [];

/// After the last round: the sums of the models go up the tree, and their mean comes down. The
/// records of all nodes take the same way, and then each node writes its results.
pub(super) const RESULTS: [&str; 4] = [
    "frame of 2 -> send a frame to 0",
    "frame of 0 -> send a frame to 2; conclude",
    "frame of 2 -> send a frame to 0",
    "frame of 0 -> send a frame to 2; results",
];

/// What this node says first.
const SAYS: [&str; 1] = ["tell 1 saved 4, 1 wrote"];

/// All have their results, and the neighbours know it: nobody needs the checkpoints any more.
pub(super) const OVER: [&str; 2] = ["Clear { folder: false }", "end with results"];

/// This node leaves. Its checkpoints stay until its links are closed, or for good if it is not
/// known whether all have their results.
const LEAVES: [&str; 1] = ["close, over true, reason None"];

/// The members are chosen again.
const CHOOSES: &str = "open 3 members of change 0, 0 links cut, bans [], to choose";

fn because_of(node: NodeId) -> String {
    format!("{CHOOSES}, because of {node}")
}

/// Node b with its results, before it has said so; nodes a and c say what the test says.
fn before_it_says_so(whole: &Whole) -> Table<'_> {
    let mut three = Three::new(whole, true, None);
    three.run_rounds();
    three.into_b()
}

/// The same, 0.1 s later, when it has said so.
fn in_commit(whole: &Whole) -> Table<'_> {
    let mut b = before_it_says_so(whole);
    assert_eq!(b.after(0.1), SAYS);
    b
}

/// Checks that this node passes on what it has heard, and leaves, when the last one says that it
/// has its results.
fn is_over(b: &mut Table<'_>, last: NodeId) {
    let effects = b.wrote(last);
    assert!(effects[0].starts_with("tell "), "{effects:?}");
    assert_eq!(effects[1..], LEAVES);
    // Nothing counts any more.
    assert_eq!(b.event(Event::Restarted { peer: C, because: None }), NOTHING);
    assert_eq!(b.input(Input::Stop), NOTHING);
    assert_eq!(b.after(1000.0), NOTHING);
    assert_eq!(b.input(Input::Closed), OVER);
    assert_eq!(b.input(Input::Closed), NOTHING);
}

fn says(from: NodeId, news: News) -> Event {
    Event::Chooses { from, news }
}

/// Node c is started again, and this node goes back with it. It has a checkpoint of round 2.
fn goes_back(b: &mut Table<'_>) {
    let effects = b.event(Event::Restarted { peer: C, because: None });
    assert!(effects[1].starts_with("open 3 members of change 0"), "{effects:?}");
    b.opened(&[2]);
}

fn down(peer: NodeId) -> Event {
    Event::Down { peer, reason: "it did not return".into() }
}

/// What this node says of one that has left before it has said that it has its results.
fn silent(node: NodeId) -> String {
    format!(
        "warn: node {node} left and did not say whether its results are written; those of this \
         node are complete, and its checkpoints stay"
    )
}

#[test]
fn the_last_round_the_mean_and_the_results() {
    let whole = whole(&[]);
    let mut three = Three::new(&whole, true, None);
    three.run_rounds();
    let rows = three.rows_of(B, "frame of 2 -> round 2 done");
    assert_eq!(
        rows[..3],
        [
            "frame of 2 -> round 2 done; compute 3",
            "gradient -> send a frame to 0; send a frame to 2",
            "frame of 2 -> round 3 done; write round 4; save the model of 4",
        ]
    );
    assert_eq!(rows[3..], RESULTS);
}

/// What each node has signed goes to all, and no node leaves before it has heard of all.
#[test]
fn all_say_that_they_have_their_results_and_leave() {
    let whole = whole(&[]);
    let mut three = Three::new(&whole, true, None);
    three.run_rounds();
    three.new_rows();
    three.tick(0.1);
    let leaves = "close, over true, reason None";
    let rows = three.new_rows();
    assert_eq!(
        rows,
        [
            "0: tick -> tell 0 saved 4, 0 wrote",
            "1: tick -> tell 1 saved 4, 1 wrote",
            "2: tick -> tell 2 saved 4, 2 wrote",
            &format!(
                "1: told by 2 -> tell 1 saved 4, 1 wrote, 0 saved 4, 0 wrote, 2 saved 4, 2 wrote; \
                 {leaves}"
            ),
            &format!(
                "0: told by 1 -> tell 0 saved 4, 0 wrote, 1 saved 4, 1 wrote, 2 saved 4, 2 wrote; \
                 {leaves}"
            ),
            &format!(
                "2: told by 1 -> tell 2 saved 4, 2 wrote, 1 saved 4, 1 wrote, 0 saved 4, 0 wrote; \
                 {leaves}"
            ),
            "1: Closed -> Clear { folder: false }; end with results",
            "0: Closed -> Clear { folder: false }; end with results",
            "2: Closed -> Clear { folder: false }; end with results",
        ]
    );
}

/// Without a commit a node leaves with its results. Nothing of a checkpoint stays, so no node that
/// is started again can ask for one.
#[test]
fn a_node_that_does_not_confirm_leaves_at_once() {
    let whole = whole(&[]);
    let mut three = Three::new(&whole, false, None);
    three.run_rounds();
    let rows = three.rows_of(B, "");
    assert_eq!(
        rows[rows.len() - 2..],
        [
            "frame of 0 -> send a frame to 2; results; close, over false, reason None",
            "Closed -> Clear { folder: true }; end with results",
        ]
    );
}

#[test]
fn this_node_leaves_after_all_have_signed_the_same_results() {
    let whole = whole(&[]);
    let mut b = in_commit(&whole);
    assert_eq!(b.after(1.0), NOTHING, "links repeat what a connection has lost");
    assert_eq!(b.wrote(C), NOTHING);
    assert_eq!(b.after(0.1), ["tell 1 saved 4, 1 wrote, 2 wrote"]);
    is_over(&mut b, A);
}

/// Node a cannot say that node c has its results, and node c not that it has those of all.
#[test]
fn each_node_speaks_for_itself() {
    let others = |b: &Table<'_>| Said::Written(b.results ^ 1);
    let forged = |b: &Table<'_>| {
        let said = Said::Written(b.results);
        let statement = Statement::signed(&Named(A), (C, C), (0, 0), said);
        Event::Told { from: A, batch: vec![statement].into() }
    };
    let waits = whole(&["run.patience_s=20"]);
    let mut b = in_commit(&waits);
    let told = forged(&b);
    assert_eq!(b.event(told), NOTHING);
    assert_eq!(b.wrote(A), NOTHING, "node c has not said so");
    let said = others(&b);
    assert_eq!(b.told(C, C, said), NOTHING);
    b.after(0.1);
    let ended = b.after(20.0);
    assert_eq!(ended[1..], LEAVES);
    let continues = whole(&["absence.policy=continue"]);
    let mut b = in_commit(&continues);
    let told = forged(&b);
    let ended = b.event(told);
    assert!(ended[0].contains("it passes on what node 2 has not signed"), "{ended:?}");
    assert_eq!(ended[1], because_of(A).replace("[]", "[0]"));
}

/// What was on the way when the rounds ended, and what says nothing about results.
#[test]
fn leftovers_of_the_rounds_change_nothing() {
    let whole = whole(&[]);
    let mut b = in_commit(&whole);
    let schedule = CheckpointSchedule { number: 1, next: 0 };
    for said in [Said::Saved(4), Said::Schedule(schedule)] {
        assert_eq!(b.told(A, A, said), NOTHING);
    }
    assert_eq!(b.after(0.1), ["tell 1 saved 4, 1 wrote, 0 saved 4, 0 schedules 0"]);
    for event in [
        Event::Frame { from: C, bytes: vec![1, 2, 3] },
        Event::Taken(A),
        Event::Durable(4),
        Event::Rival { peer: A, text: "another one".into() },
        says(A, News::default()),
    ] {
        let name = format!("{event:?}");
        assert_eq!(b.event(event), NOTHING, "{name}");
    }
    assert_eq!(b.input(Input::Core(gossip::Input::StopAfter(Round(0)))), NOTHING);
    assert_eq!(b.input(Input::Core(gossip::Input::Start)), NOTHING);
    assert_eq!(b.after(0.1), NOTHING, "the others have said nothing");
}

/// The links make it again. While one is missing, this node does not lose its patience.
#[test]
fn a_link_that_breaks() {
    let whole = whole(&["run.patience_s=20"]);
    let mut b = in_commit(&whole);
    b.wrote(C);
    b.after(0.1);
    assert_eq!(b.event(Event::Lost { peer: A, reason: "reset".into() }), NOTHING);
    b.facts.missing = vec![(A, "connection refused".into())];
    for _ in 0..100 {
        assert_eq!(b.after(1.0), NOTHING);
    }
    b.facts.missing.clear();
    let absent = Duration::from_secs(100);
    assert_eq!(b.event(Event::Back { peer: A, absent, resent: 0 }), NOTHING);
    assert_eq!(b.after(1.0), NOTHING);
    is_over(&mut b, A);
}

#[test]
fn a_neighbour_that_is_started_again() {
    for (peer, because, names) in
        [(C, None, C), (A, None, A), (A, Some(origin(C, 9)), C), (C, Some(origin(A, 9)), A)]
    {
        for policy in ["wait", "continue"] {
            let whole = whole(&[&format!("absence.policy={policy}")]);
            let mut b = in_commit(&whole);
            let because = because.clone();
            let effects = b.event(Event::Restarted { peer, because });
            assert_eq!(
                effects,
                [
                    format!(
                        "warn: node {peer} was started again: this node returns to the newest \
                         checkpoint that all nodes have"
                    ),
                    format!(
                        "open 3 members of change 0, 0 links cut, bans [], reset, because of \
                         {names}"
                    ),
                ]
            );
        }
    }
}

/// This node helps the one that has lost its results, and its own no longer count.
#[test]
fn after_a_restart_the_last_rounds_are_done_again() {
    let whole = whole(&[]);
    let mut b = in_commit(&whole);
    b.wrote(C);
    goes_back(&mut b);
    b.linked();
    b.reported(&[2], &[2]);
    assert_eq!(b.after(0.1)[1..], ["restore round 2"]);
    let x = vec![0.0; whole.design.parameters()];
    let snapshot = Snapshot { rounds: Round(2), x, ..Snapshot::default() };
    let restored = Restored { snapshot, merged: Vec::new() };
    let resumed = b.input(Input::Restored(Ok(Some(restored))));
    assert_eq!(resumed[..2], ["Resumes(Round(2))", "begin after 2"]);
    assert!(b.cluster.is_in_rounds());
    // A wish to leave ends the run without results.
    let ended = b.input(Input::Stop);
    assert_eq!(ended[0], "salvage");
    assert_eq!(b.input(Input::Closed), ["end: interrupted in round 2"]);
}

/// The others may have left, with their results. With `wait` this node ends with its own; its
/// checkpoints stay, for a node that needs them. With `continue` the others are asked.
#[test]
fn after_a_restart_nobody_comes() {
    let text = "after 10 s node 1 waits for 0 (refused), 2 (refused)";
    for policy in ["wait", "continue"] {
        let whole = whole(&[&format!("absence.policy={policy}")]);
        let mut b = in_commit(&whole);
        goes_back(&mut b);
        b.facts.missing = vec![(A, "refused".into()), (C, "refused".into())];
        b.after(9.9);
        let effects = b.after(0.1);
        if policy == "continue" {
            assert_eq!(effects, [format!("warn: {text}"), because_of(A)]);
            continue;
        }
        let close = format!("close, over false, reason Some({text:?})");
        assert_eq!(effects, [format!("log: {text}"), close]);
        assert_eq!(b.input(Input::Closed), ["end with results"]);
    }
}

/// With `wait`: the deadline of a link has passed.
#[test]
fn a_neighbour_that_is_lost_for_good() {
    let whole = whole(&[]);
    // It may need the checkpoints.
    for lost in [A, C] {
        let mut b = in_commit(&whole);
        assert_eq!(b.event(down(lost)), [silent(lost)]);
        assert_eq!(b.after(0.9), NOTHING, "something may be on its way");
        assert_eq!(b.after(0.1), LEAVES);
        assert_eq!(b.input(Input::Closed), ["end with results"]);
    }
    // It had said that it has its results.
    for (lost, other) in [(A, C), (C, A)] {
        let mut b = in_commit(&whole);
        b.wrote(lost);
        b.after(0.1);
        assert_eq!(b.event(down(lost)), NOTHING);
        assert_eq!(b.after(5.0), NOTHING);
        is_over(&mut b, other);
    }
}

/// With `wait`: a neighbour that leaves, whatever it says.
#[test]
fn a_neighbour_that_says_goodbye() {
    let left = |node, wants| Event::Left { peer: node, cause: leaves(node, wants) };
    let goodbyes = |node| [Event::Goodbye(node), left(node, false), left(node, true)];
    let waits = whole(&[]);
    for goodbye in goodbyes(C) {
        let mut b = in_commit(&waits);
        assert_eq!(b.event(goodbye), [silent(C)]);
        assert_eq!(b.event(Event::Goodbye(C)), NOTHING, "once");
        assert_eq!(b.after(1.0), LEAVES);
    }
    for goodbye in goodbyes(C) {
        let mut b = in_commit(&waits);
        b.wrote(C);
        assert_eq!(b.event(goodbye), NOTHING);
        b.after(5.0);
        is_over(&mut b, A);
    }
    // With `continue` the others may continue without it, and form other results.
    let continues = whole(&["absence.policy=continue"]);
    for node in [A, C] {
        for goodbye in goodbyes(node) {
            assert_eq!(in_commit(&continues).event(goodbye), [because_of(node)]);
        }
    }
    let mut b = in_commit(&continues);
    b.wrote(C);
    assert_eq!(b.event(Event::Goodbye(C)), NOTHING);
}

/// With `continue`: the others may continue without the node that is lost, so all are asked.
#[test]
fn a_loss_after_the_results_is_decided_by_the_others() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    for lost in [A, C] {
        let mut b = in_commit(&whole);
        b.wrote(C);
        assert_eq!(b.event(down(lost)), [because_of(lost)]);
    }
    // Node a has the same results: two of three end with them.
    let mut b = in_commit(&whole);
    b.event(down(C));
    b.opened(&[2]);
    assert_eq!(b.event(Event::Up(A)), ["Linked { peer: NodeId(0), up: 1, links: 2 }"]);
    let tick = b.tick(0.1);
    let effects = b.effects(tick);
    let [Effect::SendNews { to: A, news }] = &effects[..] else { panic!("{effects:?}") };
    let (B, View { results: Some(results), .. }) = &news.views[0] else { panic!("{news:?}") };
    let has = |number, over| View {
        number,
        linked: vec![B],
        started: true,
        results: Some(*results),
        over,
        ..View::default()
    };
    let hears = |b: &mut Table<'_>, view| {
        let views = vec![signed(A, view)];
        b.event(says(A, News { views }))
    };
    assert_eq!(hears(&mut b, has(3, false)), NOTHING);
    assert_eq!(b.after(0.1), ["to 0: 2 views, change Some(0)"]);
    assert_eq!(b.after(1.1), NOTHING, "one of two takes it for over");
    assert_eq!(hears(&mut b, has(4, true)), NOTHING);
    assert_eq!(b.after(0.1), ["to 0: 2 views, change Some(0)"]);
    assert_eq!(b.after(2.0), ["Clear { folder: false }", "end with results"]);
    // Node a has none: both continue without node c, and form results again.
    let mut b = in_commit(&whole);
    b.event(down(C));
    b.opened(&[2]);
    b.event(Event::Up(A));
    b.after(0.1);
    let view = View { number: 3, linked: vec![B], started: true, ..View::default() };
    hears(&mut b, view);
    b.after(0.1);
    assert_eq!(b.after(1.1), ["record [NodeId(0), NodeId(1)]"]);
}

/// A neighbour is there that takes part in another membership.
fn visit(peer: NodeId) -> Event {
    Event::OtherMembership { peer, because: None }
}

/// A member that takes part in another membership has begun to choose; with `wait` there is none.
#[test]
fn a_neighbour_of_another_membership() {
    let waits = whole(&[]);
    assert_eq!(in_commit(&waits).event(visit(C)), NOTHING);
    let continues = whole(&["absence.policy=continue"]);
    assert_eq!(in_commit(&continues).event(visit(C)), [because_of(C)]);
}

/// With `wait` this node's results are those of the run. With `continue` the others may form other
/// ones.
#[test]
fn the_wish_of_the_user() {
    let waits = whole(&[]);
    let mut b = in_commit(&waits);
    assert_eq!(b.input(Input::Stop), LEAVES);
    assert_eq!(b.input(Input::Stop), NOTHING, "it is leaving");
    assert_eq!(b.input(Input::Closed), ["end with results"]);
    let continues = whole(&["absence.policy=continue"]);
    let mut b = in_commit(&continues);
    let interrupted = |round| {
        let text = format!("interrupted in round {round}");
        [format!("log: {text}"), format!("close, over false, reason Some({text:?})")]
    };
    assert_eq!(b.input(Input::Stop), interrupted(4));
    assert_eq!(b.input(Input::Closed), ["end: interrupted in round 4"]);
    // It has gone back with a neighbour that was started again.
    let mut b = in_commit(&waits);
    goes_back(&mut b);
    assert_eq!(b.input(Input::Stop), interrupted(2), "the model of the last round stays");
    assert_eq!(b.input(Input::Closed), ["end: interrupted in round 2"]);
}

/// Results that cannot be written: nobody says that all have theirs, and checkpoints stay. Upon
/// another effect that has failed, or links that are gone, this node leaves with its results.
#[test]
fn a_failure_of_this_computer() {
    let whole = whole(&["run.patience_s=20"]);
    let mut b = before_it_says_so(&whole);
    assert_eq!(b.input(Input::Unwritten), NOTHING);
    assert_eq!(b.wrote(C), NOTHING);
    assert_eq!(b.wrote(A), NOTHING);
    assert_eq!(b.after(10.0), ["tell 1 saved 4, 2 wrote, 0 wrote"]);
    let ended = b.after(10.0);
    assert_eq!(ended[1..], LEAVES);
    let mut b = in_commit(&whole);
    let error = RunError::Host("a thread cannot be started".into());
    assert_eq!(b.input(Input::Failed(error)), LEAVES);
    assert_eq!(b.input(Input::Closed), ["end with results"]);
    let mut b = in_commit(&whole);
    assert_eq!(b.input(Input::Panicked("index out of bounds".into())), LEAVES);
    assert_eq!(b.input(Input::Closed), ["end with results"]);
}

/// A neighbour that hangs keeps its link, and says nothing.
#[test]
fn this_node_waits_no_longer_than_its_patience() {
    let whole = whole(&["run.patience_s=20"]);
    let warns = |late: &str| {
        format!(
            "warn: after 20 s it is not known whether all nodes have written their results; not \
             heard of: {late}; this node's results are complete, and its checkpoints stay"
        )
    };
    let mut b = in_commit(&whole);
    assert_eq!(b.after(19.9), NOTHING);
    let ended = b.after(0.1);
    assert_eq!(ended[0], warns("0, 2"));
    assert_eq!(ended[1..], LEAVES);
    assert_eq!(b.input(Input::Closed), ["end with results"]);
    // The time counts from the last news: node c confirms, and node a hangs.
    let mut b = in_commit(&whole);
    b.after(15.0);
    b.wrote(C);
    assert_eq!(b.after(19.9), ["tell 1 saved 4, 1 wrote, 2 wrote"]);
    let ended = b.after(0.1);
    assert_eq!(ended[0], warns("0"));
    assert_eq!(ended[1..], LEAVES);
    // With `continue` the others are asked.
    let continues = super::table::whole(&["run.patience_s=20", "absence.policy=continue"]);
    let mut b = in_commit(&continues);
    assert_eq!(b.after(20.0), [because_of(A)]);
    // One that says the same again and again says nothing new.
    let mut b = in_commit(&whole);
    let mut ended = Vec::new();
    for _ in 0..100 {
        b.wrote(C);
        ended.extend(b.after(0.5));
    }
    assert_eq!(ended.last().map(String::as_str), Some(LEAVES[0]), "{ended:?}");
}
