//! DeepSqueeze: error-compensated compression of the model.
//!
//! Tang, Lian, Qiu, Yuan, Zhang, Zhang, Liu: DeepSqueeze: Decentralization Meets Error-Compensated Compression (2019), Algorithm 1.
//!
//! ```text
//! z_i  = x_i - lr g_i(x_i)
//! v_i  = z_i + d_i                      d_0 = 0
//! c_i  = C(v_i);   d_i' = v_i - c_i
//! x_i' = z_i + eta sum_j W_ij (c_j - c_i)
//! ```
//! DIFFERENCE to widely shown slides: they print d' = C(v) - v and add it, which doubles the missing mass instead of making it good.
//! No copies of neighbours: on a schedule W is the matrix W_t of the round, and a node that meets nobody compresses all the same.
//! State: x and d, whatever the degree; any x_0. The mean moves by -lr mean g for any C. The error does not vanish with the step
//! (C is applied to the model), so the consensus distance has a floor that grows with eta.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting, mix::Rows, nine_digits, positive};
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
    name: "deep-squeeze",
    summary: "send the compressed model plus what was lost before; no copies of neighbours",
    paper: "Tang et al. 2019, DeepSqueeze: Decentralization Meets Error-Compensated Compression, Algorithm 1",
    update: "z_i = x_i - lr g_i; v_i = z_i + d_i; c_i = C(v_i); d_i = v_i - c_i; x_i = z_i + eta sum_j W_ij (c_j - c_i)",
    state: "one error memory",
    sends: "c_i",
    conditions: "a contraction (nominal delta > 0); eta up to about 0.7 delta is stable",
    constants: &[(
        "eta",
        "averaging step; default 0.35 x nominal delta, half of the measured limit of stability; 1 where C is exact",
    )],
    compresses: true,
    home: "path",
    prepare,
};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    eta: Option<f64>,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction("deep-squeeze")?;
    let exact = setting.nominal_delta >= 1.0;
    let eta = params.eta.unwrap_or(if exact { 1.0 } else { 0.35 * setting.nominal_delta.max(0.01) });
    let eta = nine_digits(positive("rule.eta", eta)?);
    params.eta = Some(eta);
    let schedule = Arc::clone(setting.schedule);
    Ok(Prepared {
        plan: Arc::new(Gossip::after_gradient(Arc::clone(setting.topology), setting.compressed()).following(&schedule)),
        resolved: config::resolved("deep-squeeze", &params),
        warnings,
        spawn: Box::new(move |node, x| {
            let (error, spare) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            Box::new(DeepSqueeze { rows: Rows::of(&schedule, node), eta: eta as f32, x, error, spare })
        }),
    })
}

struct DeepSqueeze {
    rows: Rows,
    eta: f32,
    /// x, and z between the gradient and the exchange.
    x: Vec<f32>,
    /// d, and v between the gradient and the exchange.
    error: Vec<f32>,
    spare: Vec<f32>,
}

impl Party for DeepSqueeze {
    fn outgoing(&mut self, _at: &At, _to: Option<NodeId>, out: &mut Writer<'_>) -> Result<(), NonFinite> {
        out.vector(&self.error)
    }

    fn sent(&mut self, at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(-1.0, &mut self.error);
        own.add_into(-self.eta * self.rows.at(at.round).away(), &mut self.x);
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        payload.add_into(self.eta * self.rows.at(at.round).weight(from), &mut self.x);
        Ok(())
    }
}

impl Rule for DeepSqueeze {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.spare = update;
        for ((x, error), update) in self.x.iter_mut().zip(&mut self.error).zip(&self.spare) {
            *x -= update;
            *error += *x;
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        3
    }
}
