//! What the nodes agree on: the members (`assembly`, `assemble`), the round at which they begin
//! (`gathering`, `start`), checkpoints (`saver`, `restore`), and that all have results (`confirm`).

pub(crate) mod assemble;
pub(crate) mod assembly;
pub(crate) mod confirm;
pub(crate) mod gathering;
pub(crate) mod restore;
pub(crate) mod saver;
pub(crate) mod start;
