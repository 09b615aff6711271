//! From the last round to the end: node b has its results, and waits until all nodes have theirs.

use std::time::Duration;

use super::{
    signed,
    table::{A, B, C, Table, leaves, ready, whole},
    three::Three,
};
use crate::{
    cluster::{
        Effect, Input, Restored,
        event::Event,
        members::assembly::{News, View},
        message::{Beginning, CheckpointSchedule, StartMessage},
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

/// All have their results: this node says so to the nodes below it, and leaves.
const OVER: [&str; 3] = ["to 2: Over", "Clear { folder: false }", "close, over true, reason None"];

/// Whether all have their results is not known: this node leaves, and its checkpoints stay.
const LEAVES: [&str; 1] = ["close, over true, reason None"];

/// The members are chosen again.
const CHOOSES: &str = "open 3 members of change 0, 0 links cut, bans [], to choose";

/// Node b with its results, before it has said so; nodes a and c say what the test says.
fn in_commit(whole: &Whole) -> Table<'_> {
    let mut three = Three::new(whole, true, None);
    three.run_rounds();
    three.into_b()
}

fn says(from: NodeId, message: StartMessage) -> Event {
    Event::Start { from, message }
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

/// The word goes up the tree and down again, and no node leaves before it comes down.
#[test]
fn all_say_that_they_have_their_results_and_leave() {
    let whole = whole(&[]);
    let mut three = Three::new(&whole, true, None);
    three.run_rounds();
    three.new_rows();
    three.tick(0.1);
    assert_eq!(three.new_rows(), ["2: tick -> to 1: Written"]);
    three.tick(0.1);
    assert_eq!(three.new_rows(), ["1: tick -> to 0: Written"]);
    three.tick(0.1);
    assert_eq!(
        three.new_rows(),
        [
            "0: tick -> to 1: Over; Clear { folder: false }; close, over true, reason None",
            "1: 0 says Over -> to 2: Over; Clear { folder: false }; close, over true, reason None",
            "0: Closed -> end with results",
            "2: 1 says Over -> Clear { folder: false }; close, over true, reason None",
            "1: Closed -> end with results",
            "2: Closed -> end with results",
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
            "frame of 0 -> send a frame to 2; results; Clear { folder: true }; close, over false, \
             reason None",
            "Closed -> end with results",
        ]
    );
}

#[test]
fn this_node_confirms_after_those_below_it_and_leaves_after_all() {
    let whole = whole(&[]);
    let mut b = in_commit(&whole);
    assert_eq!(b.after(0.1), NOTHING, "node c has said nothing");
    assert_eq!(b.event(says(A, StartMessage::Written)), NOTHING, "the parent's is not asked for");
    assert_eq!(b.after(0.1), NOTHING);
    assert_eq!(b.event(says(C, StartMessage::Written)), NOTHING);
    assert_eq!(b.after(0.1), ["to 0: Written"]);
    // A connection may have lost it: it is said again each second.
    assert_eq!(b.after(0.9), NOTHING);
    assert_eq!(b.after(0.1), ["to 0: Written"]);
    assert_eq!(b.event(says(C, StartMessage::Over)), NOTHING, "only the parent says so");
    assert_eq!(b.event(says(A, StartMessage::Over)), OVER);
    // Nothing counts any more.
    assert_eq!(b.event(Event::Restarted { peer: C, because: None }), NOTHING);
    assert_eq!(b.input(Input::Stop), NOTHING);
    assert_eq!(b.after(1000.0), NOTHING);
    assert_eq!(b.input(Input::Closed), ["end with results"]);
    assert_eq!(b.input(Input::Closed), NOTHING);
}

/// What was on the way when the rounds ended, and what says nothing about results.
#[test]
fn leftovers_of_the_rounds_change_nothing() {
    let whole = whole(&[]);
    let mut b = in_commit(&whole);
    let schedule = CheckpointSchedule { number: 1, next: 0, common: 2 };
    for event in [
        Event::Frame { from: C, bytes: vec![1, 2, 3] },
        Event::Taken(A),
        Event::Durable(4),
        Event::Saved(vec![(A, 4), (C, 4)]),
        Event::Schedule(schedule),
        Event::Rival { peer: A, text: "another one".into() },
        says(C, ready(C, &[2])),
        says(A, StartMessage::Begin(Beginning::default())),
        says(A, StartMessage::Assembly(News::default())),
    ] {
        let name = format!("{event:?}");
        assert_eq!(b.event(event), NOTHING, "{name}");
    }
    assert_eq!(b.input(Input::Core(gossip::Input::StopAfter(Round(0)))), NOTHING);
    assert_eq!(b.input(Input::Core(gossip::Input::Start)), NOTHING);
    assert_eq!(b.after(0.1), NOTHING, "node c has said nothing");
}

/// The links make it again. While one is missing, this node does not lose its patience.
#[test]
fn a_link_that_breaks() {
    let whole = whole(&["run.patience_s=20"]);
    let mut b = in_commit(&whole);
    b.event(says(C, StartMessage::Written));
    assert_eq!(b.after(0.1), ["to 0: Written"]);
    assert_eq!(b.event(Event::Lost { peer: A, reason: "reset".into() }), NOTHING);
    b.facts.missing = vec![(A, "connection refused".into())];
    for _ in 0..100 {
        // The links drop what they cannot send.
        assert_eq!(b.after(1.0), ["to 0: Written"]);
    }
    b.facts.missing.clear();
    let absent = Duration::from_secs(100);
    assert_eq!(b.event(Event::Back { peer: A, absent, resent: 0 }), NOTHING);
    assert_eq!(b.after(1.0), ["to 0: Written"], "the one that was lost");
    assert_eq!(b.event(says(A, StartMessage::Over)), OVER);
}

#[test]
fn a_neighbour_that_is_started_again() {
    for (peer, because, names) in
        [(C, None, C), (A, None, A), (A, Some(NodeId(2)), C), (C, Some(B), C)]
    {
        for policy in ["wait", "continue"] {
            let whole = whole(&[&format!("absence.policy={policy}")]);
            let mut b = in_commit(&whole);
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
    b.event(says(C, StartMessage::Written));
    goes_back(&mut b);
    for peer in [A, C] {
        b.event(Event::Up(peer));
    }
    b.event(says(C, ready(C, &[2])));
    let unknown = "to 2: the missing links of other nodes are not known yet";
    assert_eq!(b.after(0.1), ["to 0: ready [1, 2]", unknown]);
    let at = Beginning { rounds: 2, ..Beginning::default() };
    b.event(says(A, StartMessage::Begin(at)));
    assert_eq!(b.after(0.1), ["to 2: begin after 2", "restore round 2"]);
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
            assert_eq!(effects, [&format!("warn: {text}"), CHOOSES]);
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
    // The child: it may need the checkpoints.
    let mut b = in_commit(&whole);
    assert_eq!(b.event(down(C)), [silent(C)]);
    assert_eq!(b.after(0.1), LEAVES);
    assert_eq!(b.input(Input::Closed), ["end with results"]);
    // It had said that it has its results.
    let mut b = in_commit(&whole);
    b.event(says(C, StartMessage::Written));
    assert_eq!(b.event(down(C)), NOTHING);
    assert_eq!(b.after(0.1), ["to 0: Written"]);
    // The parent: nobody is left who could say *over*.
    for has_said in [false, true] {
        let mut b = in_commit(&whole);
        if has_said {
            b.event(says(C, StartMessage::Written));
        }
        assert_eq!(b.event(down(A)), LEAVES);
        assert_eq!(b.input(Input::Closed), ["end with results"]);
    }
}

/// With `wait`: a neighbour that leaves, whatever it says.
#[test]
fn a_neighbour_that_says_goodbye() {
    let left = |node, wants| Event::Left { peer: node, cause: leaves(node, wants) };
    let goodbyes = |node| [Event::Goodbye(node), left(node, false), left(node, true)];
    let waits = whole(&[]);
    for (of_c, of_a) in goodbyes(C).into_iter().zip(goodbyes(A)) {
        let mut b = in_commit(&waits);
        assert_eq!(b.event(of_c), [silent(C)]);
        assert_eq!(b.event(Event::Goodbye(C)), NOTHING, "once");
        assert_eq!(b.after(0.1), LEAVES);
        let mut b = in_commit(&waits);
        assert_eq!(b.event(of_a), LEAVES);
    }
    // Its child has said that it has its results.
    for goodbye in goodbyes(C) {
        let mut b = in_commit(&waits);
        b.event(says(C, StartMessage::Written));
        assert_eq!(b.event(goodbye), NOTHING);
        assert_eq!(b.after(0.1), ["to 0: Written"]);
        assert_eq!(b.event(says(A, StartMessage::Over)), OVER);
    }
    // With `continue` the others may continue without it, and form other results.
    let continues = whole(&["absence.policy=continue"]);
    for goodbye in goodbyes(C).into_iter().chain(goodbyes(A)) {
        assert_eq!(in_commit(&continues).event(goodbye), [CHOOSES]);
    }
    let mut b = in_commit(&continues);
    b.event(says(C, StartMessage::Written));
    assert_eq!(b.event(Event::Goodbye(C)), NOTHING);
}

/// With `continue`: the others may continue without the node that is lost, so all are asked.
#[test]
fn a_loss_after_the_results_is_decided_by_the_others() {
    let whole = whole(&["absence.policy=continue", "absence.deadline_s=3"]);
    for lost in [A, C] {
        let mut b = in_commit(&whole);
        b.event(says(C, StartMessage::Written));
        assert_eq!(b.event(down(lost)), [CHOOSES]);
    }
    // Node a has the same results: two of three end with them.
    let mut b = in_commit(&whole);
    b.event(down(C));
    b.opened(&[2]);
    assert_eq!(b.event(Event::Up(A)), ["Linked { peer: NodeId(0), up: 1, links: 2 }"]);
    let tick = b.tick(0.1);
    let effects = b.effects(tick);
    let [Effect::SendStart { to: A, message: StartMessage::Assembly(news) }] = &effects[..] else {
        panic!("{effects:?}")
    };
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
        b.event(says(A, StartMessage::Assembly(News { views })))
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
    let because = format!("{CHOOSES}, because of 2");
    assert_eq!(in_commit(&continues).event(visit(C)), [because]);
}

/// A parent that says *over* before this node has confirms what it cannot know.
#[test]
fn a_parent_that_says_over_early_is_not_believed() {
    let whole = whole(&[]);
    let mut b = in_commit(&whole);
    assert_eq!(b.event(says(C, StartMessage::Over)), NOTHING);
    assert_eq!(b.event(says(A, StartMessage::Over)), NOTHING);
    b.event(says(C, StartMessage::Written));
    assert_eq!(b.event(says(A, StartMessage::Over)), NOTHING);
    assert_eq!(b.after(0.1), ["to 0: Written"]);
    assert_eq!(b.event(says(A, StartMessage::Over)), OVER);
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
    let mut b = in_commit(&whole);
    assert_eq!(b.input(Input::Unwritten), NOTHING);
    b.event(says(C, StartMessage::Written));
    assert_eq!(b.after(10.0), NOTHING);
    assert_eq!(b.event(says(A, StartMessage::Over)), NOTHING, "it is not believed");
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
            "warn: after 20 s it is not known whether all nodes have written their results; those \
             below {late} have not said so; this node's results are complete, and its \
             checkpoints stay"
        )
    };
    let mut b = in_commit(&whole);
    assert_eq!(b.after(19.9), NOTHING);
    let ended = b.after(0.1);
    assert_eq!(ended[0], warns("2"));
    assert_eq!(ended[1..], LEAVES);
    assert_eq!(b.input(Input::Closed), ["end with results"]);
    // The time counts from the last news: node c confirms, and node a hangs.
    let mut b = in_commit(&whole);
    b.after(15.0);
    b.event(says(C, StartMessage::Written));
    assert_eq!(b.after(19.9), ["to 0: Written"]);
    let ended = b.after(0.1);
    assert_eq!(ended[0], warns("the rest of the tree"));
    assert_eq!(ended[1..], LEAVES);
    // With `continue` the others are asked.
    let continues = super::table::whole(&["run.patience_s=20", "absence.policy=continue"]);
    let mut b = in_commit(&continues);
    assert_eq!(b.after(20.0), [CHOOSES]);
    // One that says the same again and again says nothing new.
    let mut b = in_commit(&whole);
    let mut ended = Vec::new();
    for _ in 0..100 {
        b.event(says(C, StartMessage::Written));
        ended.extend(b.after(0.5));
    }
    assert_eq!(ended.last().map(String::as_str), Some(LEAVES[0]), "{ended:?}");
}
