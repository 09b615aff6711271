//! Reading of CSV files, beside a plain read of the same file and a pass over its bytes: MB/s of
//! text, one thread.
//!
//! `cargo bench --no-default-features -p gradvine --bench csv`

use std::{fmt::Write as _, fs, io::Write as _, path::PathBuf};

use divan::{Bencher, counter::BytesCount};
use gradvine::{
    data::{self, Options},
    rng::{Purpose, Stream},
};

/// Bytes of each file, about.
const LENGTH: usize = 100 << 20;

fn main() {
    divan::main();
}

#[derive(Clone, Copy, Debug)]
enum Cells {
    /// Numbers with six decimals.
    SixDecimals,
    /// The shortest text of an `f32`.
    Shortest,
    /// Whole numbers from 0 to 255.
    Bytes,
    /// As the first, in quotes.
    Quoted,
    /// As the first, and the file is compressed.
    Gzip,
}

const ALL: [Cells; 5] =
    [Cells::SixDecimals, Cells::Shortest, Cells::Bytes, Cells::Quoted, Cells::Gzip];

/// A file of 20 features and a label a row, and the bytes of its text.
fn file(cells: Cells) -> (PathBuf, usize) {
    let mut dice = Stream::new(1, Purpose::Test).sequence();
    let mut text = String::with_capacity(LENGTH + 1000);
    while text.len() < LENGTH {
        for _ in 0..20 {
            let value = 200.0 * dice.uniform() - 100.0;
            match cells {
                Cells::SixDecimals | Cells::Gzip => write!(text, "{value:.6},"),
                Cells::Shortest => write!(text, "{},", value as f32),
                Cells::Bytes => write!(text, "{},", (value.abs() * 2.55) as u8),
                Cells::Quoted => write!(text, "\"{value:.6}\","),
            }
            .expect("a String takes any text");
        }
        let label = (dice.uniform() * 3.0) as u8;
        writeln!(text, "{label}").expect("a String takes any text");
    }
    let gzip = matches!(cells, Cells::Gzip);
    let name = format!("gradvine-bench-{cells:?}.csv{}", if gzip { ".gz" } else { "" });
    let path = std::env::temp_dir().join(name);
    let bytes = if gzip {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).expect("a Vec takes any bytes");
        encoder.finish().expect("a Vec takes any bytes")
    } else {
        text.clone().into_bytes()
    };
    fs::write(&path, bytes).expect("the folder for temporary files takes the file");
    (path, text.len())
}

#[divan::bench(args = ALL, sample_count = 5, sample_size = 1)]
fn load(bencher: Bencher<'_, '_>, cells: Cells) {
    let (path, length) = file(cells);
    let source = path.display().to_string();
    bencher
        .counter(BytesCount::new(length))
        .bench_local(|| data::load(&source, &Options::default()).expect("the file is right"));
    fs::remove_file(path).expect("the file was written");
}

#[divan::bench(args = [Cells::SixDecimals], sample_count = 5, sample_size = 1)]
fn plain_read(bencher: Bencher<'_, '_>, cells: Cells) {
    let (path, length) = file(cells);
    bencher
        .counter(BytesCount::new(length))
        .bench_local(|| fs::read(&path).expect("the file was written"));
    fs::remove_file(path).expect("the file was written");
}

#[divan::bench(args = [Cells::SixDecimals], sample_count = 5, sample_size = 1)]
fn count_separators(bencher: Bencher<'_, '_>, cells: Cells) {
    let (path, length) = file(cells);
    let bytes = fs::read(&path).expect("the file was written");
    bencher
        .counter(BytesCount::new(length))
        .bench_local(|| bytes.iter().filter(|byte| **byte == b',').count());
    fs::remove_file(path).expect("the file was written");
}
