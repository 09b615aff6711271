//! What runs are made of: data, models, topologies, settings, and files that are wrong.

#[path = "../common/mod.rs"]
mod common;

mod bad_data;
mod datasets;
mod gradients;
mod mutations;
mod schedules;
mod settings;
mod topologies;
