//! The positions of the nodes of a drawing.

use std::f64::consts::TAU;

use gradvine::mixing::Topology;

/// The largest hypercube that is drawn as one; in larger ones the corners are too close.
const MAX_CORNERS: usize = 64;
/// The longest side of a torus that is drawn as a grid.
const MAX_SIDE: usize = 24;

/// The arrangement of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Node 0 at the top, then clockwise.
    Circle,
    /// Node 0 in the middle, the others on a circle.
    Hub,
    /// A grid with these numbers of rows and columns.
    Grid(usize, usize),
    /// Corners of a cube of this many dimensions.
    Cube(u32),
}

impl Layout {
    /// The arrangement for a topology.
    pub(super) fn of(topology: &Topology) -> Layout {
        let nodes = topology.nodes();
        let Some(shape) = topology.shape() else { return Layout::Circle };
        match shape.grid() {
            Some((rows, columns)) if rows.min(columns) > 1 && rows.max(columns) <= MAX_SIDE => {
                return Layout::Grid(rows, columns);
            }
            _ => {}
        }
        if shape.family().hub && nodes > 2 {
            Layout::Hub
        } else if shape.family().cube && (4..=MAX_CORNERS).contains(&nodes) {
            Layout::Cube(nodes.ilog2())
        } else {
            Layout::Circle
        }
    }

    /// A position for each node, in the square from -1 to 1 both ways, y downwards.
    pub(super) fn places(self, nodes: usize) -> Vec<(f64, f64)> {
        let circle = |i: usize, of: usize| {
            let angle = TAU * i as f64 / of as f64;
            (libm::sin(angle), -libm::cos(angle))
        };
        match self {
            Layout::Circle if nodes == 1 => vec![(0.0, 0.0)],
            Layout::Circle => (0..nodes).map(|i| circle(i, nodes)).collect(),
            Layout::Hub => (0..nodes)
                .map(|i| if i == 0 { (0.0, 0.0) } else { circle(i - 1, nodes - 1) })
                .collect(),
            Layout::Grid(rows, columns) => {
                let step = 2.0 / (rows.max(columns) - 1) as f64;
                let at = |i: usize, of: usize| step * (i as f64 - (of - 1) as f64 / 2.0);
                (0..nodes).map(|i| (at(i % columns, columns), at(i / columns, rows))).collect()
            }
            Layout::Cube(dimensions) => {
                let points = (0..nodes).map(|v| {
                    let ones = (0..dimensions as usize).filter(|bit| v >> bit & 1 == 1);
                    let axis =
                        |bit: usize| if dimensions == 4 && bit == 3 { FOURTH } else { AXES[bit] };
                    ones.fold((0.0, 0.0), |(x, y), bit| (x + axis(bit).0, y - axis(bit).1))
                });
                fitted(points.collect())
            }
        }
    }
}

/// The images of a cube's axes, y upwards: an oblique cube, and from the fourth dimension on a cube
/// of cubes.
const AXES: [(f64, f64); 6] =
    [(1.0, 0.0), (0.0, 1.0), (0.42, 0.34), (1.9, 0.17), (-0.17, 1.9), (1.07, 0.47)];
/// The fourth axis if it is the last.
const FOURTH: (f64, f64) = (1.55, 0.6);

/// Shifts and scales alike in both directions to fill the square.
fn fitted(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let bound = |pick: fn(&(f64, f64)) -> f64| {
        let values = || points.iter().map(pick);
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    };
    let ((left, right), (top, bottom)) = (bound(|p| p.0), bound(|p| p.1));
    let half = f64::max(right - left, bottom - top).max(1e-9) / 2.0;
    for (x, y) in &mut points {
        *x = (*x - f64::midpoint(left, right)) / half;
        *y = (*y - f64::midpoint(top, bottom)) / half;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: &str) -> (Layout, Vec<(f64, f64)>) {
        let topology = Topology::parse(spec, 0).unwrap();
        let layout = Layout::of(&topology);
        (layout, layout.places(topology.nodes()))
    }

    #[test]
    fn families_have_their_layouts() {
        assert_eq!(of("ring:8").0, Layout::Circle);
        assert_eq!(of("torus:2x4").0, Layout::Grid(2, 4));
        assert_eq!(of("torus:1x4").0, Layout::Circle);
        assert_eq!(of("star:8").0, Layout::Hub);
        assert_eq!(of("hypercube:16").0, Layout::Cube(4));
        assert_eq!(of("hypercube:128").0, Layout::Circle);
    }

    #[test]
    fn places_are_apart_and_inside() {
        let specs = "ring:1 ring:64 torus:2x4 torus:8x8 star:9 hypercube:4 hypercube:8 \
                     hypercube:16 hypercube:32 hypercube:64";
        for spec in specs.split(' ') {
            let places = of(spec).1;
            assert!(
                places.iter().all(|(x, y)| x.abs() < 1.0 + 1e-9 && y.abs() < 1.0 + 1e-9),
                "{spec}"
            );
            for (i, a) in places.iter().enumerate() {
                for b in &places[..i] {
                    assert!((a.0 - b.0).hypot(a.1 - b.1) > 0.09, "{spec}: {a:?} {b:?}");
                }
            }
        }
    }
}
