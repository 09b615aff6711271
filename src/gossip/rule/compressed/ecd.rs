//! ECD-PSGD: extrapolation compression.
//!
//! Tang, Gan, Zhang, Zhang, Liu: Communication Compression for Decentralized Training (2018),
//! Algorithm 2.
//!
//! The paper assumes compression noise whose variance has an ABSOLUTE bound; the weights 2/t then
//! average it out. But z has the size of t |x^{t+1} - x^t| / 2, and the noise of every compressor
//! here grows with its input: it grows without bound unless the models converge faster than 1/t.
//! This rule is here for completeness, and warns. State: x, the own estimate, one per neighbour.
//! All start equal to x_0, which must be the same on all nodes.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "ecd",
    summary: "send the compressed extrapolation of the model; estimates average the noise away \
              (unstable; for completeness)",
    paper: "Tang et al. 2018, Communication Compression for Decentralized Training, Algorithm 2 \
            (ECD-PSGD)",
    update: "t = 1, 2, ...; xt_j^1 = x_j^1\n\
             x_i^{t+1}  = sum_j W_ij xt_j^t - lr g_i(x_i^t)   (j = i included)\n\
             z_i^{t+1}  = (1 - t/2) x_i^t + (t/2) x_i^{t+1}\n\
             xt_i^{t+1} = (1 - 2/t) xt_i^t + (2/t) C(z_i^{t+1})  at all holders, the owner too",
    state: "the own estimate and one per neighbour",
    sends: "C(z_i)",
    conditions: "noise that does not grow with what is compressed; with all compressors here it \
                 does, and |z| grows like t |x_i' - x_i| / 2",
    compresses: true,
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let topology = Arc::clone(setting.topology);
    let mut warnings = Vec::new();
    if !setting.is_exact() {
        warnings.push(format!(
            "ecd compresses an extrapolation that grows with the rounds, and the error of `{}` \
             grows with it: expect divergence, which ends the run; dcd, deep-squeeze and choco \
             are stable",
            setting.compressor.name()
        ));
    }
    let plan = Gossip::after_gradient(&topology, setting.compressed());
    ENTRY.without_constants(table, plan, warnings, move |node, x| {
        Ecd(Replicas::new(&topology, node, x))
    })
}

/// xt_j at every holder, the owner too.
struct Ecd(Replicas);

/// t, which starts at 1.
fn t(round: Round) -> f32 {
    (round.0 + 1) as f32
}

/// Updates an estimate. Every holder does this, the owner included.
fn estimate(round: Round, z: &Payload<'_>, estimate: &mut [f32]) {
    let share = 2.0 / t(round);
    vector::scale(1.0 - share, estimate);
    z.add_into(share, estimate);
}

impl Party for Ecd {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.update)
    }

    fn sent(&mut self, _: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        estimate(at.round, own, &mut self.0.own);
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        estimate(at.round, p, self.0.of_mut(from));
        Ok(())
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&self.0)
    }
}

impl Rule for Ecd {
    fn gradient(&mut self, local: &mut Local, round: Round, _: f32) {
        let Row { own, weights, .. } = &self.0.row;
        self.0.sum_into(&mut local.update, weights, |update, xt| own * xt - update);
        let half = 0.5 * t(round);
        for (x, next) in local.x.iter_mut().zip(&mut local.update) {
            let z = (1.0 - half) * *x + half * *next;
            *x = *next;
            *next = z;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        self.0.state(visitor, "xt_i", "xt_j");
    }
}
