//! The clusters of nodes a, b and c with their learners, on links that take no time.

use std::collections::VecDeque;

use super::table::{A, B, C, Table, brief};
use crate::{
    cluster::{Effect, Input, Keeps, Opened, event::Event, statements::news},
    drive::{self, Learner},
    gossip,
    run::{
        ShardLearner, Whole,
        checkpoint::{Every, Written},
    },
    units::{NodeId, Round},
};

/// Who asks for an early end, and how.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// The user of all nodes: each hears of it when it has done a round, and ends after this one.
    User(Round),
    /// The learner of this node, with its gradient of this round.
    Learner(NodeId, Round),
}

/// Three nodes, and what is on the way between them.
pub(super) struct Three<'a> {
    nodes: Vec<(Table<'a>, ShardLearner)>,
    wish: Option<Wish>,
    inputs: VecDeque<(NodeId, Input)>,
    /// The frames from one node to another, and whether the core of the receiver holds one.
    frames: [[(VecDeque<Vec<u8>>, bool); 3]; 3],
    /// Whether checkpoints are never durable.
    pub(super) has_slow_disks: bool,
    /// The greatest number of a statement that a node has told another one.
    told: [[u64; 3]; 3],
    /// What each input has brought about, if anything.
    rows: Vec<(NodeId, String)>,
}

impl<'a> Three<'a> {
    /// Before the links are open. `confirms`: none leaves before all have written their results.
    pub(super) fn new(whole: &'a Whole, confirms: bool, wish: Option<Wish>) -> Three<'a> {
        let every = Every::Rounds(2);
        let keeps = || Keeps { every, last: None, used: false, written: None, adopted: None };
        let node = |node| (Table::of(whole, node, keeps(), confirms), whole.learner(node));
        let mut three = Three {
            nodes: [A, B, C].map(node).into(),
            wish,
            inputs: VecDeque::new(),
            frames: Default::default(),
            has_slow_disks: false,
            told: [[0; 3]; 3],
            rows: Vec::new(),
        };
        for node in [A, B, C] {
            three.reply(node, Input::Opened(Ok(Opened::default())));
        }
        for (one, other) in [(A, B), (B, A), (B, C), (C, B)] {
            three.reply(one, Input::Event(Event::Up(other)));
        }
        three
    }

    /// Lets them start, and do their rounds. No tick comes after the last one.
    pub(super) fn run_rounds(&mut self) {
        let is_done = |(_, row): &&(NodeId, String)| row.ends_with("results");
        for _ in 0..10 {
            if self.rows.iter().filter(is_done).count() < 3 {
                self.tick(0.1);
            }
        }
        let done = self.rows.iter().filter(is_done).count();
        assert_eq!(done, 3, "{:#?}", self.rows);
    }

    /// Node b alone: the others say no more.
    pub(super) fn into_b(mut self) -> Table<'a> {
        self.nodes.swap_remove(B.index()).0
    }

    /// What each input of this node has brought about, from the first that says so on. Buffers that
    /// go back to their links are left out.
    pub(super) fn rows_of(&self, node: NodeId, first: &str) -> Vec<&str> {
        let of_node = self.rows.iter().filter(|(of, _)| *of == node).map(|(_, row)| row.as_str());
        of_node.skip_while(|row| !row.starts_with(first)).collect()
    }

    /// The same of all nodes, from now on.
    pub(super) fn new_rows(&mut self) -> Vec<String> {
        let row = |(node, row): (NodeId, String)| format!("{node}: {row}");
        self.rows.drain(..).map(row).collect()
    }

    /// Lets time pass, and all that follows from it.
    pub(super) fn tick(&mut self, seconds: f64) {
        for node in [A, B, C] {
            let tick = self.nodes[node.index()].0.tick(seconds);
            self.reply(node, tick);
        }
        while let Some((node, input)) = self.inputs.pop_front() {
            let name = named(&input);
            let effects = self.nodes[node.index()].0.effects(input);
            let is_news =
                |effect: &&Effect| !matches!(effect, Effect::Core(gossip::Effect::Recycle { .. }));
            let words: Vec<String> = effects.iter().filter(is_news).map(brief).collect();
            if !words.is_empty() {
                self.rows.push((node, format!("{name} -> {}", words.join("; "))));
            }
            for effect in effects {
                self.perform(node, effect);
            }
        }
    }

    fn reply(&mut self, node: NodeId, input: Input) {
        self.inputs.push_back((node, input));
    }

    fn perform(&mut self, node: NodeId, effect: Effect) {
        match effect {
            Effect::Core(effect) => self.perform_core(node, effect),
            Effect::Restore { .. } => self.reply(node, Input::Restored(Ok(None))),
            Effect::Tell(all) => {
                for &to in if node == B { &[A, C][..] } else { &[B] } {
                    let sent = &mut self.told[node.index()][to.index()];
                    if let Some(batch) = news(&all, sent) {
                        self.reply(to, Input::Event(Event::Told { from: node, batch }));
                    }
                }
            }
            Effect::Write { .. } if self.has_slow_disks => {}
            Effect::Write { snapshot, .. } => {
                self.reply(node, Input::Event(Event::Durable(snapshot.rounds.0)));
            }
            Effect::Close { reason: None, .. } => {
                for &peer in if node == B { &[A, C][..] } else { &[B] } {
                    self.reply(peer, Input::Event(Event::Goodbye(node)));
                }
                self.reply(node, Input::Closed);
            }
            _ => {}
        }
    }

    fn perform_core(&mut self, node: NodeId, effect: gossip::Effect) {
        let learner = &mut self.nodes[node.index()].1;
        match effect {
            gossip::Effect::Send { to, frame } => {
                self.frames[node.index()][to.index()].0.push_back(frame.to_vec());
                self.reply(node, Input::Event(Event::Taken(to)));
                self.deliver(node, to);
            }
            gossip::Effect::Recycle { from, .. } => {
                self.frames[from.index()][node.index()].1 = false;
                self.deliver(from, node);
            }
            gossip::Effect::Compute { round, x, update, parts, .. } => {
                let asks = |&wish: &Wish| {
                    matches!(wish, Wish::Learner(of, when)
                    if (of, when) == (node, round))
                };
                let (asks, inputs) = (self.wish.as_ref().is_some_and(asks), &mut self.inputs);
                drive::compute(learner, round, x, update, parts, &mut |mut input| {
                    if let gossip::Input::Computed { ends, .. } = &mut input {
                        *ends = asks;
                    }
                    inputs.push_back((node, Input::Event(Event::Computed(input))));
                });
            }
            gossip::Effect::Prepared(merged) => {
                learner.prepare(&merged).expect("the setup fits the learner");
            }
            gossip::Effect::RoundDone(_) => {
                if let Some(Wish::User(last)) = self.wish {
                    self.reply(node, Input::Core(gossip::Input::StopAfter(last)));
                }
            }
            gossip::Effect::Conclude { own, mean } => {
                let conclusion = drive::Conclusion::new(&own, &mean, drive::Elapsed::default());
                let record = learner.conclude(&conclusion);
                self.nodes[node.index()].0.results = Written::of(&mean, &[]).number;
                self.reply(node, Input::Core(gossip::Input::Record(record)));
            }
            _ => {}
        }
    }

    /// Delivers the next frame of a link if the core holds none of it.
    fn deliver(&mut self, from: NodeId, to: NodeId) {
        let (frames, is_held) = &mut self.frames[from.index()][to.index()];
        if !*is_held && let Some(bytes) = frames.pop_front() {
            *is_held = true;
            self.reply(to, Input::Event(Event::Frame { from, bytes }));
        }
    }
}

/// An input in a few words.
fn named(input: &Input) -> String {
    match input {
        Input::Event(Event::Frame { from, .. }) => format!("frame of {from}"),
        Input::Event(Event::Taken(peer)) => format!("taken by {peer}"),
        Input::Event(Event::Computed(_)) => "gradient".into(),
        Input::Event(Event::Told { from, .. }) => format!("told by {from}"),
        Input::Event(event) => format!("{event:?}"),
        Input::Core(gossip::Input::Record(_)) => "record".into(),
        Input::Core(input) => format!("{input:?}"),
        Input::Tick(_) => "tick".into(),
        input => format!("{input:?}"),
    }
}
