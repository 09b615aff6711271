//! An objective and data of one's own: robust regression on four sites, none of which shows its
//! rows to another.
//!
//! `cargo run --release --no-default-features --example own_objective`
//!
//! A tenth of all readings is broken, most of them at one site. Squared errors would follow them;
//! Huber's loss (1964, Robust Estimation of a Location Parameter) is quadratic up to a threshold
//! and linear beyond. Nothing in gradvine knows it: the program implements [`Objective`], hands one
//! to each node, and picks rule, compressor and topology by name.

use std::error::Error;

use gradvine::{
    drive::NoopObserver,
    experiment::Experiment,
    learn::{Batch, Objective, Tensor},
    rng::{Purpose, Stream},
    run, sim,
};

const NODES: usize = 4;
const ROWS: usize = 500;
const FEATURES: usize = 64;

/// CHOCO on a ring of four: each node sends its neighbours differences of four bits a number.
const EXPERIMENT: &str = "
run.seed = 7
run.rounds = 400
topology.file = 'ring:4'
rule.kind = 'choco'
compressor.kind = 'min-max'
compressor.bits = 4
optimizer = { step = 0.2, batch = 'full', schedule = 'cosine' }
";

/// (1/m) sum over m rows of huber(x w - y): w is what is learned.
#[derive(Clone)]
struct Huber {
    tensors: Vec<Tensor>,
    rows: Vec<Vec<f32>>,
    readings: Vec<f32>,
}

impl Huber {
    /// Where squares end.
    const THRESHOLD: f32 = 1.0;

    /// One site's readings: `truth` with noise, and a share of them broken.
    fn site(node: u64, truth: &[f32], broken: f64) -> Huber {
        let mut dice = Stream::new(7, Purpose::Data).with(node).sequence();
        let rows: Vec<Vec<f32>> =
            (0..ROWS).map(|_| (0..FEATURES).map(|_| dice.normal() as f32).collect()).collect();
        let mut reading = |row: &Vec<f32>| {
            let sound = dot(row, truth) + 0.1 * dice.normal() as f32;
            if dice.uniform() < broken { sound + 50.0 } else { sound }
        };
        let readings = rows.iter().map(&mut reading).collect();
        Huber { tensors: vec![Tensor::new("weight", &[FEATURES])], rows, readings }
    }

    /// One row's loss, and its derivative by the prediction.
    fn row(&self, x: &[f32], row: usize) -> (f64, f32) {
        let residual = dot(&self.rows[row], x) - self.readings[row];
        let size = residual.abs();
        if size <= Huber::THRESHOLD {
            (0.5 * f64::from(residual * residual), residual)
        } else {
            let loss = Huber::THRESHOLD * (size - 0.5 * Huber::THRESHOLD);
            (f64::from(loss), Huber::THRESHOLD.copysign(residual))
        }
    }
}

impl Objective for Huber {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn gradient(&mut self, x: &[f32], batch: Batch<'_>, out: &mut [f32]) -> f64 {
        let all: Vec<u32>;
        let rows = match batch {
            Batch::Rows(rows) => rows,
            Batch::All => {
                all = (0..self.rows.len() as u32).collect();
                &all
            }
        };
        out.fill(0.0);
        let mut total = 0.0;
        for &row in rows {
            let (loss, slope) = self.row(x, row as usize);
            add(slope / rows.len() as f32, &self.rows[row as usize], out);
            total += loss;
        }
        total / rows.len() as f64
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        (0..self.rows.len()).map(|row| self.row(x, row).0).sum::<f64>() / self.rows.len() as f64
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// out += factor * a
fn add(factor: f32, a: &[f32], out: &mut [f32]) {
    out.iter_mut().zip(a).for_each(|(out, a)| *out += factor * a);
}

/// |a - b|^2
fn distance_squared(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

/// f(x), the mean of all sites' objectives.
fn global(sites: &mut [Huber], x: &[f32]) -> f64 {
    sites.iter_mut().map(|site| site.loss(x)).sum::<f64>() / NODES as f64
}

/// The least f there is, by gradient descent on the rows of all sites in one place: what the
/// network is to reach without that.
fn centralised(sites: &mut [Huber]) -> f64 {
    let (mut x, mut gradient) = (vec![0.0; FEATURES], vec![0.0; FEATURES]);
    for _ in 0..2000 {
        let before = x.clone();
        for site in sites.iter_mut() {
            site.gradient(&before, Batch::All, &mut gradient);
            add(-0.2 / NODES as f32, &gradient, &mut x);
        }
    }
    global(sites, &x)
}

fn main() -> Result<(), Box<dyn Error>> {
    let truth: Vec<f32> = (0..FEATURES).map(|k| (k as f32 * 0.7).sin()).collect();
    let mut sites: Vec<Huber> = [0.02, 0.02, 0.02, 0.34]
        .iter()
        .enumerate()
        .map(|(i, &broken)| Huber::site(i as u64, &truth, broken))
        .collect();
    let start = vec![0.0; FEATURES];
    let objectives =
        sites.iter().map(|site| Box::new(site.clone()) as Box<dyn Objective>).collect();

    let experiment = Experiment::parse(EXPERIMENT, &[])?;
    let ended = sim::run(run::specs(&experiment, &start, objectives)?, &mut NoopObserver)?;

    let mean = &ended[0].mean;
    let (before, after, least) =
        (global(&mut sites, &start), global(&mut sites, mean), centralised(&mut sites));
    println!("f before {before:.6}, after {after:.6}; the least there is: {least:.6}");
    let error = (distance_squared(mean, &truth) / distance_squared(&start, &truth)).sqrt();
    println!("the weights are {:.2} % from the truth", 100.0 * error);
    let distances = ended.iter().map(|node| distance_squared(&node.model, mean));
    let consensus = distances.sum::<f64>() / NODES as f64;
    let payload: u64 = ended.iter().map(|node| node.traffic.payload).sum();
    let dense: u64 = ended.iter().map(|node| node.traffic.dense).sum();
    println!(
        "consensus distance {consensus:.1e}; {payload} bytes of payload where plain floats would \
         be {dense}"
    );

    assert!(
        after - least < 1e-3 * (before - least),
        "it has not converged: {after}, {least} is possible"
    );
    assert!(error < 0.05, "the weights are {error} from the truth");
    assert!(consensus < 1e-4, "the nodes do not agree: {consensus}");
    Ok(())
}
