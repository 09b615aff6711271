//! What every compressor of the registry promises, tested over all of it.
//!
//! Each entry is tested with its defaults, with its own `variants` and with the settings listed in
//! [`MORE`]; an entry without a line there, or without its arithmetic in [`element_error`], fails.
//! Seeds are fixed: a failure repeats.

use std::sync::Arc;

use gradvine::{
    compress::{self, COMPRESSORS, Class, Compressor, Size},
    rng::{Purpose, Stream},
    vector,
};

/// Settings beside an entry's own variants: the product of these lines, one line for each constant.
const MORE: &[(&str, &[&[&str]])] = &[
    ("identity", &[]),
    ("f16", &[]),
    ("bf16", &[]),
    (
        "qsgd",
        &[
            &["levels = 1", "levels = 3", "levels = 63", "levels = 64", "levels = 127"],
            BUCKETS,
            &["", "scaled = true"],
        ],
    ),
    ("min-max", &[&BITS, BUCKETS, &["rounding = 'stochastic'", "rounding = 'nearest'"]]),
    ("sign", &[BUCKETS]),
    ("one-bit", &[BUCKETS]),
    ("ternary", &[BUCKETS, &["", "clamp = 1.0", "clamp = 2.5"]]),
    (
        "truncate",
        &[&["bits = 0", "bits = 2", "bits = 5", "bits = 6", "bits = 8", "bits = 13", "bits = 14"]],
    ),
    ("low-rank", &[&["rank = 1", "rank = 3", "rank = 8"]]),
    ("top-k", &[KEPT]),
    (
        "chunked-top-k",
        &[&["k = 1", "k = 7", "k = 100"], &["chunk = 100", "chunk = 600"], &["", "bits = 32"]],
    ),
    ("random-k", &[KEPT, &["", "scaled = true"]]),
    (
        "count-sketch",
        &[
            &["", "rows = 1", "rows = 2", "rows = 4", "rows = 15"],
            &["", "columns = 1", "columns = 20", "columns = 70"],
        ],
    ),
];
const BUCKETS: &[&str] = &["", "bucket = 0", "bucket = 1", "bucket = 100", "bucket = 600"];
const BITS: [&str; 8] = [
    "bits = 1", "bits = 2", "bits = 3", "bits = 4", "bits = 5", "bits = 6", "bits = 7", "bits = 8",
];
const KEPT: &[&str] =
    &["k = 1", "k = 7", "k = 4000000000", "fraction = 0.001", "fraction = 0.07", "fraction = 0.9"];

/// One compressor to be tested.
#[derive(Clone)]
struct Case {
    /// Its section, as a failure prints it.
    text: String,
    compressor: Arc<dyn Compressor>,
    constants: toml::Table,
}

impl Case {
    fn new(name: &str, constants: &str) -> Case {
        let text = format!("kind = '{name}'\n{constants}");
        let built = compress::build(&toml::from_str(&text).unwrap())
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let text = text.split('\n').filter(|line| !line.is_empty()).collect::<Vec<_>>().join(", ");
        Case { text, compressor: built.compressor, constants: built.resolved }
    }

    fn encode(&self, v: &[f32], noise: Stream) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.compressor
            .encode(v, noise, &mut bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", self.text));
        bytes
    }

    /// C(v), after all that an honest receiver does.
    fn apply(&self, v: &[f32], noise: Stream) -> Vec<f32> {
        let bytes = self.encode(v, noise);
        self.compressor
            .check(v.len(), &bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", self.text));
        let mut c = vec![0.0; v.len()];
        self.compressor.add_into(&bytes, noise, 1.0, &mut c);
        c
    }

    fn number(&self, key: &str) -> f64 {
        let value = &self.constants[key];
        value.as_float().or(value.as_integer().map(|whole| whole as f64)).unwrap()
    }

    fn is(&self, key: &str, wanted: impl Into<toml::Value>) -> bool {
        self.constants[key] == wanted.into()
    }

    /// How many numbers of `len` a sparsifier keeps, from its constants.
    fn kept(&self, len: usize) -> usize {
        if let Some(chunk) = self.constants.get("chunk") {
            let (chunk, k) = (chunk.as_integer().unwrap() as usize, self.number("k") as usize);
            // Of a shorter last chunk the same part, rounded up.
            return len / chunk * k + (len % chunk * k).div_ceil(chunk);
        }
        let wanted = match self.constants.get("k") {
            Some(k) => k.as_integer().unwrap() as usize,
            None => (self.number("fraction") * len as f64).round() as usize,
        };
        wanted.max(1).min(len)
    }

    /// E|C(v) - v|^2 / |v|^2 and its standard error, from this many draws.
    fn relative_error(&self, vectors: impl Iterator<Item = Vec<f32>>) -> (f64, f64) {
        let error = |(trial, v): (usize, Vec<f32>)| {
            vector::distance_squared(&self.apply(&v, noise(trial as u64)), &v)
                / vector::norm_squared(&v)
        };
        mean_and_error(&vectors.enumerate().map(error).collect::<Vec<f64>>())
    }
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for entry in &COMPRESSORS {
        let (_, more) = MORE.iter().find(|(name, _)| *name == entry.name).unwrap_or_else(|| {
            panic!(
                "`{}` is new: list its settings in MORE, its arithmetic in element_error",
                entry.name
            )
        });
        let products = more.iter().fold(vec![String::new()], |lines, constant| {
            lines
                .iter()
                .flat_map(|line| constant.iter().map(move |more| format!("{line}\n{more}")))
                .collect()
        });
        let own = entry.variants.iter().map(ToString::to_string);
        let mut texts: Vec<String> =
            products.into_iter().chain(own).chain([String::new()]).collect();
        texts.sort_unstable();
        texts.dedup();
        all.extend(texts.iter().map(|text| Case::new(entry.name, text)));
    }
    all
}

fn noise(trial: u64) -> Stream {
    Stream::new(11, Purpose::Compress).with(trial)
}

fn mean_and_error(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (variance / n).sqrt())
}

fn gaussian(len: usize, seed: u64) -> Vec<f32> {
    let mut normal = Stream::new(seed, Purpose::Test).sequence();
    (0..len).map(|_| normal.normal() as f32).collect()
}

/// Vectors of many kinds: what training sends, and what bounds are tight for.
fn vectors(len: usize) -> Vec<(&'static str, Vec<f32>)> {
    let each = |f: &dyn Fn(usize) -> f32| (0..len).map(f).collect::<Vec<f32>>();
    let dice = Stream::new(5, Purpose::Test);
    vec![
        ("normal", gaussian(len, 1)),
        ("small", gaussian(len, 2).iter().map(|x| 1e-4 * x).collect()),
        (
            "wide",
            each(&|i| {
                ((dice.f64_at(i as u64) - 0.5) * 40.0).exp() as f32
                    * if i % 3 == 0 { -1.0 } else { 1.0 }
            }),
        ),
        ("constant", each(&|_| 0.7)),
        ("two-valued", each(&|i| if i % 2 == 0 { 1.25 } else { -1.25 })),
        ("one hot", each(&|i| if i == len / 2 { -3.0 } else { 0.0 })),
        ("one large", each(&|i| if i == 0 { 40.0 } else { 0.01 })),
        ("far from zero", each(&|i| 1000.0 + dice.f64_at(i as u64) as f32)),
    ]
}

const LENGTHS: [usize; 11] = [1, 2, 7, 8, 9, 100, 511, 512, 513, 700, 1300];

/// By how much C(v)_i may differ from v_i, from the definition of each compressor and its
/// documentation, for one bucket of v. `c` is C(v) there: a sparsifier keeps a number exactly or
/// drops it, and which it kept is seen from it.
fn element_error(case: &Case, v: &[f32], c: &[f32], whole: usize) -> Vec<f64> {
    let v: Vec<f64> = v.iter().map(|&x| f64::from(x)).collect();
    let greatest = v.iter().fold(0f64, |a, x| a.max(x.abs()));
    let rounding = 4.0 * greatest * f64::from(f32::EPSILON);
    let each = |f: &dyn Fn(f64) -> f64| v.iter().map(|&x| f(x)).collect::<Vec<f64>>();
    if let Some(errors) = sparse_error(case, (&v, c), whole, rounding) {
        return errors;
    }
    match case.compressor.name() {
        "identity" => each(&|_| 0.0),
        "bf16" => each(&|x| x.abs() / 256.0),
        "f16" => {
            each(&|x| (x.abs() - 65504.0).max((x.abs() / 2048.0).max(1.0 / f64::from(1u32 << 25))))
        }
        "min-max" => {
            let (low, high) =
                v.iter().fold((v[0], v[0]), |(low, high), &x| (low.min(x), high.max(x)));
            let step = (high - low) / (case.number("bits").exp2() - 1.0);
            let most = if case.is("rounding", "nearest") { step / 2.0 } else { step };
            each(&|_| most * (1.0 + 1e-5) + rounding)
        }
        "qsgd" => {
            let (n, s) = (v.len() as f64, case.number("levels"));
            let step = v.iter().map(|x| x * x).sum::<f64>().sqrt() / s;
            let bound = (n / s / s).min(n.sqrt() / s);
            let tau = if case.is("scaled", true) { 1.0 + bound } else { 1.0 };
            // tau C is within a step of x.
            each(&|x| (step + x.abs() * (tau - 1.0)) / tau * (1.0 + 1e-5))
        }
        "sign" => {
            let mean = v.iter().map(|x| x.abs()).sum::<f64>() / v.len() as f64;
            each(&|x| (x.abs() - mean).abs() + rounding)
        }
        "one-bit" => {
            let of_sign = |negative: bool| v.iter().filter(move |x| (**x < 0.0) == negative);
            let mean = |negative| of_sign(negative).sum::<f64>() / of_sign(negative).count() as f64;
            let (above, below) = (mean(false), mean(true));
            each(&|x| (x - if x < 0.0 { below } else { above }).abs() + rounding)
        }
        "ternary" => {
            let deviation = (v.iter().map(|x| x * x).sum::<f64>() / v.len() as f64).sqrt();
            let clamp = case.number("clamp");
            let s = if clamp == 0.0 { greatest } else { greatest.min(clamp * deviation) };
            // 0 or s, whichever side; what is cut off is lost.
            each(&|x| x.abs().max(s - x.abs()) + rounding)
        }
        "truncate" => each(&|x| x.abs() / (case.number("bits").exp2() + 1.0)),
        // A projection.
        "low-rank" => {
            let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt();
            each(&|_| norm * (1.0 + 1e-6))
        }
        // If all others met in its cell; what one may expect is the variance of the bound and of
        // the nominal delta.
        "count-sketch" => {
            let sum = v.iter().map(|x| x.abs()).sum::<f64>();
            each(&|x| sum - x.abs() + sum * f64::from(f32::EPSILON) * v.len() as f64)
        }
        other => panic!("`{other}` is new: say here by how much it may be wrong"),
    }
}

/// The same of those that keep some of the numbers; `None` of others.
fn sparse_error(
    case: &Case,
    (v, c): (&[f64], &[f32]),
    whole: usize,
    rounding: f64,
) -> Option<Vec<f64>> {
    let each = |f: &dyn Fn(f64) -> f64| v.iter().map(|&x| f(x)).collect::<Vec<f64>>();
    let errors = match case.compressor.name() {
        "top-k" => {
            let mut sorted: Vec<f64> = v.iter().map(|x| x.abs()).collect();
            sorted.sort_unstable_by(|a, b| b.total_cmp(a));
            let cut = sorted[case.kept(whole) - 1];
            each(&|x| if x.abs() > cut { 0.0 } else { x.abs() })
        }
        "chunked-top-k" => {
            let mut kept: Vec<f64> = v.iter().map(|x| x.abs()).collect();
            kept.sort_unstable_by(|a, b| b.total_cmp(a));
            kept.truncate(case.kept(v.len()));
            let cut = kept[kept.len() - 1];
            if case.number("bits") == 32.0 {
                return Some(each(&|x| if x.abs() > cut { 0.0 } else { x.abs() }));
            }
            let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
            let middle = mean(&kept);
            let (above, below): (Vec<f64>, Vec<f64>) = kept.iter().partition(|x| **x > middle);
            each(&|x| {
                let to = |group: &[f64]| (x.abs() - mean(group)).abs() + rounding;
                match x.abs() {
                    least if least < cut => least,
                    // Whether it is kept depends on its place.
                    least if least == cut => least.max(to(&below)).max(to(&above)),
                    // On which side of the mean it is may be a matter of rounding.
                    near if (near - middle).abs() <= rounding => to(&below).max(to(&above)),
                    great if great > middle => to(&above),
                    _ => to(&below),
                }
            })
        }
        "random-k" => {
            let scale =
                if case.is("scaled", true) { whole as f64 / case.kept(whole) as f64 } else { 1.0 };
            let rule = |(&x, &c): (&f64, &f32)| {
                if c == 0.0 { x.abs() } else { x.abs() * (scale - 1.0) + rounding * scale }
            };
            v.iter().zip(c).map(rule).collect()
        }
        _ => return None,
    };
    Some(errors)
}

#[test]
fn every_number_comes_back_within_the_stated_error() {
    for case in cases() {
        for len in LENGTHS {
            for (kind, v) in vectors(len) {
                let c = case.apply(&v, noise(len as u64));
                let bucket = case.compressor.bucket(len);
                for (b, (v, c)) in v.chunks(bucket).zip(c.chunks(bucket)).enumerate() {
                    for (i, allowed) in element_error(&case, v, c, len).into_iter().enumerate() {
                        let error = (f64::from(c[i]) - f64::from(v[i])).abs();
                        let (text, at) = (&case.text, b * bucket + i);
                        assert!(
                            error <= allowed,
                            "{text}: {kind} {len}: {} -> {} at {at}, {allowed} allowed",
                            v[i],
                            c[i]
                        );
                    }
                }
            }
        }
    }
}

/// Any stretch of whole blocks is checked and decoded by itself, without noise.
#[test]
fn a_stretch_of_blocks_is_the_payload_of_a_stretch() {
    let mut in_blocks = 0;
    for (case, len) in cases().iter().flat_map(|case| LENGTHS.map(|len| (case, len))) {
        let Some(blocks) = case.compressor.blocks(len) else { continue };
        in_blocks += 1;
        let (v, count) = (gaussian(len, 3), len.div_ceil(blocks.numbers));
        let (bytes, whole) = (case.encode(&v, noise(1)), case.apply(&v, noise(1)));
        for (from, to) in [(0, 1), (count / 2, count), (count - 1, count)] {
            let numbers = from * blocks.numbers..len.min(to * blocks.numbers);
            let some = &bytes[from * blocks.bytes..bytes.len().min(to * blocks.bytes)];
            assert_eq!(case.compressor.check(numbers.len(), some), Ok(()), "{}", case.text);
            let mut part = vec![0.0; numbers.len()];
            case.compressor.add_into(some, noise(2), 1.0, &mut part);
            assert_eq!(part, whole[numbers], "{} of {len}, {from} to {to}", case.text);
        }
    }
    assert!(in_blocks > 100);
}

#[test]
fn the_size_is_known_before_encoding() {
    for case in cases() {
        for len in LENGTHS.into_iter().chain([0]) {
            let mut bytes = b"before".to_vec();
            case.compressor.encode(&gaussian(len, 3), noise(1), &mut bytes).unwrap();
            let written = bytes.len() - 6;
            assert!(bytes.starts_with(b"before"), "{}: what was there has changed", case.text);
            match case.compressor.size(len) {
                Size::Exact(size) => assert_eq!(written, size, "{} at {len}", case.text),
                Size::AtMost(size) => {
                    assert!(written <= size, "{} at {len}: {written} > {size}", case.text);
                }
            }
            case.compressor.check(len, &bytes[6..]).unwrap();
        }
    }
}

/// <mean of C(v) over many draws - v, u> in standard errors, the largest over directions u: v, the
/// ones, random signs, and stretches.
fn bias(case: &Case, v: &[f32], trials: u64) -> f64 {
    let len = v.len();
    let mut directions = vec![v.to_vec(), vec![1.0; len]];
    let dice = Stream::new(8, Purpose::Test);
    let sign =
        |name: u64, i: usize| if dice.with(name).u64_at(i as u64) >> 63 == 0 { 1.0 } else { -1.0 };
    directions.extend((0..16).map(|name| (0..len).map(|i| sign(name, i)).collect()));
    directions.extend(
        (0..10)
            .map(|part| (0..len).map(|i| if i * 10 / len == part { v[i] } else { 0.0 }).collect()),
    );
    let mut products = vec![Vec::new(); directions.len()];
    for trial in 0..trials {
        let c = case.apply(v, noise(trial));
        for (u, products) in directions.iter().zip(&mut products) {
            products.push(common::dense::error_along(&c, v, u));
        }
    }
    let z = |(u, products): (&Vec<f32>, &Vec<f64>)| {
        // What f32 itself loses is no bias: an ulp of each number, in random directions.
        let floor = 1e-6 * (vector::norm_squared(u) * vector::norm_squared(v) / len as f64).sqrt();
        let (mean, error) = mean_and_error(products);
        mean.abs() / (error + floor)
    };
    directions.iter().zip(&products).map(z).fold(0.0, f64::max)
}

/// Of about 2000 z-values one beyond 5 would come once in a thousand runs; the seed is fixed.
const SIGNIFICANT: f64 = 5.0;

#[test]
#[ignore = "slow"]
fn the_unbiased_are_and_the_biased_are_found_out() {
    // Skewed and off the middle, so that no bias cancels by symmetry; two full buckets and a part.
    let v: Vec<f32> = gaussian(1200, 4).iter().map(|x| 0.3 + x * x.abs()).collect();
    for case in cases() {
        let exact = case.apply(&v, noise(0)) == v;
        let z = bias(&case, &v, 400);
        match case.compressor.class(v.len()) {
            Class::Unbiased { .. } => {
                assert!(z < SIGNIFICANT, "{}: {z} standard errors from unbiased", case.text);
            }
            Class::Contraction { .. } if exact => assert_eq!(z, 0.0, "{}", case.text),
            Class::Contraction { .. } => {
                assert!(z > SIGNIFICANT, "{}: only {z} standard errors of bias", case.text);
            }
        }
    }
}

#[test]
#[ignore = "slow"]
fn the_worst_case_bound_holds_for_every_vector() {
    for case in cases() {
        for len in [1, 7, 512, 700] {
            let bound = match case.compressor.class(len) {
                Class::Unbiased { alpha } => alpha * alpha,
                Class::Contraction { delta } => 1.0 - delta,
            };
            // Enough for random-k to meet the one number that counts a score of times.
            let draws = if case.compressor.name() == "random-k" {
                60 + 20 * len / case.kept(len)
            } else {
                60
            };
            for (kind, v) in vectors(len) {
                let (found, error) = case.relative_error((0..draws).map(|_| v.clone()));
                let text = &case.text;
                assert!(
                    found <= bound * (1.0 + 1e-6) + 5.0 * error + 1e-6,
                    "{text}: {kind} {len}: {found} > {bound} (+- {error})"
                );
            }
        }
    }
}

#[test]
#[ignore = "slow"]
fn the_nominal_delta_is_what_normal_vectors_lose() {
    for case in cases() {
        let wanted = 1000;
        let bucket = case.compressor.bucket(wanted);
        let len = wanted.div_ceil(bucket) * bucket;
        let nominal = compress::nominal_delta(&*case.compressor, len);
        let (found, error) = case.relative_error((0..150).map(|seed| gaussian(len, 1000 + seed)));
        let allowed = 0.03 * found.abs() + 5.0 * error + 1e-8;
        assert!(
            (found - (1.0 - nominal)).abs() <= allowed,
            "{}: {found} lost, nominal {}",
            case.text,
            1.0 - nominal
        );
    }
}

#[test]
fn nothing_becomes_nothing() {
    for case in cases() {
        for len in [0, 1, 512, 700] {
            for zero in [0.0, -0.0] {
                let c = case.apply(&vec![zero; len], noise(2));
                assert!(c.iter().all(|c| *c == 0.0), "{}: {len} zeros", case.text);
            }
        }
    }
}

#[test]
fn a_single_number_comes_back() {
    for case in cases().into_iter().filter(|case| !case.is_saturated_at(1e9)) {
        for x in [0.75f32, -1e9, 3.5e-20] {
            // The definitions: a norm, a mean magnitude, a range of one number are the number
            // itself.
            let tau = if let ("qsgd", true) =
                (case.compressor.name(), case.constants.get("scaled") == Some(&true.into()))
            {
                let s = case.number("levels");
                1.0 + (1.0 / (s * s)).min(1.0 / s)
            } else {
                1.0
            };
            let (c, expected) = (f64::from(case.apply(&[x], noise(3))[0]), f64::from(x) / tau);
            let tolerance = match case.compressor.name() {
                "bf16" => 1.0 / 256.0,
                "truncate" => 1.0 / (case.number("bits").exp2() + 1.0),
                _ => 1e-6,
            };
            assert!(
                (c - expected).abs() <= tolerance * expected.abs(),
                "{}: {x} -> {c}",
                case.text
            );
        }
    }
}

impl Case {
    /// Whether numbers of this magnitude are beyond its range.
    fn is_saturated_at(&self, x: f32) -> bool {
        self.compressor.name() == "f16" && x > 65504.0
    }
}

#[test]
fn the_edges_of_f32_stay_finite_and_in_proportion() {
    let tiny = f32::from_bits(1);
    let denormals = [tiny, -tiny, 3.0 * tiny, f32::MIN_POSITIVE / 2.0, -f32::MIN_POSITIVE, 0.0];
    let huge = [f32::MAX, -f32::MAX, f32::MAX / 3.0, f32::MAX.next_down(), 1e38, 0.0, -1e30];
    let mixed = [f32::MAX, tiny, -f32::MAX, -tiny, 1.0];
    for case in cases() {
        for pattern in
            [&denormals[..], &huge, &mixed, &[f32::MAX], &[tiny], &[-f32::MAX, -f32::MAX]]
        {
            for len in [1, 2, 5, 512, 700] {
                let v: Vec<f32> = pattern.iter().cycle().take(len).copied().collect();
                let greatest = v.iter().fold(0f64, |a, x| a.max(f64::from(*x).abs()));
                for c in case.apply(&v, noise(4)) {
                    // Scaled random-k multiplies by d/k <= d, a norm is at most sqrt(d) times the
                    // greatest; 255 steps of a denormal.
                    let most = greatest * len as f64 * (1.0 + 1e-6) + 300.0 * f64::from(tiny);
                    assert!(
                        c.is_finite() && f64::from(c).abs() <= most,
                        "{}: {c} of {len} of {pattern:?}",
                        case.text
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_not_finite_is_refused_with_its_place() {
    for case in cases() {
        for (len, places) in
            [(1, vec![0]), (700, vec![0, 300, 511, 512, 699]), (5000, vec![17, 4999])]
        {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for &place in &places {
                    let mut v = gaussian(len, 6);
                    v[place] = bad;
                    v[len - 1] = if place + 1 < len { f32::NAN } else { bad };
                    let mut bytes = vec![1, 2, 3];
                    let error = case.compressor.encode(&v, noise(5), &mut bytes).unwrap_err();
                    assert_eq!(
                        (error.index, error.value.to_bits()),
                        (place, bad.to_bits()),
                        "{}",
                        case.text
                    );
                    assert_eq!(bytes, [1, 2, 3], "{}: something was written", case.text);
                    assert!(
                        error.to_string().contains(&format!("index {place} is {bad}")),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
fn adding_is_linear_in_the_weight() {
    for case in cases() {
        for len in [1, 100, 513, 1300] {
            let v = gaussian(len, 7);
            let (bytes, c) = (case.encode(&v, noise(6)), case.apply(&v, noise(6)));
            for weight in [1.0f32, -0.25, 1.0 / 3.0, 0.0, 1e-3] {
                let before = gaussian(len, 8);
                let mut sum = before.clone();
                case.compressor.add_into(&bytes, noise(6), weight, &mut sum);
                for i in 0..len {
                    // To the bit: a product and a sum of f32, never fused.
                    assert_eq!(
                        sum[i],
                        before[i] + weight * c[i],
                        "{}: weight {weight}, number {i} of {len}",
                        case.text
                    );
                }
            }
        }
    }
}

#[test]
fn entries_are_what_is_added() {
    for case in cases() {
        for len in [1, 9, 700, 1300] {
            let v = gaussian(len, 9);
            let (bytes, c) = (case.encode(&v, noise(7)), case.apply(&v, noise(7)));
            let (mut scattered, mut indices) = (vec![0.0; len], Vec::new());
            let is_sparse = case.compressor.entries(len, &bytes, noise(7), &mut |index, value| {
                scattered[index as usize] = value;
                indices.push(index);
            });
            assert_eq!(
                is_sparse,
                matches!(case.compressor.name(), "top-k" | "chunked-top-k" | "random-k"),
                "{}",
                case.text
            );
            if is_sparse {
                assert_eq!((scattered, indices.len()), (c, case.kept(len)), "{}", case.text);
                assert!(indices.is_sorted_by(|a, b| a < b), "{}: {indices:?}", case.text);
            } else {
                assert!(indices.is_empty());
            }
        }
    }
}

#[test]
fn the_stream_and_the_vector_decide_every_byte() {
    for case in cases() {
        let v = gaussian(1300, 10);
        let first = case.encode(&v, noise(8));
        assert_eq!(first, case.encode(&v, noise(8)), "{}", case.text);
        let is_random =
            (9..12).any(|trial| case.apply(&v, noise(trial)) != case.apply(&v, noise(8)));
        let exact = case.apply(&v, noise(8)) == v;
        let expected = match case.compressor.name() {
            "random-k" => true,
            "qsgd" => true,
            "count-sketch" | "ternary" | "low-rank" => true,
            "min-max" => case.is("rounding", "stochastic"),
            _ => false,
        };
        assert_eq!(
            is_random,
            expected && !exact && case.compressor.bucket(1300) > 1,
            "{}",
            case.text
        );
    }
}

/// A bound that is never met says nothing: 1 + 2^-m less its last bit loses as much as a number of
/// m bits can.
#[test]
fn the_bound_of_truncation_is_attained() {
    for bits in [0, 1, 3, 7, 15] {
        let table = toml::from_str(&format!("kind = 'truncate'\nbits = {bits}")).unwrap();
        let compressor = compress::build(&table).unwrap().compressor;
        let Class::Contraction { delta } = compressor.class(8) else {
            panic!("truncation is a contraction")
        };
        let x = (1.0 + 2f32.powi(-bits)).next_down();
        let (v, mut bytes, mut back) = ([x; 8], Vec::new(), [0.0; 8]);
        compressor.encode(&v, noise(0), &mut bytes).unwrap();
        compressor.add_into(&bytes, noise(0), 1.0, &mut back);
        let lost = (f64::from(x - back[0]) / f64::from(x)).powi(2);
        let bound = 1.0 - delta;
        assert!(lost <= bound && lost > 0.9 * bound, "{bits} bits: {lost:e} of {bound:e}");
    }
}
