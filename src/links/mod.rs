//! The properties of a network's links and machines: latency, rate, jitter, loss, and the time of
//! gradients.
//!
//! The simulator, the prediction and the laboratory all use this model, so that one description of
//! a network serves all three.
//!
//! | file | does |
//! |---|---|
//! | `channel` | one direction of a link: queue, rate, latency, jitter, loss |
//! | `lines` | all directions, with the frames on them |
//! | `queue` | the events of virtual time |
//! | `compute` | how long gradients take |
//! | `preset` | links by known names |
//! | `conditions` | all of these for one network |
//! | `params` | the same, from an experiment's `[network]` and a topology's links |

mod channel;
mod compute;
mod conditions;
mod lines;
mod params;
mod preset;
mod queue;

pub use channel::LinkModel;
pub use compute::ComputeModel;
pub use conditions::Conditions;
pub(crate) use lines::Lines;
pub use params::{conditions, needs_relay};
pub(crate) use preset::find as preset;
pub use preset::{PRESETS, Preset};
pub(crate) use queue::Queue;
