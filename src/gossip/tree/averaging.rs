//! Whose models a mean is of, and how it is formed.

use std::fmt;

use super::signatures::Signatures;
use crate::units::NodeId;

/// The nodes that give a model.
#[derive(Clone, Debug)]
pub(crate) enum Givers {
    /// All nodes, of which there are so many. Each node has this: a list would have their square.
    All(usize),
    /// These nodes, ascending.
    These(Vec<NodeId>),
}

impl Default for Givers {
    fn default() -> Givers {
        Givers::These(Vec::new())
    }
}

impl Givers {
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        match self {
            Givers::All(nodes) => node.index() < *nodes,
            Givers::These(nodes) => nodes.contains(&node),
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Givers::All(nodes) => *nodes,
            Givers::These(nodes) => nodes.len(),
        }
    }
}

/// Whose models a mean is of, and how it is formed.
#[derive(Clone, Default)]
pub(crate) struct Averaging {
    pub givers: Givers,
    /// How many of them may give wrong ones. `None`: their sum is formed on the way up.
    pub liars: Option<usize>,
    /// The SHA-256 that each model must have, in hexadecimal digits.
    pub digest: Option<String>,
    pub signatures: Signatures,
}

impl Averaging {
    /// The plain mean of the models of all nodes.
    pub(crate) fn of_all(nodes: usize) -> Averaging {
        Averaging { givers: Givers::All(nodes), ..Averaging::default() }
    }

    /// The mean of `vectors` vectors of `len` numbers, of which `at(i, k)` is number k of vector i:
    /// plain, or per coordinate without the greatest and the smallest values.
    pub(crate) fn mean(
        &self,
        (vectors, len): (usize, usize),
        at: impl Fn(usize, usize) -> f32,
    ) -> Vec<f32> {
        let of = |values: &[f32]| {
            let sum: f64 = values.iter().map(|&value| f64::from(value)).sum();
            (sum / values.len() as f64) as f32
        };
        let out = self.left_out();
        let mut values = vec![0.0f32; vectors];
        let mean = |k: usize| {
            values.iter_mut().enumerate().for_each(|(i, value)| *value = at(i, k));
            if self.liars.is_none() {
                return of(&values);
            }
            values.sort_unstable_by(f32::total_cmp);
            of(&values[out..vectors - out])
        };
        (0..len).map(mean).collect()
    }

    /// How many values are left out at each end of a coordinate: a quarter, at least as many as may
    /// be wrong, and so many that a value remains.
    fn left_out(&self) -> usize {
        let givers = self.givers.count();
        self.liars.unwrap_or(0).max(givers / 4).min(givers.saturating_sub(1) / 2)
    }
}

impl fmt::Debug for Averaging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mean of {:?}, of which {:?} may be wrong", self.givers, self.liars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_of_each_coordinate_are_left_out() {
        let all = [[1.0, 9.0], [2.0, -1e30], [f32::MAX, 5.0], [3.0, 6.0]];
        let robust = Averaging { liars: Some(1), ..Averaging::of_all(4) };
        assert_eq!(robust.mean((4, 2), |i, k| all[i][k]), [2.5, 5.5]);
        assert_eq!(Averaging::of_all(2).mean((2, 1), |i, _| all[i][0]), [1.5]);
        // One vector is its own mean, to the bit.
        let one = [-0.0, 1e-40, 0.1f32];
        let mean = Averaging { liars: Some(0), ..Averaging::of_all(1) }.mean((1, 3), |_, k| one[k]);
        let bits: Vec<u32> = mean.into_iter().map(f32::to_bits).collect();
        assert_eq!(bits, one.map(f32::to_bits));
    }

    #[test]
    fn a_quarter_is_left_out_and_a_value_remains() {
        let out = |nodes: usize, liars: usize| {
            Averaging { liars: Some(liars), ..Averaging::of_all(nodes) }.left_out()
        };
        let all = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (8, 1), (9, 3), (9, 9)];
        assert_eq!(all.map(|(nodes, liars)| out(nodes, liars)), [0, 0, 1, 1, 1, 2, 3, 4]);
    }
}
