//! Compressors: their laws, and the bytes of their payloads.

mod compressor_laws;
mod count_sketch;
mod low_rank;
mod noise;
mod payload_bytes;
