//! ECD-PSGD: extrapolation compression.
//!
//! Tang, Gan, Zhang, Zhang, Liu: Communication Compression for Decentralized Training (2018),
//! Algorithm 2.
//!
//! ```text
//! t = 1, 2, ...; xt_j^1 = x_j^1
//! x_i^{t+1}  = sum_j W_ij xt_j^t - lr g_i(x_i^t)                  (j = i included)
//! z_i^{t+1}  = (1 - t/2) x_i^t + (t/2) x_i^{t+1}
//! xt_i^{t+1} = (1 - 2/t) xt_i^t + (2/t) C(z_i^{t+1})              at every holder, the owner included
//! ```
//! The paper assumes compression noise whose variance has an ABSOLUTE bound; the weights 2/t then
//! average it away. z however has the size of t |x^{t+1} - x^t| / 2, and the noise of every
//! compressor here grows with what is compressed: it blows up unless the models come to rest faster
//! than 1/t. This rule is here for completeness, and warns. State: x, the own estimate, one per
//! neighbour. All start equal to x_0, which must be the same on all nodes.

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
    vector,
};

pub(super) const ENTRY: Entry = Entry {
    name: "ecd",
    summary: "send the compressed extrapolation of the model; estimates average the noise away \
              (unstable; for completeness)",
    paper: "Tang et al. 2018, Communication Compression for Decentralized Training, Algorithm 2 \
            (ECD-PSGD)",
    update: "x_i' = sum_j W_ij xt_j - lr g_i; z_i = (1 - t/2) x_i + (t/2) x_i'; xt_i = (1 - 2/t) \
             xt_i + (2/t) C(z_i) at every holder",
    state: "the own estimate and one per neighbour",
    sends: "C(z_i)",
    conditions: "noise that does not grow with what is compressed; with all compressors here it \
                 does, and |z| grows like t |x_i' - x_i| / 2",
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
    let mut warnings = Vec::new();
    if setting.compressor.name() != "identity" {
        warnings.push(format!(
            "ecd compresses an extrapolation that grows with the rounds, and the error of `{}` \
             grows with it: expect divergence, which ends the run; dcd, deep-squeeze and choco \
             are stable",
            setting.compressor.name()
        ));
    }
    Ok(Prepared {
        plan: Arc::new(Gossip::after_gradient(Arc::clone(&topology), setting.compressed())),
        resolved: config::resolved(ENTRY.name, &params),
        warnings,
        spawn: Box::new(move |node, x| {
            let row = Row::of(&topology, node);
            let copies = vec![x.clone(); row.neighbours.len()];
            Box::new(Ecd { row, own: x.clone(), spare: vec![0.0; x.len()], x, copies })
        }),
    })
}

struct Ecd {
    row: Row,
    x: Vec<f32>,
    /// xt_i.
    own: Vec<f32>,
    /// xt_j, ascending.
    copies: Vec<Vec<f32>>,
    /// The update, then x_i^{t+1}, then z_i.
    spare: Vec<f32>,
}

/// t, which begins at 1.
fn t(round: Round) -> f32 {
    (round.0 + 1) as f32
}

/// What every holder of an estimate does, the owner included.
fn estimate(round: Round, z: &Payload<'_>, estimate: &mut [f32]) {
    let share = 2.0 / t(round);
    vector::scale(1.0 - share, estimate);
    z.add_into(share, estimate);
}

impl Party for Ecd {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(&self.spare)
    }

    fn sent(&mut self, at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        estimate(at.round, own, &mut self.own);
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        estimate(at.round, payload, &mut self.copies[self.row.place(from)]);
        Ok(())
    }

    fn replica(&self, of: Option<NodeId>) -> Option<&[f32]> {
        Some(of.map_or(&self.own, |of| &self.copies[self.row.place(of)]))
    }
}

impl Rule for Ecd {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.spare = update;
        let own = self.row.own;
        sum_into(&mut self.spare, &self.own, &self.row.weights, &self.copies, |update, xt| {
            own * xt - update
        });
        let half = 0.5 * t(round);
        for (x, next) in self.x.iter_mut().zip(&mut self.spare) {
            let z = (1.0 - half) * *x + half * *next;
            *x = *next;
            *next = z;
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        3 + self.copies.len()
    }
}
