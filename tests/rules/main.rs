//! Update rules against their papers' equations, and what their papers promise.

mod asynchronous;
mod byzantine;
mod centralized_exact;
mod combinations;
mod compressed_centralized;
mod different_data;
mod early_end;
mod exact;
mod gossip_alone;
mod late_gossip;
mod layers;
mod lockstep;
mod low_rank_gossip;
mod means;
mod pairs_exact;
mod properties;
mod push_sum;
mod quantized_modulo;
mod sketched_exact;
mod sparse_exact;
mod stale_synchronous;
mod statistics;
