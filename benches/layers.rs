//! A round of C-SGD with and without `layers`: perceptrons on the digits, two nodes over TCP in
//! this process.
//!
//! `cargo bench --bench layers`
//!
//! Each node computes its gradient on one thread and drives its links on others. "alone" is the
//! gradient of one node without neighbours, "sum" the round of a node that sends when all is
//! computed, "layers" that of one that sends each layer when it is ready.

mod common;

use common::{Clock, WARM, median};
use gradvine::{
    experiment::{Experiment, Transport},
    net,
    run::Whole,
    sim,
};

const ROUNDS: u64 = WARM as u64 + 18;
const SAMPLES: usize = 5;

fn main() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!(
        "{threads} processors; c-sgd on complete:2 over TCP, digits; ms a round, medians of \
         {SAMPLES} taken in turn"
    );
    println!(
        "{:<24} {:>9} {:>6} {:<11} {:>8} {:>8} {:>8} {:>13}",
        "hidden", "params", "batch", "collective", "alone", "sum", "layers", "layers of sum"
    );
    for hidden in ["[512, 512, 512]", "[1024, 1024, 1024, 1024]"] {
        for batch in [16, 256] {
            for collective in ["ring", "all-to-all"] {
                let (mut alone, mut sum, mut layers) = (Vec::new(), Vec::new(), Vec::new());
                let case = |nodes, layers| whole(hidden, batch, collective, nodes, layers);
                for _ in 0..SAMPLES {
                    alone.push(simulated(&case(1, false)));
                    sum.push(networked(&case(2, false)));
                    layers.push(networked(&case(2, true)));
                }
                let (alone, sum, layers) =
                    (1e3 * median(alone), 1e3 * median(sum), 1e3 * median(layers));
                let d = case(2, true).design.parameters();
                println!(
                    "{hidden:<24} {d:>9} {batch:>6} {collective:<11} {alone:>8.1} {sum:>8.1} \
                     {layers:>8.1} {:>12.2}x",
                    layers / sum
                );
            }
        }
    }
}

fn whole(hidden: &str, batch: u32, collective: &str, nodes: usize, layers: bool) -> Whole {
    let sets = [
        format!("run.rounds={ROUNDS}"),
        format!("run.evaluate_every={ROUNDS}"),
        format!("topology.file='complete:{nodes}'"),
        format!("model.hidden={hidden}"),
        "rule.kind='c-sgd'".into(),
        format!("rule.collective='{collective}'"),
        format!("rule.layers={layers}"),
        "compressor.kind='identity'".into(),
        "optimizer.step=0.01".into(),
        format!("optimizer.batch={batch}"),
    ];
    Whole::new(Experiment::default_with(&sets).expect("settings")).expect("a run")
}

fn networked(whole: &Whole) -> f64 {
    let mut clock = Clock::new(2, ROUNDS);
    net::together(whole.specs(), &whole.design, Transport::Tcp, &mut clock).expect("the run ends");
    clock.round().0
}

/// One node, whose sums need no neighbour.
fn simulated(whole: &Whole) -> f64 {
    let mut clock = Clock::new(1, ROUNDS);
    sim::run(whole.specs(), &mut clock).expect("the run ends");
    clock.round().0
}
