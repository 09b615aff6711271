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

use super::{prelude::*, share};

pub(super) const ENTRY: Entry = Entry {
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
             delta^3), delta nominal; 1 where C is exact",
        ),
    ],
    compresses: true,
    relaxation: Some("gossip_step"),
    prepare,
    ..Entry::BLANK
};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    outer_step: f64,
    outer_momentum: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gossip_step: Option<f64>,
}

impl Default for Params {
    fn default() -> Params {
        Params { outer_step: 0.7, outer_momentum: 0.5, gossip_step: None }
    }
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    params.outer_step = nine_digits(positive("rule.outer_step", params.outer_step)?);
    let momentum = share::below_one("rule.outer_momentum", params.outer_momentum)?;
    let default = || steps::of_copies_with_momentum(setting, params.outer_momentum);
    let omega = params.gossip_step.unwrap_or_else(default);
    let omega = nine_digits(positive("rule.gossip_step", omega)?);
    params.gossip_step = Some(omega);
    let (step, omega) = (params.outer_step as f32, omega as f32);
    let topology = Arc::clone(setting.topology);
    let plan = Gossip::after_gradient(&topology, setting.compressed());
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let copies = Replicas::new(&topology, node, &vec![0.0; x.len()]);
        let weights = copies.row.weights.iter().map(|w| omega * w).collect();
        let off_diagonal = omega * copies.row.off_diagonal();
        CompressedGasloc { step, momentum, weights, off_diagonal, v: x.to_vec(), copies }
    }))
}

struct CompressedGasloc {
    step: f32,
    momentum: f32,
    /// omega W_ij.
    weights: Vec<f32>,
    /// omega (1 - W_ii).
    off_diagonal: f32,
    v: Vec<f32>,
    /// vh_i and vh_j.
    copies: Replicas,
}

impl Party for CompressedGasloc {
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

impl Rule for CompressedGasloc {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        // The model is v' until the frames are there.
        let step = self.step;
        vector::update(&mut local.x, &local.update, |x, u| *x -= step * u);
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        for (x, v) in local.x.iter_mut().zip(&mut self.v) {
            let next = *x;
            *x = next + self.momentum * (next - *v);
            *v = next;
        }
        let off_diagonal = self.off_diagonal;
        self.copies.sum_into(&mut local.x, &self.weights, |x, own| x - off_diagonal * own);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("v", &mut self.v);
        self.copies.state(visitor, "vh_i", "vh_j");
    }
}
