//! Moniqua: what is read modulo B is right within theta, and the sequence is that of its equations.

use common::{Run, WIDE, consensus, widen};
use gradvine::{
    compress::Format,
    gossip::party::Writer,
    rng::{Purpose, Stream},
    units::Round,
};

const IDENTITY: &str = "kind = 'identity'";

fn run(theta: f64, bits: u32, gamma: f64) -> Run {
    let rule = format!("kind = 'moniqua'\ntheta = {theta:?}\nbits = {bits}\ngamma = {gamma:?}");
    let mut run = Run::new("ring:8", &rule, IDENTITY);
    run.same_start = false;
    run
}

fn models(run: &Run, rounds: u64) -> Vec<Vec<f64>> {
    let mut run = run.clone();
    run.rounds = rounds;
    widen(&if rounds == 0 {
        (0..run.nodes()).map(|node| run.start(node)).collect()
    } else {
        run.models()
    })
}

/// z mod 1, in [-1/2, 1/2].
fn centred(z: f64) -> f64 {
    z - z.round_ties_even()
}

/// Each round by itself, from the models before it: one code that rounds the other way would make
/// two runs differ for ever.
#[test]
fn every_round_is_that_of_the_equations() {
    let cases = [(1.5, 8, 1.0), (1.5, 4, 0.5), (2.0, 2, 0.1), (1.25, 5, 1.0)];
    let mut runs: Vec<(Run, f64, u32, f64)> = cases
        .iter()
        .map(|&(theta, bits, gamma)| (run(theta, bits, gamma), theta, bits, gamma))
        .collect();
    // Past the kernels' blocks.
    runs.extend(WIDE.map(|d| (run(1.5, 4, 0.5).wide(d), 1.5, 4, 0.5)));
    for (run, theta, bits, gamma) in runs {
        let (w, problems) = (run.topology.matrix().dense(), run.problems());
        let steps = f64::from((1u32 << bits) - 1);
        let b = 2.0 * theta / (1.0 - 2.0 / steps);
        let (mut compared, mut unsure) = (0, 0);
        for t in 0..12 {
            let (x, next) = (models(&run, t), models(&run, t + 1));
            let gradients: Vec<Vec<f64>> =
                problems.iter().zip(&x).map(|(p, x)| p.gradient(x)).collect();
            let noise = Stream::new(3, Purpose::Rule).round(Round(t));
            for k in 0..run.d {
                let u = f64::from(noise.u32_at(k as u32) >> 8) / 16_777_216.0;
                let places: Vec<f64> =
                    x.iter().map(|x| (centred(x[k] / b) + 0.5) * steps + u).collect();
                if places.iter().any(|place| (place - place.round()).abs() < 1e-3) {
                    unsure += 1;
                    continue;
                }
                compared += 1;
                let q: Vec<f64> = places
                    .iter()
                    .map(|place| place.floor().clamp(0.0, steps) / steps - 0.5)
                    .collect();
                for i in 0..x.len() {
                    let own = q[i] * b - b * centred(x[i][k] / b) + x[i][k];
                    let heard = |j: usize| b * centred(q[j] - x[i][k] / b) + x[i][k];
                    let neighbours = run.topology.neighbours(gradvine::units::NodeId::from(i));
                    let pull: f64 =
                        neighbours.iter().map(|j| w[i][j.index()] * (heard(j.index()) - own)).sum();
                    let expected = x[i][k] + gamma * pull - run.step * gradients[i][k];
                    let apart = (next[i][k] - expected).abs();
                    assert!(
                        apart < 3e-6,
                        "round {t}, node {i}, {k}: {} instead of {expected}",
                        next[i][k]
                    );
                }
            }
        }
        assert!(unsure * 20 < compared, "{unsure} of {compared} were too close to call");
    }
}

/// How far the mean moves in rounds without gradients.
fn drift(mut run: Run) -> f64 {
    (run.step, run.rounds) = (0.0, 60);
    let mean = |models: &[Vec<f64>], k: usize| {
        models.iter().map(|x| x[k]).sum::<f64>() / models.len() as f64
    };
    let (before, after) = (models(&run, 0), models(&run, run.rounds));
    (0..run.d).map(|k| (mean(&before, k) - mean(&after, k)).abs()).fold(0.0, f64::max)
}

#[test]
fn the_mean_is_kept() {
    // The models begin less than 1 apart.
    for (bits, gamma) in [(8, 1.0), (4, 1.0), (3, 0.3), (2, 0.1)] {
        let drift = drift(run(1.0, bits, gamma));
        assert!(drift < 3e-6, "{bits} bits: {drift:e}");
    }
}

#[test]
fn models_agree_within_theta_and_never_beyond() {
    let left = |theta| {
        let mut run = run(theta, 8, 1.0);
        (run.step, run.rounds) = (0.0, 300);
        let starts: Vec<Vec<f32>> = (0..8).map(|node| run.start(node)).collect();
        consensus(&run.models()) / consensus(&starts)
    };
    // The models begin less than 1 apart.
    let (within, beyond) = (left(1.0), left(0.1));
    assert!(within < 1e-3, "{within:e}");
    assert!(beyond > 0.1, "models that differ by multiples of B count as equal: {beyond:e}");
}

#[test]
fn more_bits_agree_better() {
    let apart = |bits| {
        let mut run = run(1.0, bits, 0.5);
        (run.step, run.rounds) = (0.0, 200);
        consensus(&run.models())
    };
    let (eight, six, four) = (apart(8), apart(6), apart(4));
    println!("consensus at 8, 6 and 4 bits: {eight:e} {six:e} {four:e}");
    assert!(eight < 0.2 * six && six < 0.2 * four);
}

#[test]
fn equal_models_give_equal_codes_and_stay() {
    for bits in [2, 4, 8] {
        let mut run = run(1.0, bits, 1.0);
        (run.step, run.same_start) = (0.0, true);
        let (before, after) = (models(&run, 0), models(&run, 100));
        let moved = before
            .iter()
            .flatten()
            .zip(after.iter().flatten())
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(moved < 1e-5, "{bits} bits: {moved:e}");
    }
}

#[test]
fn eight_bits_end_where_d_psgd_ends() {
    let ends = |rule: &str| {
        let mut run = Run::new("ring:8", rule, IDENTITY);
        (run.rounds, run.d) = (1500, 16);
        run.suboptimality(&run.models())
    };
    let (moniqua, d_psgd) =
        (ends("kind = 'moniqua'\ntheta = 2.0"), ends("kind = 'd-psgd'\norder = 'cta'"));
    println!("moniqua {moniqua:e}, D-PSGD {d_psgd:e}");
    assert!(moniqua < 1.2 * d_psgd, "moniqua {moniqua:e}, D-PSGD {d_psgd:e}");
}

#[test]
fn codes_are_packed_and_what_was_not_packed_is_refused() {
    let noise = Stream::new(1, Purpose::Test);
    // Planar: byte i of a block holds codes i and i + half; what is left over is 0.
    let format = Format::Codes { width: 4, len: 3 };
    let mut bytes = Vec::new();
    let fill = |_, codes: &mut [u8]| {
        codes.copy_from_slice(&[1, 2, 3]);
        Ok(())
    };
    Writer::new(&format, None, noise, &mut bytes).codes(fill).unwrap();
    assert_eq!(bytes, [0x31, 0x02]);
    format.check(&bytes).unwrap();
    for wrong in [&[0x31, 0x12][..], &[0x31], &[0x31, 0x02, 0x00], &[]] {
        assert!(format.check(wrong).is_err(), "{wrong:?}");
    }
    for width in 1..=8 {
        for len in [1usize, 511, 512, 513, 2000] {
            let format = Format::Codes { width, len };
            let code = |place: usize| (noise.u64_at(place as u64) >> (64 - width)) as u8;
            let mut bytes = Vec::new();
            let fill = |from: usize, codes: &mut [u8]| {
                codes.iter_mut().enumerate().for_each(|(i, c)| *c = code(from + i));
                Ok(())
            };
            Writer::new(&format, None, noise, &mut bytes).codes(fill).unwrap();
            assert_eq!(bytes.len(), format.size().limit());
            format.check(&bytes).unwrap();
            let mut seen = 0;
            format.view(noise, &bytes).codes(|from, codes| {
                assert_eq!(from, seen);
                assert!(
                    codes.iter().enumerate().all(|(i, c)| *c == code(from + i)),
                    "{width} bits, {len} codes"
                );
                seen += codes.len();
            });
            assert_eq!(seen, len);
        }
    }
}
