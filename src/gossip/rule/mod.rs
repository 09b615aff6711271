//! Update rules: one file each, in the notation of the paper.
//!
//! A rule owns its state and implements [`Party`]. Its [`Plan`](super::plan::Plan) gives receivers
//! and senders; the compressor turns vectors into bytes. To add a rule: a file in one of the
//! folders here with an [`Entry`], and a line in [`RULES`].

mod advice;
mod centralized;
mod compressed;
mod constants;
mod decentralized;
mod entry;
mod late;
mod list;
mod local_updates;
mod means;
mod mix;
mod prelude;
mod public_copies;
mod replicas;
mod statistics;
mod steps;
mod summed;

pub(crate) use advice::{Steps, advise};
pub use entry::{Entry, Parts, Prepared, Rule, Setting, Spawn, count_numbers};
pub use list::{RULES, find, prepare};
pub(crate) use list::{of, prepare_in};

pub use super::party::{Answers, Copies, Encoded, Local, Party, Received, Target, Writer};
pub use crate::state::Visitor;
