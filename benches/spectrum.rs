//! The time to compute the spectral gap: dense, by Lanczos, in closed form.
//!
//! `cargo bench --no-default-features --bench spectrum`

use divan::Bencher;
use gradvine::mixing::{MAX_LANCZOS_STEPS, Spectrum, Topology};

fn main() {
    divan::main();
}

fn topology(spec: &str) -> Topology {
    Topology::parse(spec, 0).expect("the specs below are valid")
}

/// All eigenvalues of a full matrix, up to the largest that is computed so.
#[divan::bench(args = ["ring:100", "ring:300", "ring:1000"], sample_count = 3)]
fn dense(bencher: Bencher<'_, '_>, spec: &str) {
    let topology = topology(spec);
    bencher.bench_local(|| Spectrum::dense(topology.matrix()));
}

/// Both ends of the spectrum of a sparse matrix: 100,000 nodes, until converged.
#[divan::bench(
    args = ["torus:316x316", "exponential:100000", "random-regular:100000:4"],
    sample_count = 5
)]
fn lanczos(bencher: Bencher<'_, '_>, spec: &str) {
    let topology = topology(spec);
    bencher.bench_local(|| {
        let found = Spectrum::lanczos(topology.matrix(), MAX_LANCZOS_STEPS);
        assert!(found.converged, "{spec}");
        found
    });
}

/// The time until a graph that does not converge is reported as such.
#[divan::bench(args = ["ring:100000"], sample_count = 2)]
fn lanczos_in_vain(bencher: Bencher<'_, '_>, spec: &str) {
    let topology = topology(spec);
    bencher.bench_local(|| {
        let found = Spectrum::lanczos(topology.matrix(), MAX_LANCZOS_STEPS);
        assert!(!found.converged, "{spec}");
        found
    });
}

/// From the family's formula: `topology show` does this for every family except random-regular.
#[divan::bench(args = ["ring:1000", "torus:316x316", "ring:100000"])]
fn closed_form(bencher: Bencher<'_, '_>, spec: &str) {
    let topology = topology(spec);
    let shape = topology.shape().expect("a family has a shape");
    bencher.bench_local(|| {
        Spectrum::closed_form(topology.matrix(), shape).expect("these families have one")
    });
}

/// Everything from the spec to a checked topology: graph, weights, matrix.
#[divan::bench(args = ["ring:8", "torus:316x316", "complete:1000"])]
fn build(spec: &str) -> Topology {
    topology(spec)
}
