//! Performs the effects of nodes: of one node, which a test gives its inputs, and of all nodes of a
//! run, in any order of events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gradvine::{
    drive::{self, Conclusion, Elapsed, Learner, NodeSpec},
    gossip::{
        Effect, Failure, Input, Node, Snapshot,
        frame::{self, Header},
        plan::At,
    },
    rng::{Purpose, Sequence, Stream},
    sim::Running,
    units::{NodeId, Round},
};

/// A node and its learner.
pub struct Driven {
    pub node: Node,
    learner: Box<dyn Learner>,
    /// Gradients asked for, and those of them during which frames may arrive.
    pub gradients: u64,
    pub overlapping: u64,
}

impl Driven {
    pub fn new(spec: NodeSpec) -> Driven {
        let (node, learner) = running(spec);
        Driven { node, learner, gradients: 0, overlapping: 0 }
    }

    /// The effects of one input.
    pub fn give(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.node.handle(input, &mut effects);
        effects
    }

    /// The inputs that reply to a request for a gradient.
    pub fn computed(&mut self, request: Effect) -> VecDeque<Input> {
        let Effect::Compute { round, x, update, parts, overlaps } = request else {
            panic!("{request:?}")
        };
        self.gradients += 1;
        self.overlapping += u64::from(overlaps);
        let mut inputs = VecDeque::new();
        drive::compute(&mut *self.learner, round, x, update, parts, &mut |input| {
            inputs.push_back(input);
        });
        inputs
    }

    /// Gives an input, computes every gradient at once and takes every frame at once, until the
    /// node waits. Returns all effects but the requests for gradients.
    pub fn settle(&mut self, input: Input) -> Vec<Effect> {
        let (mut inputs, mut settled) = (VecDeque::from([input]), Vec::new());
        while let Some(input) = inputs.pop_front() {
            for effect in self.give(input) {
                match effect {
                    Effect::Compute { .. } => inputs.extend(self.computed(effect)),
                    Effect::Send { to, .. } => {
                        inputs.push_back(Input::Taken(to));
                        settled.push(effect);
                    }
                    other => settled.push(other),
                }
            }
        }
        settled
    }

    /// Settles upon a frame; the reason if it is refused.
    pub fn refuses(&mut self, from: u32, bytes: Vec<u8>) -> Option<String> {
        refusal(&self.settle(Input::Frame { from: NodeId(from), bytes }), from)
    }
}

fn running(spec: NodeSpec) -> Running {
    (Node::new(spec.config), spec.learner)
}

/// The frames that are sent, with their receivers.
pub fn sent(effects: &[Effect]) -> Vec<(NodeId, Vec<u8>)> {
    let of = |effect: &Effect| match effect {
        Effect::Send { to, frame } => Some((*to, frame.to_vec())),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

/// Why a frame of this neighbour cannot be used, if the node says so. It must not fail otherwise.
pub fn refusal(effects: &[Effect], from: u32) -> Option<String> {
    effects.iter().find_map(|effect| match effect {
        Effect::Failed(Failure::Peer { peer, reason }) => {
            assert_eq!(*peer, NodeId(from), "the sender is named");
            Some(reason.clone())
        }
        Effect::Failed(other) => panic!("{other}"),
        _ => None,
    })
}

/// A frame with a valid checksum.
pub fn sealed(at: At, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::reserve(&mut bytes);
    bytes.extend_from_slice(payload);
    frame::seal(&Header { at, replica: None }, None, &mut bytes);
    bytes
}

/// An order of events. Each queue keeps its own; a random number chooses the next queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    pub seed: u64,
    /// A link frees a slot when the frame was delivered, not when it was sent.
    pub tight: bool,
    /// The node whose gradients come only when nothing else can happen.
    pub straggler: Option<usize>,
    /// Every node is told to stop, at a random moment and after a random round below 12.
    pub stops: bool,
}

/// The results of the nodes.
#[derive(Default)]
pub struct Played {
    pub models: Vec<Vec<f32>>,
    pub rounds: Vec<u64>,
    /// Those that the nodes were asked for.
    pub snapshots: BTreeMap<usize, Snapshot>,
}

/// Runs nodes from their start to their end. Frames arrive whole or in pieces.
pub fn play(specs: Vec<NodeSpec>, order: Order) -> Played {
    play_from(specs.into_iter().map(running).collect(), order)
}

/// The same with nodes that may have had other inputs before.
pub fn play_from(nodes: Vec<Running>, order: Order) -> Played {
    let n = nodes.len();
    let mut game = Game {
        order,
        dice: Stream::new(order.seed, Purpose::Test).sequence(),
        own: nodes.iter().map(|_| VecDeque::from([Input::Start])).collect(),
        to_stop: if order.stops { (0..n).collect() } else { BTreeSet::new() },
        nodes,
        wires: BTreeMap::new(),
        finished: 0,
        played: Played {
            models: vec![Vec::new(); n],
            rounds: vec![0; n],
            snapshots: BTreeMap::new(),
        },
    };
    while game.finished < n {
        let (node, input) = game.next();
        let mut effects = Vec::new();
        game.nodes[node].0.handle(input, &mut effects);
        effects.into_iter().for_each(|effect| game.perform(node, effect));
    }
    game.played
}

/// One direction of a link.
#[derive(Default)]
struct Wire {
    frames: VecDeque<Vec<u8>>,
    /// The bytes of the first frame that have arrived.
    given: usize,
    /// Buffers of frames or pieces that the receiver has not recycled.
    held: usize,
    taken: usize,
}

#[derive(Clone, Copy)]
enum Event {
    /// The next input of this node's own: its start, a gradient, a record.
    Own(usize),
    /// A slot of the link between these nodes is free.
    Taken(usize, usize),
    /// A frame or a piece arrives, from the first at the second.
    Arrives(usize, usize),
}

struct Game {
    order: Order,
    dice: Sequence,
    nodes: Vec<Running>,
    own: Vec<VecDeque<Input>>,
    /// By sender and receiver.
    wires: BTreeMap<(usize, usize), Wire>,
    to_stop: BTreeSet<usize>,
    finished: usize,
    played: Played,
}

impl Game {
    /// All that can happen now.
    fn ready(&self) -> Vec<Event> {
        let Order { straggler, tight, .. } = self.order;
        let has_own = |&node: &usize| !self.own[node].is_empty();
        let quick = (0..self.nodes.len()).filter(|&node| straggler != Some(node));
        let mut ready: Vec<Event> = quick.filter(has_own).map(Event::Own).collect();
        for (&(from, to), wire) in &self.wires {
            if wire.taken > if tight { wire.frames.len() } else { 0 } {
                ready.push(Event::Taken(from, to));
            }
            // A frame waits until the one before was recycled, a piece until few are left.
            if !wire.frames.is_empty() && wire.held <= if wire.given == 0 { 0 } else { 2 } {
                ready.push(Event::Arrives(from, to));
            }
        }
        if ready.is_empty() {
            ready.extend(straggler.filter(has_own).map(Event::Own));
        }
        ready
    }

    fn next(&mut self) -> (usize, Input) {
        let ready = self.ready();
        let waits = || self.nodes.iter().map(|(node, _)| node.waiting_for()).collect::<Vec<_>>();
        assert!(!ready.is_empty(), "deadlock in {:?}: {:?}", self.order, waits());
        let event = ready[self.dice.below(ready.len() as u64) as usize];
        if !self.to_stop.is_empty() && self.dice.below(40) == 0 {
            let node = self.to_stop.pop_first().unwrap();
            return (node, Input::StopAfter(Round(self.dice.below(12))));
        }
        match event {
            Event::Own(node) => (node, self.own[node].pop_front().unwrap()),
            Event::Taken(from, to) => {
                self.wires.get_mut(&(from, to)).unwrap().taken -= 1;
                (from, Input::Taken(NodeId::from(to)))
            }
            Event::Arrives(from, to) => {
                let wire = self.wires.get_mut(&(from, to)).unwrap();
                (to, wire.arrives(NodeId::from(from), &mut self.dice))
            }
        }
    }

    fn perform(&mut self, node: usize, effect: Effect) {
        let learner = &mut *self.nodes[node].1;
        match effect {
            Effect::Compute { round, x, update, parts, .. } => {
                let own = &mut self.own[node];
                let mut hand = |input| own.push_back(input);
                drive::compute(learner, round, x, update, parts, &mut hand);
            }
            Effect::Send { to, frame } => {
                let wire = self.wires.entry((node, to.index())).or_default();
                wire.frames.push_back(frame.to_vec());
                wire.taken += 1;
            }
            Effect::Recycle { from, .. } => {
                self.wires.get_mut(&(from.index(), node)).unwrap().held -= 1;
            }
            Effect::Conclude { own, mean } => {
                let record = learner.conclude(&Conclusion::new(&own, &mean, Elapsed::default()));
                self.own[node].push_back(Input::Record(record));
                (self.played.models[node], self.played.rounds[node]) =
                    (own.x.to_vec(), own.rounds.0);
            }
            Effect::Finished(_) => self.finished += 1,
            Effect::Failed(failure) => panic!("{:?}: {failure}", self.order),
            Effect::Snapshot(snapshot) => {
                self.played.snapshots.insert(node, *snapshot);
            }
            Effect::Shared { .. }
            | Effect::Initial { .. }
            | Effect::Prepared(_)
            | Effect::RoundDone(_)
            | Effect::Save(_) => {}
        }
    }
}

impl Wire {
    /// The next frame, or a piece of it.
    fn arrives(&mut self, from: NodeId, dice: &mut Sequence) -> Input {
        self.held += 1;
        let frame = self.frames.front().unwrap();
        let (length, rest) = (frame.len(), &frame[self.given..]);
        if self.given == 0 && dice.below(2) == 0 {
            return Input::Frame { from, bytes: self.frames.pop_front().unwrap() };
        }
        let bytes = rest[..1 + dice.below(rest.len() as u64) as usize].to_vec();
        self.given += bytes.len();
        if self.given == length {
            self.frames.pop_front();
            self.given = 0;
        }
        Input::Piece { from, length, bytes }
    }
}
