//! SSP: a parameter server whose workers run freely within a staleness bound.
//!
//! Ho, Cipar, Cui, Lee, Kim, Gibbons, Gibson, Ganger, Xing: More Effective Distributed ML via a
//! Stale Synchronous Parallel Parameter Server (2013), section 2 (the conditions) and section 4
//! (the theorem). Worker p's clock c is the number of updates that it has made; u_{p,c} is the
//! update that it computes at clock c, from 0, at x~_{p,c}; s is the staleness.
//!
//! The server is node 0, which also works. A worker calls it with u_p. The server adds u_p to x
//! when it arrives, and answers with its x, which includes all updates so far, as soon as every
//! node has made c - s updates. Node 0 begins its own round c under the same condition. So a round
//! begins at most s rounds ahead of the slowest node, which never waits; nodes that have ended are
//! not waited for. s = 0 is bulk-synchronous: every node begins every round at the same x. That is
//! C-SGD except for the order in which updates are added, which is the order of arrival.
//!
//! DIFFERENCE: u_{p,c} = -(1/n) lr g_p, not -lr g_p: x moves by the mean, and a step size means the
//! same as in the other rules. The theorem's step falls as 1 / sqrt(t) and with 1 / sqrt(s + 1);
//! the step here is the optimizer's. DIFFERENCE: the paper's caches, which a worker reads without a
//! request while they are fresh enough, are not implemented: every round reads at the server, and
//! no read is staler than necessary.
//!
//! With a constant step and nodes whose optima differ, x stays O(s lr) from where bulk-synchronous
//! rounds end: the last updates come from the slowest node alone. After the rounds node 0 ends with
//! the sum of all updates, since it stays until all nodes have left. Another node ends with its
//! last answer: it contains all updates of the nodes' first T - s rounds of T, and others that had
//! arrived. The run's mean is that of these models; with s = 0 all have the same bits. State: x and
//! the update; at node 0 also the copy of x at which its own gradient is computed, and the frames
//! of the calls that it holds, at most one per worker.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "stale-synchronous",
    summary: "asynchronous: a parameter server whose workers begin rounds at most s ahead of the \
              slowest",
    paper: "Ho et al. 2013, More Effective Distributed ML via a Stale Synchronous Parallel \
            Parameter Server, sections 2 and 4",
    update: "x~_{p,c} = x_0 + [ sum of u_{q,c'} over all q and c' <= c - s - 1 ]   guaranteed\n\
             + [ sum of u_{p,c'} over c - s <= c' <= c - 1 ]   read-my-writes\n\
             + [ sum of u_{q,c'} that came, q != p, c - s <= c' < c + s ]  best effort",
    state: "the update; at node 0 also the copy of x that its gradient is computed at",
    sends: "u_p to node 0 (4 d bytes), and its x back; node 0 answers each of the others once a \
            round",
    conditions: "node 0 linked with all; over libp2p the order of events decides, so only the \
                 simulator repeats a run; the longer s, the smaller the step",
    constants: &[(
        "staleness",
        "s, in rounds, 0 (bulk-synchronous) to 1000; default 3, our choice: hiccups of three \
         gradients delay no node",
    )],
    home: "star",
    prepare,
    ..Entry::BLANK
};

params! {
    staleness: i64 = 3,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let staleness = whole("rule.staleness", params.staleness, 0, 1000)?;
    // Only reports an error if a link to the server is missing.
    Pattern::choose(ENTRY.name, None, None, &[Kind::Server], setting.topology)?;
    let share = 1.0 / setting.topology.nodes() as f32;
    let plan = Clocked { staleness, format: setting.dense() };
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| {
        let serves = node == SERVER;
        let x = if serves { x.to_vec() } else { Vec::new() };
        StaleSynchronous { serves, share, x }
    }))
}

const SERVER: NodeId = NodeId(0);

/// Every node but the server calls it once a round.
struct Clocked {
    staleness: u64,
    format: Format,
}

impl Plan for Clocked {
    fn steps(&self) -> &[Step] {
        &[Step::Gradient, Step::Join, Step::Launch(0), Step::Land { flight: 0, lag: 0 }]
    }

    fn exchanges(&self, _flight: u8) -> u16 {
        2
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        if node != SERVER {
            if at.exchange == 0 { out.send.push(SERVER) } else { out.wait.push(SERVER) }
        }
    }

    fn format(&self, _: &At, _: NodeId) -> &Format {
        &self.format
    }

    fn calls(&self, _flight: u8) -> bool {
        true
    }

    fn bound(&self) -> Option<u64> {
        Some(self.staleness)
    }
}

struct StaleSynchronous {
    serves: bool,
    /// 1 / n.
    share: f32,
    /// On the server: the model, which changes while the gradient at `local.x` is computed.
    x: Vec<f32>,
}

impl Party for StaleSynchronous {
    /// n u_p.
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.update)
    }

    fn received(&mut self, local: &mut Local, _: &At, _: NodeId, p: &Payload<'_>) -> Received {
        p.write_into(&mut local.x);
        Ok(())
    }

    fn answers(&mut self) -> Option<&mut dyn Answers> {
        Some(self)
    }
}

impl Answers for StaleSynchronous {
    fn called(&mut self, _: &mut Local, _: &At, _: NodeId, ask: &Payload<'_>) {
        ask.add_into(-self.share, &mut self.x);
    }

    fn answer(&mut self, _: &mut Local, _: &At, _: &Payload<'_>, out: &mut Writer<'_>) -> Encoded {
        out.vector(&self.x)
    }
}

impl Rule for StaleSynchronous {
    fn point(&mut self, local: &mut Local) {
        if self.serves {
            local.x.copy_from_slice(&self.x);
        }
    }

    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        if self.serves {
            vector::axpy(-self.share, &local.update, &mut self.x);
        }
    }

    fn model(&self, local: &Local, out: &mut [f32]) {
        out.copy_from_slice(if self.serves { &self.x } else { &local.x });
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("x", &mut self.x);
    }
}
