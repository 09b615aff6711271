//! Damped gossip: a node goes only a part of the way to its neighbours' average.
//!
//! ```text
//! z_i = x_i - lr g_i(x_i);   x_i' = z_i + gamma sum_j W_ij (z_j - z_i)
//! ```
//! With gamma = 1 this is D-PSGD (adapt, then combine).

use std::sync::Arc;

use gradvine::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        plan::{At, Gossip},
        rule::{Entry, Party, Prepared, Rule, Setting, Writer},
    },
    units::{NodeId, Round},
};
use serde::{Deserialize, Serialize};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "damped",
    summary: "D-PSGD that goes only a part of the way to its neighbours' average",
    paper: "an example",
    update: "z_i = x_i - lr g_i; x_i' = z_i + gamma sum_j W_ij (z_j - z_i)",
    sends: "the whole model, 4 d bytes",
    conditions: "0 < gamma <= 1",
    constants: &[("gamma", "how far, from 0 to 1; default 0.5")],
    home: "ring",
    relaxation: Some("gamma"),
    prepare,
    ..Entry::BLANK
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    gamma: f64,
}

impl Default for Params {
    fn default() -> Params {
        Params { gamma: 0.5 }
    }
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    if !(params.gamma > 0.0 && params.gamma <= 1.0) {
        return Err(ConfigError::new("rule.gamma", params.gamma, "expected above 0, at most 1"));
    }
    let topology = Arc::clone(setting.topology);
    let gamma = params.gamma;
    Ok(Prepared {
        plan: Arc::new(Gossip::after_gradient(Arc::clone(&topology), setting.dense())),
        resolved: config::resolved(ENTRY.name, &params),
        warnings: Vec::new(),
        spawn: Box::new(move |node, x| {
            let matrix = topology.matrix();
            let weights = matrix.neighbour_weights(node).iter().map(|w| (gamma * w) as f32);
            Box::new(Damped {
                neighbours: topology.neighbours(node).to_vec(),
                weights: weights.collect(),
                own: (1.0 - gamma * (1.0 - matrix.self_weight(node))) as f32,
                sum: vec![0.0; x.len()],
                x,
            })
        }),
    })
}

struct Damped {
    neighbours: Vec<NodeId>,
    /// gamma W_ij, in the order of the neighbours.
    weights: Vec<f32>,
    /// 1 - gamma (1 - W_ii).
    own: f32,
    x: Vec<f32>,
    sum: Vec<f32>,
}

impl Party for Damped {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(&self.x)
    }

    fn received(&mut self, _at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        let place = self.neighbours.binary_search(&from).expect("only neighbours send");
        payload.add_into(self.weights[place], &mut self.sum);
        Ok(())
    }

    fn land(&mut self, _at: &At) {
        std::mem::swap(&mut self.x, &mut self.sum);
    }
}

impl Rule for Damped {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.sum))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        (self.x, self.sum) = (x, update);
        for (x, sum) in self.x.iter_mut().zip(&mut self.sum) {
            *x -= *sum;
            *sum = self.own * *x;
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        2
    }
}
