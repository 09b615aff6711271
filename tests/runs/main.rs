//! Whole runs, in the simulator and over libp2p: the core, the drivers, and the files of a run.

mod agreement;
mod any_order;
mod claims;
mod divergence;
mod embedded;
mod encryption;
mod golden_runs;
mod held_calls;
mod hostile_frames;
mod hostile_peers;
mod judging;
mod leaving;
mod links;
mod lost_frames;
mod lost_models;
mod predictions;
mod relays;
mod same_bits;
mod scaling;
mod sessions;
mod silent;
mod versions;
mod wide;
