//! Damped gossip: a node goes only a part of the way to its neighbours' average.
//!
//! ```text
//! z_i = x_i - lr g_i(x_i);   x_i' = z_i + gamma sum_j W_ij (z_j - z_i)
//! ```
//! With gamma = 1 this is D-PSGD (adapt, then combine).

use std::sync::Arc;

use gradvine::{
    compress::Payload,
    config::{self, ConfigError},
    gossip::{
        plan::{At, Gossip},
        rule::{Encoded, Entry, Local, Party, Prepared, Received, Rule, Setting, Visitor, Writer},
    },
    units::{NodeId, Round},
};
use serde::{Deserialize, Serialize};

/// The line of the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "damped",
    summary: "D-PSGD that goes only a part of the way to its neighbours' average",
    paper: "an example",
    update: "z_i = x_i - lr g_i; x_i' = z_i + gamma sum_j W_ij (z_j - z_i)",
    sends: "the whole model, 4 d bytes",
    conditions: "0 < gamma <= 1",
    constants: &[("gamma", "how far, from 0 to 1; default 0.5")],
    home: "ring",
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
    let (topology, gamma) = (Arc::clone(setting.topology), params.gamma);
    let plan = Gossip::after_gradient(&topology, setting.dense());
    let rule = move |node, _: &[f32]| {
        let matrix = topology.matrix();
        let weights = matrix.neighbour_weights(node).iter().map(|w| (gamma * w) as f32);
        Damped {
            neighbours: topology.neighbours(node).to_vec(),
            weights: weights.collect(),
            own: (1.0 - gamma * (1.0 - matrix.self_weight(node))) as f32,
        }
    };
    Ok(ENTRY.prepared(&params, plan, Vec::new(), rule).relaxed_by(gamma))
}

struct Damped {
    neighbours: Vec<NodeId>,
    /// gamma W_ij, in the order of the neighbours.
    weights: Vec<f32>,
    /// 1 - gamma (1 - W_ii).
    own: f32,
}

impl Party for Damped {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.x)
    }

    fn received(&mut self, local: &mut Local, _: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let place = self.neighbours.binary_search(&from).expect("only neighbours send");
        p.add_into(self.weights[place], &mut local.update);
        Ok(())
    }
}

impl Rule for Damped {
    /// z_i is sent, and its share begins the sum over what arrives.
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        for (x, update) in local.x.iter_mut().zip(&mut local.update) {
            *x -= *update;
            *update = self.own * *x;
        }
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        std::mem::swap(&mut local.x, &mut local.update);
    }

    fn state(&mut self, _: &mut dyn Visitor) {}
}
