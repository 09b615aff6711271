//! Calls that a server holds until the slowest follows: driven by hand, with the nodes that it
//! waits for and the calls that it refuses.

use std::collections::VecDeque;

use common::Run;
use gradvine::{
    drive::NodeSpec,
    gossip::{
        Effect, Failure, Input, Node,
        frame::{self, Header},
        plan::At,
        tree::LAST_CALL,
    },
    units::{NodeId, Round},
};

/// Node 0, which computes; no node calls it by itself.
struct Server {
    node: Node,
    spec: NodeSpec,
    d: usize,
    gradients: u64,
    sent: Vec<NodeId>,
}

impl Server {
    fn new(staleness: u64) -> Server {
        let rule = format!("kind = 'stale-synchronous'\nstaleness = {staleness}");
        let run = Run::new("star:3", &rule, "kind = 'identity'");
        let mut specs = run.specs();
        let spare = specs.swap_remove(1);
        let spec = specs.swap_remove(0);
        let mut server = Server {
            node: Node::new(spec.config),
            spec: NodeSpec { config: spare.config, learner: spec.learner },
            d: run.d,
            gradients: 0,
            sent: Vec::new(),
        };
        assert_eq!(server.handle(Input::Start), None);
        server
    }

    fn handle(&mut self, input: Input) -> Option<String> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            self.node.handle(input, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Compute { round, x, mut update, .. } => {
                        let loss = self.spec.learner.compute(round, &x, &mut update);
                        let step = self.spec.learner.step(round);
                        self.gradients += 1;
                        inputs.push_back(Input::Computed {
                            round,
                            x,
                            update,
                            loss,
                            step,
                            ends: false,
                        });
                    }
                    Effect::Send { to, .. } => {
                        self.sent.push(to);
                        inputs.push_back(Input::Taken(to));
                    }
                    Effect::Failed(Failure::Peer { peer, reason }) => {
                        return Some(format!("{peer}: {reason}"));
                    }
                    Effect::Failed(other) => panic!("{other}"),
                    _ => {}
                }
            }
        }
        None
    }

    fn frame(&mut self, from: u32, at: At, length: usize) -> Option<String> {
        let mut bytes = Vec::new();
        frame::reserve(&mut bytes);
        bytes.resize(bytes.len() + 4 * length, 0);
        frame::seal(&Header { at, replica: None }, None, &mut bytes);
        self.handle(Input::Frame { from: NodeId(from), bytes })
    }

    fn call(&mut self, from: u32, round: u64) -> Option<String> {
        self.frame(from, At { round: Round(round), flight: 0, exchange: 0 }, self.d)
    }

    fn leave(&mut self, from: u32) -> Option<String> {
        self.frame(from, At { round: Round(0), flight: LAST_CALL, exchange: 0 }, 0)
    }
}

#[test]
fn the_node_that_holds_the_server_back_is_named() {
    let mut server = Server::new(2);
    let waits = |server: &Server| server.node.waiting_for().map(|(at, peers)| (at.round.0, peers));
    assert_eq!((server.gradients, waits(&server)), (3, Some((3, vec![NodeId(1), NodeId(2)]))));
    assert_eq!(server.call(2, 0), None);
    assert_eq!((server.gradients, waits(&server)), (3, Some((3, vec![NodeId(1)]))));
    // Every node has made one: both the server and the caller may go on.
    assert_eq!(server.call(1, 0), None);
    assert_eq!((server.gradients, &server.sent[..]), (4, &[NodeId(2), NodeId(1)][..]));
}

#[test]
fn a_call_is_held_until_the_slowest_follows_and_its_last_notice_lets_it_go() {
    let mut server = Server::new(0);
    assert_eq!(server.gradients, 1);
    assert_eq!(server.call(1, 0), None);
    assert!(server.sent.is_empty(), "node 2 has made no update");
    assert_eq!(server.leave(2), None);
    assert_eq!((server.gradients, &server.sent[..]), (2, &[NodeId(1)][..]));
}

#[test]
fn a_call_that_is_not_the_next_one_is_refused() {
    let mut server = Server::new(3);
    assert!(
        server
            .call(1, 1)
            .unwrap()
            .contains("1: round 1 flight 0 exchange 0: its next call is that of round 0")
    );
    let mut server = Server::new(3);
    assert_eq!(server.call(1, 0), None);
    assert!(server.call(1, 0).unwrap().contains("its next call is that of round 1"));
    let mut server = Server::new(0);
    assert_eq!(server.call(1, 0), None);
    assert!(server.call(1, 1).unwrap().contains("a second call before the first was answered"));
    let mut server = Server::new(3);
    assert_eq!(server.leave(1), None);
    assert!(server.call(1, 0).unwrap().contains("a call after its last one"));
}
