//! Topologies and their mixing matrices: links between nodes, and their weights.
//!
//! A [`Topology`] is an undirected [`Graph`] together with a [`MixingMatrix`] W on it: `w_ij > 0`
//! only if i and j are linked, W symmetric, every row summing to one. One round of gossip replaces
//! the models X by W X. It keeps their mean, and shrinks their disagreement by the factor `rho =
//! max(|lambda_2|, |lambda_n|)`; `gap = 1 - rho` is the spectral gap of the literature (some papers
//! call the gap rho: here `rho` is always the factor, 0 for the complete graph and 1 for a graph
//! that never agrees).
//!
//! ```
//! use gradvine::mixing::Topology;
//! let ring = Topology::parse("ring:8", 0)?;
//! assert_eq!(ring.links(), 8);
//! // A ring with weights 1/3 has the eigenvalues 1/3 + 2/3 cos(2 pi k / n).
//! let exact = 1.0 / 3.0 + 2.0 / 3.0 * (std::f64::consts::TAU / 8.0).cos();
//! assert!((ring.spectrum().rho - exact).abs() < 1e-12);
//! assert_eq!(ring.spectrum().mixing_time(), Some(22)); // rounds to 1/100
//! # Ok::<(), gradvine::mixing::TopologyError>(())
//! ```
//!
//! | part | content |
//! |---|---|
//! | [`Graph`] | simple undirected graph in compressed rows; breadth-first trees, diameter |
//! | [`family`] | generators (`ring:8`), with Laplacian spectra in closed form if they are known |
//! | [`Weights`] | from a graph to link weights |
//! | [`MixingMatrix`] | W, which can only be built if it mixes |
//! | [`Schedule`] | other matrices in other rounds: few neighbours at a time |
//! | [`Spectrum`] | rho, gap, eigenvalues: closed form, dense or Lanczos |
//! | [`FileFormat`] | TOML, GraphML, DOT and CSV, read and written |
//!
//! Limits: [`MAX_NODES`] nodes, [`MAX_LINKS`] links, files of [`MAX_FILE_BYTES`]; all are checked
//! before memory is allocated.

mod error;
pub mod family;
mod file;
mod graph;
mod lanczos;
mod matrix;
mod part;
pub mod schedule;
mod spectrum;
mod topology;
mod tree;
mod weights;

pub use error::TopologyError;
pub use family::{Family, FamilyMember};
pub use file::{FileFormat, MAX_FILE_BYTES};
pub use graph::Graph;
pub use lanczos::MAX_STEPS as MAX_LANCZOS_STEPS;
pub use matrix::{MatrixError, MixingMatrix};
pub use schedule::Schedule;
pub use spectrum::{DENSE_LIMIT, Method, Spectrum};
pub use topology::{LinkInfo, NodeInfo, Topology};
pub use tree::SpanningTree;
pub use weights::Weights;

/// The maximum number of nodes of a topology.
pub const MAX_NODES: usize = 1 << 20;

/// The maximum number of undirected links of a topology.
pub const MAX_LINKS: usize = 1 << 22;
