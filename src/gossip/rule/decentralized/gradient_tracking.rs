//! Gradient tracking: every node steps along its estimate of the mean gradient.
//!
//! Pu, Nedic: Distributed Stochastic Gradient Tracking Methods (2021), Algorithm 1 (DSGT).
//!
//! The mean of y is the mean of g in every round. The gradient at x^{t+1} is that of the next
//! round, so a round runs from one gradient to the next: g^t completes y^t, then x^t - lr y^t and
//! y^t are sent in two flights, whose results are x^{t+1} and W y^t. g is update / step; in a round
//! of step 0 the gradient is unknown and counts as 0 (the mean of y is then 0, and x mixes without
//! a step). State: x, y, and an accumulator for each; any x_0. One of them holds W y^t - g^t,
//! instead of two for W y^t and g^t.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "gradient-tracking",
    summary: "step along an estimate of the mean gradient: no error from data that differ between \
              nodes",
    paper: "Pu, Nedic 2021, Distributed Stochastic Gradient Tracking Methods, Algorithm 1 (DSGT)",
    update: "y_i^0   = g_i(x_i^0)\n\
             x_i^{t+1} = sum_j W_ij (x_j^t - lr y_j^t)\n\
             y_i^{t+1} = sum_j W_ij y_j^t + g_i(x_i^{t+1}) - g_i(x_i^t)",
    state: "y, and an accumulator for it",
    sends: "x_i - lr y_i and y_i, 8 d bytes in two frames",
    conditions: "rho < 1; the greatest stable step shrinks with the gap, like (1 - rho)^2 in \
                 theory",
    needs_gradients: true,
    needs_step: true,
    prepare,
    ..Entry::BLANK
};

/// x - lr y.
const MODELS: u8 = 0;

/// The two flights overlap; every link carries them in this order.
const STEPS: &[Step] = &[
    Step::Gradient,
    Step::Join,
    Step::Launch(MODELS),
    Step::Launch(1),
    Step::Land { flight: MODELS, lag: 0 },
    Step::Land { flight: 1, lag: 0 },
];

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let topology = Arc::clone(setting.topology);
    let formats = vec![setting.dense(), setting.dense()];
    let plan = Gossip::of_steps(&topology, STEPS, formats);
    ENTRY.without_constants(table, plan, Vec::new(), move |node, x| GradientTracking {
        row: Row::of(&topology, node),
        y: vec![0.0; x.len()],
        next: vec![0.0; x.len()],
    })
}

struct GradientTracking {
    row: Row,
    /// W y - g of the round before; y between the gradient and the exchange.
    y: Vec<f32>,
    /// Accumulates W y - g.
    next: Vec<f32>,
}

impl Party for GradientTracking {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(if at.flight == MODELS { &local.x } else { &self.y })
    }

    fn target<'a>(&'a mut self, local: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        let acc = if at.flight == MODELS { &mut local.update } else { &mut self.next };
        Some((self.row.weight(from), acc))
    }
}

impl Rule for GradientTracking {
    fn gradient(&mut self, local: &mut Local, _: Round, step: f32) {
        let own = self.row.own;
        let models = local.x.iter_mut().zip(&mut local.update);
        for ((x, spare), (y, next)) in models.zip(self.y.iter_mut().zip(&mut self.next)) {
            let g = unscaled(*spare, step);
            *y += g;
            *x -= step * *y;
            *spare = own * *x;
            *next = own * *y - g;
        }
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        if at.flight == MODELS {
            std::mem::swap(&mut local.x, &mut local.update);
        } else {
            std::mem::swap(&mut self.y, &mut self.next);
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("y", &mut self.y);
        visitor.scratch(self.next.len());
    }
}
