//! BEER: gradient tracking with compressed differences of both the model and what is tracked.
//!
//! Zhao, Li, Li, Richtarik, Chi: BEER: Fast O(1/T) Rate for Decentralized Nonconvex Optimization
//! with Communication Compression (2022), Algorithm 1.
//!
//! ```text
//! V^0 = g(X^0), H^0 = G^0 = 0
//! X^{t+1} = X^t + gamma (W - I) H^t - lr V^t;                     H^{t+1} = H^t + C(X^{t+1} - H^t) at every holder
//! V^{t+1} = V^t + gamma (W - I) G^t + g(X^{t+1}) - g(X^t);        G^{t+1} = G^t + C(V^{t+1} - G^t) at every holder
//! ```
//! The mean of V is the mean of g in every round, for any C. A round runs from one gradient to the
//! next: C(X^t - H^{t-1}) is in the air while g(X^t) is computed, which completes V^t; then C(V^t -
//! G^{t-1}) goes out. As H^0 = G^0 = 0, the frames of the first round carry C(0) = 0. g is update /
//! step; a round of step 0 has an unknown gradient, which counts as 0. State: x, V, H and G, and of
//! each neighbour H and G. Between rounds V - g + gamma (W - I) G is kept in V's place, which saves
//! g. DIFFERENCE to the paper: (W - I) H is formed of single copies, which can be proved equal to
//! their owners'; it keeps sums.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Entry, Prepared, Rule, Setting,
    mix::{Row, sum_at, unscaled},
    nine_digits, positive, steps,
};
use crate::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        party::{Party, Writer},
        plan::{At, Gossip, Step},
    },
    units::{NodeId, Round},
};

pub(super) const ENTRY: Entry = Entry {
    name: "beer",
    summary: "gradient tracking on public copies of model and tracked gradient: compressed, and \
              no error from data that differ",
    paper: "Zhao et al. 2022, BEER: Fast O(1/T) Rate for Decentralized Nonconvex Optimization \
            with Communication Compression, Algorithm 1",
    update: "X' = X + gamma (W - I) H - lr V; H' = H + C(X' - H); V' = V + gamma (W - I) G + g' - \
             g; G' = G + C(V' - G)",
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
    home: "path",
    relaxation: Some("gamma"),
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

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    gamma: Option<f64>,
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
    Ok(Prepared {
        plan: Arc::new(Gossip::of_steps(Arc::clone(&topology), STEPS, formats)),
        resolved: config::resolved(ENTRY.name, &params),
        warnings,
        spawn: Box::new(move |node, x| {
            let row = Row::of(&topology, node);
            let zeros = vec![0.0; x.len()];
            let both = vec![0.0; 2 * x.len()];
            Box::new(Beer {
                off_diagonal: gamma as f32 * row.off_diagonal(),
                weights: row.weights.iter().map(|w| gamma as f32 * w).collect(),
                copies: vec![both.clone(); row.neighbours.len()],
                row,
                step: 0.0,
                x,
                v: zeros.clone(),
                own: both,
                spare: zeros,
            })
        }),
    })
}

struct Beer {
    row: Row,
    /// gamma W_ij.
    weights: Vec<f32>,
    /// gamma (1 - W_ii).
    off_diagonal: f32,
    /// lr of the round.
    step: f32,
    x: Vec<f32>,
    /// V; V - g + gamma (W - I) G between rounds.
    v: Vec<f32>,
    /// H, then G: one slice, so that one proof covers both.
    own: Vec<f32>,
    /// H and G of the neighbours, ascending.
    copies: Vec<Vec<f32>>,
    /// The update, or what is to be compressed.
    spare: Vec<f32>,
}

/// The half of H and G that a flight advances.
fn half(flight: u8, both: &mut [f32]) -> &mut [f32] {
    let (models, tracked) = both.split_at_mut(both.len() / 2);
    if flight == MODELS { models } else { tracked }
}

impl Party for Beer {
    fn outgoing(
        &mut self,
        at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        if at.round == Round(0) {
            self.spare.fill(0.0);
        } else if at.flight == MODELS {
            for ((spare, x), h) in self.spare.iter_mut().zip(&self.x).zip(&self.own) {
                *spare = x - h;
            }
        }
        out.vector(&self.spare)
    }

    fn sent(&mut self, at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(1.0, half(at.flight, &mut self.own));
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        payload.add_into(1.0, half(at.flight, &mut self.copies[self.row.place(from)]));
        Ok(())
    }

    fn land(&mut self, at: &At) {
        let (off_diagonal, step, d) = (self.off_diagonal, self.step, self.x.len());
        if at.flight == TRACKED {
            sum_at(d, &mut self.v, &self.own, &self.weights, &self.copies, |v, g| {
                v - off_diagonal * g
            });
            return;
        }
        sum_at(0, &mut self.x, &self.own, &self.weights, &self.copies, |x, h| x - off_diagonal * h);
        let tracked = self.v.iter_mut().zip(&self.own[d..]);
        for ((x, spare), (v, copy)) in self.x.iter_mut().zip(&mut self.spare).zip(tracked) {
            *x -= step * *v;
            let g = unscaled(*spare, step);
            *spare = *v - copy;
            *v -= g;
        }
    }

    fn replica(&self, of: Option<NodeId>) -> Option<&[f32]> {
        Some(of.map_or(&self.own, |of| &self.copies[self.row.place(of)]))
    }
}

impl Rule for Beer {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.spare = update;
        self.step = step;
        for (v, update) in self.v.iter_mut().zip(&self.spare) {
            *v += unscaled(*update, step);
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        5 + 2 * self.copies.len()
    }
}
