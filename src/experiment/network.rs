//! `[network]`: the links and machines for `simulate` and `plan`.

use serde::{Deserialize, Serialize};

/// `[network]`: what `simulate` and `plan` take links and machines to be like. Links of the
/// topology that say their latency or bandwidth keep it; the rest comes from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct NetworkParams {
    /// Links of a known kind.
    pub preset: String,
    /// The latency of a link one way, in milliseconds.
    ///
    /// Accepts: a number from 0 to 10000000. Default: the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// The rate of a link in each direction, in 10^6 bits per second.
    ///
    /// Accepts: a number from 0.001 to 10000000. Default: the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_mbps: Option<f64>,
    /// The mean of an exponentially distributed extra latency, in milliseconds.
    ///
    /// Accepts: a number from 0 to 10000000. Default: the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    /// The chance of a packet to be lost.
    ///
    /// Accepts: a number from 0 to 0.9. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The standard deviation of the logarithm of a link's rate.
    ///
    /// Accepts: a number from 0 to 3. Default: the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variation: Option<f64>,
    /// For how long a rate holds, in seconds.
    ///
    /// Accepts: a number from 0.001 to 1000000. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variation_s: Option<f64>,
    /// Whether each link has its own rate, or a node's links share one uplink.
    pub uplink: Uplink,
    /// How long a gradient takes.
    pub compute: Compute,
    /// The time of all gradients of a round together, in milliseconds.
    ///
    /// Accepts: a number from 0 to 1000000000; only with `compute = "fixed"` and `"random"`, where
    /// it is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_ms: Option<f64>,
    /// The standard deviation of the logarithm of that time, from round to round.
    ///
    /// Accepts: a number from 0 to 3; only with `compute = "random"`. Default: 0.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_spread: Option<f64>,
    /// The share of nodes that are slow.
    ///
    /// Accepts: a number from 0 to 1; not with `compute = "none"`. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stragglers: Option<f64>,
    /// By which factor the gradients of a slow node take longer.
    ///
    /// Accepts: a number from 0.01 to 1000000; not with `compute = "none"`. Default: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler_factor: Option<f64>,
    /// Nodes that are absent for some rounds of a simulation, while the others continue without
    /// them.
    ///
    /// Accepts: a list of `{ nodes = ["3"], from = 100, until = 200 }`, in the order of the rounds,
    /// none of which overlap; `from` above 0. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<AbsentParams>,
    /// Faulty or malicious nodes of a simulation, which send wrong vectors to their neighbours: an
    /// attack to test rules with. Their own models stay honest.
    ///
    /// Accepts: a list of `{ nodes = ["7"], sends = "scaled", by = -10.0 }`; `"scaled"` sends each
    /// vector times `by`, `"random"` normal numbers with the standard deviation `by`. Default:
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub liars: Vec<ByzantineParams>,
}

/// Nodes that take no part in some rounds of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AbsentParams {
    /// Their names.
    pub nodes: Vec<String>,
    /// The rounds after which they leave.
    pub from: u64,
    /// The rounds after which they return.
    pub until: u64,
}

/// Faulty or malicious nodes: they send wrong values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ByzantineParams {
    /// Their names.
    pub nodes: Vec<String>,
    /// What they send.
    pub sends: Sends,
    /// The factor, or the standard deviation.
    pub by: f64,
}

/// What faulty nodes send in place of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Sends {
    /// The vector times a factor.
    Scaled,
    /// Normal numbers.
    Random,
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
            absent: Vec::new(),
            liars: Vec::new(),
        }
    }
}

/// The owner of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
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
#[non_exhaustive]
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
