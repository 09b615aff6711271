//! SGP: stochastic gradient push, for directed links or nodes of different degrees.
//!
//! Assran, Loizou, Ballas, Rabbat: Stochastic Gradient Push for Distributed Deep Learning (2019),
//! Algorithm 1; push-sum is Kempe, Dobra, Gehrke: Gossip-Based Computation of Aggregate Information
//! (2003).
//!
//! P need only be column-stochastic: the shares that a node sends and keeps add up to 1. On a
//! static topology p_ji = 1 / (1 + deg i), which uses no weights of the topology and is not doubly
//! stochastic where degrees differ; on a schedule it is the matrix W_t of the round. z is the model
//! that is evaluated. Sum w = n, and the mean of all x moves by -lr mean g.
//!
//! DIFFERENCE to the paper, which multiplies by p_ii: a node subtracts what it sent when it has
//! been sent ([`Party::sent`]), so it keeps the mass of a lost message. In the paper's form this
//! mass is lost, w falls to 0 and lr / w explodes. DIFFERENCE: w is sent as the sum of two `f32`
//! and kept in `f64`, so that the rounding of many rounds does not make w drift against x. State:
//! x, w; z and the frame share a vector.

use crate::{compress::Malformed, gossip::rule::prelude::*, mixing::Schedule, vector::update};

pub(crate) const ENTRY: Entry = Entry {
    name: "sgp",
    summary: "push weighted parts of models and of a weight to the neighbours; the model is their \
              quotient",
    paper: "Assran et al. 2019, Stochastic Gradient Push for Distributed Deep Learning, Algorithm \
            1",
    update: "z_i  = x_i / w_i   w_i = 1 at first\n\
             x_i' = x_i - lr g_i(z_i)\n\
             send (p_ji x_i', p_ji w_i) to each receiver j;\n\
             x_i = sum_j p_ij x_j',  w_i = sum_j p_ij w_j   (j = i included)",
    state: "the push-sum weight w, and z",
    sends: "p x_i' and p w_i, 4 d + 8 bytes; another frame for each receiver",
    conditions: "P column-stochastic and connected: p = 1 / (1 + degree) on a static topology, \
                 whatever its weights, else the schedule's",
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

/// Values after the model's in a frame: w as the sum of two.
const WEIGHT: usize = 2;

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let (topology, schedule) = (Arc::clone(setting.topology), Arc::clone(setting.schedule));
    let format = Format::Floats(setting.parameters + WEIGHT);
    let plan = Gossip::after_gradient(&topology, format).following(&schedule).one_for_each();
    ENTRY.without_constants(table, plan, Vec::new(), move |node, x| Sgp {
        share: schedule.is_static().then(|| 1.0 / (1.0 + topology.neighbours(node).len() as f32)),
        node,
        schedule: Arc::clone(&schedule),
        w: 1.0,
        x: x.to_vec(),
        written: None,
    })
}

struct Sgp {
    node: NodeId,
    schedule: Arc<Schedule>,
    /// p, if it is the same in all rounds.
    share: Option<f32>,
    w: f64,
    /// The numerator; `local.x` is x / w, or a frame with w behind it during an exchange.
    x: Vec<f32>,
    /// The round whose frame is in `local.x`.
    written: Option<Round>,
}

impl Sgp {
    /// The share of its x and w that a node sends to a receiver, the same for all receivers of a
    /// round.
    fn share(&self, round: Round, to: NodeId) -> f32 {
        self.share.unwrap_or_else(|| self.schedule.mix(round).weight(to, self.node) as f32)
    }
}

impl Party for Sgp {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if self.written.replace(at.round) != Some(at.round) {
            // Once a round, before the first receiver's share is subtracted from x.
            let to = out.receiver().expect("this rule's plan has a frame for each receiver");
            let p = self.share(at.round, to);
            local.x.reserve_exact((self.x.len() + WEIGHT).saturating_sub(local.x.len()));
            let w = f64::from(p) * self.w;
            let coarse = w as f32;
            local.x.resize(self.x.len(), 0.0);
            vector::scaled(p, &self.x, &mut local.x);
            local.x.extend([coarse, (w - f64::from(coarse)) as f32]);
        }
        out.vector(&local.x)
    }

    fn sent(&mut self, _: &mut Local, _: &At, _: Option<NodeId>, own: &Payload<'_>) {
        let (x, w) = split(own, self.x.len());
        x.add_into(-1.0, &mut self.x);
        self.w -= w;
    }

    fn received(&mut self, _: &mut Local, _: &At, _: NodeId, payload: &Payload<'_>) -> Received {
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
    fn point(&mut self, local: &mut Local) {
        let w = self.w as f32;
        local.x.resize(self.x.len(), 0.0);
        update(&mut local.x, &self.x, |out, x| *out = x / w);
    }

    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        vector::subtract(&local.update, &mut self.x);
    }

    fn model(&self, _: &Local, out: &mut [f32]) {
        let w = self.w as f32;
        update(out, &self.x, |out, x| *out = x / w);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("x", &mut self.x);
        visitor.number("w", &mut self.w);
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
