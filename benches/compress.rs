//! Every compressor of the registry, compared with a plain copy: GB/s of `f32` input, one thread.
//!
//! `cargo bench --no-default-features --bench compress`; a filter such as `-- encode` or `--
//! 1000000` narrows it.

use std::sync::Arc;

use divan::{Bencher, counter::BytesCount};
use gradvine::{
    compress::{self, COMPRESSORS, Compressor},
    rng::{Purpose, Stream},
};

const LENGTHS: [usize; 3] = [100_000, 1_000_000, 25_000_000];

fn main() {
    divan::main();
}

/// A compressor's section, printed in one line.
#[derive(Clone)]
struct Case {
    text: String,
    len: usize,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>8} {}", self.len, self.text.replace('\n', ", ").replace("kind = ", ""))
    }
}

/// The defaults of every entry, and the constants with other kernels.
fn cases() -> Vec<Case> {
    let mut texts: Vec<String> =
        COMPRESSORS.iter().map(|entry| format!("kind = '{}'", entry.name)).collect();
    for more in [
        "kind = 'min-max'\nrounding = 'nearest'",
        "kind = 'min-max'\nbits = 8",
        "kind = 'min-max'\nbits = 8\nrounding = 'nearest'",
        "kind = 'min-max'\nbits = 3",
        "kind = 'min-max'\nbucket = 0",
        "kind = 'top-k'\nfraction = 0.1",
        "kind = 'random-k'\nfraction = 0.1",
        "kind = 'count-sketch'\ncolumns = 250000",
        "kind = 'truncate'\nbits = 7",
        "kind = 'ternary'\nclamp = 2.5",
    ] {
        texts.push(more.to_string());
    }
    LENGTHS
        .iter()
        .flat_map(|&len| texts.iter().map(move |text| Case { text: text.clone(), len }))
        .collect()
}

fn vector(len: usize) -> Vec<f32> {
    // Normal numbers take a second per 25 million: so one stretch of them, slightly shifted and
    // scaled each time.
    let mut random = Stream::new(1, Purpose::Test).sequence();
    let stretch: Vec<f32> = (0..len.min(99_991)).map(|_| random.normal() as f32).collect();
    (0..len)
        .map(|i| stretch[i % stretch.len()] * (1.0 + (i / stretch.len()) as f32 * 1e-3))
        .collect()
}

/// A vector with its compressor, the stream, and its bytes.
fn encoded(case: &Case) -> (Vec<f32>, Arc<dyn Compressor>, Stream, Vec<u8>) {
    let v = vector(case.len);
    let built = compress::build(&toml::from_str(&case.text).expect("the cases are TOML"));
    let compressor = built.expect("the cases are in range").compressor;
    let (noise, mut out) = (Stream::new(7, Purpose::Test), Vec::new());
    compressor.encode(&v, noise, &mut out).expect("normal numbers are finite");
    (v, compressor, noise, out)
}

#[divan::bench(args = LENGTHS, sample_count = 20)]
fn copy(bencher: Bencher<'_, '_>, len: usize) {
    let v = vector(len);
    let mut out = vec![0f32; len];
    bencher
        .counter(BytesCount::of_many::<f32>(len))
        .bench_local(|| divan::black_box(&mut out).copy_from_slice(&v));
}

#[divan::bench(args = cases(), sample_count = 10)]
fn encode(bencher: Bencher<'_, '_>, case: &Case) {
    let (v, compressor, noise, mut out) = encoded(case);
    bencher.counter(BytesCount::of_many::<f32>(case.len)).bench_local(|| {
        out.clear();
        compressor.encode(divan::black_box(&v), noise, &mut out)
    });
}

#[divan::bench(args = cases(), sample_count = 10)]
fn check(bencher: Bencher<'_, '_>, case: &Case) {
    let (_, compressor, _, out) = encoded(case);
    bencher
        .counter(BytesCount::of_many::<f32>(case.len))
        .bench_local(|| compressor.check(case.len, divan::black_box(&out)));
}

#[divan::bench(args = cases(), sample_count = 10)]
fn add_into(bencher: Bencher<'_, '_>, case: &Case) {
    let (mut acc, compressor, noise, out) = encoded(case);
    bencher
        .counter(BytesCount::of_many::<f32>(case.len))
        .bench_local(|| compressor.add_into(divan::black_box(&out), noise, 1e-9, &mut acc));
}
