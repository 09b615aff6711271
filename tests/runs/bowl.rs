//! Nodes that programs embed, with a simple objective of their own.
#![cfg(feature = "net")]

use std::{thread, time::Duration};

use gradvine::{
    drive::NoopObserver,
    experiment::Experiment,
    learn::{Batch, Objective, Tensor},
    net::Keypair,
    run, sim,
};

/// f_i(x) = (1/2) |x - c_i|^2, whose centre c_i only node i knows.
pub(crate) struct Bowl {
    pub tensors: Vec<Tensor>,
    centre: Vec<f32>,
    /// How long a gradient takes, so that a run lasts for some seconds.
    pub pause: Duration,
}

impl Bowl {
    pub(crate) fn new(node: usize, tensors: &[Tensor], pause: Duration) -> Bowl {
        let d = tensors.iter().map(Tensor::len).sum();
        let centre = (0..d).map(|k: usize| ((k * (node + 1)) as f32 * 0.37).sin()).collect();
        Bowl { tensors: tensors.to_vec(), centre, pause }
    }
}

impl Objective for Bowl {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn rows(&self) -> usize {
        3
    }

    fn gradient(&mut self, x: &[f32], _batch: Batch<'_>, out: &mut [f32]) -> f64 {
        thread::sleep(self.pause);
        for ((out, x), centre) in out.iter_mut().zip(x).zip(&self.centre) {
            *out = x - centre;
        }
        self.loss(x)
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        let square = |(x, centre): (&f32, &f32)| f64::from(x - centre).powi(2);
        x.iter().zip(&self.centre).map(square).sum::<f64>() / 2.0
    }
}

/// The models of a run of bowls in the simulator.
pub(crate) fn simulated(
    experiment: &Experiment,
    initial: &[f32],
    bowls: impl IntoIterator<Item = Bowl>,
) -> Vec<Vec<f32>> {
    let boxed = |bowl| Box::new(bowl) as Box<dyn Objective>;
    let specs = run::specs(experiment, initial, bowls.into_iter().map(boxed).collect()).unwrap();
    sim::run(specs, &mut NoopObserver).unwrap().into_iter().map(|ended| ended.model).collect()
}

/// The file of a topology of nodes n0, n1 and so on, at these addresses.
pub(crate) fn file(family: &str, keys: &[Keypair], addresses: &[Vec<String>]) -> String {
    let mut text = format!("family = \"{family}\"\nnodes = {}\n", keys.len());
    for (i, (key, addresses)) in keys.iter().zip(addresses).enumerate() {
        let peer = key.public().to_peer_id();
        text +=
            &format!("[[node]]\nname = \"n{i}\"\npeer = \"{peer}\"\naddresses = {addresses:?}\n");
    }
    text
}
