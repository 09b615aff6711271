//! The bytes of every wire format, and bytes that nobody honest wrote.
//!
//! Golden bytes were worked out by hand from each module's documentation (the working stands beside
//! them), not copied from a run; where rounding noise decides, a second encoder written here from
//! the documentation, in `f64` and one number at a time, must agree on long vectors. A change of
//! any of them breaks running networks: it is a decision of its own.

use std::sync::Arc;

use gradvine::{
    compress::{self, COMPRESSORS, Compressor, Format, Payload, Size},
    rng::{Purpose, Stream},
};
use proptest::prelude::*;

fn compressor(text: &str) -> Arc<dyn Compressor> {
    compress::build(&toml::from_str(text).unwrap())
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .compressor
}

fn noise() -> Stream {
    Stream::new(21, Purpose::Compress).with(4)
}

fn encode(text: &str, v: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    compressor(text).encode(v, noise(), &mut bytes).unwrap();
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Golden bytes, spaces between the fields.
fn is_golden(text: &str, v: &[f32], expected: &str) {
    assert_eq!(hex(&encode(text, v)), expected.replace(' ', ""), "{text} of {v:?}");
}

#[test]
fn golden_floats() {
    is_golden("kind = 'identity'", &[1.0, -2.5, 0.0], "0000803f 000020c0 00000000");
    // 1 = 0x3c00, -2 = 0xc000, 65504 = 0x7bff also for what is beyond; 1/3 = 1.333 2^-2 = 0x3555;
    // 2^-24 is the least.
    is_golden(
        "kind = 'f16'",
        &[1.0, -2.0, 65504.0, -1e9, 1.0 / 3.0, 5.960_464_5e-8],
        "003c 00c0 ff7b fffb 5535 0100",
    );
    // 1/3 = 0x3eaaaaab rounds up to 0x3eab; f32::MAX = 0x7f7fffff would round to infinity and
    // becomes 0x7f7f. 1 + 2^-8 = 0x3f808000 is a tie and goes to the even 0x3f80.
    is_golden(
        "kind = 'bf16'",
        &[1.0, -2.0, 1.0 / 3.0, f32::MAX, 1.0 + 1.0 / 256.0],
        "803f 00c0 ab3e 7f7f 803f",
    );
}

#[test]
fn golden_signs() {
    // Mean magnitude 14 / 5 = 2.8 = 0x40333333; five bits in one byte, bit i for number i: 1 and 3
    // are negative.
    is_golden("kind = 'sign'", &[1.0, -2.0, 3.0, -4.0, 4.0], "33333340 0a");
    // Ten numbers take two bytes: number i is bit i / 2 of byte i % 2. Negative are 1 (byte 1, bit
    // 0), 2 (0, 1), 9 (1, 4).
    let ten = [1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0];
    is_golden("kind = 'sign'", &ten, "0000803f 02 11");
    // Buckets of 4, the last one of 2: each behind its own mean.
    is_golden(
        "kind = 'sign'\nbucket = 4",
        &[1.0, 1.0, -1.0, -1.0, -8.0, 0.0],
        "0000803f 0c 00008040 01",
    );
}

#[test]
fn golden_means() {
    // From 0 on: 1, 3 and 5, mean 3; below: -2 and -4, mean -3. Numbers 1 and 3 are negative.
    is_golden("kind = 'one-bit'", &[1.0, -2.0, 3.0, -4.0, 5.0], "00004040 000040c0 0a");
    // Both zeros count as positive; of no negative number the mean is 0.
    is_golden("kind = 'one-bit'", &[-0.0, 3.0], "0000c03f 00000000 00");
    is_golden(
        "kind = 'one-bit'\nbucket = 2",
        &[-1.0, -3.0, 8.0],
        "00000000 000000c0 03 00000041 00000000 00",
    );
}

#[test]
fn golden_trits() {
    // Numbers at 0 and at +-s are never rounded: codes 0, 1 and 2, five to a byte: 2 + 3 * 0 + 9 *
    // 1 + 27 * 2 + 81 * 0 = 65.
    is_golden("kind = 'ternary'", &[4.0, -4.0, 0.0, 4.0, -4.0], "00008040 41");
    // Seven take two bytes: number i is digit i / 2 of byte i % 2. Codes 2 0 1 1 0 2 2: 2 + 3 + 0 +
    // 27 * 2 = 59 and 0 + 3 + 9 * 2 = 21.
    is_golden("kind = 'ternary'", &[1.0, -1.0, 0.0, 0.0, -1.0, 1.0, 1.0], "0000803f 3b 15");
    // Cut off at one deviation: the mean square is 49 / 4, so s = 3.5 and -7 is at the end; next to
    // nothing is nothing.
    is_golden("kind = 'ternary'\nclamp = 1.0", &[0.0, -7.0, 0.0, 1e-30], "00006040 25");
}

#[test]
fn golden_leading_bits() {
    // 1.5 = 0x3fc00000 and -2.75 = 0xc0300000; 7 bits keep the upper halves, the high bytes first.
    is_golden("kind = 'truncate'\nbits = 7", &[1.5, -2.75], "3f c0 c0 30");
    // 3 bits: the high bytes, then the next four bits: of 1.5 = 3fc, -2.75 = c03, 1.99 = 0x3ffeb852
    // = 3ff: c, 3 and f, number 2 above number 0.
    is_golden("kind = 'truncate'", &[1.5, -2.75, 1.99], "3f c0 3f fc 03");
    // 0 bits: the exponent's last bit remains: 1.99 becomes 1 = 0x3f8, -3 becomes -2 = 0xc00.
    is_golden("kind = 'truncate'\nbits = 0", &[1.99, -3.0], "3f c0 01");
    // 10 bits take 19: two bytes and three bits (of 1.99: 3ffe, then b = 101|1 keeps 101, as a
    // plane of two and one of one).
    is_golden("kind = 'truncate'\nbits = 10", &[1.99], "3f fe 01 01");
}

#[test]
fn golden_directions() {
    // One number: P = 1 or -1, as the start happens to be, and Q has its sign.
    let bytes = hex(&encode("kind = 'low-rank'", &[3.0]));
    assert!(["0000803f00004040", "000080bf000040c0"].contains(&bytes.as_str()), "{bytes}");
    // Five numbers are 3 rows of 2: with all but one in the first row, P = (1, 0, 0) and Q is that
    // row, up to a sign.
    let bytes = hex(&encode("kind = 'low-rank'\nrank = 1", &[3.0, -4.0, 0.0, 0.0, 0.0]));
    let rows = [
        "0000803f 00000000 00000000 00004040 000080c0",
        "000080bf 00000080 00000080 000040c0 00008040",
    ];
    assert!(rows.map(|row| row.replace(' ', "")).contains(&bytes), "{bytes}");
}

#[test]
fn golden_grids() {
    // The codes are the numbers. Middle 7.5, half step 0.5; byte i holds codes i (low half) and i +
    // 8.
    let sixteen: Vec<f32> = (0..16u8).map(f32::from).collect();
    is_golden("kind = 'min-max'", &sixteen, "0000f040 0000003f 8091a2b3c4d5e6f7");
    is_golden(
        "kind = 'min-max'\nrounding = 'nearest'",
        &sixteen,
        "0000f040 0000003f 8091a2b3c4d5e6f7",
    );
    // Three bits: a plane of the low two (code i at bit 2 (i / 2) of byte i % 2: 0,2,0,2 and
    // 1,3,1,3), then one of the third (4 to 7).
    let eight: Vec<f32> = (0..8u8).map(f32::from).collect();
    is_golden(
        "kind = 'min-max'\nbits = 3\nrounding = 'nearest'",
        &eight,
        "00006040 0000003f 88 dd f0",
    );
    // One bit, from -1 to 1: middle 0, half step 1. Eight bits: the codes themselves, middle 127.5.
    is_golden("kind = 'min-max'\nbits = 1", &[-1.0, 1.0, 1.0], "00000000 0000803f 06");
    is_golden("kind = 'min-max'\nbits = 8", &[0.0, 255.0, 3.0], "0000ff42 0000003f 00 ff 03");
    // Five bits: the low four (0, 15, 1, 0: number i in half i / 2 of byte i % 2), then the fifth
    // (1 and 3). Middle 15.5 = 0x41780000.
    is_golden("kind = 'min-max'\nbits = 5", &[0.0, 31.0, 1.0, 16.0], "00007841 0000003f 10 0f 0a");
}

#[test]
fn golden_levels() {
    // Norm 7, so the step is 1 and code = number + 7 whatever the noise: 7 | 14 << 4.
    is_golden("kind = 'qsgd'", &[0.0, 7.0], "0000803f e7");
    is_golden("kind = 'qsgd'", &[-7.0], "0000803f 00");
    // One level: codes 0, 1, 2 in two bits. Of (0, -3, 0) the norm is 3: codes 1, 0, 1.
    is_golden("kind = 'qsgd'\nlevels = 1", &[0.0, -3.0, 0.0], "00004040 11");
    // 40 levels, seven bits: code 80 = 0b1010000 of a full number: planes of 4 (0), 2 (01), 1 (1).
    is_golden("kind = 'qsgd'\nlevels = 40", &[40.0], "0000803f 00 01 01");
    // Scaled by tau = 1 + 1/7^2 = 50/49: 0.98 = 0x3f7ae148.
    is_golden("kind = 'qsgd'\nscaled = true", &[7.0], "48e17a3f 0e");
}

#[test]
fn golden_sparse() {
    // Values in order of index; four numbers, so a bitmap is no larger than the other code: bits 1
    // and 3.
    is_golden("kind = 'top-k'\nk = 2", &[1.0, -5.0, 2.0, 5.0], "0000a0c0 0000a040 0a");
    // Two of 1000: eight low bits each (300 = 0x12c, 999 = 0x3e7), then bits 1 + 0 and 3 + 1.
    let mut thousand = vec![0.25; 1000];
    (thousand[300], thousand[999]) = (1.0, -2.0);
    is_golden("kind = 'top-k'\nk = 2", &thousand, "0000803f 000000c0 2ce7 12");
    // Of equal magnitudes the first.
    is_golden("kind = 'top-k'\nk = 1", &[-1.0, 1.0], "000080bf 01");
    // Random-k sends values alone; of all the numbers, in order; with d/k = 1.
    is_golden(
        "kind = 'random-k'\nfraction = 1.0\nscaled = true",
        &[1.0, -2.5],
        "0000803f 000020c0",
    );
    // One of four, scaled by four: which one is the stream's affair and is seen from its value.
    let one = encode("kind = 'random-k'\nk = 1\nscaled = true", &[1.0, 2.0, 3.0, 4.0]);
    let value = f32::from_le_bytes(one.try_into().unwrap());
    assert!([4.0, 8.0, 12.0, 16.0].contains(&value), "{value}");
}

/// Recorded from a run on x86-64, not derived: they pin which indices a stream draws, on every
/// platform.
#[test]
fn golden_choices() {
    let v: Vec<f32> = (0..1000u16).map(f32::from).collect();
    for (text, len, chosen) in CHOICES {
        let found: Vec<f32> = encode(text, &v[..*len])
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        assert_eq!(found, *chosen, "{text}");
    }
}

const CHOICES: &[(&str, usize, &[f32])] = &[
    ("kind = 'random-k'\nk = 5", 1000, &[140.0, 540.0, 562.0, 623.0, 871.0]),
    ("kind = 'random-k'\nk = 4", 10, &[3.0, 4.0, 5.0, 8.0]),
];

/// The noise of number `i` of a bucket that starts at number `offset`: (2 k + 1) / 2^16, k of 15
/// bits of a word which the two halves of a block of 512 share.
fn uniform(offset: usize, i: usize) -> f64 {
    let within = i % 512;
    let word = noise().u32_at((offset + i - within + within % 256) as u32);
    let k = if within < 256 { word & 0x7FFF } else { word >> 16 & 0x7FFF };
    f64::from(2 * k + 1) / 65536.0
}

/// Planes of 8, 4, 2 and 1 bits, the lowest bits first, each planar within its block of 512.
fn pack(codes: &[u32], width: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for block in codes.chunks(512) {
        let mut shift = 0;
        for plane in [8, 4, 2, 1].into_iter().filter(|plane| width & plane != 0) {
            let stride = (block.len() * plane as usize).div_ceil(8);
            let mut out = vec![0u32; stride];
            for (i, code) in block.iter().enumerate() {
                out[i % stride] |=
                    (code >> shift & ((1 << plane) - 1)) << (i / stride * plane as usize);
            }
            bytes.extend(out.iter().map(|&byte| u8::try_from(byte).unwrap()));
            shift += plane;
        }
    }
    bytes
}

/// The codes of a bucket are those of `places`, rounded by the noise or to the nearest; how many
/// that decides. One that is within 1e-3 of going the other way is not among them: there the
/// rounding of `f32` decides, and its bits are not compared.
fn agree(packed: &[u8], width: u32, places: &[f64], offset: usize, random: bool) -> usize {
    let sums: Vec<f64> = places
        .iter()
        .enumerate()
        .map(|(i, t)| t + if random { uniform(offset, i) } else { 0.5 })
        .collect();
    let code = |sum: f64| sum.floor().clamp(0.0, width_limit(width)) as u32;
    let codes: Vec<u32> = sums.iter().map(|&sum| code(sum)).collect();
    let is_clear = |sum: f64| code(sum - 1e-3) == code(sum + 1e-3);
    let mask: Vec<u32> =
        sums.iter().map(|&sum| if is_clear(sum) { width_limit(width) as u32 } else { 0 }).collect();
    let (expected, mask) = (pack(&codes, width), pack(&mask, width));
    assert_eq!(packed.len(), expected.len());
    for (at, ((found, expected), mask)) in packed.iter().zip(&expected).zip(&mask).enumerate() {
        assert_eq!(found & mask, expected & mask, "byte {at} of the codes of {width} bits");
    }
    sums.iter().filter(|&&sum| is_clear(sum)).count()
}

fn width_limit(width: u32) -> f64 {
    f64::from(width).exp2() - 1.0
}

fn normal(len: usize) -> Vec<f32> {
    let mut random = Stream::new(3, Purpose::Test).sequence();
    (0..len).map(|_| random.normal() as f32).collect()
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// What one encoding is compared with: buckets of so many, headers of so many bytes, codes of so
/// many bits.
struct Shape {
    bucket: usize,
    header: usize,
    width: u32,
    random: bool,
}

/// Walks the buckets of a payload; `places` maps a bucket's numbers and its header to where they
/// are on its grid.
fn reference(text: &str, shape: &Shape, places: impl Fn(&[f64], &[u8]) -> Vec<f64>) {
    for len in [1, 2, 7, 100, 257, 512, 513, 1300] {
        let v = normal(len);
        let bytes = encode(text, &v);
        let (mut rest, mut decided, mut offset) = (&bytes[..], 0, 0);
        for bucket in v.chunks(if shape.bucket == 0 { len } else { shape.bucket }) {
            let numbers: Vec<f64> = bucket.iter().map(|&x| f64::from(x)).collect();
            let (header, after) = rest.split_at(shape.header);
            let size = pack(&vec![0; bucket.len()], shape.width).len();
            let places = places(&numbers, header);
            decided += agree(&after[..size], shape.width, &places, offset, shape.random);
            (rest, offset) = (&after[size..], offset + bucket.len());
        }
        assert!(rest.is_empty(), "{text}: {} bytes after the last bucket of {len}", rest.len());
        assert!(decided * 10 >= len * 8, "{text}: only {decided} of {len} numbers were compared");
    }
}

#[test]
fn grids_agree_with_a_second_encoder() {
    for bits in 1..=8u32 {
        for bucket in [0, 100, 512, 600] {
            for rounding in ["stochastic", "nearest"] {
                let text = format!(
                    "kind = 'min-max'\nbits = {bits}\nbucket = {bucket}\nrounding = '{rounding}'"
                );
                let shape =
                    Shape { bucket, header: 8, width: bits, random: rounding == "stochastic" };
                reference(&text, &shape, |x, header| {
                    let (low, high) =
                        x.iter().fold((x[0], x[0]), |(low, high), &x| (low.min(x), high.max(x)));
                    let steps = f64::from(bits).exp2() - 1.0;
                    assert_eq!(float(header), ((low + high) / 2.0) as f32);
                    assert_eq!(float(&header[4..]), ((high - low) / (2.0 * steps)) as f32);
                    x.iter()
                        .map(|x| if high > low { (x - low) / (high - low) * steps } else { 0.0 })
                        .collect()
                });
            }
        }
    }
}

#[test]
fn levels_agree_with_a_second_encoder() {
    for (levels, width) in [(1u8, 2), (3, 3), (7, 4), (15, 5), (31, 6), (40, 7), (127, 8)] {
        for bucket in [0, 100, 512] {
            for scaled in [false, true] {
                let text = format!(
                    "kind = 'qsgd'\nlevels = {levels}\nbucket = {bucket}\nscaled = {scaled}"
                );
                reference(&text, &Shape { bucket, header: 4, width, random: true }, |x, header| {
                    let (n, s) = (x.len() as f64, f64::from(levels));
                    let step = x.iter().map(|x| x * x).sum::<f64>().sqrt() / s;
                    let tau = if scaled { 1.0 + (n / s / s).min(n.sqrt() / s) } else { 1.0 };
                    assert!((f64::from(float(header)) / (step / tau) - 1.0).abs() < 2e-7);
                    x.iter().map(|x| x / step + s).collect()
                });
            }
        }
    }
}

#[test]
fn signs_agree_with_a_second_encoder() {
    for bucket in [0, 1, 100, 512, 600] {
        let text = format!("kind = 'sign'\nbucket = {bucket}");
        reference(&text, &Shape { bucket, header: 4, width: 1, random: false }, |x, header| {
            let mean = x.iter().map(|x| x.abs()).sum::<f64>() / x.len() as f64;
            assert!((f64::from(float(header)) / mean - 1.0).abs() < 1e-7);
            x.iter().map(|&x| f64::from(u8::from(x < 0.0))).collect()
        });
    }
}

#[test]
fn means_agree_with_a_second_encoder() {
    for bucket in [0, 1, 100, 512, 600] {
        let text = format!("kind = 'one-bit'\nbucket = {bucket}");
        reference(&text, &Shape { bucket, header: 8, width: 1, random: false }, |x, header| {
            for (at, negative) in [(0, false), (4, true)] {
                let (count, sum) = x
                    .iter()
                    .filter(|x| (**x < 0.0) == negative)
                    .fold((0, 0.0), |(n, s), x| (n + 1, s + x));
                let mean = if count == 0 { 0.0 } else { sum / f64::from(count) };
                assert!((f64::from(float(&header[at..])) - mean).abs() <= 1e-7 * mean.abs());
            }
            x.iter().map(|&x| f64::from(u8::from(x < 0.0))).collect()
        });
    }
}

#[test]
fn trits_agree_with_a_second_encoder() {
    for (bucket, clamp) in [(512, 0.0), (100, 0.0), (512, 2.5), (100, 1.0)] {
        let text = format!("kind = 'ternary'\nbucket = {bucket}\nclamp = {clamp:?}");
        let (v, mut offset, mut decided) = (normal(1300), 0, 0);
        let bytes = encode(&text, &v);
        let mut rest = &bytes[..];
        for x in v.chunks(bucket) {
            let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            let greatest = x.iter().fold(0f64, |a, x| a.max(x.abs()));
            let deviation = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
            let s = if clamp == 0.0 { greatest } else { greatest.min(clamp * deviation) };
            assert!((f64::from(float(rest)) / s - 1.0).abs() < 1e-7);
            let stride = x.len().div_ceil(5);
            let (digits, after) = rest[4..].split_at(stride);
            for (i, x) in x.iter().enumerate() {
                let sum = (x / s).clamp(-1.0, 1.0) + 1.0 + uniform(offset, i);
                let digit = digits[i % stride] / 3u8.pow((i / stride) as u32) % 3;
                // Where the rounding of `f32` does not decide.
                if (sum - 1e-3).floor() == (sum + 1e-3).floor() {
                    assert_eq!(
                        f64::from(digit),
                        sum.floor().min(2.0),
                        "{text}: number {}",
                        offset + i
                    );
                    decided += 1;
                }
            }
            (rest, offset) = (after, offset + x.len());
        }
        assert!(rest.is_empty() && decided > 1200, "{text}: {decided}");
    }
}

#[test]
fn leading_bits_agree_with_a_second_encoder() {
    for bits in 0..=15i32 {
        let compressor = compressor(&format!("kind = 'truncate'\nbits = {bits}"));
        for len in [1, 7, 512, 700] {
            let mut v = normal(len);
            v.iter_mut().enumerate().for_each(|(i, x)| *x *= 10f32.powi(i as i32 % 60 - 30));
            let mut bytes = Vec::new();
            compressor.encode(&v, noise(), &mut bytes).unwrap();
            let mut c = vec![0.0; len];
            compressor.add_into(&bytes, noise(), 1.0, &mut c);
            for (c, x) in c.into_iter().zip(&v) {
                let x = f64::from(*x);
                let unit = (x.abs().log2().floor() - f64::from(bits)).exp2();
                assert_eq!(f64::from(c), (x / unit).trunc() * unit, "{bits} bits of {x}");
            }
        }
    }
}

/// Defaults and variants of all entries.
fn all() -> Vec<(String, Arc<dyn Compressor>)> {
    let texts = COMPRESSORS.iter().flat_map(|entry| {
        [""].iter()
            .chain(entry.variants)
            .map(move |variant| format!("kind = '{}'\n{variant}", entry.name))
    });
    texts.map(|text| (text.clone(), compressor(&text))).collect()
}

/// What passes the check can be added: no panic, and nothing that is not finite.
fn is_harmless(compressor: &dyn Compressor, len: usize, bytes: &[u8]) -> Result<(), TestCaseError> {
    if compressor.check(len, bytes).is_ok() {
        let size = compressor.size(len);
        prop_assert!(bytes.len() <= size.limit());
        prop_assert!(!matches!(size, Size::Exact(size) if size != bytes.len()));
        let mut sum = vec![0.0; len];
        compressor.add_into(bytes, noise(), 1.0, &mut sum);
        prop_assert!(sum.iter().all(|x| x.is_finite()), "{compressor:?}: {sum:?}");
        compressor.entries(len, bytes, noise(), &mut |index, value| sum[index as usize] = value);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes_are_refused_or_harmless(
        len in 0usize..700,
        mut bytes in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        for (_, compressor) in all() {
            is_harmless(&*compressor, len, &bytes)?;
            // Of the right length, so that what is inside is looked at.
            bytes.resize(compressor.size(len).limit(), 0x5A);
            is_harmless(&*compressor, len, &bytes)?;
        }
    }

    #[test]
    fn damaged_payloads_are_refused_or_harmless(
        len in 1usize..700,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (_, compressor) in all() {
            let mut bytes = Vec::new();
            compressor.encode(&normal(len), noise(), &mut bytes).unwrap();
            for (at, bits) in &flips {
                let at = at.index(bytes.len());
                bytes[at] ^= bits;
            }
            is_harmless(&*compressor, len, &bytes)?;
        }
    }

    #[test]
    fn a_payload_cut_or_extended_is_refused(
        len in 0usize..700,
        cut in any::<prop::sample::Index>(),
        more in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        for (text, compressor) in all() {
            let mut bytes = Vec::new();
            compressor.encode(&normal(len), noise(), &mut bytes).unwrap();
            if !bytes.is_empty() {
                let head = &bytes[..cut.index(bytes.len())];
                prop_assert!(compressor.check(len, head).is_err(), "{} cut", text);
            }
            bytes.extend(&more);
            let error = compressor.check(len, &bytes).unwrap_err().to_string();
            prop_assert!(error.starts_with("malformed payload: "), "{} extended: {}", text, error);
        }
    }

    #[test]
    fn formats_refuse_or_read_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let sparse = [
            Format::Sparse { len: 40, most: 3 },
            Format::Indices { len: 40, count: 3 },
            Format::Indices { len: 9, count: 5 },
        ];
        let numbers = [Format::Floats(3), Format::Doubles(2), Format::Records(9)];
        let dense = [&[nested(), Format::Empty][..], &numbers].concat();
        for format in dense.into_iter().chain(sparse) {
            if format.check(&bytes).is_ok() {
                prop_assert!(bytes.len() <= format.size().limit());
                let payload = format.view(noise(), &bytes);
                if let Format::Indices { len, count } = format {
                    let mut indices = Vec::new();
                    payload.indices(&mut indices);
                    prop_assert!(indices.len() == count && indices.is_sorted_by(|a, b| a < b));
                    prop_assert!(indices.iter().all(|index| (*index as usize) < len));
                }
            }
        }
    }
}

/// Records behind floats behind another list.
fn nested() -> Format {
    let by = compressor("kind = 'sign'");
    let inner = Format::Parts(vec![Format::Empty, Format::Compressed { by, len: 3 }]);
    Format::Parts(vec![Format::Floats(1), inner, Format::Records(4)])
}

#[test]
fn formats_say_their_size() {
    let by = compressor("kind = 'sign'");
    for (format, size) in [
        (Format::Empty, Size::Exact(0)),
        (Format::Floats(3), Size::Exact(12)),
        (Format::Doubles(3), Size::Exact(24)),
        (Format::Records(7), Size::AtMost(7)),
        // A bitmap, and nothing.
        (Format::Indices { len: 9, count: 5 }, Size::Exact(2)),
        (Format::Indices { len: 1000, count: 0 }, Size::Exact(0)),
        (Format::Compressed { by, len: 9 }, Size::Exact(6)),
        (Format::Parts(vec![Format::Floats(1), Format::Doubles(1)]), Size::Exact(28)),
        (nested(), Size::AtMost(8 + 4 + 8 + (8 + 8 + 5) + 8 + 4)),
    ] {
        assert_eq!(format.size(), size, "{format:?}");
    }
}

/// Each part stands behind its length in eight bytes: floats of 4; a list of 21, which is nothing,
/// then a sign of 5; a record of 2.
#[test]
fn golden_parts() {
    let inner = "0000000000000000 0500000000000000 0000803f 05".replace(' ', "");
    let text = format!("0400000000000000 00000040 1500000000000000 {inner} 0200000000000000 abcd")
        .replace(' ', "");
    let bytes: Vec<u8> = (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let format = nested();
    format.check(&bytes).unwrap();
    let Payload::Parts(parts) = format.view(noise(), &bytes) else { panic!("parts are parts") };
    let [first, Payload::Parts(inner), Payload::Records(record)] = &parts[..] else {
        panic!("{parts:?}")
    };
    let (mut one, mut three) = ([0.5], [0.0; 3]);
    first.add_into(2.0, &mut one);
    inner[1].add_into(1.0, &mut three);
    assert_eq!((one, three, *record), ([4.5], [-1.0, 1.0, -1.0], &[0xAB, 0xCD][..]));
    assert!(matches!(inner[0], Payload::Empty));
    // Every byte short, one more, and each length wrong by one.
    for len in 0..bytes.len() {
        assert!(format.check(&bytes[..len]).is_err(), "cut to {len}");
    }
    assert!(format.check(&[&bytes[..], &[0]].concat()).is_err());
    for at in [0, 12, 20, 28, 41] {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        assert!(format.check(&wrong).is_err(), "a wrong length at {at}");
    }
    // A length that no memory holds.
    let mut vast = bytes.clone();
    vast[..8].fill(0xFF);
    assert!(format.check(&vast).is_err());
}

#[test]
fn floats_that_are_not_finite_are_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let floats = [1.0f32, bad as f32].map(f32::to_le_bytes).concat();
        let doubles = [1.0, bad].map(f64::to_le_bytes).concat();
        for error in [Format::Floats(2).check(&floats), Format::Doubles(2).check(&doubles)] {
            assert_eq!(
                error.unwrap_err().to_string(),
                "malformed payload: the number at index 1 is not finite"
            );
        }
        assert_eq!(
            Format::Floats(2)
                .encode(&[1.0, bad as f32], noise(), &mut Vec::new())
                .unwrap_err()
                .index,
            1
        );
    }
}
