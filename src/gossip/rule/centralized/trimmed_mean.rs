//! BRIDGE-T: per coordinate the mean of the neighbours without the greatest and the smallest.
//!
//! Fang, Yang, Bajwa: BRIDGE: Byzantine-Resilient Decentralized Gradient Descent (2022), with the
//! coordinate-wise trimmed mean. A node leaves out, at each coordinate, the b greatest and the b
//! smallest values of its neighbours; its own value always counts. If at most b neighbours are
//! Byzantine, what remains is between values of honest nodes. The weights of the topology are not
//! used: W of the run is not doubly stochastic, and the mean of all models is not preserved.
//!
//! State: none between rounds; one vector for each neighbour within a round.

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "trimmed-mean",
    summary: "per coordinate the mean of the neighbours' models without the extremes, then a step: \
              robust to faulty nodes",
    paper: "Fang, Yang, Bajwa 2022, BRIDGE: Byzantine-Resilient Decentralized Gradient Descent, \
            BRIDGE-T",
    update: "x_i'[k] = (x_i[k] + sum of the kept x_j[k]) / (|N_i| - 2 b + 1) - lr g_i(x_i)[k],\n\
             kept: the neighbours j in N_i without the b greatest and the b smallest x_j[k]",
    state: "none; d numbers for each neighbour within a round",
    sends: "the whole model, 4 d bytes",
    conditions: "each node has 2 b + 1 neighbours or more, of which at most b are faulty; uses no \
                 weights of the topology; on heterogeneous data the trimmed values bias the \
                 result; the mean of all models at the end is trimmed, too",
    constants: &[(
        "liars",
        "b, how many neighbours of a node may be faulty; default 1, or 0 if a node has fewer than \
         3 neighbours",
    )],
    counts_nodes: true,
    defends: true,
    prepare,
    ..Entry::BLANK
};

params! {
    liars: Option<i64> = None,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let topology = Arc::clone(setting.topology);
    let degree = |node: &usize| topology.neighbours(NodeId::from(*node)).len();
    let fewest = (0..topology.nodes()).min_by_key(degree).unwrap_or(0);
    let (name, degree) = (&topology.node(fewest.into()).name, degree(&fewest));
    let most = degree.saturating_sub(1) / 2;
    let mut warnings = Vec::new();
    if params.liars.is_none() && most == 0 && topology.nodes() > 1 {
        warnings.push(format!(
            "trimmed-mean leaves out nothing: node \"{name}\" has {degree} neighbours, and one \
             faulty one needs 3; choose a topology with more links"
        ));
    }
    let liars = *params.liars.insert(params.liars.unwrap_or(most.min(1) as i64));
    let trimmed = whole("rule.liars", liars, 0, i64::from(u32::MAX))? as usize;
    if trimmed > most {
        return Err(ConfigError::new(
            "rule.liars",
            liars,
            format!(
                "node \"{name}\" has {degree} neighbours, and b faulty ones need 2 b + 1: expected \
                 at most {most}"
            ),
        ));
    }
    let plan = Gossip::around_gradient(setting.topology, setting.dense());
    let topology = Arc::clone(setting.topology);
    let prepared = ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let row = Row::of(&topology, node);
        TrimmedMean { row, held: Held::new(x.len()), trimmed }
    });
    let least_neighbours = if trimmed > 0 { 2 * trimmed + 1 } else { 0 };
    Ok(Prepared { least_neighbours, ..prepared })
}

struct TrimmedMean {
    row: Row,
    held: Held,
    trimmed: usize,
}

impl Party for TrimmedMean {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.x)
    }

    fn received(&mut self, _: &mut Local, _: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.held.take(&self.row, from, p);
        Ok(())
    }
}

impl Rule for TrimmedMean {
    fn gradient(&mut self, _: &mut Local, _: Round, _: f32) {}

    fn land(&mut self, local: &mut Local, _: &At) {
        let theirs = self.held.vectors_mut(&self.row);
        add_kept(self.trimmed, theirs, &mut local.x);
        let share = 1.0 / (theirs.len() - 2 * self.trimmed + 1) as f32;
        for (x, update) in local.x.iter_mut().zip(&local.update) {
            *x = share * *x - update;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.scratch(self.held.numbers());
    }
}

/// Coordinates that are sorted together, so that they stay in the first-level cache.
const BLOCK: usize = 512;

/// Adds to `sum` all vectors, at each coordinate without the `trimmed` greatest and the `trimmed`
/// smallest values. Exchanges values between the vectors.
fn add_kept(trimmed: usize, vectors: &mut [Vec<f32>], sum: &mut [f32]) {
    let kept = trimmed..vectors.len() - trimmed;
    for start in (0..sum.len()).step_by(BLOCK) {
        let block = start..sum.len().min(start + BLOCK);
        for pass in 0..trimmed {
            // The greatest of the vectors moves to the end, then the smallest to the beginning.
            for upper in pass + 1..vectors.len() - pass {
                order(vectors, upper, block.clone());
            }
            for upper in (pass + 1..vectors.len() - pass - 1).rev() {
                order(vectors, upper, block.clone());
            }
        }
        for kept in &vectors[kept.clone()] {
            vector::axpy(1.0, &kept[block.clone()], &mut sum[block.clone()]);
        }
    }
}

/// Exchanges values of two neighbouring vectors where the lower one has the greater value.
fn order(vectors: &mut [Vec<f32>], upper: usize, block: std::ops::Range<usize>) {
    let (lower, rest) = vectors.split_at_mut(upper);
    let lower = &mut lower[upper - 1][block.clone()];
    for (a, b) in lower.iter_mut().zip(&mut rest[0][block]) {
        let (small, great) = if *b < *a { (*b, *a) } else { (*a, *b) };
        (*a, *b) = (small, great);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_extremes_of_each_coordinate_are_left_out(
            values in proptest::collection::vec(
                proptest::collection::vec(-8i16..8, 700), 1..8
            ),
            trimmed in 0usize..4,
        ) {
            prop_assume!(values.len() > 2 * trimmed);
            // Sums of small whole numbers are exact in any order.
            let float = |row: &Vec<i16>| row.iter().map(|&v| f32::from(v)).collect::<Vec<f32>>();
            let (mut vectors, mut sum) =
                (values.iter().map(float).collect::<Vec<_>>(), vec![100.0; 700]);
            add_kept(trimmed, &mut vectors, &mut sum);
            for (k, sum) in sum.iter().enumerate() {
                let mut column: Vec<i16> = values.iter().map(|row| row[k]).collect();
                column.sort_unstable();
                let kept = &column[trimmed..column.len() - trimmed];
                prop_assert_eq!(*sum, 100.0 + f32::from(kept.iter().sum::<i16>()));
            }
        }
    }
}
