//! Naive compression: D-PSGD on compressed models. It does not converge, and is here to show this.
//!
//! Tang, Gan, Zhang, Zhang, Liu: Communication Compression for Decentralized Training (2018),
//! section 1 and figure 1 show it as the counterexample.
//!
//! The compression error is proportional to |x|, which does not vanish, so no step size makes it
//! converge. State: as D-PSGD cta.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "naive",
    summary: "D-PSGD on compressed models; stalls at a level that no step size removes (a \
              negative control)",
    paper: "Tang et al. 2018, Communication Compression for Decentralized Training, figure 1",
    update: "x_i' = sum_j W_ij C(x_j) - lr g_i(x_i)   (j = i included)",
    state: "none",
    sends: "C(x_i)",
    conditions: "none under which it converges, unless C is exact",
    compresses: true,
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let schedule = Arc::clone(setting.schedule);
    let mut warnings = Vec::new();
    if !setting.is_exact() {
        warnings.push(
            "naive compression stalls at a level that no step size removes; dcd, deep-squeeze and \
             choco do not"
                .to_string(),
        );
    }
    let plan = Gossip::around_gradient(setting.topology, setting.compressed());
    ENTRY.without_constants(table, plan.following(&schedule), warnings, move |node, x| Naive {
        rows: Rows::of(&schedule, node),
        acc: vec![0.0; x.len()],
    })
}

struct Naive {
    rows: Rows,
    acc: Vec<f32>,
}

impl Party for Naive {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.x)
    }

    fn sent(&mut self, _: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        self.acc.fill(0.0);
        own.add_into(self.rows.at(at.round).own, &mut self.acc);
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        Some((self.rows.at(at.round).weight(from), &mut self.acc))
    }
}

impl Rule for Naive {
    fn gradient(&mut self, _: &mut Local, _: Round, _: f32) {}

    fn land(&mut self, local: &mut Local, _: &At) {
        vector::subtract(&local.update, &mut self.acc);
        std::mem::swap(&mut local.x, &mut self.acc);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.scratch(self.acc.len());
    }
}
