//! The laboratory: real nodes on one Linux machine, joined by links with the experiment's
//! properties.
//!
//! ```text
//!  namespace of node 0            this process               namespace of node 1
//!  gradvine node - TCP/IP - gv0 ===== router ===== gv0 - TCP/IP - gradvine node
//! ```
//!
//! Every node has a network namespace of its own ([`Site`]): its own TCP/IP, its own address, and
//! one TUN device as the only way out. The packets that a node sends arrive in this process, where
//! the [`Router`] holds each one as long as the link between sender and receiver would
//! ([`mod@line`]): a queue, a rate, a latency, jitter, loss. The nodes are unmodified. It needs
//! root, `/dev/net/tun` and `ip` of iproute2.
//!
//! | file | does |
//! |---|---|
//! | `site` | namespaces and devices: made, entered, removed, also those that a killed laboratory left |
//! | `line` | the arithmetic of one direction of a link |
//! | `router` | the thread that carries packets, and its counts |
//! | `cut` | links that carry nothing for a while |
//! | `scratch` | the temporary folder of a run |
//! | `procedure` | a whole run: [`Laboratory`] predicts, simulates, and measures real nodes |
//! | `figures` | its results, as a table and as JSON |

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use gradvine::{config::ConfigError, run::EndError};

mod cut;
mod figures;
pub mod line;
mod procedure;
mod router;
mod scratch;
mod site;

pub use cut::Cut;
pub use figures::{Expected, Figures, Measurement};
pub use procedure::{Laboratory, measure_gradients, names};
pub use router::{Flow, Router, RouterCounts, Wiring};
pub use scratch::Scratch;
pub use site::{MTU, Setup, Site, address, check, check_congestion, clear_leftovers, name, remove};

/// Why a laboratory cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine lacks what a laboratory needs; the text says what and how to get it.
    #[error("{0}")]
    Missing(String),
    /// A call of `ip` failed.
    #[error("ip {0}: {1}")]
    Ip(String, String),
    /// A system call on a namespace or a device has failed.
    #[error("the system refused a namespace or device: {0}")]
    System(#[from] std::io::Error),
    /// The run in the laboratory did not end well.
    #[error(transparent)]
    Run(#[from] EndError),
}

impl From<LabError> for EndError {
    fn from(error: LabError) -> EndError {
        match error {
            LabError::Run(end) => end,
            LabError::Missing(what) => ConfigError::at("lab", what).into(),
            error => EndError::failed(format!("lab: {error}")),
        }
    }
}
