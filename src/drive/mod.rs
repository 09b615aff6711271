//! What every driver of the core shares: a node with its learner, what is asked of the learner,
//! what an observer sees, and how a run ends.

mod ended;
mod learner;
mod lent;
mod observer;

pub use ended::{Ended, RunError};
pub use learner::{Conclusion, Learner, compute};
pub use lent::Lent;
pub use observer::{Elapsed, NoopObserver, Observer, Waiting};

use crate::gossip::NodeConfig;

/// One node as a driver takes it.
pub struct NodeSpec {
    /// What the core needs.
    pub config: NodeConfig,
    /// What learns.
    pub learner: Box<dyn Learner>,
}
