//! BEER: gradient tracking with compressed differences of both the model and the tracked gradient.
//!
//! Zhao, Li, Li, Richtarik, Chi: BEER: Fast O(1/T) Rate for Decentralized Nonconvex Optimization
//! with Communication Compression (2022), Algorithm 1.
//!
//! The mean of V is the mean of g in every round, for any C. A round runs from one gradient to the
//! next: C(X^t - H^{t-1}) is in flight while g(X^t) is computed, which completes V^t; then C(V^t -
//! G^{t-1}) is sent. As H^0 = G^0 = 0, the frames of the first round carry C(0) = 0. g is update /
//! step; in a round of step 0 the gradient is unknown and counts as 0. State: x, V, H and G, and H
//! and G of each neighbour. Between rounds V - g + gamma (W - I) G is kept in place of V, which
//! saves g. DIFFERENCE to the paper, which keeps sums: (W - I) H is formed from single copies,
//! which can be checked against their owners'.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "beer",
    summary: "gradient tracking on public copies of model and tracked gradient: compressed, and \
              no error from data that differ",
    paper: "Zhao et al. 2022, BEER: Fast O(1/T) Rate for Decentralized Nonconvex Optimization \
            with Communication Compression, Algorithm 1",
    update: "V^0 = g(X^0), H^0 = G^0 = 0\n\
             X^{t+1} = X^t + gamma (W - I) H^t - lr V^t;\n\
             H^{t+1} = H^t + C(X^{t+1} - H^t) at every holder\n\
             V^{t+1} = V^t + gamma (W - I) G^t + g(X^{t+1}) - g(X^t);\n\
             G^{t+1} = G^t + C(V^{t+1} - G^t) at every holder",
    state: "V, the own H and G, and H and G of each neighbour",
    sends: "C(X - H) and C(V - G), two frames",
    conditions: "a contraction (nominal delta > 0); a step that shrinks with the gap, as for \
                 gradient-tracking",
    constants: &[(
        "gamma",
        "gossip step; default half of choco's (0.35 x nominal delta on a ring), because V is a \
         second loop around the first; 1 where C is exact",
    )],
    compresses: true,
    needs_gradients: true,
    needs_step: true,
    prepare,
    ..Entry::BLANK
};

/// C(X - H).
const MODELS: u8 = 0;
/// C(V - G).
const TRACKED: u8 = 1;

const STEPS: &[Step] = &[
    Step::Launch(MODELS),
    Step::Gradient,
    Step::Join,
    Step::Land { flight: MODELS, lag: 0 },
    Step::Launch(TRACKED),
    Step::Land { flight: TRACKED, lag: 0 },
];

params! {
    gamma: Option<f64> = None,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    let usual = || steps::of_copies(setting) * if setting.nominal_delta >= 1.0 { 1.0 } else { 0.5 };
    let gamma = params.gamma.unwrap_or_else(usual);
    let gamma = nine_digits(positive("rule.gamma", gamma)?);
    params.gamma = Some(gamma);
    let topology = Arc::clone(setting.topology);
    let formats = vec![setting.compressed(), setting.compressed()];
    let plan = Gossip::of_steps(&topology, STEPS, formats);
    let rule = move |node, x: &[f32]| {
        let copies = Replicas::new(&topology, node, &vec![0.0; 2 * x.len()]);
        Beer {
            off_diagonal: gamma as f32 * copies.row.off_diagonal(),
            weights: copies.row.weights.iter().map(|w| gamma as f32 * w).collect(),
            step: 0.0,
            v: vec![0.0; x.len()],
            copies,
        }
    };
    Ok(ENTRY.prepared(&params, plan, warnings, rule).relaxed_by(gamma))
}

struct Beer {
    /// gamma W_ij.
    weights: Vec<f32>,
    /// gamma (1 - W_ii).
    off_diagonal: f32,
    /// lr of the round.
    step: f32,
    /// V; V - g + gamma (W - I) G between rounds.
    v: Vec<f32>,
    /// H, then G, of the node and of its neighbours: one slice, so that one digest covers both.
    copies: Replicas,
}

/// The half of H and G that a flight updates.
fn half(flight: u8, both: &mut [f32]) -> &mut [f32] {
    let (models, tracked) = both.split_at_mut(both.len() / 2);
    if flight == MODELS { models } else { tracked }
}

impl Party for Beer {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if at.round == Round(0) {
            local.update.fill(0.0);
        } else if at.flight == MODELS {
            for ((spare, x), h) in local.update.iter_mut().zip(&local.x).zip(&self.copies.own) {
                *spare = x - h;
            }
        }
        out.vector(&local.update)
    }

    fn sent(&mut self, _: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(1.0, half(at.flight, &mut self.copies.own));
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        Some((1.0, half(at.flight, self.copies.of_mut(from))))
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&self.copies)
    }
}

impl Rule for Beer {
    fn gradient(&mut self, local: &mut Local, _: Round, step: f32) {
        self.step = step;
        for (v, update) in self.v.iter_mut().zip(&local.update) {
            *v += unscaled(*update, step);
        }
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        let (off_diagonal, step, d) = (self.off_diagonal, self.step, local.x.len());
        let Replicas { own, theirs, .. } = &self.copies;
        if at.flight == TRACKED {
            sum_at(d, &mut self.v, own, &self.weights, theirs, |v, g| v - off_diagonal * g);
            return;
        }
        sum_at(0, &mut local.x, own, &self.weights, theirs, |x, h| x - off_diagonal * h);
        let tracked = self.v.iter_mut().zip(&own[d..]);
        for ((x, spare), (v, copy)) in local.x.iter_mut().zip(&mut local.update).zip(tracked) {
            *x -= step * *v;
            let g = unscaled(*spare, step);
            *spare = *v - copy;
            *v -= g;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("v", &mut self.v);
        self.copies.state(visitor, "h_i, g_i", "h_j, g_j");
    }
}
