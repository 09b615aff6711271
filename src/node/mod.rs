//! One node of a network of machines, inside another program.
//!
//! [`Node::builder`] reads the files that `gradvine node` reads; [`NodeBuilder::new`] takes their
//! values. The program brings its own objective, or lets the node train the experiment's model on
//! the rows of a file. A node runs on threads of its own, within an async runtime or without one.
//!
//! ```no_run
//! use gradvine::node::{Event, Node};
//! # use gradvine::learn::{Batch, Objective, Tensor};
//! # struct MyObjective;
//! # impl Objective for MyObjective {
//! #     fn tensors(&self) -> &[Tensor] { &[] }
//! #     fn rows(&self) -> usize { 1 }
//! #     fn gradient(&mut self, _: &[f32], _: Batch<'_>, _: &mut [f32]) -> f64 { 0.0 }
//! #     fn loss(&mut self, _: &[f32]) -> f64 { 0.0 }
//! # }
//! # async fn run(my_objective: MyObjective) -> Result<(), Box<dyn std::error::Error>> {
//! let mut node = Node::builder("node.toml")?
//!     .objective(my_objective)
//!     .initial(vec![0.0; 1000])
//!     .spawn()
//!     .await?;
//! while let Some(event) = node.next().await {
//!     if let Event::Round { rounds, loss, .. } = event {
//!         println!("{rounds} rounds, loss {loss}");
//!     }
//! }
//! let result = node.join().await?;
//! println!("the mean of all models has the digest {}", result.summary.mean_digest);
//! # Ok(())
//! # }
//! ```
//!
//! A program with its own training loop uses an [`Exchange`] instead ([`NodeBuilder::connect`]):
//! each round is one call that takes the change of the model and returns the mixed model.

mod builder;
mod command;
mod event;
mod exchange;
mod handle;
mod on_event;
mod prepared;
#[cfg(test)]
mod tests;

pub use builder::NodeBuilder;
pub use event::Event;
pub use exchange::{Exchange, Step};
pub use handle::Node;
pub use prepared::{NodeResult, Prepared};

pub use crate::run::{EndError, Ending, Measures, Security};

internals!(command::check_on_event);
