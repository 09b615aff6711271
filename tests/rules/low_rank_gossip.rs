//! PowerGossip: its equations, what full rank makes of it, what it keeps, what it sends.

use common::{GIVEN, Run, consensus, difference, sgd::Updates, widen};
use gradvine::{
    rng::{Purpose, Stream},
    units::NodeId,
};

const IDENTITY: &str = "kind = 'identity'";

type Matrix = Vec<Vec<f64>>;

fn power(rank: usize) -> String {
    format!("kind = 'power-gossip'\nrank = {rank}")
}

/// Orthonormal columns, by Gram and Schmidt; `columns[c]` is one column.
fn orthonormal(columns: &Matrix) -> Matrix {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut out: Matrix = Vec::new();
    for column in columns {
        let mut column = column.clone();
        for other in &out {
            let along = dot(other, &column);
            column.iter_mut().zip(other).for_each(|(x, o)| *x -= along * o);
        }
        let length = dot(&column, &column).sqrt();
        out.push(column.iter().map(|x| x / length).collect());
    }
    out
}

/// The models by the equations. The model is a matrix of (d / 8 - 1) x 8 and a column.
fn reference(run: &Run, rank: usize) -> Matrix {
    let (m, n) = (run.d / 8 - 1, 8);
    let rank = rank.min(m).min(n);
    let w = run.topology.matrix().dense();
    let mut updates = Updates::new(run);
    let nodes = run.nodes();
    let mut x: Matrix = widen(&(0..nodes).map(|node| run.start(node)).collect::<Vec<_>>());
    // P and Q of every edge (i above j), as columns.
    let mut factors = std::collections::BTreeMap::new();
    for (a, b) in run.topology.edges() {
        let (i, j) = (a.max(b).index(), a.min(b).index());
        let noise = Stream::new(3, Purpose::Rule).node(NodeId::from(j)).node(NodeId::from(i));
        let mut dice = noise.sequence();
        let p: Matrix =
            (0..rank).map(|_| (0..n).map(|_| f64::from(dice.normal() as f32)).collect()).collect();
        factors.insert((i, j), (p, vec![vec![0.0; m]; rank]));
    }
    for t in 0..run.rounds {
        let u = updates.next(&x).0;
        for (x, u) in x.iter_mut().zip(&u) {
            x.iter_mut().zip(u).for_each(|(x, u)| *x -= u);
        }
        let before = x.clone();
        for (&(i, j), (p, q)) in &mut factors {
            let d = |r: usize, c: usize| before[i][r * n + c] - before[j][r * n + c];
            if t % 2 == 0 {
                *p = orthonormal(p);
                *q = p
                    .iter()
                    .map(|p| (0..m).map(|r| (0..n).map(|c| d(r, c) * p[c]).sum()).collect())
                    .collect();
            } else {
                *q = orthonormal(q);
                *p = q
                    .iter()
                    .map(|q| (0..n).map(|c| (0..m).map(|r| d(r, c) * q[r]).sum()).collect())
                    .collect();
            }
            for k in 0..run.d {
                let (r, c) = (k / n, k % n);
                let product = if r < m {
                    (0..rank).map(|l| q[l][r] * p[l][c]).sum()
                } else {
                    before[i][k] - before[j][k]
                };
                x[i][k] -= w[i][j] * product;
                x[j][k] += w[i][j] * product;
            }
        }
    }
    x
}

#[test]
fn the_sequence_is_that_of_the_equations() {
    for topology in ["ring:6", "star:5", "complete:4", "complete:1", GIVEN] {
        for rank in [1, 2, 3] {
            for same_start in [true, false] {
                let mut run = Run::new(topology, &power(rank), IDENTITY);
                // Few rounds: an iteration towards singular vectors amplifies what f32 and f64
                // round differently.
                (run.same_start, run.rounds) = (same_start, 12);
                let runs = if rank == 2 { run.varied() } else { vec![run] };
                for run in runs {
                    let difference = difference(&reference(&run, rank), &run.models());
                    // Roundings of sums over rows add up like the square root of their number.
                    let bound = 3e-5 * (run.d as f64 / 40.0).sqrt();
                    assert!(difference < bound, "{}: {difference:e}", run.words());
                }
            }
        }
    }
}

#[test]
fn with_full_rank_it_is_d_psgd_atc() {
    for topology in ["ring:8", "torus:3x3", "star:5"] {
        let mut atc = Run::new(topology, "kind = 'd-psgd'", IDENTITY);
        let mut full = Run::new(topology, &power(100), IDENTITY);
        (atc.same_start, full.same_start) = (false, false);
        // A square matrix: of another one, X P of full rank is all of X only once P has found its
        // rows.
        (atc.d, full.d) = (72, 72);
        let apart = difference(&widen(&atc.models()), &full.models());
        assert!(apart < 1e-5, "{topology}: {apart:e}");
        full.rule = power(1);
        assert!(
            difference(&widen(&atc.models()), &full.models()) > 1e-3,
            "rank 1 is another sequence"
        );
    }
}

#[test]
fn the_mean_is_kept_and_the_models_agree_without_a_step_to_tune() {
    for rank in [1, 2] {
        let mut run = Run::new("ring:8", &power(rank), IDENTITY);
        (run.step, run.same_start, run.rounds) = (0.0, false, 300);
        let starts: Vec<Vec<f32>> = (0..8).map(|node| run.start(node)).collect();
        let models = run.models();
        let mean = |models: &[Vec<f32>], k: usize| {
            models.iter().map(|x| f64::from(x[k])).sum::<f64>() / 8.0
        };
        let drift =
            (0..run.d).map(|k| (mean(&starts, k) - mean(&models, k)).abs()).fold(0.0, f64::max);
        assert!(drift < 3e-6, "rank {rank}: the mean drifted by {drift:e}");
        let shrunk = consensus(&models) / consensus(&starts);
        println!("rank {rank}: disagreement shrank to {shrunk:e}");
        assert!(shrunk < 1e-6, "rank {rank}: {shrunk:e}");
    }
}

#[test]
fn models_that_agree_stay_and_do_not_end_the_iteration() {
    let mut run = Run::new("ring:8", &power(2), IDENTITY);
    (run.step, run.rounds) = (0.0, 40);
    assert!(run.models().iter().all(|x| *x == run.start(0)), "nothing moves where all agree");
    // All data are the same for a while: then every difference is exactly 0 until the data differ.
    run.step = 0.05;
    run.same_data = true;
    let same = run.models();
    assert!(same.iter().all(|x| *x == same[0]));
}

#[test]
#[ignore = "slow"]
fn more_rank_costs_more_bytes_and_ends_nearer_to_d_psgd() {
    let ends = |rule: &str| {
        let mut run = Run::new("ring:8", rule, IDENTITY);
        (run.rounds, run.d) = (1500, 72);
        let ended = run.ended().unwrap();
        let bytes = ended[0].traffic.payload;
        let models: Vec<Vec<f32>> = ended.into_iter().map(|ended| ended.model).collect();
        (run.suboptimality(&models), bytes)
    };
    let (dense, dense_bytes) = ends("kind = 'd-psgd'");
    let mut last = f64::INFINITY;
    for rank in [1, 2, 4, 8] {
        let (low, bytes) = ends(&power(rank));
        println!(
            "rank {rank}: {low:e} with {bytes} bytes; D-PSGD {dense:e} with {dense_bytes} bytes"
        );
        // A matrix of 8 x 8 and a column of 8, to each of two neighbours, in both kinds of round.
        assert_eq!(bytes, 1500 * 2 * 4 * (8 * rank as u64 + 8));
        assert!(low < last, "rank {rank}: {low:e}, with less {last:e}");
        last = low;
    }
    assert!((last / dense - 1.0).abs() < 1e-3, "full rank is D-PSGD: {last:e}, {dense:e}");
}
