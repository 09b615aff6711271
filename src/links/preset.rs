//! Links with well-known names.
//!
//! | name | one way | rate | |
//! |---|---|---|---|
//! | `ideal` | 0 | no limit | rounds only |
//! | `data-center` | 0.05 ms | 10 Gbit/s | |
//! | `ethernet` | 0.13 ms | 1 Gbit/s | a switch in one building |
//! | `4g` | 50 ms | 100 Mbit/s | |
//! | `5g` | 10 ms | 1 Gbit/s | |
//! | `shanghai-boston` | 39 ms and a mean of 311 more | 10 Mbit/s, varying | a round trip is 78 ms in theory and over 700 in practice |
//!
//! The last three are the figures of Lin, Zhu and Han's slides on distributed training (latencies
//! taken as one way, the last one's as a round trip); its spread, a deviation of 0.5 of the rate's
//! logarithm for a second at a time, is our own assumption. To add a preset, add one line here.

use super::channel::LinkModel;

/// A line of the table.
#[derive(Debug)]
pub struct Preset {
    /// The name in files and on the command line.
    pub name: &'static str,
    /// Latency and rate in one line.
    pub summary: &'static str,
    /// The model of its links.
    pub link: LinkModel,
}

const MS: u64 = 1_000_000;

/// Every preset, as `network.preset` accepts them.
pub static PRESETS: [Preset; 6] = [
    Preset { name: "ideal", summary: "no latency, no limit", link: LinkModel::IDEAL },
    Preset { name: "data-center", summary: "0.05 ms, 10 Gbit/s", link: link(MS / 20, 10e9) },
    Preset { name: "ethernet", summary: "0.13 ms, 1 Gbit/s", link: link(MS * 13 / 100, 1e9) },
    Preset { name: "4g", summary: "50 ms, 100 Mbit/s", link: link(50 * MS, 100e6) },
    Preset { name: "5g", summary: "10 ms, 1 Gbit/s", link: link(10 * MS, 1e9) },
    Preset {
        name: "shanghai-boston",
        summary: "39 ms and a mean of 311 more, 10 Mbit/s that vary",
        link: LinkModel { jitter: 311 * MS, variation: 0.5, ..link(39 * MS, 10e6) },
    },
];

const fn link(latency: u64, rate: f64) -> LinkModel {
    LinkModel { latency, rate, ..LinkModel::IDEAL }
}

/// Finds a preset by its name.
pub(crate) fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
