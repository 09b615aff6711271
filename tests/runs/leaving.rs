//! A neighbour that leaves in the middle of a run as if it were over.
#![cfg(feature = "net")]

use std::time::Instant;

use gradvine::{
    experiment::{Experiment, Transport},
    learn::{Batch, Objective, Tensor},
    mixing::{FileFormat, Topology},
    net::{Deadlines, Event, Links, Report, RunCard, Said, free_ports},
    node::NodeBuilder,
};

use crate::links::{End, SOON, keys, runtime};

/// A node of a run of two, and a neighbour that links, lets the run begin, and then leaves as if it
/// were over.
#[test]
fn a_goodbye_in_the_middle_of_a_run_ends_it_at_once() {
    let keys = keys();
    let (peer, own) = (keys[0].public().to_peer_id(), keys[1].public().to_peer_id());
    let port = free_ports(Transport::Tcp, 1).unwrap()[0];
    let address = format!("/ip4/127.0.0.1/tcp/{port}");
    let text = format!(
        "family = \"path\"\nnodes = 2\n[[node]]\nname = \"early\"\npeer = \"{peer}\"\n\
         [[node]]\nname = \"late\"\npeer = \"{own}\"\naddresses = [\"{address}\"]\n"
    );
    let topology = Topology::from_text(&text, FileFormat::Toml, "two").unwrap();
    let experiment = Experiment::parse(
        "run.rounds = 30\nrule.kind = 'd-psgd'\ncompressor.kind = 'identity'\n\
         topology.file = 'path:2'\noptimizer.batch = 'full'",
        &[],
    )
    .unwrap();
    let builder = || {
        NodeBuilder::new(keys[1].clone(), topology.clone(), experiment.clone())
            .listen(address.clone())
            .objective(Flat::default())
    };
    let card = RunCard::new(builder().prepare().unwrap().design());
    let node = builder().start();
    let runtime = runtime();
    let early = runtime.block_on(async {
        let early = End::start(&keys[0], 0, own, card, Deadlines::default()).await;
        early.dial(1, &address.parse().unwrap());
        early
    });

    let theirs = loop {
        match early.next() {
            Event::Told { batch, .. } => break batch.statements[0].attempt,
            Event::Up(_) | Event::Lost { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    let own = NodeBuilder::new(keys[0].clone(), topology.clone(), experiment.clone());
    let own = own.objective(Flat::default()).prepare().unwrap().signer();
    let links = Links { number: 1, attempts: vec![Some(theirs)] };
    let says = [Said::Report(Report::default()), Said::Links(links)];
    early.host.say(says.map(own).into());
    // The setup comes from the other node first.
    while !matches!(early.next(), Event::Frame { .. }) {}
    let started = Instant::now();
    early.host.finish(None, &mut || false);
    let error = node.join_blocking().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("early") && error.contains("it said goodbye in round 0"), "{error}");
    assert!(started.elapsed() < SOON, "it waited {:?}", started.elapsed());
}

/// f = 0.
pub(crate) struct Flat(Vec<Tensor>);

impl Default for Flat {
    fn default() -> Flat {
        Flat(vec![Tensor::new("x", &[10])])
    }
}

impl Objective for Flat {
    fn tensors(&self) -> &[Tensor] {
        &self.0
    }

    fn rows(&self) -> usize {
        1
    }

    fn gradient(&mut self, _: &[f32], _: Batch<'_>, out: &mut [f32]) -> f64 {
        out.fill(0.0);
        0.0
    }

    fn loss(&mut self, _: &[f32]) -> f64 {
        0.0
    }
}
