//! CHOCO-SGD with one public copy per edge: the mean is exact under any loss of frames.
//!
//! After Koloskova, Stich, Jaggi: Decentralized Stochastic Optimization and Gossip Algorithms with
//! Compressed Communication (2019), Algorithm 2.
//!
//! DIFFERENCE to the paper: its node has one public copy that all neighbours must hold, and a
//! difference that one of them misses is an error forever. Here only i and j hold s_ij, the model
//! that i has made public to j, and only a frame that arrived changes it. Both ends of an edge
//! always hold the same s_ij and s_ji and add terms that are exact negatives: the mean moves by -lr
//! mean g for any C under any loss. A lost frame only costs time: the next difference includes what
//! it carried. s = 0 at first; any x_0. If nothing is lost and C is deterministic, all s_ij of a
//! node are equal, and this is CHOCO. State: x, and two copies per neighbour. One encoding per
//! neighbour, where CHOCO needs one for all.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "choco-edge",
    summary: "choco with a public copy per edge that only arrived frames advance: an exact mean \
              under any loss",
    paper: "after Koloskova et al. 2019, Decentralized Stochastic Optimization and Gossip \
            Algorithms with Compressed Communication, Algorithm 2",
    update: "h_i   = x_i - lr g_i(x_i)\n\
             q_ij  = C(h_i - s_ij);  s_ij += q_ij at i and at j, if q_ij arrives\n\
             x_i'  = h_i + gamma sum_j W_ij (s_ji - s_ij)",
    state: "two public copies per neighbour",
    sends: "q_ij, another to each neighbour",
    conditions: "as choco: a contraction (nominal delta > 0), and its limits of gamma; random-k, \
                 drawn again for each edge, is stable further",
    constants: &[(
        "gamma",
        "gossip step; default as for choco: F x nominal delta (if C sends the k greatest entries: \
         half of that, at most F x 4.2 k / d), F = min(0.7, 1 / (2 max_i sum_{j != i} |W_ij|)); 1 \
         where C is exact",
    )],
    compresses: true,
    prepare,
    ..Entry::BLANK
};

params! {
    gamma: Option<f64> = None,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    let gamma = nine_digits(positive(
        "rule.gamma",
        params.gamma.unwrap_or_else(|| steps::of_copies(setting)),
    )?);
    params.gamma = Some(gamma);
    let topology = Arc::clone(setting.topology);
    let plan = Gossip::after_gradient(&topology, setting.compressed()).one_for_each();
    let rule = move |node, x: &[f32]| {
        let row = Row::of(&topology, node);
        let copies = vec![vec![0.0; x.len()]; row.neighbours.len()];
        ChocoEdge { row, gamma: gamma as f32, own: copies.clone(), theirs: copies }
    };
    Ok(ENTRY.prepared(&params, plan, warnings, rule).relaxed_by(gamma))
}

struct ChocoEdge {
    row: Row,
    gamma: f32,
    /// s_ij, ascending.
    own: Vec<Vec<f32>>,
    /// s_ji, ascending.
    theirs: Vec<Vec<f32>>,
}

impl ChocoEdge {
    /// The position of the neighbour that an encoding is for.
    fn place(&self, to: Option<NodeId>) -> usize {
        self.row.place(to.expect("the plan has a payload for each neighbour"))
    }
}

impl Party for ChocoEdge {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        let own = &self.own[self.place(out.receiver())];
        vector::difference(&local.x, own, &mut local.update);
        out.vector(&local.update)
    }

    fn sent(&mut self, _: &mut Local, _: &At, to: Option<NodeId>, own: &Payload<'_>) {
        let place = self.place(to);
        own.add_into(1.0, &mut self.own[place]);
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, _: &At, from: NodeId) -> Target<'a> {
        Some((1.0, &mut self.theirs[self.row.place(from)]))
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(self)
    }
}

impl Copies for ChocoEdge {
    fn own<'a>(&'a self, _: &'a Local, to: Option<NodeId>) -> Option<&'a [f32]> {
        to.map(|to| &*self.own[self.row.place(to)])
    }

    fn of<'a>(&'a self, _: &'a Local, from: NodeId) -> Option<&'a [f32]> {
        Some(&self.theirs[self.row.place(from)])
    }
}

impl Rule for ChocoEdge {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        vector::subtract(&local.update, &mut local.x);
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        for ((weight, own), theirs) in self.row.weights.iter().zip(&self.own).zip(&self.theirs) {
            vector::axpy_difference(self.gamma * weight, theirs, own, &mut local.x);
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visit_all(visitor, "s_ij", &mut self.own);
        visit_all(visitor, "s_ji", &mut self.theirs);
    }
}
