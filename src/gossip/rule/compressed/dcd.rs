//! DCD-PSGD: difference compression. The owner's copy is its model: both start at x_0, the same on
//! all nodes, and add the same bits.
//!
//! DIFFERENCE to widely shown slides: they print x_{t+1} = xh_t + C(xh_t - x_t), which diverges
//! even with C = identity.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "dcd",
    summary: "send the compressed change of the model; every holder of a copy adds the same bits",
    paper: "Tang, Gan, Zhang, Zhang, Liu 2018, Communication Compression for Decentralized \
            Training, Algorithm 1 (DCD-PSGD)",
    update: "h_i  = sum_j W_ij xh_j - lr g_i(x_i)   xh_j: the neighbours' copy of x_j\n\
             z_i  = C(h_i - x_i)\n\
             x_i += z_i;  xh_i += z_i at every holder",
    state: "one copy per neighbour",
    sends: "z_i",
    conditions: "alpha < sqrt(1 - rho^2) / |I - W| suffices for unbiased C; rings lose stability \
                 near alpha = 1.2",
    compresses: true,
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let topology = Arc::clone(setting.topology);
    let plan = Gossip::after_gradient(&topology, setting.compressed());
    let warnings = steps::warn_of_differences(ENTRY.name, setting);
    ENTRY.without_constants(table, plan, warnings, move |node, x| {
        Dcd(Replicas::of_models(&topology, node, x))
    })
}

/// xh_j at every holder.
struct Dcd(Replicas);

impl Party for Dcd {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.update)
    }

    fn sent(&mut self, local: &mut Local, _: &At, _: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(1.0, &mut local.x);
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, _: &At, from: NodeId) -> Target<'a> {
        Some((1.0, self.0.of_mut(from)))
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&self.0)
    }
}

impl Rule for Dcd {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        let Replicas { row, theirs, .. } = &self.0;
        let off_diagonal = row.off_diagonal();
        sum_into(&mut local.update, &local.x, &row.weights, theirs, |update, x| {
            -off_diagonal * x - update
        });
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        self.0.state(visitor, "xh_i", "xh_j");
    }
}
