//! The parts that all drivers of the core share: a node with its learner, the learner's interface,
//! the observer's interface, and how a run ends.

mod ended;
mod learner;
mod lent;
mod membership;
mod observer;

pub use ended::{Absence, Ended, RunError};
pub(crate) use learner::describe_panic;
pub use learner::{Computed, Conclusion, Learner, Wanted, compute};
pub use lent::Lent;
pub use membership::{Change, Membership};
pub use observer::{Elapsed, NoopObserver, Observer, Waiting};

use crate::gossip::NodeConfig;

/// The description of one node for a driver.
pub struct NodeSpec {
    /// The configuration of the core.
    pub config: NodeConfig,
    /// It computes the gradients of this node.
    pub learner: Box<dyn Learner>,
}
