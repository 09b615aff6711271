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

use super::prelude::*;

pub(super) const ENTRY: Entry = Entry {
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
            "gossip step; default F x nominal delta (top-k: half of that, at most F x 4.2 k / d), \
             F = min(0.7, 1 / (2 max_i sum_{j != i} |W_ij|)): half of the limit of stability; 1 \
             where C is exact",
        ),
        (
            "order",
            "\"icml\" (default; Algorithm 2 of 2019) or \"iclr\" (Algorithm 1 of 2020: gossip and \
             gradient overlap)",
        ),
    ],
    compresses: true,
    relaxation: Some("gamma"),
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

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    gamma: Option<f64>,
    order: Order,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction("choco")?;
    let gamma = nine_digits(positive(
        "rule.gamma",
        params.gamma.unwrap_or_else(|| steps::of_copies(setting)),
    )?);
    params.gamma = Some(gamma);
    let (topology, order) = (Arc::clone(setting.topology), params.order);
    let plan = match order {
        Order::Icml => Gossip::after_gradient(&topology, setting.compressed()),
        Order::Iclr => Gossip::around_gradient(&topology, setting.compressed()),
    };
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let copies = Replicas::new(&topology, node, &vec![0.0; x.len()]);
        let weights = copies.row.weights.iter().map(|w| gamma as f32 * w).collect();
        let off_diagonal = gamma as f32 * copies.row.off_diagonal();
        Choco { order, weights, off_diagonal, copies }
    }))
}

struct Choco {
    order: Order,
    /// gamma W_ij.
    weights: Vec<f32>,
    /// gamma (1 - W_ii).
    off_diagonal: f32,
    /// xh_i and xh_j.
    copies: Replicas,
}

impl Party for Choco {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        vector::difference(&local.x, &self.copies.own, &mut local.update);
        out.vector(&local.update)
    }

    fn sent(&mut self, _: &mut Local, _: &At, _: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(1.0, &mut self.copies.own);
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, _: &At, from: NodeId) -> Target<'a> {
        Some((1.0, self.copies.of_mut(from)))
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&self.copies)
    }
}

impl Rule for Choco {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        if self.order == Order::Icml {
            vector::subtract(&local.update, &mut local.x);
        }
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        let off_diagonal = self.off_diagonal;
        if self.order == Order::Iclr {
            vector::subtract(&local.update, &mut local.x);
        }
        self.copies.sum_into(&mut local.x, &self.weights, |x, own| x - off_diagonal * own);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        self.copies.state(visitor, "xh_i", "xh_j");
    }
}
