//! The sections that belong to no registry: the run, its topology and its data.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// `[run]`: length, evaluations, output, limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunParams {
    /// Names the run; a fresh node refuses to join a later round of the same run. Default: `run`.
    pub id: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Number of rounds; a round is one communication.
    pub rounds: u64,
    /// Rounds between evaluations.
    pub evaluate_every: u64,
    /// The run directory to create; default `runs/<time>-<rule>-<topology>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Whether combinations that are expected to diverge may run.
    pub allow_unstable: bool,
    /// Seconds without any progress after which a node gives up.
    pub patience_s: f64,
    /// Seconds that one gradient or one evaluation of a node may take while others wait for it.
    pub work_s: f64,
    /// Seconds to wait until all nodes are linked.
    pub connect_s: f64,
    /// The transport of `train` on one machine; in a deployment the addresses decide.
    pub transport: Transport,
    /// TCP's congestion control on this node's links, if the system lets a program choose (Linux);
    /// without it, the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

impl Default for RunParams {
    fn default() -> RunParams {
        RunParams {
            id: "run".into(),
            seed: 1,
            rounds: 500,
            evaluate_every: 25,
            out: None,
            allow_unstable: false,
            patience_s: 120.0,
            work_s: 3600.0,
            connect_s: 60.0,
            transport: Transport::Tcp,
            congestion: None,
        }
    }
}

/// How hosts on one machine connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP, Noise, Yamux.
    #[default]
    Tcp,
    /// QUIC.
    Quic,
}

impl Transport {
    /// The address on which a host of this transport listens.
    pub fn address(self, host: Ipv4Addr, port: u16) -> String {
        match self {
            Transport::Tcp => format!("/ip4/{host}/tcp/{port}"),
            Transport::Quic => format!("/ip4/{host}/udp/{port}/quic-v1"),
        }
    }
}

/// `[topology]`: a file (or a spec such as `ring:8`), or a family with its size.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopologyParams {
    /// A topology file, or a spec such as `ring:8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A family by name, if there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// A torus's rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// A torus's columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<u32>,
    /// A random regular graph's degree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degree: Option<u32>,
    /// Overrides the weights of the file or family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// The links of each round: the name of a schedule; default `static`, all neighbours in every
    /// round.
    pub schedule: String,
}

impl Default for TopologyParams {
    fn default() -> TopologyParams {
        TopologyParams {
            file: None,
            family: None,
            nodes: None,
            rows: None,
            columns: None,
            degree: None,
            weights: None,
            schedule: "static".into(),
        }
    }
}

/// `[data]`: the training data, and how it is split.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataParams {
    /// `digits`, `breast-cancer`, `synthetic`, or a path (CSV, NPY, IDX, each also .gz).
    pub source: String,
    /// Synthetic: rows of all nodes together. Default: 2048.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Synthetic: d. Default: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<u64>,
    /// Synthetic: the deviation of the targets' noise. Default: 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// Synthetic: distance between the nodes' optima, in units of their length. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heterogeneity: Option<f64>,
    /// How rows are divided among nodes.
    pub split: SplitKind,
    /// Dirichlet's concentration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// The share of rows for the test set, removed first and stratified by label.
    pub test_share: f64,
    /// Whether features are scaled to mean 0 and deviation 1 by sums over all nodes.
    pub standardize: bool,
    /// A given scaling, instead of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<crate::data::Scale>,
    /// The target column of a CSV, by name or position; default the last.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "name_or_position")]
    pub target: Option<String>,
    /// Whether a CSV has a header line; default: detected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<bool>,
    /// The file of labels for an IDX or NPY file of features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// How the nodes' losses are weighted in the mean.
    pub weighting: Weighting,
}

impl Default for DataParams {
    fn default() -> DataParams {
        DataParams {
            source: "digits".into(),
            rows: None,
            features: None,
            noise: None,
            heterogeneity: None,
            split: SplitKind::Iid,
            alpha: None,
            test_share: 0.2,
            standardize: false,
            scale: None,
            target: None,
            header: None,
            labels: None,
            weighting: Weighting::Nodes,
        }
    }
}

/// How rows are divided among nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitKind {
    /// Shuffled, then blocks.
    #[default]
    Iid,
    /// Blocks of the file's order.
    Contiguous,
    /// Sorted by label, then blocks: each node has few classes.
    ByLabel,
    /// Each class is divided by a draw from Dirichlet(alpha).
    Dirichlet,
}

/// The weights of the nodes in the global objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weighting {
    /// f is the mean of the f_i.
    #[default]
    Nodes,
    /// f_i is weighted by its share of the rows.
    Rows,
}

/// A column, `"label"` or `3`, as text.
fn name_or_position<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    struct Column;
    impl serde::de::Visitor<'_> for Column {
        type Value = Option<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a column's name in quotes or its position")
        }

        fn visit_i64<E>(self, position: i64) -> Result<Option<String>, E> {
            Ok(Some(position.to_string()))
        }

        fn visit_str<E>(self, name: &str) -> Result<Option<String>, E> {
            Ok(Some(name.into()))
        }
    }
    deserializer.deserialize_any(Column)
}
