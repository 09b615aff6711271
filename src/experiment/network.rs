//! `[network]`: the links and machines for `simulate` and `plan`.

use serde::{Deserialize, Serialize};

/// The virtual network. Links of the topology with their own latency or bandwidth keep it; the rest
/// comes from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkParams {
    /// Links by a well-known name; default `ideal`.
    pub preset: String,
    /// Latency one way, in milliseconds, instead of the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Bandwidth in each direction, in 10^6 bits per second, instead of the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_mbps: Option<f64>,
    /// The mean of an exponentially distributed extra latency, instead of the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    /// The probability that a packet is lost. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The deviation of the logarithm of a link's rate, instead of the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variation: Option<f64>,
    /// How long a rate holds, in seconds. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variation_s: Option<f64>,
    /// Whether each link has its own rate, or a node's links share one uplink.
    pub uplink: Uplink,
    /// How long a gradient takes.
    pub compute: Compute,
    /// The time of a round's gradients together, in milliseconds; `compute = "fixed"` and
    /// `"random"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_ms: Option<f64>,
    /// The deviation of its logarithm from round to round; `compute = "random"`. Default 0.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_spread: Option<f64>,
    /// The share of nodes that are slow. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stragglers: Option<f64>,
    /// The factor by which they are slower. Default 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler_factor: Option<f64>,
}

impl Default for NetworkParams {
    fn default() -> NetworkParams {
        NetworkParams {
            preset: "ideal".into(),
            latency_ms: None,
            bandwidth_mbps: None,
            jitter_ms: None,
            loss: None,
            variation: None,
            variation_s: None,
            uplink: Uplink::Link,
            compute: Compute::None,
            compute_ms: None,
            compute_spread: None,
            stragglers: None,
            straggler_factor: None,
        }
    }
}

/// The owner of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uplink {
    /// Each direction of each link.
    #[default]
    Link,
    /// All frames of a node: they queue for one line.
    Node,
}

/// The source of the time of a gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compute {
    /// Gradients take no time.
    #[default]
    None,
    /// `compute_ms`.
    Fixed,
    /// The time on this machine, measured before the run and written into the resolved experiment
    /// as `fixed`.
    Measured,
    /// Log-normal around `compute_ms`.
    Random,
}
