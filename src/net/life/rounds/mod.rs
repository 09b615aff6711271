//! The rounds of one node: between its core, its learner (`companion`) and its links, and whom it
//! waits for (`status`, `pace`, `patience`).

pub(crate) mod companion;
pub(crate) mod driver;
pub(crate) mod node_state;
pub(crate) mod pace;
pub(crate) mod patience;
pub(crate) mod status;
