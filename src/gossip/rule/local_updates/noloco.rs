//! NoLoCo: DiLoCo's outer momentum with neighbours in place of an all-reduce.
//!
//! Kolehmainen, Blagoev, Donaghy, Ersoy, Nies: NoLoCo: No-all-reduce Low Communication Training
//! Method for Large Models (2025), the outer step; written from the authors' program
//! (gensyn-ai/noloco, `sparse_optimizer_c.py`), because only the paper's abstract was at hand.
//!
//! ```text
//! m_i' = alpha m_i + beta mean_j (th_j - x_j) + gamma (mean_j x_j - x_i);  x_i' = x_i + m_i'
//! ```
//! with the means over a pair of nodes, drawn again each round. Here W takes the place of the
//! means:
//! `topology.schedule = "random-matching"` gives the paper's pairs, any other W the same step with
//! neighbours. With u_j = x_j - th_j and v_j = gamma x_j - beta u_j both means are one, so a frame
//! has d numbers; with gamma = beta, as in the authors' program, it is beta times the trained
//! model. The mean over the nodes makes a step with heavy-ball momentum alpha and step beta. With
//! alpha 0 and beta = gamma = 1 it is D-PSGD (atc).
//!
//! Disagreement shrinks on its own if, for W of every round, gamma (1 - lambda) < 2 (1 + alpha)
//! with its least eigenvalue lambda: gamma <= 1 + alpha is enough. With random pairs of many nodes
//! its mean square shrinks if gamma < 2 (1 - alpha^2), which `tests/rules/properties.rs` tries.
//!
//! DIFFERENCE: W in place of the mean over a pair. State: m, one accumulator.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "noloco",
    summary: "H local steps inside, a momentum step on what the neighbours changed outside",
    paper: "Kolehmainen et al. 2025, NoLoCo: No-all-reduce Low Communication Training Method for \
            Large Models",
    update: "u_i = x_i - (x_i after H local steps on the data of i);  v_i = gamma x_i - beta u_i\n\
             m_i' = alpha m_i + gamma x_i - sum_j W_ij v_j;  x_i' = x_i - m_i'",
    state: "the outer momentum m",
    sends: "v, 4 d bytes, once in H steps",
    conditions: "rho < 1; gamma at most 1 + alpha, and below 2 (1 - alpha^2) on a schedule; beta / \
                 (1 - alpha) multiplies the inner step in the long run",
    constants: &[
        ("outer_step", "beta, 0.7 (default: the authors')"),
        ("outer_momentum", "alpha, 0.5 (default: the authors'); from 0, below 1"),
        ("pull", "gamma, towards the neighbours' models; default: outer_step"),
    ],
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

params! {
    outer_step: f64 = 0.7,
    outer_momentum: f64 = 0.5,
    pull: Option<f64> = None,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    params.outer_step = nine_digits(positive("rule.outer_step", params.outer_step)?);
    let alpha = constants::below_one("rule.outer_momentum", params.outer_momentum)?;
    let pull = params.pull.unwrap_or(params.outer_step);
    let pull = nine_digits(positive("rule.pull", pull)?);
    params.pull = Some(pull);
    let mut warnings = Vec::new();
    let schedule = Arc::clone(setting.schedule);
    let momentum = params.outer_momentum;
    let most =
        if schedule.is_static() { 1.0 + momentum } else { 2.0 * (1.0 - momentum * momentum) };
    if pull > most {
        warnings.push(format!(
            "rule.pull = {pull} with outer_momentum = {momentum}: above {most:.3} the models of \
             the nodes may drift apart"
        ));
    }
    let plan = Gossip::after_gradient(setting.topology, setting.dense());
    let (beta, gamma) = (params.outer_step as f32, pull as f32);
    let plan = plan.following(&schedule);
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let (rows, zeros) = (Rows::of(&schedule, node), vec![0.0; x.len()]);
        NoLoCo { rows, alpha, beta, gamma, m: zeros.clone(), acc: zeros }
    }))
}

struct NoLoCo {
    rows: Rows,
    alpha: f32,
    beta: f32,
    gamma: f32,
    m: Vec<f32>,
    /// sum_j W_ij v_j.
    acc: Vec<f32>,
}

impl Party for NoLoCo {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.update)
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        Some((self.rows.at(at.round).weight(from), &mut self.acc))
    }
}

impl Rule for NoLoCo {
    fn gradient(&mut self, local: &mut Local, round: Round, _: f32) {
        let own = self.rows.at(round).own;
        for ((u, x), acc) in local.update.iter_mut().zip(&local.x).zip(&mut self.acc) {
            *u = self.gamma * x - self.beta * *u;
            *acc = own * *u;
        }
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        for ((x, m), acc) in local.x.iter_mut().zip(&mut self.m).zip(&self.acc) {
            *m = self.alpha * *m + (self.gamma * *x - acc);
            *x -= *m;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("m", &mut self.m);
        visitor.scratch(self.acc.len());
    }
}
