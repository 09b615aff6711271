//! Moniqua: models quantized modulo the largest difference between neighbours.
//!
//! Lu, De Sa: Moniqua: Modulo Quantized Communication in Decentralized SGD (2020), Algorithm 1.
//!
//! `mod` is centred: z mod B is in [-B/2, B/2]. If |x_i - x_j| < theta in every coordinate, xh_j is
//! the value that j itself has, and the mean moves by -lr mean g. Beyond theta it is off by a
//! multiple of B, and this is not detected: models that far apart count as equal and stay so. The
//! rounding noise u of floor(t + u) is drawn from the run's seed, the round and the coordinate, the
//! same on all nodes: equal models give equal codes. DIFFERENCE: the paper has gamma in a second
//! form of the algorithm, for few bits (the slack matrix gamma W + (1 - gamma) I); here it is a
//! constant, by default 1 from 4 bits on, and less for fewer bits, which would be decoded wrongly
//! with 1. State: none but x; any x_0 within theta. The exchange follows the gradient, though it
//! needs only x, because it accumulates in the update's buffer: during the gradient it would need
//! two vectors more.

use crate::{gossip::rule::prelude::*, rng::Purpose, rng::Stream};

pub(crate) const ENTRY: Entry = Entry {
    name: "moniqua",
    summary: "quantize models modulo what neighbours can differ by: few bits, no copies, no error \
              memory",
    paper: "Lu, De Sa 2020, Moniqua: Modulo Quantized Communication in Decentralized SGD, \
            Algorithm 1",
    update: "B = 2 theta / (1 - 2 delta)\n\
             q_i   = Q(x_i / B mod 1)   Q: L = 2^bits points in +-1/2, delta = 1 / (L - 1)\n\
             xh_i   = q_i B - (x_i mod B) + x_i   the node's own\n\
             xh_j   = (q_j B - x_i mod B) + x_i   a neighbour's, as i reads it\n\
             x_i'   = x_i + gamma sum_j W_ij (xh_j - xh_i) - lr g_i(x_i)",
    state: "none",
    sends: "q_i, bits d / 8 bytes",
    conditions: "|x_i - x_j| < theta in every coordinate of every pair of neighbours; beyond it \
                 models are read wrong, and nothing tells",
    constants: &[
        (
            "theta",
            "1: the most that neighbours' models differ by in a coordinate; smaller is finer, too \
             small is wrong",
        ),
        ("bits", "8: bits per number, 2 to 8 (1 leaves no room: delta would be 1)"),
        (
            "gamma",
            "gossip step; default min(1, (2^bits - 3) / (10 max_i sum_{j != i} W_ij)): one \
             round's rounding moves two neighbours apart by at most 0.4 theta; 1, as in Algorithm \
             1, from 4 bits on",
        ),
    ],
    prepare,
    ..Entry::BLANK
};

params! {
    theta: f64 = 1.0,
    bits: i64 = 8,
    gamma: Option<f64> = None,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    params.theta = nine_digits(positive("rule.theta", params.theta)?);
    let width = whole("rule.bits", params.bits, 2, 8)? as u32;
    let gamma = params.gamma.unwrap_or_else(|| default_gamma(width, steps::furthest(setting)));
    let gamma = nine_digits(positive("rule.gamma", gamma)?);
    params.gamma = Some(gamma);
    let grid = Grid::new(params.theta, width);
    positive("rule.theta", f64::from(grid.inverse))?;
    let topology = Arc::clone(setting.topology);
    let noise = Stream::new(setting.seed, Purpose::Rule);
    let format = Format::Codes { width, len: setting.parameters };
    let plan = Gossip::after_gradient(&topology, format);
    let rule = move |node, _: &[f32]| Moniqua {
        row: Row::of(&topology, node),
        gamma: gamma as f32,
        grid,
        noise,
    };
    Ok(ENTRY.prepared(&params, plan, Vec::new(), rule).relaxed_by(gamma))
}

/// The greatest gamma, up to 1, for which the rounding of one round leaves neighbours well within
/// theta of each other.
///
/// Neighbouring codes are s = B / (L - 1) = 2 theta / (L - 3) apart in value, and equal models have
/// equal codes. So rounding moves a model by at most gamma l s, l = sum_{j != i} W_ij, and changes
/// the difference of two neighbours by at most 2 gamma l s. The default keeps this within 0.4
/// theta; the rest is for the difference of the models. With gamma = 1 and two bits, rounding could
/// change it by more than theta, and models would be decoded wrongly.
fn default_gamma(width: u32, l: f64) -> f64 {
    let points = f64::from(1u32 << width);
    if l > 0.0 { ((points - 3.0) / (10.0 * l)).min(1.0) } else { 1.0 }
}

/// The grid of points from -B/2 to B/2, modulo B.
#[derive(Clone, Copy)]
struct Grid {
    /// B.
    b: f32,
    /// 1 / B.
    inverse: f32,
    /// L - 1.
    steps: f32,
}

/// 1.5 * 2^23: adding and subtracting it rounds |t| < 2^22 to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;

impl Grid {
    fn new(theta: f64, width: u32) -> Grid {
        let steps = f64::from((1u32 << width) - 1);
        let b = 2.0 * theta / (1.0 - 2.0 / steps);
        Grid { b: b as f32, inverse: (1.0 / b) as f32, steps: steps as f32 }
    }

    /// z mod B.
    #[inline]
    fn wrap(self, z: f32) -> f32 {
        let t = z * self.inverse;
        z - self.b * ((t + ROUND) - ROUND)
    }

    /// Q, with u in [0, 1) as its rounding noise.
    #[inline]
    fn code(self, x: f32, u: f32) -> u8 {
        let place = (self.wrap(x) * self.inverse + 0.5) * self.steps + u;
        let place = if place > 0.0 { place } else { 0.0 };
        (if place < self.steps { place } else { self.steps }) as u8
    }

    /// q B.
    #[inline]
    fn value(self, code: u8) -> f32 {
        (f32::from(code) / self.steps - 0.5) * self.b
    }
}

struct Moniqua {
    row: Row,
    gamma: f32,
    grid: Grid,
    /// Shared by all nodes.
    noise: Stream,
}

impl Party for Moniqua {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        let (x, grid, noise) = (&local.x, self.grid, self.noise.round(at.round));
        out.codes(|from, codes| {
            let x = &x[from..from + codes.len()];
            for ((index, code), &x) in (from as u32..).zip(codes).zip(x) {
                let u = (noise.u32_at(index) >> 8) as f32 * (1.0 / 16_777_216.0);
                *code = grid.code(x, u);
            }
            match vector::first_non_finite(x) {
                Some(index) => Err(NonFinite { index: from + index, value: x[index] }),
                None => Ok(()),
            }
        })
    }

    fn sent(&mut self, local: &mut Local, _: &At, _: Option<NodeId>, own: &Payload<'_>) {
        let (x, spare, grid, weight) =
            (&local.x, &mut local.update, self.grid, self.gamma * self.row.off_diagonal());
        own.codes(|from, codes| {
            let x = &x[from..from + codes.len()];
            for ((spare, x), &code) in spare[from..].iter_mut().zip(x).zip(codes) {
                *spare = -*spare - weight * (grid.value(code) - grid.wrap(*x));
            }
        });
    }

    fn received(&mut self, local: &mut Local, _: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let (x, spare, grid, weight) =
            (&local.x, &mut local.update, self.grid, self.gamma * self.row.weight(from));
        p.codes(|from, codes| {
            let x = &x[from..from + codes.len()];
            for ((spare, x), &code) in spare[from..].iter_mut().zip(x).zip(codes) {
                *spare += weight * grid.wrap(grid.value(code) - x);
            }
        });
        Ok(())
    }
}

impl Rule for Moniqua {
    fn gradient(&mut self, _: &mut Local, _: Round, _: f32) {}

    fn land(&mut self, local: &mut Local, _: &At) {
        vector::axpy(1.0, &local.update, &mut local.x);
    }

    fn state(&mut self, _: &mut dyn Visitor) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_read_right_within_theta_and_off_by_multiples_of_b_beyond() {
        let dice = Stream::new(3, Purpose::Test);
        for (theta, width) in [(0.25, 2), (1.0, 4), (2.0, 8)] {
            let grid = Grid::new(theta, width);
            let b = f64::from(grid.b);
            let slack = 1e-5 * b;
            for i in 0..20_000u64 {
                let at = |k: u64| dice.f64_at(8 * i + k);
                let xi = (10.0 * (at(0) - 0.5)) as f32;
                let apart = 8.0 * theta * (at(1) - 0.5);
                let xj = (f64::from(xi) + apart) as f32;
                let value = grid.value(grid.code(xj, at(2) as f32));
                let own = f64::from(value - grid.wrap(xj)) + f64::from(xj);
                assert!(
                    (own - f64::from(xj)).abs() <= b / f64::from(grid.steps) + slack,
                    "within a step of the grid"
                );
                let read = f64::from(grid.wrap(value - xi)) + f64::from(xi);
                let off = (read - own) / b;
                assert!((off - off.round()).abs() * b < slack, "off by {off} times B");
                if apart.abs() < 0.999 * theta {
                    assert_eq!(off.round(), 0.0, "theta {theta}, {width} bits: {apart} apart");
                }
                if apart.abs() > 1.2 * b {
                    assert!(off.round() != 0.0, "what is {apart} apart cannot be told");
                }
            }
        }
    }

    #[test]
    fn codes_stay_on_the_grid_wherever_the_number_is() {
        for width in 2..=8 {
            let grid = Grid::new(1.0, width);
            for x in [
                0.0,
                -0.0,
                grid.b / 2.0,
                -grid.b / 2.0,
                1e30,
                -1e30,
                f32::MAX,
                4_194_304.5,
                -8_388_609.0,
                1e-40,
            ] {
                for u in [0.0, 0.5, 1.0f32.next_down()] {
                    assert!(f32::from(grid.code(x, u)) <= grid.steps);
                }
            }
        }
    }
}
