//! Commands for one node of a network of machines.

pub(crate) mod doctor;
pub(crate) mod identity;
pub(crate) mod leave;
pub(crate) mod members;
pub(crate) mod node;
pub(crate) mod relay;
