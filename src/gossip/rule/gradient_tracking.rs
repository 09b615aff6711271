//! Gradient tracking: every node steps along its estimate of the mean gradient.
//!
//! Pu, Nedic: Distributed Stochastic Gradient Tracking Methods (2021), Algorithm 1 (DSGT).
//!
//! ```text
//! y_i^0     = g_i(x_i^0)
//! x_i^{t+1} = sum_j W_ij (x_j^t - lr y_j^t)
//! y_i^{t+1} = sum_j W_ij y_j^t + g_i(x_i^{t+1}) - g_i(x_i^t)
//! ```
//! The mean of y is the mean of g in every round. The gradient at x^{t+1} is that of the next
//! round, so a round runs from one gradient to the next: g^t completes y^t, then x^t - lr y^t and
//! y^t go out in two flights, and what comes back is x^{t+1} and W y^t. g is update / step; a round
//! of step 0 has an unknown gradient, which counts as 0 (the mean of y is then 0, and x mixes
//! without a step). State: x, y, and an accumulator for each; any x_0. W y^t - g^t is kept in one
//! of them instead of W y^t and g^t in two.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Entry, Prepared, Rule, Setting,
    mix::{Row, unscaled},
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
    name: "gradient-tracking",
    summary: "step along an estimate of the mean gradient: no error from data that differ between \
              nodes",
    paper: "Pu, Nedic 2021, Distributed Stochastic Gradient Tracking Methods, Algorithm 1 (DSGT)",
    update: "x_i' = sum_j W_ij (x_j - lr y_j); y_i' = sum_j W_ij y_j + g_i' - g_i; first y_i = g_i",
    state: "y, and an accumulator for it",
    sends: "x_i - lr y_i and y_i, 8 d bytes in two frames",
    conditions: "rho < 1; the greatest stable step shrinks with the gap, like (1 - rho)^2 in \
                 theory",
    constants: &[],
    compresses: false,
    home: "path",
    prepare,
    ..Entry::BLANK
};

/// x - lr y.
const MODELS: u8 = 0;

/// Both flights are in the air together; every link carries them in this order.
const STEPS: &[Step] = &[
    Step::Gradient,
    Step::Join,
    Step::Launch(MODELS),
    Step::Launch(1),
    Step::Land { flight: MODELS, lag: 0 },
    Step::Land { flight: 1, lag: 0 },
];

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let topology = Arc::clone(setting.topology);
    let formats = vec![setting.dense(), setting.dense()];
    Ok(Prepared {
        plan: Arc::new(Gossip::of_steps(Arc::clone(&topology), STEPS, formats)),
        resolved: config::resolved(ENTRY.name, &params),
        warnings: Vec::new(),
        spawn: Box::new(move |node, x| {
            let zeros = vec![0.0; x.len()];
            let row = Row::of(&topology, node);
            Box::new(GradientTracking {
                row,
                x,
                y: zeros.clone(),
                next: zeros.clone(),
                spare: zeros,
            })
        }),
    })
}

struct GradientTracking {
    row: Row,
    /// x; x - lr y between the gradient and the exchange.
    x: Vec<f32>,
    /// W y - g of the round before; y between the gradient and the exchange.
    y: Vec<f32>,
    /// Accumulates W y - g.
    next: Vec<f32>,
    /// The update while it is computed, then accumulates W (x - lr y).
    spare: Vec<f32>,
}

impl Party for GradientTracking {
    fn outgoing(
        &mut self,
        at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(if at.flight == MODELS { &self.x } else { &self.y })
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        let acc = if at.flight == MODELS { &mut self.spare } else { &mut self.next };
        payload.add_into(self.row.weight(from), acc);
        Ok(())
    }

    fn land(&mut self, at: &At) {
        if at.flight == MODELS {
            std::mem::swap(&mut self.x, &mut self.spare);
        } else {
            std::mem::swap(&mut self.y, &mut self.next);
        }
    }
}

impl Rule for GradientTracking {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.spare = update;
        let own = self.row.own;
        let models = self.x.iter_mut().zip(&mut self.spare);
        for ((x, spare), (y, next)) in models.zip(self.y.iter_mut().zip(&mut self.next)) {
            let g = unscaled(*spare, step);
            *y += g;
            *x -= step * *y;
            *spare = own * *x;
            *next = own * *y - g;
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        4
    }
}
