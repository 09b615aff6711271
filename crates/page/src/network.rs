//! What is known of a run and its nodes, as JSON: `/status.json`, `RUN/status.json`,
//! `gradvine status --json`, and each run of a report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the JSON. Readers refuse others; keys may be added within one.
pub const VERSION: u32 = 1;

/// What one node knows of its run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// [`VERSION`].
    pub version: u32,
    /// `run.id`.
    pub run: String,
    /// The node that knows this; empty in a report.
    pub node: String,
    /// The version of its program.
    pub program: String,
    /// When, by its clock (RFC 3339); empty in a report.
    pub time: String,
    /// The name of the topology.
    pub topology: String,
    /// The rounds of the run.
    pub rounds: u64,
    /// The rounds that all members have done.
    pub round: u64,
    /// `starting`, `training`, `held-up`, `finishing`, `done`, `failed` or `stopped`.
    pub state: String,
    /// The run in one sentence.
    pub sentence: String,
    /// The nodes at the ends of the chains of waiting, and a node that is slow.
    pub holding_up: Vec<String>,
    /// The time left, in seconds, at the pace of the last seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<f64>,
    /// The mean share of time that members spend on gradients, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// All nodes, in the order of the topology.
    pub nodes: Vec<Node>,
    /// The links of the topology.
    pub edges: Vec<(String, String)>,
    /// What has happened, the newest last.
    pub events: Vec<Event>,
}

/// What is known of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name in the topology.
    pub name: String,
    /// Its number there.
    pub number: u32,
    /// What it does, as it says; `silent` if it has not said anything for too long, `unknown` if it
    /// never has.
    pub state: String,
    /// Of a silent node, what it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// Whether it takes part.
    pub member: bool,
    /// The rounds that it has done.
    pub round: u64,
    /// For how long nothing newer was heard, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// For how long it is in this state, in seconds.
    pub since_s: f64,
    /// The nodes whose frames it lacks.
    pub waits_for: Vec<String>,
    /// A clause after its name.
    pub reason: String,
    /// The loss over the batches of its last round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Figures of its last evaluation.
    pub measures: BTreeMap<String, f64>,
    /// The rounds before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<u64>,
    /// Shares of its time in the last seconds, from 0 to 1: `computing` gradients, `mixing` (it
    /// decodes, mixes and encodes vectors), `evaluating`, `disk`, `waiting` for frames, `held` (its
    /// program was ready to run, and was not run).
    pub shares: BTreeMap<String, f64>,
    /// The time of a round in the last seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_s: Option<f64>,
    /// The time of its gradients in a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_s: Option<f64>,
    /// Bytes of frames so far.
    pub sent_bytes: u64,
    /// Bytes of frames so far.
    pub received_bytes: u64,
    /// Its newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// How often one of its links was lost.
    pub outages: u32,
    /// The version of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// For how long that runs, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_s: Option<f64>,
    /// Its last warnings, the newest last.
    pub warnings: Vec<String>,
    /// Its links, as it sees them.
    pub links: Vec<Link>,
}

/// A checkpoint of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The rounds before it.
    pub round: u64,
    /// Its age in seconds.
    pub age_s: f64,
}

/// A link as one end sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The neighbour.
    pub to: String,
    /// Whether it is linked.
    pub up: bool,
    /// Whether a relay is between the two.
    pub relayed: bool,
    /// The time of a round trip, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Bytes of frames a second.
    pub sent_bytes_s: f64,
    /// Bytes of frames a second.
    pub received_bytes_s: f64,
    /// Of a run that is over: bytes of frames that this end sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// The same of those that it received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Why it is not linked.
    pub reason: String,
}

/// Something that has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Greater than that of every event before.
    pub number: u64,
    /// When (RFC 3339).
    pub time: String,
    /// `info`, `warning` or `error`.
    pub level: String,
    /// The node that it is about, or the first of them; empty if it is about the run.
    pub node: String,
    /// A sentence.
    pub text: String,
}
