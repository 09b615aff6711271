//! ClippedGossip: D-PSGD in which no neighbour can move a model by more than a radius.
//!
//! He, Karimireddy, Jaggi: Byzantine-Robust Decentralized Learning via ClippedGossip (2022),
//! Algorithm 1. A neighbour whose model lies further than tau away counts as if it lay at the
//! distance tau, in the same direction: whatever a Byzantine node sends, it moves its neighbour by
//! at most w_ij tau. With honest nodes only, and a tau that no distance exceeds, it is D-PSGD
//! (atc).
//!
//! Without a given tau each node takes, in each round, the greatest distance that remains when the
//! `liars` greatest are left out, but at least the smallest: so did the authors' experiments, for
//! one Byzantine node. The paper's theory has a tau that depends on the honest nodes' variance,
//! which no node knows. The authors use the momentum of the workers: here `optimizer.momentum`.
//!
//! State: none between rounds; one vector for each neighbour within a round.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "clipped-gossip",
    summary: "D-PSGD in which a neighbour moves a model by a clipped difference: robust to \
              faulty nodes",
    paper: "He, Karimireddy, Jaggi 2022, Byzantine-Robust Decentralized Learning via \
            ClippedGossip, Algorithm 1",
    update: "z_i  = x_i - lr g_i(x_i)\n\
             x_i' = z_i + sum_j W_ij clip(z_j - z_i, tau_i),  clip(v, t) = min(1, t / |v|) v",
    state: "none; d numbers for each neighbour within a round",
    sends: "the whole model, 4 d bytes",
    conditions: "of a node's neighbours, weighted by W, far fewer are faulty than honest; the \
                 honest nodes are connected without the faulty ones; the mean of all models at the \
                 end leaves out the extremes of each coordinate",
    constants: &[
        (
            "tau",
            "the radius; default: in each round the greatest distance to a neighbour without the \
             `liars` greatest (as in the authors' experiments)",
        ),
        ("liars", "how many neighbours of a node may be faulty; default 1; not with tau"),
    ],
    follows_schedules: true,
    counts_nodes: true,
    defends: true,
    prepare,
    ..Entry::BLANK
};

params! {
    tau: Option<f64> = None,
    liars: Option<i64> = None,
}

#[derive(Clone, Copy)]
enum Radius {
    Fixed(f64),
    /// The greatest distance without this many greatest ones.
    Without(usize),
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let radius = match (params.tau, params.liars) {
        (Some(tau), None) => Radius::Fixed(positive("rule.tau", tau)?),
        (Some(_), Some(liars)) => {
            return Err(ConfigError::new(
                "rule.liars",
                liars,
                "expected either tau or liars, not both",
            ));
        }
        (None, liars) => {
            let liars = *params.liars.insert(liars.unwrap_or(1));
            Radius::Without(whole("rule.liars", liars, 0, i64::from(u32::MAX))? as usize)
        }
    };
    let schedule = Arc::clone(setting.schedule);
    let plan = Gossip::after_gradient(setting.topology, setting.dense()).following(&schedule);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| {
        let (rows, held) = (Rows::of(&schedule, node), Held::new(x.len()));
        ClippedGossip { rows, held, radius }
    }))
}

struct ClippedGossip {
    rows: Rows,
    held: Held,
    radius: Radius,
}

impl Party for ClippedGossip {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.x)
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.held.take(self.rows.at(at.round), from, p);
        Ok(())
    }
}

impl Rule for ClippedGossip {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        vector::subtract(&local.update, &mut local.x);
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        let row = self.rows.at(at.round);
        let theirs = self.held.vectors(row);
        let distance = |z: &Vec<f32>| vector::distance_squared(z, &local.x).sqrt();
        let distances: Vec<f64> = theirs.iter().map(distance).collect();
        let tau = match self.radius {
            Radius::Fixed(tau) => tau,
            Radius::Without(liars) => greatest_without(liars, &distances),
        };
        let clip = |(&w, &far): (&f32, &f64)| if far > tau { w * (tau / far) as f32 } else { w };
        let weights: Vec<f32> = row.weights.iter().zip(&distances).map(clip).collect();
        let own = 1.0 - weights.iter().sum::<f32>();
        sum_into(&mut local.update, &local.x, &weights, theirs, |_, z| own * z);
        std::mem::swap(&mut local.x, &mut local.update);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.scratch(self.held.numbers());
    }
}

/// The greatest of these numbers without the `liars` greatest, but at least the smallest.
fn greatest_without(liars: usize, distances: &[f64]) -> f64 {
    let mut sorted = distances.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get(last.saturating_sub(liars)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::greatest_without;

    #[test]
    fn the_radius_leaves_out_the_greatest_but_not_all() {
        for (liars, radius) in [(0, 5.0), (1, 3.0), (2, 1.0), (3, 1.0)] {
            assert_eq!(greatest_without(liars, &[3.0, 5.0, 1.0]), radius, "{liars}");
        }
        assert_eq!(greatest_without(1, &[]), 0.0);
    }
}
