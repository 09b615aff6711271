//! QG-DSGDm: D-PSGD with a momentum that follows the mixed models, not the node's own gradients.
//!
//! Lin, Karimireddy, Stich, Jaggi: Quasi-Global Momentum: Accelerating Decentralized Deep Learning
//! on Heterogeneous Data (2021), Algorithm 1; written from public implementations of it, because
//! only the paper's abstract was at hand.
//!
//! Where nodes have different data, a node's own momentum collects what only its data want. Here it
//! collects how far the model has moved after mixing, which is nearly the same on all nodes. On one
//! node m' = mu m + (1 - mu) (beta m + g).
//!
//! A round with step 0 leaves m as it is. State: m, one accumulator.

use crate::gossip::rule::prelude::*;

/// The constants of this rule and of `compressed-qg-dsgdm`.
pub(crate) const MOMENTUM: (&str, &str) =
    ("momentum", "beta, from 0 to below 1; default 0.9 (Lin et al. 2021)");
pub(crate) const MU: (&str, &str) =
    ("mu", "from 0 to below 1; default: momentum (Lin et al. 2021)");

pub(crate) const ENTRY: Entry = Entry {
    name: "qg-dsgdm",
    summary: "D-PSGD with a momentum of the mixed models, for data that differ between nodes",
    paper: "Lin et al. 2021, Quasi-Global Momentum: Accelerating Decentralized Deep Learning on \
            Heterogeneous Data, Algorithm 1",
    update: "z_i  = x_i - lr (beta m_i + g_i(x_i));  x_i' = sum_j W_ij z_j   m_i = 0 at first\n\
             m_i' = mu m_i + (1 - mu) (x_i - x_i') / lr",
    state: "the momentum m",
    sends: "the whole model, 4 d bytes",
    conditions: "rho < 1; the momentum is the rule's: optimizer.momentum beside it is refused",
    constants: &[MOMENTUM, MU],
    follows_schedules: true,
    own_momentum: true,
    needs_step: true,
    prepare,
    ..Entry::BLANK
};

params! {
    momentum: f64 = 0.9,
    mu: Option<f64> = None,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let beta = constants::momentum(params.momentum)?;
    let mu = constants::below_one("rule.mu", *params.mu.get_or_insert(params.momentum))?;
    let schedule = Arc::clone(setting.schedule);
    let plan = Gossip::after_gradient(setting.topology, setting.dense());
    let plan = plan.following(&schedule);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| {
        let (rows, zeros) = (Rows::of(&schedule, node), vec![0.0; x.len()]);
        QgDsgdm { rows, beta, mu, lr: 0.0, m: zeros.clone(), acc: zeros }
    }))
}

struct QgDsgdm {
    rows: Rows,
    beta: f32,
    mu: f32,
    /// The step of the round.
    lr: f32,
    m: Vec<f32>,
    /// sum_j W_ij z_j.
    acc: Vec<f32>,
}

/// m' = mu m + (1 - mu) (x - x') / lr; a round with step 0 leaves m as it is.
pub(crate) fn follow(m: &mut [f32], mu: f32, lr: f32, x: &[f32], next: &[f32]) {
    if lr > 0.0 {
        let weight = (1.0 - mu) / lr;
        for ((m, x), next) in m.iter_mut().zip(x).zip(next) {
            *m = mu * *m + weight * (x - next);
        }
    }
}

impl Party for QgDsgdm {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.update)
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        Some((self.rows.at(at.round).weight(from), &mut self.acc))
    }
}

impl Rule for QgDsgdm {
    fn gradient(&mut self, local: &mut Local, round: Round, step: f32) {
        let (own, along) = (self.rows.at(round).own, step * self.beta);
        self.lr = step;
        let vectors = local.update.iter_mut().zip(&local.x).zip(&self.m).zip(&mut self.acc);
        for (((u, x), m), acc) in vectors {
            *u = x - (*u + along * m);
            *acc = own * *u;
        }
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        follow(&mut self.m, self.mu, self.lr, &local.x, &self.acc);
        std::mem::swap(&mut local.x, &mut self.acc);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("m", &mut self.m);
        visitor.scratch(self.acc.len());
    }
}
