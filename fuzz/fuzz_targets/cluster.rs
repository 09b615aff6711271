//! A whole node with arbitrary messages, links, disk and times: `src/cluster/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gradvine::fuzz_cluster(bytes));
