//! The rows of the k-th mini-batch.

use super::Batch;
use crate::{
    rng::{Purpose, Stream},
    units::NodeId,
};

/// Mini-batches of one node: sampling without replacement, epoch after epoch.
///
/// Imagine an endless list with the node's rows once per epoch, each time in a new order: the k-th
/// batch is entries k b to (k + 1) b - 1. Every batch has b rows, every row is used equally often,
/// a batch on the border takes the rest of one epoch and the start of the next. It depends only on
/// (seed, node, k), so a restarted node needs no state to continue.
#[derive(Clone, Debug)]
pub struct Batches {
    stream: Stream,
    rows: u32,
    /// The rows of a batch; `None` for all rows, always.
    size: Option<u32>,
    /// The epoch whose order `order` holds.
    epoch: Option<u64>,
    order: Vec<u32>,
    batch: Vec<u32>,
}

impl Batches {
    /// Batches of `size` out of this node's `rows` rows; of all rows, if `size` is `None` or not
    /// smaller.
    ///
    /// # Panics
    /// If there are 2^32 rows or more: a file of that size is refused.
    pub fn new(seed: u64, node: NodeId, rows: usize, size: Option<u32>) -> Batches {
        let rows = u32::try_from(rows).expect("a node has fewer than 2^32 rows");
        let stream = Stream::new(seed, Purpose::Batch).node(node);
        let size = size.filter(|&size| size < rows);
        Batches { stream, rows, size, epoch: None, order: Vec::new(), batch: Vec::new() }
    }

    /// The k-th batch, from 0. In order of k, an epoch's rows are shuffled once.
    pub fn at(&mut self, k: u64) -> Batch<'_> {
        let Some(size) = self.size else { return Batch::All };
        self.batch.clear();
        let mut position = u128::from(k) * u128::from(size);
        while self.batch.len() < size as usize {
            let epoch = (position / u128::from(self.rows)) as u64;
            let start = (position % u128::from(self.rows)) as usize;
            self.shuffle(epoch);
            let missing = size as usize - self.batch.len();
            let end = (start + missing).min(self.order.len());
            self.batch.extend_from_slice(&self.order[start..end]);
            position += (end - start) as u128;
        }
        Batch::Rows(&self.batch)
    }

    fn shuffle(&mut self, epoch: u64) {
        if self.epoch == Some(epoch) {
            return;
        }
        self.order.clear();
        self.order.extend(0..self.rows);
        self.stream.with(epoch).sequence().shuffle(&mut self.order);
        self.epoch = Some(epoch);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(batch: Batch<'_>) -> Vec<u32> {
        let Batch::Rows(rows) = batch else { panic!("a part was asked for") };
        rows.to_vec()
    }

    proptest! {
        #[test]
        fn a_batch_depends_on_its_number_alone(k in 0u64..1000, seed: u64) {
            let fresh = || Batches::new(seed, NodeId(1), 37, Some(8));
            let mut used = fresh();
            (0..k).for_each(|k| { used.at(k); });
            prop_assert_eq!(rows(used.at(k)), rows(fresh().at(k)));
        }
    }

    #[test]
    fn epochs_nodes_and_seeds_differ() {
        let first = |seed, node, k| rows(Batches::new(seed, NodeId(node), 100, Some(99)).at(k));
        assert_ne!(first(1, 0, 0), first(1, 1, 0));
        assert_ne!(first(1, 0, 0), first(2, 0, 0));
        assert_ne!(first(1, 0, 0)[..90], first(1, 0, 100)[..90], "two epochs in the same order");
        assert_eq!(first(1, 0, u64::MAX).len(), 99);
    }
}
