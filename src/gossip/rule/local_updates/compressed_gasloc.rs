//! GASLoC on public copies: local steps, an outer Nesterov momentum, and gossip by compressed
//! differences.
//!
//! Cagnasso, Belilovsky, Oyallon: Unifying Local Communications and Local Updates for LLM
//! Pretraining (2026), see [`super::gasloc`]; Koloskova, Stich, Jaggi: Decentralized Stochastic
//! Optimization and Gossip Algorithms with Compressed Communication (2019), Algorithm 2.
//!
//! DIFFERENCE to both: GASLoC mixes v' itself, here its public copy is mixed by CHOCO's step:
//!
//! ```text
//! v_i' = x_i - eta u_i;  q_i = C(v_i' - vh_i);  vh_i += q_i at every holder
//! x_i' = v_i' + omega sum_j W_ij (vh_j - vh_i) + gamma (v_i' - v_i)
//! ```
//! W is symmetric, so the copies' terms cancel in the mean over nodes: it moves as GASLoC's for any
//! C, which is DiLoCo's Nesterov step. With an exact C and omega = 1, vh = v' and this is GASLoC;
//! with eta = 1 and gamma = 0 it is CHOCO.
//!
//! omega by default follows from W, the compressor and gamma (`steps`), and is tried by
//! `tests/rules/gossip_alone.rs`. State: v, the own copy, one copy per neighbour.

use crate::gossip::rule::{
    prelude::*,
    public_copies::{GossipStep, Mixing, Movement},
};

pub(crate) const ENTRY: Entry = Entry {
    name: "compressed-gasloc",
    summary: "H local steps and a Nesterov momentum as gasloc, gossip by compressed differences \
              as choco",
    paper: "Cagnasso et al. 2026, Unifying Local Communications and Local Updates for LLM \
            Pretraining; Koloskova et al. 2019, Algorithm 2",
    update: "u_i = x_i - (x_i after H local steps on the data of i);  v_i' = x_i - eta u_i\n\
             q_i = C(v_i' - vh_i);  vh_i += q_i at every holder\n\
             x_i' = v_i' + omega sum_j W_ij (vh_j - vh_i) + gamma (v_i' - v_i);\n\
             v_i = x_i at first",
    state: "v_i of the round before, the own public copy and one per neighbour",
    sends: "q_i, once in H steps",
    conditions: "a contraction (nominal delta > 0); a symmetric W that stays the same; eta / (1 - \
                 gamma) multiplies the inner step in the long run",
    constants: &[
        ("outer_step", "eta; 0.7 (default: DiLoCo's)"),
        ("outer_momentum", "gamma, from 0, below 1; 0.5 (default: that of gasloc)"),
        (
            "gossip_step",
            "omega; default (1 - gamma)^2 times the default of choco's gamma; of an unbiased C \
             min(1, delta / ((2 - delta) max_i sum_{j != i} |W_ij|)) (1 - gamma) / (1 - gamma \
             delta^3), delta nominal; 1 where C is exact; \"measured\": the same at the \
             contraction of the node's own differences, of a link the lesser of its two ends",
        ),
    ],
    compresses: true,
    prepare,
    ..Entry::BLANK
};

params! {
    outer_step: f64 = 0.7,
    outer_momentum: f64 = 0.5,
    gossip_step: Option<GossipStep> = None,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    params.outer_step = nine_digits(positive("rule.outer_step", params.outer_step)?);
    let outer = params.outer_momentum;
    let momentum = constants::below_one("rule.outer_momentum", outer)?;
    let at = steps::at_contraction(setting, outer, 2);
    let default = at(steps::expected(setting));
    let step = params.gossip_step;
    let mixing = Mixing::resolve("rule.gossip_step", step, || default, at, setting)?;
    params.gossip_step = Some(mixing.step);
    let (step, omega) = (params.outer_step as f32, mixing.at_first);
    let plan = mixing.after_gradient(setting);
    let rule =
        move |node, x: &[f32]| mixing.rule(node, x.len(), Outer { step, momentum, v: x.to_vec() });
    Ok(ENTRY.prepared(&params, plan, warnings, rule).relaxed_by(omega))
}

struct Outer {
    step: f32,
    momentum: f32,
    v: Vec<f32>,
}

impl Movement for Outer {
    fn gradient(&mut self, local: &mut Local, _: f32) {
        // The model is v' until the frames are there.
        let step = self.step;
        vector::update(&mut local.x, &local.update, |x, u| *x -= step * u);
    }

    fn arrived(&mut self, local: &mut Local) {
        for (x, v) in local.x.iter_mut().zip(&mut self.v) {
            let next = *x;
            *x = next + self.momentum * (next - *v);
            *v = next;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("v", &mut self.v);
    }

    fn names(&self) -> [&'static str; 2] {
        ["vh_i", "vh_j"]
    }
}
