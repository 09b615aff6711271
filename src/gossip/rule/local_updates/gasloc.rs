//! GASLoC: local steps, then one gossip step accelerated by an outer Nesterov momentum.
//!
//! Cagnasso, Belilovsky, Oyallon: Unifying Local Communications and Local Updates for LLM
//! Pretraining (2026). The paper's abstract and a summary with its equations were at hand:
//!
//! ```text
//! g_i = (th_i after H local steps) - th_i;  v_t = th_t + eta g_t
//! th_(t+1) = v_t - alpha L v_t + gamma (v_t - v_(t-1))
//! ```
//! with the weighted Laplacian L of the links. Here W = I - alpha L, of any topology or schedule.
//! v_(-1) = th_0, so that the first step has momentum too: then the mean over the nodes moves as
//! DiLoCo's model does (Nesterov's method in its two usual forms). With gamma 0 and eta 1 it is
//! D-PSGD (atc).
//!
//! Disagreement shrinks on its own for every gamma below 1 if W is the same in every round: its
//! part along an eigenvector with value l < 1 follows r^2 - (l + gamma) r + gamma = 0, whose roots
//! are inside the unit circle. gamma = ((1 - sqrt(1 - l^2)) / l)^2 and alike make it shrink by the
//! root of the gap instead of the gap. With a random pair for every node its mean square shrinks up
//! to gamma = 0.7, which `tests/rules/properties.rs` tries with 0.6 and 0.9. State: v_(t-1).

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "gasloc",
    summary: "H local steps inside, an accelerated gossip step (Nesterov) with the neighbours \
              outside",
    paper: "Cagnasso et al. 2026, Unifying Local Communications and Local Updates for LLM \
            Pretraining",
    update: "u_i = x_i - (x_i after H local steps on the data of i);  v_i' = x_i - eta u_i\n\
             x_i' = sum_j W_ij v_j' + gamma (v_i' - v_i);  v_i = x_i at first",
    state: "v_i of the round before",
    sends: "v', 4 d bytes, once in H steps",
    conditions: "rho < 1; on a schedule gamma at most 0.7; eta / (1 - gamma) multiplies the inner \
                 step in the long run",
    constants: &[
        ("outer_step", "eta; 0.7 (default: DiLoCo's)"),
        (
            "outer_momentum",
            "gamma, from 0, below 1; 0.5 (default: this crate's choice, which random pairs bear)",
        ),
    ],
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

params! {
    outer_step: f64 = 0.7,
    outer_momentum: f64 = 0.5,
}

/// The greatest gamma at which disagreement shrinks although the neighbours change.
const MOST_ON_A_SCHEDULE: f64 = 0.7;

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    params.outer_step = nine_digits(positive("rule.outer_step", params.outer_step)?);
    let momentum = constants::below_one("rule.outer_momentum", params.outer_momentum)?;
    let step = params.outer_step as f32;
    let schedule = Arc::clone(setting.schedule);
    let mut warnings = Vec::new();
    if !schedule.is_static() && params.outer_momentum > MOST_ON_A_SCHEDULE {
        warnings.push(format!(
            "rule.outer_momentum = {}: above {MOST_ON_A_SCHEDULE} the models of nodes that meet \
             other neighbours in every round may drift apart",
            params.outer_momentum
        ));
    }
    let plan = Gossip::after_gradient(setting.topology, setting.dense());
    let plan = plan.following(&schedule);
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| Gasloc {
        rows: Rows::of(&schedule, node),
        step,
        momentum,
        v: x.to_vec(),
    }))
}

struct Gasloc {
    rows: Rows,
    step: f32,
    momentum: f32,
    v: Vec<f32>,
}

impl Party for Gasloc {
    fn outgoing(&mut self, _: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&self.v)
    }

    fn target<'a>(&'a mut self, local: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        Some((self.rows.at(at.round).weight(from), &mut local.update))
    }
}

impl Rule for Gasloc {
    fn gradient(&mut self, local: &mut Local, round: Round, _: f32) {
        let own = self.rows.at(round).own;
        for ((u, x), v) in local.update.iter_mut().zip(&local.x).zip(&mut self.v) {
            let next = x - self.step * *u;
            *u = own * next + self.momentum * (next - *v);
            *v = next;
        }
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        std::mem::swap(&mut local.x, &mut local.update);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("v", &mut self.v);
    }
}
