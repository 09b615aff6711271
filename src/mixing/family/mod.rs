//! Families of graphs: `ring:8`, `torus:4x4`, `random-regular:16:4`.
//!
//! A family is one file and one line of [`REGISTRY`]; files, command line, tests and lists find it
//! there. Each supplies the eigenvalues of its Laplacian `L = D - A` if they are known in closed
//! form: whenever all links have one weight a, as with every kind of weights on these graphs, `W =
//! I - a L` gives the spectrum of W to the last digit at any size.

mod complete;
mod exponential;
mod hypercube;
mod path;
mod random_regular;
mod ring;
mod star;
mod torus;

use std::fmt;

use super::{Graph, MAX_LINKS, MAX_NODES, TopologyError};
use crate::registry::{Named, Registry};
pub(super) use random_regular::draw_regular;

/// Every family, in the order of lists. `custom`, a graph that lists its links, is not among them.
pub static REGISTRY: Registry<Family> = Registry::new(
    "family of topologies",
    &[
        ring::RING,
        path::PATH,
        torus::TORUS,
        complete::COMPLETE,
        star::STAR,
        hypercube::HYPERCUBE,
        exponential::EXPONENTIAL,
        random_regular::RANDOM_REGULAR,
    ],
);

/// The families that files may name.
pub type Families = &'static Registry<Family>;

impl Named for Family {
    fn name(&self) -> &str {
        self.name
    }

    fn problem(&self) -> Option<String> {
        if self.name == CUSTOM {
            return Some(
                "files use this name for a graph of no family: expected another one".into(),
            );
        }
        let key = self.keys.iter().find(|key| !FILE_KEYS.contains(key))?;
        Some(format!(
            "files have no key `{key}` for it: expected keys from {}",
            FILE_KEYS.join(", ")
        ))
    }
}

/// The keys of topology files that a family can have.
pub(crate) const FILE_KEYS: [&str; 5] = ["nodes", "rows", "columns", "degree", "seed"];

/// The name in files for a graph of no family.
pub const CUSTOM: &str = "custom";

/// A generator of graphs. `arguments` are the values of its keys, in that order; functions other
/// than `size` receive them only after that one has accepted them.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name in files and on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The keys of its arguments in a file, in the order of the command line: some of `nodes`,
    /// `rows`, `columns`, `degree` and `seed`.
    pub keys: &'static [&'static str],
    /// The number of keys at the end that are optional.
    pub optional: usize,
    /// The separator of the arguments on the command line.
    pub separator: char,
    /// Arguments that make a small example.
    pub example: &'static [u64],
    /// The number of nodes and an upper bound of the number of links, in u128 so that no argument
    /// can overflow. Refuses arguments for which there is no such graph.
    pub size: fn(arguments: &[u64]) -> Result<Size, Refusal>,
    /// The links, in any order, parallel ones and loops included or not. Refuses if a random draw
    /// did not succeed.
    pub links: fn(arguments: &[u64]) -> Result<Links, Refusal>,
    /// Visits the n - 1 eigenvalues of the Laplacian besides the trivial 0, in any order; `false`
    /// if they are not known in closed form.
    pub laplacian: fn(arguments: &[u64], visit: &mut dyn FnMut(f64)) -> bool,
    /// The diameter, if it is known without the graph.
    pub diameter: fn(arguments: &[u64]) -> Option<usize>,
    /// Rows and columns, if it is drawn as a grid.
    pub grid: fn(arguments: &[u64]) -> Option<(usize, usize)>,
    /// Whether node 0 is drawn in the middle.
    pub hub: bool,
    /// Whether it is drawn as a cube whose corners are the nodes' numbers in binary.
    pub cube: bool,
}

impl Family {
    /// Values that most families share, for `..Family::BLANK`: one argument, the number of nodes,
    /// and as many links.
    pub const BLANK: Family = Family {
        name: "",
        about: "",
        keys: &["nodes"],
        optional: 0,
        separator: ':',
        example: &[8],
        size: |arguments| {
            let nodes = u128::from(arguments[0]);
            Ok(Size { nodes, links: nodes })
        },
        links: |_| Err(Refusal::new("family", "it has no links")),
        laplacian: |_, _| false,
        diameter: |_| None,
        grid: |_| None,
        hub: false,
        cube: false,
    };
}

/// Links as pairs of node numbers from 0, in any order.
pub type Links = Vec<(u32, u32)>;

/// The size of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of nodes, which may be too large to build.
    pub nodes: u128,
    /// An upper bound of the number of links.
    pub links: u128,
}

/// Why a family has no graph for its arguments: the key at fault, and the accepted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The key whose value is refused.
    pub key: &'static str,
    /// The problem and the accepted values.
    pub problem: String,
}

impl Refusal {
    /// A refusal of the value of this key.
    pub fn new(key: &'static str, problem: impl Into<String>) -> Refusal {
        Refusal { key, problem: problem.into() }
    }
}

/// A family with its arguments: a short description of a graph.
#[derive(Clone)]
pub struct FamilyMember {
    family: &'static Family,
    arguments: Vec<u64>,
}

impl FamilyMember {
    /// The family's graph for these arguments, checked to exist and to be within [`MAX_NODES`] and
    /// [`MAX_LINKS`]. If the last argument of `random-regular`, its seed, is missing, the low 63
    /// bits of `seed` are used, so that a TOML file can hold it.
    ///
    /// # Errors
    /// If an argument is missing, superfluous or refused; the place is `family` or the argument's
    /// key.
    pub fn new(
        family: &'static Family,
        arguments: &[u64],
        seed: u64,
    ) -> Result<FamilyMember, TopologyError> {
        let keys = family.keys;
        let mut arguments = arguments.to_vec();
        if arguments.len() > keys.len() || arguments.len() + family.optional < keys.len() {
            let problem = format!(
                "{} takes {}, for example {}",
                family.name,
                keys.join(", "),
                example(family)
            );
            let value = Some(format!("\"{}\"", family.name));
            return Err(TopologyError::Family { key: "family", value, problem });
        }
        arguments.resize(keys.len(), seed & (u64::MAX >> 1));
        let refuse = |Refusal { key, problem }: Refusal| {
            let value = keys.iter().position(|&other| other == key).map_or(0, |at| arguments[at]);
            let problem = format!("{}: {problem}", family.name);
            TopologyError::Family { key, value: Some(value.to_string()), problem }
        };
        for (&key, &value) in keys.iter().zip(&arguments) {
            if value == 0 && key != "seed" && key != "degree" {
                return Err(refuse(Refusal::new(key, "expected 1 or more")));
            }
        }
        let size = (family.size)(&arguments).map_err(refuse)?;
        if size.nodes > MAX_NODES as u128 || size.links > MAX_LINKS as u128 {
            let problem = format!(
                "{} nodes and up to {} links are too many: the limits are {MAX_NODES} and \
                 {MAX_LINKS}",
                size.nodes, size.links
            );
            return Err(refuse(Refusal::new(keys[0], problem)));
        }
        Ok(FamilyMember { family, arguments })
    }

    /// Parses `ring:8`, `torus:4x4`, `random-regular:16:4` or, with a seed of its own,
    /// `random-regular:16:4:7`.
    ///
    /// # Errors
    /// If there is no such family, or as for [`FamilyMember::new`].
    pub fn parse(spec: &str, seed: u64) -> Result<FamilyMember, TopologyError> {
        FamilyMember::parse_in(&REGISTRY, spec, seed)
    }

    /// The same with families of a registry of its own.
    pub(super) fn parse_in(
        families: Families,
        spec: &str,
        seed: u64,
    ) -> Result<FamilyMember, TopologyError> {
        let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
        let unknown = || TopologyError::UnknownFamily { line: None, name: name.into(), families };
        let family = families.find(name).ok_or_else(unknown)?;
        let values = rest.split(family.separator).filter(|_| !rest.is_empty());
        let arguments: Vec<u64> =
            values.map(|text| text.trim().parse()).collect::<Result<_, _>>().map_err(|_| {
                let problem = format!("expected numbers, as in {}", example(family));
                TopologyError::Family { key: "topology", value: Some(spec.into()), problem }
            })?;
        FamilyMember::new(family, &arguments, seed)
    }

    /// The graph.
    ///
    /// # Errors
    /// If a random draw did not succeed.
    pub fn graph(&self) -> Result<Graph, TopologyError> {
        let links = (self.family.links)(&self.arguments).map_err(|Refusal { key, problem }| {
            TopologyError::Family { key, value: None, problem: format!("{self}: {problem}") }
        })?;
        Graph::new(self.nodes(), links)
    }

    /// The family whose graph this is.
    pub fn family(&self) -> &'static Family {
        self.family
    }

    /// Keys and values, as in a file.
    pub fn arguments(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.family.keys.iter().copied().zip(self.arguments.iter().copied())
    }

    /// The number of nodes, from the family's formula.
    pub fn nodes(&self) -> usize {
        (self.family.size)(&self.arguments).map_or(1, |size| size.nodes as usize)
    }

    /// The eigenvalues of the Laplacian besides the trivial 0, in any order, if they are known in
    /// closed form.
    pub fn laplacian(&self) -> Option<Vec<f64>> {
        let mut values = Vec::with_capacity(self.nodes());
        (self.family.laplacian)(&self.arguments, &mut |value| values.push(value)).then_some(values)
    }

    /// The least and the greatest of [`FamilyMember::laplacian`]; `None` also for a single node.
    pub fn laplacian_range(&self) -> Option<(f64, f64)> {
        let values = self.laplacian()?;
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        let greatest = values.iter().copied().max_by(f64::total_cmp)?;
        Some((least, greatest))
    }

    /// The diameter in links, if the family knows it.
    pub fn diameter(&self) -> Option<usize> {
        (self.family.diameter)(&self.arguments)
    }

    /// Rows and columns, if it is drawn as a grid.
    pub fn grid(&self) -> Option<(usize, usize)> {
        (self.family.grid)(&self.arguments)
    }

    /// A name such as `ring-8` or `torus-4x4`: the arguments without the seed.
    pub fn title(&self) -> String {
        let shown: Vec<_> = self
            .arguments()
            .filter(|&(key, _)| key != "seed")
            .map(|(_, v)| v.to_string())
            .collect();
        let separator = if self.family.separator == ':' { "-" } else { "x" };
        format!("{}-{}", self.family.name, shown.join(separator))
    }
}

/// The text for [`FamilyMember::parse`].
impl fmt::Display for FamilyMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&spec(self.family, &self.arguments))
    }
}

impl fmt::Debug for FamilyMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FamilyMember({self})")
    }
}

impl PartialEq for FamilyMember {
    fn eq(&self, other: &FamilyMember) -> bool {
        self.family.name == other.family.name && self.arguments == other.arguments
    }
}

/// The family as written on the command line.
pub fn example(family: &Family) -> String {
    spec(family, family.example)
}

fn spec(family: &Family, arguments: &[u64]) -> String {
    let values: Vec<_> = arguments.iter().map(u64::to_string).collect();
    format!("{}:{}", family.name, values.join(&family.separator.to_string()))
}

/// The nontrivial Laplacian eigenvalue `2 - 2 cos(angle)` of a circulant direction, as `4
/// sin^2(angle / 2)`, which does not cancel.
fn wave(angle: f64) -> f64 {
    let sine = libm::sin(angle / 2.0);
    4.0 * sine * sine
}

/// The k-th Laplacian eigenvalue of a ring of n, the pair of n = 2 counting once, for k in 0..n; k
/// = 0 is the trivial one.
fn ring_eigenvalue(n: u64, k: u64) -> f64 {
    match n {
        1 => 0.0,
        2 => 2.0 * k as f64,
        _ => wave(std::f64::consts::TAU * k as f64 / n as f64),
    }
}

/// The links of a ring on 0..n, with nodes mapped by `at`.
fn ring_links(n: u64, at: impl Fn(u64) -> u32, links: &mut Vec<(u32, u32)>) {
    links.extend((0..n).map(|i| (at(i), at((i + 1) % n))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mixing::DENSE_LIMIT, units::NodeId};

    fn shapes() -> Vec<FamilyMember> {
        let specs = [
            "ring:1 ring:2 ring:3 ring:4 ring:7 ring:16",
            "path:1 path:2 path:3 path:9",
            "torus:1x1 torus:1x5 torus:2x2 torus:2x4 torus:2x5 torus:4x4 torus:3x6",
            "complete:1 complete:2 complete:8 star:1 star:2 star:3 star:8",
            "hypercube:1 hypercube:2 hypercube:8 hypercube:32",
            "exponential:1 exponential:2 exponential:3 exponential:6 exponential:8 exponential:16 \
             exponential:21",
            "random-regular:16:3 random-regular:8:7 random-regular:20:12 random-regular:9:2 \
             random-regular:1:0",
        ];
        specs
            .iter()
            .flat_map(|line| line.split(' '))
            .map(|spec| FamilyMember::parse(spec, 3).unwrap())
            .collect()
    }

    /// Eigenvalues of the Laplacian of the graph that was built.
    fn dense_laplacian(graph: &Graph) -> Vec<f64> {
        let n = graph.nodes();
        let mut matrix = nalgebra::DMatrix::<f64>::zeros(n, n);
        for &(a, b) in graph.links() {
            let (a, b) = (a.index(), b.index());
            matrix[(a, b)] = -1.0;
            matrix[(b, a)] = -1.0;
            matrix[(a, a)] += 1.0;
            matrix[(b, b)] += 1.0;
        }
        let mut values: Vec<f64> = matrix.symmetric_eigenvalues().iter().copied().collect();
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn closed_forms_are_the_eigenvalues_of_the_graph() {
        for shape in shapes() {
            let graph = shape.graph().unwrap();
            let Some(mut closed) = shape.laplacian() else { continue };
            closed.push(0.0);
            closed.sort_by(f64::total_cmp);
            let dense = dense_laplacian(&graph);
            assert_eq!(closed.len(), dense.len(), "{shape}");
            for (a, b) in closed.iter().zip(&dense) {
                assert!((a - b).abs() < 1e-9, "{shape}: {closed:?} {dense:?}");
            }
        }
    }

    #[test]
    fn sizes_and_diameters_are_those_of_the_graph() {
        for shape in shapes() {
            let graph = shape.graph().unwrap();
            let size = (shape.family.size)(&shape.arguments).unwrap();
            assert_eq!(graph.nodes() as u128, size.nodes, "{shape}");
            assert!(graph.links().len() as u128 <= size.links, "{shape}");
            assert_eq!(graph.unreached(), None, "{shape}");
            if let Some(diameter) = shape.diameter() {
                assert_eq!(diameter, graph.diameter(), "{shape}");
            }
        }
    }

    #[test]
    fn specs_round_trip_and_examples_are_small() {
        for shape in shapes() {
            assert_eq!(FamilyMember::parse(&shape.to_string(), 99).unwrap(), shape);
        }
        for family in &REGISTRY {
            let shape = FamilyMember::parse(&example(family), 0).unwrap();
            assert!(shape.nodes() <= DENSE_LIMIT);
        }
    }

    #[test]
    fn neighbours_by_hand() {
        let row = |spec: &str, node: u32| {
            let graph = FamilyMember::parse(spec, 0).unwrap().graph().unwrap();
            graph.neighbours(NodeId(node)).iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(row("ring:8", 0), [1, 7]);
        assert_eq!(row("path:4", 3), [2]);
        assert_eq!(row("torus:4x4", 5), [1, 4, 6, 9]);
        assert_eq!(row("torus:2x4", 0), [1, 3, 4]);
        assert_eq!(row("star:5", 0), [1, 2, 3, 4]);
        assert_eq!(row("hypercube:8", 5), [1, 4, 7]);
        assert_eq!(row("exponential:8", 0), [1, 2, 4, 6, 7]);
    }

    #[test]
    fn impossible_shapes_are_refused_with_a_reason() {
        for (spec, reason) in [
            ("ring", "for example ring:8"),
            ("ring:0", "1 or more"),
            ("ring:eight", "expected numbers"),
            ("ring:4:4", "takes nodes"),
            ("torus:4", "for example torus:4x4"),
            ("torus:18446744073709551615x18446744073709551615", "too many"),
            ("hypercube:12", "8 or 16"),
            ("hypercube:18446744073709551615", "too many"),
            ("complete:100000", "too many"),
            ("random-regular:9:3", "odd"),
            ("random-regular:4:4", "below"),
            ("random-regular:6:1", "2 or more"),
            ("moebius:8", "expected a file"),
            ("exponential:99999999999", "too many"),
        ] {
            let error = FamilyMember::parse(spec, 0).unwrap_err().to_string();
            assert!(error.contains(reason), "{spec}: {error}");
        }
    }

    #[test]
    fn families_that_no_file_can_name_are_not_added() {
        let refuses = |name, keys, words: &str| {
            let own = Family { name, keys, ..path::PATH };
            let error = REGISTRY.register(own).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refuses("custom", &["nodes"], "a graph of no family");
        refuses("wheel", &["nodes", "spokes"], "`spokes`");
    }
}
