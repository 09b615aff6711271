//! PowerGossip: low-rank power iteration on the difference of two neighbours' models, separately
//! for each layer's matrix.
//!
//! Vogels, Karimireddy, Jaggi: Practical Low-Rank Communication Compression in Decentralized Deep
//! Learning (2020), Algorithm 1.
//!
//! It is applied to x - lr g. The new factor of one round is the start of the next: a power
//! iteration towards the largest singular vectors of D. Q P^T is a projection of D, so there is no
//! step to tune. Both ends compute Q P^T from the same bits and add opposite terms: the mean moves
//! by -lr mean g. Tensors of one column (biases) are sent whole. A column that has become zero (the
//! models agree, or D has a lower rank) would stay zero: it is drawn again from randomness that
//! both ends share. DIFFERENCE: for this reason the public code skips its first exchange; here the
//! gradient comes first, so the models differ by then. DIFFERENCE: one exchange a round; the paper
//! also tries several. State: x, and for each edge and matrix P and Q, rank (m + n) numbers.

use crate::{gossip::rule::prelude::*, mixing::Topology, rng::Purpose, rng::Stream};

pub(crate) const ENTRY: Entry = Entry {
    name: "power-gossip",
    summary: "low-rank power iteration on the difference to each neighbour, layer by layer; \
              nothing to tune",
    paper: "Vogels et al. 2020, Practical Low-Rank Communication Compression in Decentralized \
            Deep Learning, Algorithm 1",
    update: "each edge (i, j), i above j, each matrix X of the model (m x n); D = X_i - X_j\n\
             round 0, 2, ...:  P = orthonormal columns of P;\n\
             exchange X_i P and X_j P;\n\
             Q = D P\n\
             round 1, 3, ...:  Q = orthonormal columns of Q;\n\
             exchange X_i^T Q and X_j^T Q;\n\
             P = D^T Q\n\
             both:   X_i -= W_ij Q P^T;  X_j += W_ij Q P^T",
    state: "P and Q for each neighbour and matrix, rank (m + n) numbers",
    sends: "X_i P, or X_i^T Q in odd rounds, another to each neighbour: rank m or rank n numbers \
            a matrix; one-column tensors whole",
    conditions: "rho < 1; most is saved with large matrices",
    constants: &[(
        "rank",
        "1: columns of P and Q, at most as many as a matrix has rows or columns; the paper's \
         smallest",
    )],
    prepare,
    ..Entry::BLANK
};

params! {
    rank: i64 = 1,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let rank = whole("rule.rank", params.rank, 1, 65535)? as usize;
    let layers = Arc::new(Layers::of(setting.shapes, rank));
    assert_eq!(
        layers.parameters(),
        setting.parameters,
        "the shapes are those of the model's tensors"
    );
    let topology = Arc::clone(setting.topology);
    let noise = Stream::new(setting.seed, Purpose::Rule);
    let formats = [true, false].map(|right| Format::Floats(layers.sent(right)));
    let plan = Alternating { topology: Arc::clone(&topology), formats };
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, _| {
        let row = Row::of(&topology, node);
        let edge = |other: &NodeId| {
            Edge::new(noise.node(node.min(*other)).node(node.max(*other)), &layers)
        };
        let edges = row.neighbours.iter().map(edge).collect();
        let whole = vec![0.0; layers.whole];
        PowerGossip { node, row, layers: Arc::clone(&layers), edges, whole }
    }))
}

/// An exchange with every neighbour, with a separate payload for each; its size alternates.
struct Alternating {
    topology: Arc<Topology>,
    formats: [Format; 2],
}

impl Plan for Alternating {
    fn steps(&self) -> &[Step] {
        &[Step::Gradient, Step::Join, Step::Launch(0), Step::Land { flight: 0, lag: 0 }]
    }

    fn exchanges(&self, _flight: u8) -> u16 {
        1
    }

    fn meet(&self, node: NodeId, _: &At, out: &mut Meeting) {
        out.send.extend_from_slice(self.topology.neighbours(node));
        out.wait.extend_from_slice(self.topology.neighbours(node));
    }

    fn format(&self, at: &At, _: NodeId) -> &Format {
        &self.formats[usize::from(!is_right(at.round))]
    }

    fn period(&self) -> u64 {
        2
    }
}

/// Whether matrices are multiplied from the right in this round: X P.
fn is_right(round: Round) -> bool {
    round.0.is_multiple_of(2)
}

struct Layers {
    /// Rows, columns, rank, and where it begins in the model.
    matrices: Vec<(usize, usize, usize, usize)>,
    /// Tensors of one column: where they begin, how long they are.
    columns: Vec<(usize, usize)>,
    /// The sum of those lengths.
    whole: usize,
}

impl Layers {
    fn of(shapes: &[(usize, usize)], rank: usize) -> Layers {
        let mut layers = Layers { matrices: Vec::new(), columns: Vec::new(), whole: 0 };
        let mut start = 0;
        for &(rows, columns) in shapes {
            if columns == 1 {
                layers.columns.push((start, rows));
                layers.whole += rows;
            } else {
                layers.matrices.push((rows, columns, rank.min(rows).min(columns), start));
            }
            start += rows * columns;
        }
        layers
    }

    fn parameters(&self) -> usize {
        self.matrices.iter().map(|(rows, columns, ..)| rows * columns).sum::<usize>() + self.whole
    }

    /// The number of values in all P.
    fn of_p(&self) -> usize {
        self.matrices.iter().map(|(_, columns, rank, _)| rank * columns).sum()
    }

    /// The number of values in all Q.
    fn of_q(&self) -> usize {
        self.matrices.iter().map(|(rows, _, rank, _)| rank * rows).sum()
    }

    /// The number of values that a node sends to a neighbour.
    fn sent(&self, right: bool) -> usize {
        self.whole + if right { self.of_q() } else { self.of_p() }
    }
}

/// The factors of an edge's differences, column after column, matrix after matrix; the same at both
/// ends.
struct Edge {
    noise: Stream,
    p: Vec<f32>,
    q: Vec<f32>,
}

impl Edge {
    fn new(noise: Stream, layers: &Layers) -> Edge {
        let mut dice = noise.sequence();
        Edge {
            noise,
            p: (0..layers.of_p()).map(|_| dice.normal() as f32).collect(),
            q: vec![0.0; layers.of_q()],
        }
    }

    /// Orthonormalizes the factor to multiply with, and leaves the node's own product in the other.
    fn multiply(&mut self, round: Round, layers: &Layers, x: &[f32]) {
        let right = is_right(round);
        let (mut p, mut q) = (&mut *self.p, &mut *self.q);
        for (index, &(rows, columns, rank, start)) in layers.matrices.iter().enumerate() {
            let (p_here, p_rest) = p.split_at_mut(rank * columns);
            let (q_here, q_rest) = q.split_at_mut(rank * rows);
            (p, q) = (p_rest, q_rest);
            let matrix = &x[start..start + rows * columns];
            let again = self.noise.round(round).with(index as u64);
            if right {
                orthonormalize(p_here, columns, again);
                for (i, row) in matrix.chunks_exact(columns).enumerate() {
                    for (c, p) in p_here.chunks_exact(columns).enumerate() {
                        q_here[c * rows + i] = vector::dot(row, p) as f32;
                    }
                }
            } else {
                orthonormalize(q_here, rows, again);
                p_here.fill(0.0);
                for (i, row) in matrix.chunks_exact(columns).enumerate() {
                    for (c, p) in p_here.chunks_exact_mut(columns).enumerate() {
                        vector::axpy(q_here[c * rows + i], row, p);
                    }
                }
            }
        }
    }

    /// `x += weight Q P^T`.
    fn add_product(&self, weight: f32, layers: &Layers, x: &mut [f32]) {
        let (mut p, mut q) = (&*self.p, &*self.q);
        for &(rows, columns, rank, start) in &layers.matrices {
            let (p_here, p_rest) = p.split_at(rank * columns);
            let (q_here, q_rest) = q.split_at(rank * rows);
            (p, q) = (p_rest, q_rest);
            for (i, row) in x[start..start + rows * columns].chunks_exact_mut(columns).enumerate() {
                for (c, p) in p_here.chunks_exact(columns).enumerate() {
                    vector::axpy(weight * q_here[c * rows + i], p, row);
                }
            }
        }
    }
}

/// Below this share of its length, what is left of a column after orthogonalization is rounding
/// error only.
const NOTHING: f64 = 1e-5;

/// Gram-Schmidt, each column twice, so that it is orthogonal in spite of rounding. A column with
/// nothing left is drawn from `again`.
fn orthonormalize(columns: &mut [f32], len: usize, again: Stream) {
    for index in 0..columns.len() / len {
        let (before, rest) = columns.split_at_mut(index * len);
        let column = &mut rest[..len];
        let mut dice = again.with(index as u64).sequence();
        let length = vector::norm_squared(column).sqrt();
        while !(take_out(before, column, length) && take_out(before, column, 1.0)) {
            column.iter_mut().for_each(|x| *x = dice.normal() as f32);
        }
    }
}

/// Subtracts from `column` its components along the columns of `before` and gives it length 1;
/// `false` if nothing was left of its `length`.
fn take_out(before: &[f32], column: &mut [f32], length: f64) -> bool {
    for other in before.chunks_exact(column.len()) {
        let along = vector::dot(other, column) as f32;
        vector::axpy(-along, other, column);
    }
    let left = vector::norm_squared(column).sqrt();
    if left <= NOTHING * length || left < f64::from(f32::MIN_POSITIVE) {
        return false;
    }
    column.iter_mut().for_each(|x| *x = (f64::from(*x) / left) as f32);
    true
}

struct PowerGossip {
    node: NodeId,
    row: Row,
    layers: Arc<Layers>,
    /// One per neighbour, ascending.
    edges: Vec<Edge>,
    /// The one-column tensors as sent.
    whole: Vec<f32>,
}

impl Party for PowerGossip {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        let to = out.receiver().expect("the plan has a payload for each neighbour");
        let place = self.row.place(to);
        let edge = &mut self.edges[place];
        edge.multiply(at.round, &self.layers, &local.x);
        let product = if is_right(at.round) { &edge.q } else { &edge.p };
        let (products, whole) =
            local.update[..self.layers.sent(is_right(at.round))].split_at_mut(product.len());
        products.copy_from_slice(product);
        whole.copy_from_slice(&self.whole);
        out.vector(&local.update[..product.len() + self.whole.len()])
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let place = self.row.place(from);
        let (edge, weight) = (&mut self.edges[place], self.row.weights[place]);
        let theirs = &mut local.update[..self.layers.sent(is_right(at.round))];
        p.write_into(theirs);
        let product = if is_right(at.round) { &mut edge.q } else { &mut edge.p };
        let (theirs, their_whole) = theirs.split_at(product.len());
        // At both ends, the difference of the node with the higher number minus the other.
        let above = self.node > from;
        for (product, theirs) in product.iter_mut().zip(theirs) {
            *product = if above { *product - theirs } else { theirs - *product };
        }
        edge.add_product(if above { -weight } else { weight }, &self.layers, &mut local.x);
        let (mut own, mut theirs) = (&*self.whole, their_whole);
        for &(start, len) in &self.layers.columns {
            vector::axpy_difference(
                weight,
                &theirs[..len],
                &own[..len],
                &mut local.x[start..start + len],
            );
            (own, theirs) = (&own[len..], &theirs[len..]);
        }
        Ok(())
    }
}

impl Rule for PowerGossip {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        vector::subtract(&local.update, &mut local.x);
        let mut whole = &mut *self.whole;
        for &(start, len) in &self.layers.columns {
            let (here, rest) = whole.split_at_mut(len);
            here.copy_from_slice(&local.x[start..start + len]);
            whole = rest;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        for edge in &mut self.edges {
            visitor.vector("p", &mut edge.p);
            visitor.vector("q", &mut edge.q);
        }
        visitor.scratch(self.whole.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(columns: &[f32], len: usize) {
        for (i, a) in columns.chunks_exact(len).enumerate() {
            for (j, b) in columns.chunks_exact(len).enumerate() {
                let expected = f64::from(u8::from(i == j));
                assert!(
                    (vector::dot(a, b) - expected).abs() < 1e-6,
                    "columns {i} and {j}: {}",
                    vector::dot(a, b)
                );
            }
        }
    }

    #[test]
    fn columns_become_orthonormal_whatever_they_were() {
        let again = Stream::new(1, Purpose::Test);
        let mut dice = again.with(9).sequence();
        let random: Vec<f32> = (0..40).map(|_| dice.normal() as f32).collect();
        let tiny = random.iter().map(|x| x * 1e-30).collect();
        let equal = [&random[..10], &random[..10], &random[..10], &random[..10]].concat();
        let mut gap = random.clone();
        gap[10..20].fill(0.0);
        for mut columns in [random, tiny, equal, gap, vec![0.0; 40]] {
            orthonormalize(&mut columns, 10, again);
            check(&columns, 10);
        }
        let mut square = vec![0.0; 9];
        orthonormalize(&mut square, 3, again);
        check(&square, 3);
    }
}
