//! The inputs of runs: data, models, topologies, settings, and wrong files.

mod archives;
mod bad_data;
mod corpora;
mod datasets;
mod gradients;
mod mutations;
mod names;
mod parts;
mod reference;
mod registries;
mod schedules;
mod schema;
mod settings;
mod tables;
mod topologies;
mod warnings;
