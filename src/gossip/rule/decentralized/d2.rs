//! D2: D-PSGD without the error caused by data that differ between nodes.
//!
//! Tang, Lian, Yan, Zhang, Liu: D2: Decentralized Training over Decentralized Data (2018),
//! Algorithm 1.
//!
//! With h^t = x^t - lr g^t and c^t = x^t - h^{t-1} (c^0 = 0, so the first round is no exception)
//! the update is
//!
//! ```text
//! z_i = h_i + c_i;   c_i' = c_i + sum_j W_ij (z_j - z_i);   x_i' = h_i + c_i'
//! ```
//! This is the same sequence in the form that is computed. c contains the whole past and is small,
//! and what two nodes add to theirs are exact negatives. Otherwise the velocity of the mean, a sum
//! over all rounds, would collect the rounding of W's rows in every round. DIFFERENCE: the paper's
//! lr is constant. Here each gradient keeps the step that it was taken with, so that the mean moves
//! by -lr mean g under any schedule. State: x, c, z; any x_0. The disagreement along an eigenvector
//! of W with eigenvalue l follows u'' = l (2 u' - u), whose roots are inside the unit circle only
//! for -1/3 < l < 1: `metropolis` weights on an even ring have l = -1/3.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "d2",
    summary: "D-PSGD with the last step taken back first: no error from data that differ between \
              nodes",
    paper: "Tang et al. 2018, D2: Decentralized Training over Decentralized Data, Algorithm 1",
    update: "x_i^1   = sum_j W_ij (x_j^0 - lr g_j^0)\n\
             x_i^{t+1} = sum_j W_ij (2 x_j^t - x_j^{t-1} - lr g_j^t + lr g_j^{t-1})",
    state: "x less x - lr g of the round before",
    sends: "the sum in brackets, 4 d bytes",
    conditions: "lambda_n > -1/3; on it (even rings with metropolis weights) or below, \
                 disagreement never decays",
    needs_gradients: true,
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let topology = Arc::clone(setting.topology);
    let plan = Gossip::after_gradient(&topology, setting.dense());
    let warnings = require_positive_enough(setting)?;
    ENTRY.without_constants(table, plan, warnings, move |node, x| D2 {
        row: Row::of(&topology, node),
        c: vec![0.0; x.len()],
    })
}

/// Refuses eigenvalues at or below -1/3, unless the run allows them. Computed eigenvalues are
/// accurate to about 1e-9.
fn require_positive_enough(setting: &Setting<'_>) -> Result<Vec<String>, ConfigError> {
    let least = setting.topology.spectrum().lambda_n;
    if least > -1.0 / 3.0 + 1e-9 {
        return Ok(Vec::new());
    }
    let problem = format!(
        "d2 needs every eigenvalue of W above -1/3, and the least of `{}` is {least:.9}: \
         disagreement along it never decays; \
         weights = \"lazy-metropolis\" has none below 0, or set run.allow_unstable = true to \
         watch it",
        setting.topology.name()
    );
    if setting.allow_unstable { Ok(vec![problem]) } else { Err(ConfigError::at("rule", problem)) }
}

struct D2 {
    row: Row,
    c: Vec<f32>,
}

impl Party for D2 {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.update)
    }

    fn received(&mut self, local: &mut Local, _: &At, from: NodeId, p: &Payload<'_>) -> Received {
        p.add_difference_into(self.row.weight(from), &local.update, &mut self.c);
        Ok(())
    }
}

impl Rule for D2 {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        for ((x, z), c) in local.x.iter_mut().zip(&mut local.update).zip(&self.c) {
            *x -= *z;
            *z = *x + c;
        }
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        vector::axpy(1.0, &self.c, &mut local.x);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("c", &mut self.c);
    }
}
