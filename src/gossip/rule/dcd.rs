//! DCD-PSGD: difference compression.
//!
//! Tang, Gan, Zhang, Zhang, Liu: Communication Compression for Decentralized Training (2018),
//! Algorithm 1.
//!
//! ```text
//! h_i  = sum_j W_ij xh_j - lr g_i(x_i)          xh_j: the copy of x_j that every neighbour of j holds
//! z_i  = C(h_i - x_i)
//! x_i += z_i;   xh_i += z_i at every holder
//! ```
//! The owner's own copy is its model: both start at x_0 and add the same bits, so xh_i = x_i
//! always, and it is kept once. DIFFERENCE to widely shown slides: they print x_{t+1} = xh_t +
//! C(xh_t - x_t), which diverges even with C = identity. State: x, one copy per neighbour. All
//! copies start equal to the owners' x_0, so all nodes must start from the same x_0.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Entry, Prepared, Rule, Setting,
    mix::{Row, sum_into},
};
use crate::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        party::{Party, Writer},
        plan::{At, Gossip},
    },
    units::{NodeId, Round},
};

pub(super) const ENTRY: Entry = Entry {
    name: "dcd",
    summary: "send the compressed change of the model; everyone who holds a copy adds the same \
              bits",
    paper: "Tang et al. 2018, Communication Compression for Decentralized Training, Algorithm 1 \
            (DCD-PSGD)",
    update: "z_i = C(sum_j W_ij xh_j - lr g_i - x_i); x_i += z_i; xh_i += z_i at every holder",
    state: "one copy per neighbour",
    sends: "z_i",
    conditions: "alpha < sqrt(1 - rho^2) / |I - W| suffices for unbiased C; rings lose stability \
                 near alpha = 1.2",
    constants: &[],
    compresses: true,
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
        plan: Arc::new(Gossip::after_gradient(Arc::clone(&topology), setting.compressed())),
        resolved: config::resolved("dcd", &params),
        warnings: warn_of_noise(setting),
        spawn: Box::new(move |node, x| {
            let row = Row::of(&topology, node);
            let copies = vec![x.clone(); row.neighbours.len()];
            Box::new(Dcd { row, spare: vec![0.0; x.len()], x, copies })
        }),
    })
}

/// The bound of the module's condition with the compressor's nominal error on Gaussian vectors.
fn warn_of_noise(setting: &Setting<'_>) -> Vec<String> {
    let alpha = (1.0 - setting.nominal_delta).max(0.0).sqrt();
    if setting.topology.nodes() == 1 || alpha == 0.0 {
        return Vec::new();
    }
    let spectrum = setting.topology.spectrum();
    let bound = (1.0 - spectrum.rho * spectrum.rho).max(0.0).sqrt() / spectrum.mu;
    if alpha < bound {
        return Vec::new();
    }
    vec![format!(
        "dcd with `{}`: its error alpha = {alpha:.3} is past the bound sqrt(1 - rho^2) / |I - W| \
         = {bound:.3} of `{}`, so it may diverge (near 1.2 it does); \
         deep-squeeze or choco stand more, so do more bits and smaller buckets",
        setting.compressor.name(),
        setting.topology.name()
    )]
}

struct Dcd {
    row: Row,
    x: Vec<f32>,
    /// xh_j of the neighbours, ascending.
    copies: Vec<Vec<f32>>,
    /// The update, then h - x.
    spare: Vec<f32>,
}

impl Party for Dcd {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(&self.spare)
    }

    fn sent(&mut self, _at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(1.0, &mut self.x);
    }

    fn received(&mut self, _at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        payload.add_into(1.0, &mut self.copies[self.row.place(from)]);
        Ok(())
    }

    fn replica(&self, of: Option<NodeId>) -> Option<&[f32]> {
        Some(of.map_or(&self.x, |of| &self.copies[self.row.place(of)]))
    }
}

impl Rule for Dcd {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.spare = update;
        let off_diagonal = self.row.off_diagonal();
        sum_into(&mut self.spare, &self.x, &self.row.weights, &self.copies, |update, x| {
            -off_diagonal * x - update
        });
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        2 + self.copies.len()
    }
}
