//! CHOCO-SGD: gossip on public copies that follow the models by compressed differences.
//!
//! Koloskova, Stich, Jaggi: Decentralized Stochastic Optimization and Gossip Algorithms with
//! Compressed Communication (2019), Algorithm 2 (order `icml`); Koloskova, Lin, Stich, Jaggi:
//! Decentralized Deep Learning with Arbitrary Communication Compression (2020), Algorithm 1 (order
//! `iclr`: gossip and gradient overlap).
//!
//! xh_0 = 0 everywhere; any x_0. The mean moves by -lr mean g for any C, and the compression error
//! vanishes as the models converge. State: x, the own copy, one copy per neighbour. DIFFERENCE to
//! the papers' three-vector form, which keeps the sum of the copies: single copies can be checked
//! against their owners'.

use crate::gossip::rule::{
    prelude::*,
    public_copies::{GossipStep, Mixing, Movement},
};

pub(crate) const ENTRY: Entry = Entry {
    name: "choco",
    summary: "gossip on public copies that follow the models by compressed differences",
    paper: "Koloskova et al. 2019, Decentralized Stochastic Optimization and Gossip Algorithms \
            with Compressed Communication, Algorithm 2",
    update: "icml:  h_i = x_i - lr g_i(x_i);\n\
             q_i = C(h_i - xh_i);\n\
             xh_i += q_i at every holder;\n\
             x_i' = h_i + gamma sum_j W_ij (xh_j - xh_i)\n\
             iclr:  q_i = C(x_i - xh_i);\n\
             xh_i += q_i at every holder;\n\
             x_i' = x_i - lr g_i(x_i) + gamma sum_j W_ij (xh_j - xh_i)",
    state: "the own public copy and one per neighbour",
    sends: "q_i",
    conditions: "a contraction (nominal delta > 0); gamma below delta / max_i sum_{j != i} |W_ij| \
                 is stable for random-k (1.5 delta on a ring), below about 5 k / d for top-k",
    constants: &[
        (
            "gamma",
            "gossip step; default F x nominal delta (if C sends the k greatest entries: half of \
             that, at most F x 4.2 k / d), F = min(0.7, 1 / (2 max_i sum_{j != i} |W_ij|)): half \
             of the limit of stability; 1 where C is exact; \"measured\": min(1, d / ((2 - d) \
             max_i sum_{j != i} |W_ij|)) of an unbiased C, else F x d, with the contraction d of \
             the node's own differences; of a link the lesser of its two ends (not with order \
             iclr)",
        ),
        (
            "order",
            "\"icml\" (default; Algorithm 2 of 2019) or \"iclr\" (Algorithm 1 of 2020: gossip and \
             gradient overlap)",
        ),
    ],
    compresses: true,
    prepare,
    ..Entry::BLANK
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    #[default]
    Icml,
    Iclr,
}

params! {
    gamma: Option<GossipStep> = None,
    order: Order = Order::default(),
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction("choco")?;
    let (default, at) = (|| steps::of_copies(setting), steps::at_contraction(setting, 0.0, 0));
    let mixing = Mixing::resolve("rule.gamma", params.gamma, default, at, setting)?;
    params.gamma = Some(mixing.step);
    let (order, gamma) = (params.order, mixing.at_first);
    let plan = match order {
        Order::Icml => mixing.after_gradient(setting),
        Order::Iclr if mixing.step == GossipStep::Measured => {
            let problem = "with order = \"iclr\" the update takes the place of the difference that \
                           would be measured: give a number, or order = \"icml\"";
            return Err(ConfigError::new("rule.gamma", "\"measured\"", problem));
        }
        Order::Iclr => Gossip::around_gradient(setting.topology, setting.compressed()),
    };
    let rule = move |node, x: &[f32]| mixing.rule(node, x.len(), order);
    Ok(ENTRY.prepared(&params, plan, warnings, rule).relaxed_by(gamma))
}

impl Movement for Order {
    fn gradient(&mut self, local: &mut Local, _: f32) {
        if *self == Order::Icml {
            vector::subtract(&local.update, &mut local.x);
        }
    }

    fn arrived(&mut self, local: &mut Local) {
        if *self == Order::Iclr {
            vector::subtract(&local.update, &mut local.x);
        }
    }

    fn names(&self) -> [&'static str; 2] {
        ["xh_i", "xh_j"]
    }
}
