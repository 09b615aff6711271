//! Nodes of a network, embedded in a program with an objective of its own.
//!
//! `cargo run --release --example embedded_node`
//!
//! Three sites fit a line to readings that they do not show each other. Here all three nodes run in
//! this process and speak libp2p over loopback. On several machines each program builds one node:
//! `Node::builder("node.toml")?` instead of `NodeBuilder::new`, and the rest stays.

use std::{collections::BTreeMap, error::Error};

use gradvine::{
    experiment::{Experiment, Transport},
    learn::{Batch, Objective, Tensor},
    mixing::Topology,
    net::{Keypair, free_ports},
    node::{Event, NodeBuilder},
};

/// D-PSGD between all pairs; `[model]` and `[data]` are the program's.
const EXPERIMENT: &str = "
run.rounds = 300
run.evaluate_every = 100
topology.file = 'complete:3'
rule.kind = 'd-psgd'
optimizer = { step = 0.2, batch = 'full', schedule = 'cosine' }
";

/// (1/2m) sum of (a t + b - y)^2 over this site's readings (t, y); x = (a, b).
struct Line {
    tensors: Vec<Tensor>,
    readings: Vec<(f32, f32)>,
}

impl Objective for Line {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn rows(&self) -> usize {
        self.readings.len()
    }

    fn gradient(&mut self, x: &[f32], _batch: Batch<'_>, out: &mut [f32]) -> f64 {
        out.fill(0.0);
        for &(t, y) in &self.readings {
            let residual = (x[0] * t + x[1] - y) / self.readings.len() as f32;
            out[0] += residual * t;
            out[1] += residual;
        }
        self.loss(x)
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        let square = |(t, y): &(f32, f32)| f64::from(x[0] * t + x[1] - y).powi(2);
        self.readings.iter().map(square).sum::<f64>() / (2 * self.readings.len()) as f64
    }
}

/// Site i sees t from i - 1 to i only: no site alone can tell the slope well.
fn site(i: usize) -> Line {
    let readings = (0..50)
        .map(|k| {
            let t = i as f32 - 1.0 + k as f32 / 50.0;
            (t, 2.0 * t - 1.0 + 0.1 * (7.0 * t + i as f32).sin())
        })
        .collect();
    Line { tensors: vec![Tensor::new("slope", &[1]), Tensor::new("offset", &[1])], readings }
}

type Network = (Vec<Keypair>, Vec<String>, Topology);

/// Keys, free ports of loopback, and a topology that names both.
fn network() -> Result<Network, Box<dyn Error>> {
    let keys: Vec<Keypair> = (0..3).map(|_| Keypair::generate_ed25519()).collect();
    let (mut text, mut addresses) =
        (String::from("family = \"complete\"\nnodes = 3\n"), Vec::new());
    let ports = free_ports(Transport::Tcp, 3)?;
    for (i, (key, port)) in keys.iter().zip(&ports).enumerate() {
        let address = format!("/ip4/127.0.0.1/tcp/{port}");
        let peer = key.public().to_peer_id();
        text += &format!(
            "[[node]]\nname = \"site-{i}\"\npeer = \"{peer}\"\naddresses = [\"{address}\"]\n"
        );
        addresses.push(address);
    }
    let topology = Topology::from_text(&text, gradvine::mixing::FileFormat::Toml, "complete")?;
    Ok((keys, addresses, topology))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (keys, addresses, topology) = network()?;
    let experiment = Experiment::parse(EXPERIMENT, &[])?;
    let mut nodes = Vec::new();
    for (i, (key, address)) in keys.into_iter().zip(addresses).enumerate() {
        let node = NodeBuilder::new(key, topology.clone(), experiment.clone())
            .listen(address)
            .objective(site(i))
            .initial(vec![0.0, 0.0])
            .evaluate(move |x| {
                BTreeMap::from([("slope error".into(), f64::from((x[0] - 2.0).abs()))])
            });
        nodes.push(node.start());
    }
    while let Some(event) = nodes[0].next_blocking() {
        match event {
            Event::Linked { peer, up, links } => println!("linked with {peer} ({up} of {links})"),
            Event::Evaluation(metric) => {
                println!("round {}: {:?}", metric.round, metric.measures);
            }
            _ => {}
        }
    }
    let results = nodes
        .into_iter()
        .map(gradvine::node::Node::join_blocking)
        .collect::<Result<Vec<_>, _>>()?;
    let mean = &results[0].mean;
    println!("slope {:.3}, offset {:.3}; digest {}", mean[0], mean[1], results[0].summary.digest);
    assert!(results.iter().all(|result| result.summary == results[0].summary));
    assert!((mean[0] - 2.0).abs() < 0.05 && (mean[1] + 1.0).abs() < 0.1, "{mean:?}");
    Ok(())
}
