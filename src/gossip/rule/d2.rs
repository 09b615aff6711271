//! D2: D-PSGD without the error that different data on different nodes leave.
//!
//! Tang, Lian, Yan, Zhang, Liu: D2: Decentralized Training over Decentralized Data (2018),
//! Algorithm 1.
//!
//! ```text
//! x_i^1     = sum_j W_ij (x_j^0 - lr g_j^0)
//! x_i^{t+1} = sum_j W_ij (2 x_j^t - x_j^{t-1} - lr g_j^t + lr g_j^{t-1})
//! ```
//! With h^t = x^t - lr g^t and c^t = x^t - h^{t-1} (c^0 = 0 makes the first round no exception)
//! this is
//!
//! ```text
//! z_i = h_i + c_i;   c_i' = c_i + sum_j W_ij (z_j - z_i);   x_i' = h_i + c_i'
//! ```
//! The same sequence, and the form to compute: c is all of the past and small, and what two nodes
//! add to theirs is opposite to the last bit. Without it the mean's velocity, a sum over all
//! rounds, would take up the rounding of W's rows with every round. DIFFERENCE: the paper's lr is
//! constant. Here each gradient keeps the step that it was taken with, so that the mean moves by
//! -lr mean g under any schedule. State: x, c, z; any x_0. Disagreement along an eigenvector of W
//! with eigenvalue l follows u'' = l (2 u' - u), whose roots are inside the unit circle for -1/3 <
//! l < 1 alone: `metropolis` weights on an even ring have l = -1/3.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting, mix::Row};
use crate::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        party::{Party, Writer},
        plan::{At, Gossip},
    },
    units::{NodeId, Round},
    vector,
};

pub(super) const ENTRY: Entry = Entry {
    name: "d2",
    summary: "D-PSGD with the last step taken back first: no error from data that differ between \
              nodes",
    paper: "Tang et al. 2018, D2: Decentralized Training over Decentralized Data, Algorithm 1",
    update: "x_i' = sum_j W_ij (2 x_j - x_j_before - lr g_j + lr g_j_before); first x_i' = sum_j \
             W_ij (x_j - lr g_j)",
    state: "x less x - lr g of the round before",
    sends: "the sum in brackets, 4 d bytes",
    conditions: "lambda_n > -1/3; on it (even rings with metropolis weights) or below, \
                 disagreement never decays",
    constants: &[],
    compresses: false,
    home: "path",
    prepare,
    ..Entry::BLANK
};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let topology = Arc::clone(setting.topology);
    Ok(Prepared {
        plan: Arc::new(Gossip::after_gradient(Arc::clone(&topology), setting.dense())),
        resolved: config::resolved(ENTRY.name, &params),
        warnings: require_positive_enough(setting)?,
        spawn: Box::new(move |node, x| {
            let (c, z) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            Box::new(D2 { row: Row::of(&topology, node), x, c, z })
        }),
    })
}

/// Refuses eigenvalues at or below -1/3, unless the run allows them. Computed ones are good to
/// about 1e-9.
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
    /// x; h between the gradient and the landing.
    x: Vec<f32>,
    c: Vec<f32>,
    /// z; the update while it is computed.
    z: Vec<f32>,
}

impl Party for D2 {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(&self.z)
    }

    fn received(&mut self, _at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        payload.add_difference_into(self.row.weight(from), &self.z, &mut self.c);
        Ok(())
    }

    fn land(&mut self, _at: &At) {
        vector::axpy(1.0, &self.c, &mut self.x);
    }
}

impl Rule for D2 {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.z))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.z = update;
        for ((x, z), c) in self.x.iter_mut().zip(&mut self.z).zip(&self.c) {
            *x -= *z;
            *z = *x + c;
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        3
    }
}
