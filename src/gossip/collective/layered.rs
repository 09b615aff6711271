//! One sum per layer, each in its own flight, which starts as soon as the layer's gradient is
//! computed.

use std::ops::Range;

use super::{Collective, Pattern};
use crate::{
    compress::Format,
    gossip::plan::{At, Meeting, Plan, Step},
    units::NodeId,
};

/// The most flights of a round: the numbers from 249 on belong to the exchanges around the rounds.
pub const MOST: usize = 200;

/// The layers of a model with these tensors, the last one first: a matrix and the vectors after it,
/// which are its biases. If there are more than [`MOST`], neighbouring layers are joined.
pub fn layers(shapes: &[(usize, usize)]) -> Vec<Range<usize>> {
    let (mut starts, mut d) = (Vec::new(), 0);
    for &(rows, columns) in shapes {
        if rows * columns > 0 && (d == 0 || columns > 1) {
            starts.push(d);
        }
        d += rows * columns;
    }
    let together = starts.len().div_ceil(MOST).max(1);
    let mut end = d;
    let range = |&start: &usize| start..std::mem::replace(&mut end, start);
    starts.iter().step_by(together).rev().map(range).collect()
}

/// The plan of a rule whose round is one collective per layer, the last layer's first.
pub struct Layered {
    parts: Vec<Collective>,
    starts: Vec<usize>,
    steps: Vec<Step>,
}

impl Layered {
    /// Exact sums of these ranges of the update; each ends where the one before it begins.
    ///
    /// # Panics
    /// If there are none, or more than [`MOST`].
    pub fn sum(pattern: Pattern, nodes: usize, layers: &[Range<usize>]) -> Layered {
        assert!((1..=MOST).contains(&layers.len()), "{} flights", layers.len());
        let last = layers.len() as u8 - 1;
        let mut steps = vec![Step::Gradient];
        steps.extend((0..last).flat_map(|part| [Step::Part(part), Step::Launch(part)]));
        // When the last part is final, so is the update. The model has been returned before the
        // last flight starts, so that its digest can be sent.
        steps.extend([Step::Join, Step::Launch(last)]);
        steps.extend((0..=last).map(|flight| Step::Land { flight, lag: 0 }));
        Layered {
            parts: layers
                .iter()
                .map(|layer| Collective::sum(pattern, nodes, layer.len(), 0, 1))
                .collect(),
            starts: layers.iter().map(|layer| layer.start).collect(),
            steps,
        }
    }
}

impl Plan for Layered {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn exchanges(&self, flight: u8) -> u16 {
        self.parts.get(usize::from(flight)).map_or(0, |part| part.exchanges(flight))
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        self.parts[usize::from(at.flight)].meet(node, at, out);
    }

    fn format(&self, at: &At, from: NodeId) -> &Format {
        self.parts[usize::from(at.flight)].format(at, from)
    }

    fn parts(&self) -> &[usize] {
        &self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_and_its_biases_are_a_layer() {
        assert_eq!(layers(&[(3, 4), (4, 1), (4, 2), (2, 1)]), [16..26, 0..16]);
        assert_eq!(layers(&[(5, 1), (2, 3), (3, 2)]), [11..17, 5..11, 0..5]);
        let one = layers(&[(40, 1), (0, 1)]);
        assert_eq!((one.len(), &one[0]), (1, &(0..40)));
    }

    #[test]
    fn many_layers_are_put_together_and_cover_the_model() {
        for count in [MOST, MOST + 1, 3 * MOST, 1_000] {
            let layers = layers(&vec![(2, 2); count]);
            assert!(layers.len() <= MOST && layers.len() * 2 > MOST, "{count}: {}", layers.len());
            assert_eq!((layers[0].end, layers[layers.len() - 1].start), (4 * count, 0));
            assert!(layers.windows(2).all(|pair| pair[0].start == pair[1].end));
        }
    }
}
