//! A run that ends before its last round, with results.
//!
//! Three may ask for it. The user of all nodes of a process: each core hears the same round from
//! its driver, and tells no other. The learner of one node: its core tells the others by frames.
//! `run.stop_early`: the sums and notices of `gossip/stopping.rs` are frames between the cores, so
//! a cluster sees no more of it than that the rounds are over, and there is no table for it here.

use super::{
    commit::{NOTHING, OVER, RESULTS},
    table::{A, B, C, Table, whole},
    three::{Three, Wish},
};
use crate::{cluster::Input, gossip, run::Whole, units::Round};

/// What node b does from its first round on, and node b when all have their results.
fn ended(whole: &Whole, wish: Wish) -> (Vec<String>, Table<'_>) {
    let mut three = Three::new(whole, true, Some(wish));
    three.run_rounds();
    let rows = three.rows_of(B, "gradient").into_iter().map(ToString::to_string).collect();
    (rows, three.into_b())
}

/// What this node does when all have their results, and its links are closed.
fn leaves(b: &mut Table<'_>) -> Vec<String> {
    assert!(b.after(0.1)[0].ends_with("1 wrote"));
    assert_eq!(b.wrote(C), NOTHING);
    assert_eq!(b.wrote(A)[1..], ["close, over true, reason None"]);
    b.input(Input::Closed)
}

/// Checkpoints stay: the run can be continued.
const STAY: [&str; 1] = ["end with results"];

#[test]
fn the_user_of_all_nodes() {
    let whole = whole(&[]);
    let (rows, mut b) = ended(&whole, Wish::User(Round(1)));
    let (rounds, results) = rows.split_at(rows.len() - RESULTS.len());
    assert_eq!(
        rounds,
        [
            "gradient -> send a frame to 0; send a frame to 2",
            "frame of 2 -> round 0 done; compute 1",
            "gradient -> send a frame to 0; send a frame to 2",
            "frame of 2 -> round 1 done; write round 2; save the model of 2",
        ]
    );
    assert_eq!(results, RESULTS);
    assert_eq!(leaves(&mut b), STAY);
}

/// The losses would end it as early, and then nobody continues the run.
#[test]
fn a_run_that_the_losses_may_end() {
    let whole = whole(&["run.stop_early={share=0.2,every=2,patience=9}"]);
    let (_, mut b) = ended(&whole, Wish::User(Round(1)));
    assert_eq!(leaves(&mut b), OVER);
}

/// These are the results of all rounds.
#[test]
fn an_end_after_the_last_round_is_none() {
    for last in [3, 9] {
        let whole = whole(&[]);
        let (rows, mut b) = ended(&whole, Wish::User(Round(last)));
        assert!(rows.iter().any(|row| row.contains("save the model of 4")), "{rows:#?}");
        assert_eq!(leaves(&mut b), OVER);
    }
}

/// The notice crosses each link before the frames of later rounds, and all end after the same one.
/// After it all nodes write a checkpoint, though it is no multiple.
#[test]
fn the_learner_of_one_node() {
    let whole = whole(&["run.rounds=9"]);
    let (rows, mut b) = ended(&whole, Wish::Learner(B, Round(0)));
    let (rounds, results) = rows.split_at(rows.len() - RESULTS.len());
    let sends = "gradient -> send a frame to 0; send a frame to 2";
    assert_eq!(
        rounds,
        [
            &format!("{sends}; send a frame to 0; send a frame to 2"),
            "frame of 2 -> round 0 done; compute 1",
            sends,
            "frame of 2 -> round 1 done; write round 2; compute 2",
            sends,
            "frame of 2 -> round 2 done; write round 3; save the model of 3",
        ]
    );
    assert_eq!(results, RESULTS);
    assert_eq!(leaves(&mut b), STAY);
    // Node a asks, and this node passes that on to node c.
    let (rows, mut b) = ended(&whole, Wish::Learner(A, Round(0)));
    let (rounds, results) = rows.split_at(rows.len() - RESULTS.len());
    assert_eq!(
        rounds,
        [
            sends,
            "frame of 0 -> send a frame to 2",
            "frame of 2 -> round 0 done; compute 1",
            sends,
            "frame of 2 -> round 1 done; write round 2; compute 2",
            sends,
            "frame of 2 -> round 2 done; compute 3",
            sends,
            "frame of 2 -> round 3 done; write round 4; save the model of 4",
        ]
    );
    let mut named = RESULTS.map(String::from);
    let last = named.last_mut().expect("results are rows");
    *last = last.replace("; results", "; warn: node 0 has ended the run after round 4; results");
    assert_eq!(results, named);
    assert_eq!(leaves(&mut b), STAY);
}

/// A driver hears of the wish when a round is done, so there is none before and after the rounds.
#[test]
fn a_wish_outside_the_rounds_is_not_heard() {
    let whole = whole(&[]);
    let wish = || Input::Core(gossip::Input::StopAfter(Round(0)));
    let mut b = Table::new(&whole, false);
    assert_eq!(b.input(wish()), NOTHING);
    b.opened(&[]);
    assert_eq!(b.input(wish()), NOTHING);
    let (_, mut b) = ended(&whole, Wish::User(Round(1)));
    assert_eq!(b.input(wish()), NOTHING);
    assert_eq!(leaves(&mut b), STAY);
}
