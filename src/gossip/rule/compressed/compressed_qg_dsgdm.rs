//! QG-DSGDm on public copies: a momentum of the mixed models, and gossip by compressed differences.
//!
//! Lin, Karimireddy, Stich, Jaggi: Quasi-Global Momentum: Accelerating Decentralized Deep Learning
//! on Heterogeneous Data (2021), see [`qg_dsgdm`](crate::gossip::rule::decentralized::qg_dsgdm);
//! Koloskova, Stich, Jaggi: Decentralized Stochastic Optimization and Gossip Algorithms with
//! Compressed Communication (2019), Algorithm 2.
//!
//! DIFFERENCE to both: QG-DSGDm mixes z itself, here its public copy is mixed by CHOCO's step:
//!
//! ```text
//! z_i = x_i - lr (beta m_i + g_i);  q_i = C(z_i - zh_i);  zh_i += q_i at every holder
//! x_i' = z_i + omega sum_j W_ij (zh_j - zh_i);  m_i' = mu m_i + (1 - mu) (x_i - x_i') / lr
//! ```
//! W is symmetric, so the copies' terms cancel in the mean over nodes: the means of x and m move as
//! those of QG-DSGDm for any C, which is SGD with momentum. With an exact C and omega = 1, zh = z
//! and this is QG-DSGDm; with beta = 0 it is CHOCO.
//!
//! A round with step 0 leaves m as it is. State: m, x of the round's beginning, the own copy, one
//! copy per neighbour.

use crate::gossip::rule::{
    decentralized::qg_dsgdm,
    prelude::*,
    public_copies::{GossipStep, Mixing, Movement},
};

pub(crate) const ENTRY: Entry = Entry {
    name: "compressed-qg-dsgdm",
    summary: "a momentum of the mixed models as qg-dsgdm, gossip by compressed differences as \
              choco",
    paper: "Lin et al. 2021, Quasi-Global Momentum: Accelerating Decentralized Deep Learning on \
            Heterogeneous Data, Algorithm 1; Koloskova et al. 2019, Algorithm 2",
    update: "z_i  = x_i - lr (beta m_i + g_i(x_i))   m_i = 0 at first\n\
             q_i  = C(z_i - zh_i);  zh_i += q_i at every holder\n\
             x_i' = z_i + omega sum_j W_ij (zh_j - zh_i)\n\
             m_i' = mu m_i + (1 - mu) (x_i - x_i') / lr",
    state: "the momentum m, x_i of the round's beginning, the own public copy and one per \
            neighbour",
    sends: "q_i",
    conditions: "a contraction (nominal delta > 0); a symmetric W that stays the same; the \
                 momentum is the rule's: optimizer.momentum beside it is refused",
    constants: &[
        qg_dsgdm::MOMENTUM,
        qg_dsgdm::MU,
        (
            "gossip_step",
            "omega; default as that of compressed-gasloc with the momentum beta, of a biased C (1 \
             - beta) times it; or \"measured\"",
        ),
    ],
    compresses: true,
    own_momentum: true,
    needs_step: true,
    prepare,
    ..Entry::BLANK
};

params! {
    momentum: f64 = 0.9,
    mu: Option<f64> = None,
    gossip_step: Option<GossipStep> = None,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    let momentum = params.momentum;
    let beta = constants::momentum(momentum)?;
    let mu = constants::below_one("rule.mu", *params.mu.get_or_insert(momentum))?;
    let at = steps::at_contraction(setting, momentum, 3);
    let default = at(steps::expected(setting));
    let step = params.gossip_step;
    let mixing = Mixing::resolve("rule.gossip_step", step, || default, at, setting)?;
    params.gossip_step = Some(mixing.step);
    let (plan, omega) = (mixing.after_gradient(setting), mixing.at_first);
    let rule = move |node, x: &[f32]| {
        let zeros = vec![0.0; x.len()];
        mixing.rule(node, x.len(), QuasiGlobal { beta, mu, lr: 0.0, m: zeros.clone(), x: zeros })
    };
    Ok(ENTRY.prepared(&params, plan, warnings, rule).relaxed_by(omega))
}

struct QuasiGlobal {
    beta: f32,
    mu: f32,
    /// The step of the round.
    lr: f32,
    m: Vec<f32>,
    /// x_i of the round's beginning.
    x: Vec<f32>,
}

impl Movement for QuasiGlobal {
    fn gradient(&mut self, local: &mut Local, step: f32) {
        self.lr = step;
        self.x.copy_from_slice(&local.x);
        let along = step * self.beta;
        for ((x, u), m) in local.x.iter_mut().zip(&local.update).zip(&self.m) {
            *x -= *u + along * m;
        }
    }

    fn mixed(&mut self, next: &[f32]) {
        qg_dsgdm::follow(&mut self.m, self.mu, self.lr, &self.x, next);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("m", &mut self.m);
        visitor.scratch(self.x.len());
    }

    fn names(&self) -> [&'static str; 2] {
        ["zh_i", "zh_j"]
    }
}
