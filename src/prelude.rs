//! The names that most programs need to embed nodes or to run experiments: `use
//! gradvine::prelude::*`.

pub use crate::{
    config::ConfigError,
    drive::{NoopObserver, Observer},
    experiment::Experiment,
    learn::{Batch, Objective, Tensor},
    mixing::Topology,
    run::{Summary, Whole},
    sim,
};

#[cfg(feature = "net")]
pub use crate::{
    net::Keypair,
    node::{EndError, Event, Exchange, Node, NodeBuilder, NodeResult, Step},
};
