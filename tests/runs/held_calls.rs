//! Calls that a server holds until the slowest follows: driven by hand, with the nodes that it
//! waits for and the calls that it refuses.

use common::{
    Run,
    driver::{Driven, refusal, sealed, sent},
};
use gradvine::{
    gossip::{Input, plan::At, tree::LAST_CALL},
    units::{NodeId, Round},
};

/// Node 0, which computes; no node calls it by itself.
struct Server {
    node: Driven,
    d: usize,
}

impl Server {
    fn new(staleness: u64) -> Server {
        let rule = format!("kind = 'stale-synchronous'\nstaleness = {staleness}");
        let run = Run::new("star:3", &rule, "kind = 'identity'");
        let mut node = Driven::new(run.specs().swap_remove(0));
        assert!(sent(&node.settle(Input::Start)).is_empty());
        assert_eq!(node.overlapping, node.gradients, "calls are answered meanwhile");
        Server { node, d: run.d }
    }

    fn frame(&mut self, from: u32, at: At, length: usize) -> Result<Vec<NodeId>, String> {
        let frame = sealed(at, &vec![0; 4 * length]);
        let effects = self.node.settle(Input::Frame { from: NodeId(from), bytes: frame });
        refusal(&effects, from).map_or(Ok(()), Err)?;
        Ok(sent(&effects).into_iter().map(|(to, _)| to).collect())
    }

    /// The nodes that are answered upon a call, or why it is refused.
    fn call(&mut self, from: u32, round: u64) -> Result<Vec<NodeId>, String> {
        self.frame(from, At { round: Round(round), flight: 0, exchange: 0 }, self.d)
    }

    fn leave(&mut self, from: u32) -> Result<Vec<NodeId>, String> {
        self.frame(from, At { round: Round(0), flight: LAST_CALL, exchange: 0 }, 0)
    }
}

#[test]
fn the_node_that_holds_the_server_back_is_named() {
    let mut server = Server::new(2);
    let waits =
        |server: &Server| server.node.node.waiting_for().map(|(at, peers)| (at.round.0, peers));
    let all = Some((3, vec![NodeId(1), NodeId(2)]));
    assert_eq!((server.node.gradients, waits(&server)), (3, all));
    assert_eq!(server.call(2, 0), Ok(vec![NodeId(2)]));
    assert_eq!((server.node.gradients, waits(&server)), (3, Some((3, vec![NodeId(1)]))));
    // Every node has made one: both the server and the caller may continue.
    assert_eq!(server.call(1, 0), Ok(vec![NodeId(1)]));
    assert_eq!(server.node.gradients, 4);
}

#[test]
fn a_call_is_held_until_the_slowest_follows_and_its_last_notice_lets_it_go() {
    let mut server = Server::new(0);
    assert_eq!(server.node.gradients, 1);
    assert_eq!(server.call(1, 0), Ok(vec![]), "node 2 has made no update");
    assert_eq!(server.leave(2), Ok(vec![NodeId(1)]));
    assert_eq!(server.node.gradients, 2);
}

#[test]
fn a_call_that_is_not_the_next_one_is_refused() {
    let refused = |staleness: u64, before: u64, round: u64, expected: &str| {
        let mut server = Server::new(staleness);
        (0..before).for_each(|round| assert!(server.call(1, round).is_ok()));
        let reason = server.call(1, round).unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    };
    refused(3, 0, 1, "round 1 flight 0 exchange 0: its next call is that of round 0");
    refused(3, 1, 0, "its next call is that of round 1");
    refused(0, 1, 1, "a second call before the first was answered");
    let mut server = Server::new(3);
    assert!(server.leave(1).is_ok());
    assert!(server.call(1, 0).unwrap_err().contains("a call after its last one"));
}
