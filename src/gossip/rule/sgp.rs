//! SGP: stochastic gradient push, for links that go one way or nodes of unlike degree.
//!
//! Assran, Loizou, Ballas, Rabbat: Stochastic Gradient Push for Distributed Deep Learning (2019),
//! Algorithm 1; push-sum is Kempe, Dobra, Gehrke: Gossip-Based Computation of Aggregate Information
//! (2003).
//!
//! ```text
//! z_i  = x_i / w_i                                          w_i = 1 at first
//! x_i' = x_i - lr g_i(z_i)
//! send (p_ji x_i', p_ji w_i) to each receiver j;   x_i = sum_j p_ij x_j',  w_i = sum_j p_ij w_j        (j = i included)
//! ```
//! P need only be column-stochastic: what a node gives away and what it keeps make up what it had.
//! On a static topology p_ji = 1 / (1 + deg i), which uses no weights of the topology and is not
//! doubly stochastic where degrees differ; on a schedule it is the matrix W_t of the round. z is
//! the model that is evaluated. Sum w = n, and the mean of all x moves by -lr mean g.
//!
//! DIFFERENCE to the paper, which multiplies by p_ii: a node subtracts what it sent when it has
//! been sent ([`Party::sent`]), so what never arrives stays with it. In the paper's form a lost
//! message takes its mass with it, w falls to 0 and lr / w explodes. DIFFERENCE: w travels as two
//! `f32` whose sum it is and is kept in `f64`, so that many rounds of rounding do not add up to a
//! drift of w against x. State: x, w; z and what is sent share a vector.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting};
use crate::{
    compress::{Format, Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        party::{Party, Writer},
        plan::{At, Gossip},
    },
    mixing::Schedule,
    units::{NodeId, Round},
    vector,
};

pub(super) const ENTRY: Entry = Entry {
    name: "sgp",
    summary: "push weighted parts of models and of a weight to the neighbours; the model is their \
              quotient",
    paper: "Assran et al. 2019, Stochastic Gradient Push for Distributed Deep Learning, Algorithm \
            1",
    update: "z_i = x_i / w_i; x_i' = x_i - lr g_i(z_i); x_i = sum_j p_ij x_j'; w_i = sum_j p_ij \
             w_j",
    state: "the push-sum weight w, and z",
    sends: "p x_i' and p w_i, 4 d + 8 bytes; another frame for each receiver",
    conditions: "P column-stochastic and connected: p = 1 / (1 + degree) on a static topology, \
                 whatever its weights, else the schedule's",
    constants: &[],
    compresses: false,
    home: "path",
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

/// Numbers behind the model's in a frame: w as the sum of two.
const WEIGHT: usize = 2;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let (topology, schedule) = (Arc::clone(setting.topology), Arc::clone(setting.schedule));
    let format = Format::Floats(setting.parameters + WEIGHT);
    let plan =
        Gossip::after_gradient(Arc::clone(&topology), format).following(&schedule).one_for_each();
    Ok(Prepared {
        plan: Arc::new(plan),
        resolved: config::resolved("sgp", &params),
        warnings: Vec::new(),
        spawn: Box::new(move |node, x| {
            let degree = topology.neighbours(node).len();
            let share = schedule.is_static().then(|| 1.0 / (1.0 + degree as f32));
            let mut z = Vec::with_capacity(x.len() + WEIGHT);
            z.extend_from_slice(&x);
            let spare = vec![0.0; x.len()];
            Box::new(Sgp {
                node,
                schedule: Arc::clone(&schedule),
                share,
                w: 1.0,
                x,
                z,
                spare,
                written: None,
            })
        }),
    })
}

struct Sgp {
    node: NodeId,
    schedule: Arc<Schedule>,
    /// p, if it is the same in all rounds.
    share: Option<f32>,
    w: f64,
    x: Vec<f32>,
    /// z while it is lent; what is sent, with w behind it, while there is an exchange.
    z: Vec<f32>,
    /// The update while it is computed.
    spare: Vec<f32>,
    /// The round whose frame stands in `z`.
    written: Option<Round>,
}

impl Sgp {
    /// What a receiver is given of what is here. In every round all receivers are given the same
    /// share.
    fn share(&self, round: Round, to: NodeId) -> f32 {
        self.share.unwrap_or_else(|| self.schedule.mix(round).weight(to, self.node) as f32)
    }
}

impl Party for Sgp {
    fn outgoing(
        &mut self,
        at: &At,
        to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        if self.written.replace(at.round) != Some(at.round) {
            // Once a round, before the first receiver's part is gone from x.
            let p =
                self.share(at.round, to.expect("this rule's plan has a frame for each receiver"));
            let w = f64::from(p) * self.w;
            let coarse = w as f32;
            self.z.clear();
            self.z.extend(self.x.iter().map(|x| p * x));
            self.z.extend([coarse, (w - f64::from(coarse)) as f32]);
        }
        out.vector(&self.z)
    }

    fn sent(&mut self, _at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        let (x, w) = split(own, self.x.len());
        x.add_into(-1.0, &mut self.x);
        self.w -= w;
    }

    fn received(
        &mut self,
        _at: &At,
        _from: NodeId,
        payload: &Payload<'_>,
    ) -> Result<(), Malformed> {
        let (x, w) = split(payload, self.x.len());
        if w <= 0.0 {
            return Err(Malformed(format!("the push-sum weight {w}: it is above 0")));
        }
        x.add_into(1.0, &mut self.x);
        self.w += w;
        Ok(())
    }
}

impl Rule for Sgp {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        let w = self.w as f32;
        self.z.clear();
        self.z.extend(self.x.iter().map(|x| x / w));
        (std::mem::take(&mut self.z), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, _step: f32, z: Vec<f32>, update: Vec<f32>) {
        self.z = z;
        self.spare = update;
        vector::subtract(&self.spare, &mut self.x);
    }

    fn model(&self, out: &mut [f32]) {
        let w = self.w as f32;
        for (out, x) in out.iter_mut().zip(&self.x) {
            *out = x / w;
        }
    }

    fn vectors(&self) -> usize {
        3
    }
}

/// A frame's model, and its weight.
fn split<'a>(payload: &Payload<'a>, d: usize) -> (Payload<'a>, f64) {
    let Payload::Floats(bytes) = *payload else {
        panic!("{payload:?} is not floats: the rule and its plan disagree")
    };
    let (x, w) = bytes.split_at(4 * d);
    (
        Payload::Floats(x),
        w.as_chunks::<4>().0.iter().map(|part| f64::from(f32::from_le_bytes(*part))).sum(),
    )
}
