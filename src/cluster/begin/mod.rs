//! Where a run begins or continues: two programs that meet (`meeting`), and all members
//! (`rendezvous`, `gathering`).

pub(crate) mod gathering;
pub(crate) mod meeting;
pub(crate) mod rendezvous;
pub(crate) mod reports;
