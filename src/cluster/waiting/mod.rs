//! Whom a node waits for (`pace`), for how long (`patience`), and the limits of the experiment.

pub(crate) mod limits;
pub(crate) mod pace;
pub(crate) mod patience;
