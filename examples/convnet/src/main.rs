//! A convolutional network of candle on the digits, trained by a loop of its own.
//!
//! ```console
//! $ cargo run --release -p convnet                      # four nodes in this process
//! $ cargo run --release -p convnet -- node.toml 0 4     # site 0 of 4: one node a machine
//! ```
//! Each site has only two or three of the ten digits. A round is two steps of SGD on the site's
//! own rows; then one call hands the change of the model to the node and returns the mixed model.

use std::{error::Error, thread};

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap, conv2d, linear, loss, ops};
use gradvine::{
    data::{self, Dataset, Options, Split},
    experiment::{Experiment, Transport},
    learn,
    mixing::{FileFormat, Topology},
    net::{Keypair, free_ports},
    node::{Exchange, Node, NodeBuilder, NodeResult, Step},
};

/// CHOCO-SGD with 4 bits a number. `[model]` and `[data]` are the program's.
const EXPERIMENT: &str = "
run.rounds = 600
topology.file = 'ring:4'
rule.kind = 'choco'
compressor = { kind = 'min-max', bits = 4 }
";
const STEPS: usize = 2;
const BATCH: usize = 32;
const RATE: f64 = 0.1;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// 1 x 8 x 8 pixels, two convolutions with pooling, ten classes.
struct Network {
    vars: VarMap,
    layers: (candle_nn::Conv2d, candle_nn::Conv2d, candle_nn::Linear),
}

impl Network {
    fn new() -> candle_core::Result<Network> {
        let vars = VarMap::new();
        let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
        let padded = candle_nn::Conv2dConfig { padding: 1, ..Default::default() };
        let layers = (
            conv2d(1, 8, 3, padded, builder.pp("first"))?,
            conv2d(8, 16, 3, padded, builder.pp("second"))?,
            linear(64, 10, builder.pp("last"))?,
        );
        Ok(Network { vars, layers })
    }

    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let (first, second, last) = &self.layers;
        let x = images.apply(first)?.relu()?.max_pool2d(2)?;
        let x = x.apply(second)?.relu()?.max_pool2d(2)?;
        x.flatten_from(1)?.apply(last)
    }

    /// The variables by name: the same order on every node.
    fn named(&self) -> Vec<(String, Var)> {
        let vars = self.vars.data().lock().expect("no thread has panicked");
        let mut named: Vec<_> =
            vars.iter().map(|(name, var)| (name.clone(), var.clone())).collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named
    }

    /// Names and shapes, which the nodes compare before they start.
    fn tensors(&self) -> Vec<learn::Tensor> {
        let tensor = |(name, var): &(String, Var)| learn::Tensor::new(name, var.dims());
        self.named().iter().map(tensor).collect()
    }

    fn load(&self, mut x: &[f32]) -> candle_core::Result<()> {
        for (_, var) in self.named() {
            let (own, rest) = x.split_at(var.elem_count());
            var.set(&Tensor::from_slice(own, var.dims(), &Device::Cpu)?)?;
            x = rest;
        }
        Ok(())
    }

    fn values(&self) -> candle_core::Result<Vec<f32>> {
        let all = self.named().into_iter().map(|(_, var)| var.flatten_all()?.to_vec1::<f32>());
        Ok(all.collect::<candle_core::Result<Vec<_>>>()?.concat())
    }
}

/// Images and labels of some rows.
fn tensors(rows: &Dataset) -> candle_core::Result<(Tensor, Tensor)> {
    let pixels: Vec<f32> = rows.features.iter().map(|pixel| pixel / 16.0).collect();
    let labels = rows.labels().expect("digits have labels");
    let images = Tensor::from_vec(pixels, (rows.rows(), 1, 8, 8), &Device::Cpu)?;
    Ok((images, Tensor::from_slice(labels, rows.rows(), &Device::Cpu)?))
}

/// The site's own loop: `STEPS` steps of SGD a round, from the model of the node on.
fn train(node: &mut Exchange, rows: &Dataset) -> Fallible<()> {
    let (network, (images, labels)) = (Network::new()?, tensors(rows)?);
    let mut next = 0;
    while node.is_open() {
        network.load(node.model())?;
        let mut total = 0.0;
        for _ in 0..STEPS {
            let start = next % rows.rows().saturating_sub(BATCH).max(1);
            let size = BATCH.min(rows.rows() - start);
            let logits = network.forward(&images.narrow(0, start, size)?)?;
            let loss = loss::cross_entropy(&logits, &labels.narrow(0, start, size)?)?;
            let gradients = loss.backward()?;
            for (_, var) in network.named() {
                if let Some(gradient) = gradients.get(&var) {
                    var.set(&(var.as_tensor() - (gradient * RATE)?)?)?;
                }
            }
            total += f64::from(loss.to_scalar::<f32>()?);
            next += size;
        }
        let after = network.values()?;
        let (before, update) = node.parts();
        for ((update, before), after) in update.iter_mut().zip(before).zip(&after) {
            *update = before - after;
        }
        let size = (STEPS as f64 * RATE) as f32;
        node.round_blocking(Step { loss: total / STEPS as f64, size })?;
    }
    Ok(())
}

fn accuracy(model: &[f32], rows: &Dataset) -> Fallible<f64> {
    let (network, (images, labels)) = (Network::new()?, tensors(rows)?);
    network.load(model)?;
    let found = ops::softmax(&network.forward(&images)?, 1)?.argmax(1)?;
    let right = found.eq(&labels)?.to_dtype(DType::F32)?.mean_all()?;
    Ok(f64::from(right.to_scalar::<f32>()?))
}

/// One node from its start to the mean model.
fn run(builder: NodeBuilder, rows: &Dataset) -> Fallible<NodeResult> {
    let tensors = Network::new()?.tensors();
    let mut node = builder.connect_blocking(tensors, rows.rows() as u64)?;
    train(&mut node, rows)?;
    Ok(node.finish_blocking()?)
}

/// The same on all nodes: a fixed sequence of small numbers.
fn initial(count: usize) -> Vec<f32> {
    (0..count).map(|k| 0.2 * (k as f32 * 12.9898).sin()).collect()
}

/// The rows of each site, which hold few classes, and those for testing.
fn sites(count: usize) -> Fallible<(Vec<Dataset>, Dataset)> {
    let digits = data::load("digits", &Options::default())?;
    let (train, test) = data::split_test(&digits, 0.2, 1)?;
    let shards = data::shards(&digits, &train, count, Split::ByLabel, 1)?;
    // Sorted by label: mixed, so that a batch has more than one class.
    let mix = |rows: Vec<usize>| {
        let stride = 7;
        let order = (0..stride).flat_map(|first| rows.iter().skip(first).step_by(stride).copied());
        digits.select(&order.collect::<Vec<_>>())
    };
    Ok((shards.into_iter().map(mix).collect(), digits.select(&test)))
}

/// Builders of nodes on loopback.
fn local(count: usize) -> Fallible<Vec<NodeBuilder>> {
    let keys: Vec<Keypair> = (0..count).map(|_| Keypair::generate_ed25519()).collect();
    let ports = free_ports(Transport::Tcp, count)?;
    let mut text = format!("family = \"ring\"\nnodes = {count}\n");
    let mut addresses = Vec::new();
    for (i, (key, port)) in keys.iter().zip(&ports).enumerate() {
        let address = format!("/ip4/127.0.0.1/tcp/{port}");
        let peer = key.public().to_peer_id();
        text += &format!(
            "[[node]]\nname = \"site-{i}\"\npeer = \"{peer}\"\naddresses = [\"{address}\"]\n"
        );
        addresses.push(address);
    }
    let topology = Topology::from_text(&text, FileFormat::Toml, "ring")?;
    let experiment = Experiment::parse(EXPERIMENT, &[])?;
    let build = |(key, address)| {
        NodeBuilder::new(key, topology.clone(), experiment.clone()).listen(address)
    };
    Ok(keys.into_iter().zip(addresses).map(build).collect())
}

fn main() -> Fallible<()> {
    let count = Network::new()?.values()?.len();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [file, site, sites_in_all] = &arguments[..] {
        let (rows, test) = sites(sites_in_all.parse()?)?;
        let rows = rows.get(site.parse::<usize>()?).ok_or("SITE must be below SITES")?;
        let result = run(Node::builder(file)?.initial(initial(count)), rows)?;
        println!("accuracy of the mean model: {:.3}", accuracy(&result.mean, &test)?);
        return Ok(());
    }
    let (rows, test) = sites(4)?;
    let results: Vec<NodeResult> = thread::scope(|scope| {
        let start = |(builder, rows): (NodeBuilder, _)| {
            scope.spawn(move || run(builder.initial(initial(count)), rows))
        };
        let threads: Vec<_> = local(4)?.into_iter().zip(&rows).map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Fallible<NodeResult>>| {
            thread.join().expect("a node has panicked")
        };
        threads.into_iter().map(join).collect::<Fallible<Vec<_>>>()
    })?;
    let reached = accuracy(&results[0].mean, &test)?;
    println!("{count} parameters, accuracy of the mean model: {reached:.3}");
    println!("digest {}", results[0].summary.digest);
    assert!(results.iter().all(|result| result.mean == results[0].mean));
    assert!(reached > 0.9, "{reached}");
    Ok(())
}
