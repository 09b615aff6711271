//! Where a run begins or continues: two programs that meet (`meeting`), and all members
//! (`rendezvous`, `reports`).

pub(crate) mod meeting;
pub(crate) mod rendezvous;
pub(crate) mod reports;
