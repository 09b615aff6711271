//! The sections that belong to no registry: the run, its topology and its data.

use std::{fmt, net::Ipv4Addr, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::data::Schema;

/// `[run]`: length, evaluations, output, limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RunParams {
    /// Names the run; a fresh node that meets a later round of the same run is refused.
    ///
    /// Accepts: 1 to 64 letters, digits, `-`, `_` or `.`.
    pub id: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// How many rounds; a round is one communication.
    ///
    /// Accepts: a whole number from 1 to 9223372036854775807.
    pub rounds: u64,
    /// Rounds between evaluations.
    ///
    /// Accepts: a whole number from 1 to 9223372036854775807.
    pub evaluate_every: u64,
    /// Rounds between two means of all models during the run, for programs that evaluate them. A
    /// mean is exact; it travels over a spanning tree, 8 bytes a number up and 4 down.
    ///
    /// Accepts: a whole number from 1 to 9223372036854775807; not with asynchronous rules. Default:
    /// only the mean at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_every: Option<u64>,
    /// Where the run directory is made.
    ///
    /// Accepts: the path of a folder that holds no run yet. Default:
    /// `runs/<time>-<rule>-<topology>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Whether combinations that are expected to diverge may run.
    pub allow_unstable: bool,
    /// Seconds without any progress after which a node gives up; a node looks every 5 seconds.
    ///
    /// Accepts: a number from 0.1 to 2592000 (30 days).
    pub patience_s: f64,
    /// Seconds that one gradient or one evaluation of a node may take while others wait for it.
    ///
    /// Accepts: a number from 0.1 to 2592000 (30 days).
    pub work_s: f64,
    /// Seconds to wait until all nodes are linked. The default is an hour: people start the nodes
    /// of several sites by phone.
    ///
    /// Accepts: a number from 0.1 to 2592000 (30 days).
    pub connect_s: f64,
    /// When the nodes of a deployment begin: once all are linked, or once a quorum is linked and
    /// the others have not come in time.
    ///
    /// Accepts: `"all"`, or `{ quorum = 5, within_s = 300 }` with `absence.policy = "continue"`.
    pub start: StartParams,
    /// The least number of rows to train on that a node alone may have. Every other node sees sums
    /// over them: with fewer rows the node sends nothing, and does not start.
    ///
    /// Accepts: a whole number from 1 to 9223372036854775807. Default: 10 in `gradvine node`; a
    /// command that has the rows of all nodes asks for no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_rows: Option<u64>,
    /// What a run must have to end with exit code 0 instead of 3: nodes that took part in a share
    /// of its rounds.
    ///
    /// Accepts: `{ nodes = 4, share = 0.95 }`. Default: all nodes, in all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require: Option<RequireParams>,
    /// Ends the run early when the loss on rows that are kept for validation has not fallen for
    /// some evaluations. Each node keeps a share of its training rows; the loss is that of the
    /// nodes' own models on them, over all nodes. All nodes end after the same round, a few rounds
    /// after the last of these evaluations. With `keep = "best"` the result is the models of the
    /// evaluation with the lowest loss, for which each node keeps `patience` and a few more copies
    /// of its model; without it those of the last round.
    ///
    /// Accepts: `{ share = 0.1, every = 25, patience = 5 }`: a share above 0 and below 1, the
    /// rounds between two evaluations and their number, from 1; `keep` is `"last"` or `"best"`; not
    /// with asynchronous rules.
    /// Default: all rounds, all training rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_early: Option<StopParams>,
    /// The transport of `train` on one machine; in a deployment the addresses decide.
    pub transport: Transport,
    /// Whether links may carry frames through a relay where no direct connection can be had.
    /// Without it a relay only helps two nodes to connect directly.
    pub relayed: bool,
    /// TCP's congestion control on this node's links, where the system lets a program choose
    /// (Linux).
    ///
    /// Accepts: the name of a congestion control that the system has, 1 to 15 letters, digits, `_`
    /// or `-`; only with `transport = "tcp"`. Default: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

/// When a run begins.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum StartParams {
    /// `"all"`: once all nodes are linked.
    #[default]
    All,
    /// `{ quorum = 5, within_s = 300 }`.
    Quorum(QuorumParams),
}

impl Serialize for StartParams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            StartParams::All => serializer.serialize_str("all"),
            StartParams::Quorum(start) => start.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StartParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StartParams, D::Error> {
        struct Start;

        impl<'de> Visitor<'de> for Start {
            type Value = StartParams;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\" or { quorum = 5, within_s = 300 }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<StartParams, E> {
                match text {
                    "all" => Ok(StartParams::All),
                    text => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StartParams, A::Error> {
                QuorumParams::deserialize(MapAccessDeserializer::new(map)).map(StartParams::Quorum)
            }
        }

        deserializer.deserialize_any(Start)
    }
}

/// A run begins with this many nodes if the others are not there in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct QuorumParams {
    /// The number of nodes.
    pub quorum: u32,
    /// Seconds for which they wait for the others.
    pub within_s: f64,
}

/// The nodes that a run needs to end with exit code 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RequireParams {
    /// At least so many nodes.
    pub nodes: u32,
    /// In at least this share of the rounds.
    pub share: f64,
}

/// When a run ends early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StopParams {
    /// The share of each node's training rows that is kept for validation.
    pub share: f64,
    /// Rounds between two evaluations.
    pub every: u64,
    /// The number of evaluations without a lower loss after which the run ends.
    pub patience: u64,
    /// Which models are the result of a run that ends early.
    #[serde(default, skip_serializing_if = "Keep::is_last")]
    pub keep: Keep,
}

/// Which models are the result of a run that ends early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Those of the last round.
    #[default]
    Last,
    /// Those of the evaluation with the lowest loss.
    Best,
}

impl Keep {
    fn is_last(&self) -> bool {
        *self == Keep::Last
    }
}

impl StartParams {
    /// How long nodes wait before they begin without the others, if they do.
    pub fn within(&self) -> Option<Duration> {
        match self {
            StartParams::All => None,
            StartParams::Quorum(start) => Some(Duration::from_secs_f64(start.within_s)),
        }
    }

    /// The number of nodes, if not all are needed.
    pub fn quorum(&self) -> Option<u32> {
        match self {
            StartParams::All => None,
            StartParams::Quorum(start) => Some(start.quorum),
        }
    }
}

/// What a run does when nodes are absent for too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Policy {
    /// It ends, with exit code 4, and can continue when they are back.
    #[default]
    Wait,
    /// It continues without them, if enough nodes are left; they may return.
    Continue,
}

/// `[absence]`: links that break during a run, and nodes that do not return.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AbsenceParams {
    /// Seconds for which a node tries to get a lost link back; the run continues where it was.
    /// After that the policy decides. 0 is for ever.
    ///
    /// Accepts: 0, or a number from 0.1 to 2592000 (30 days).
    pub deadline_s: f64,
    /// Seconds between two signs of life on a quiet link. A link without a byte for three of them
    /// has broken.
    ///
    /// Accepts: a number from 0.1 to 600.
    pub heartbeat_s: f64,
    /// What happens after the deadline: the run ends with exit code 4 (`"wait"`), or the others
    /// continue without the missing nodes (`"continue"`).
    pub policy: Policy,
    /// The least number of nodes that continue.
    ///
    /// Accepts: a number above half of the nodes. Default: the least of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    /// Seconds for which nodes that are fewer wait for the others, with `policy = "continue"`;
    /// after that they end with exit code 4.
    ///
    /// Accepts: a number from 0.1 to 2592000 (30 days).
    pub wait_s: f64,
}

/// `[checkpoint]`: the state of a node on its disk, from which it continues after a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CheckpointParams {
    /// Seconds between two checkpoints. 0: none is written, and the run starts from the beginning
    /// when a node was started again.
    ///
    /// Accepts: 0, or a number from 0.1 to 2592000 (30 days).
    pub every_s: f64,
    /// Rounds between two checkpoints, instead of seconds.
    ///
    /// Accepts: a whole number from 1 to 9223372036854775807. Default: `every_s` counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_rounds: Option<u64>,
}

/// `[robust]`: what a node accepts from its neighbours.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RobustParams {
    /// The greatest Euclidean norm of a vector that a neighbour may send. A neighbour that sends a
    /// longer one has broken the protocol, as if its bytes were malformed.
    ///
    /// Accepts: a finite number above 0. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_norm: Option<f64>,
}

impl Default for CheckpointParams {
    fn default() -> CheckpointParams {
        CheckpointParams { every_s: 60.0, every_rounds: None }
    }
}

impl Default for AbsenceParams {
    fn default() -> AbsenceParams {
        AbsenceParams {
            deadline_s: 600.0,
            heartbeat_s: 5.0,
            policy: Policy::Wait,
            quorum: None,
            wait_s: 86_400.0,
        }
    }
}

impl AbsenceParams {
    /// The deadline; `None` for ever.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        (self.deadline_s > 0.0).then(|| Duration::from_secs_f64(self.deadline_s))
    }

    /// The least number of nodes that continue, of so many.
    pub(crate) fn quorum_of(&self, nodes: usize) -> usize {
        self.quorum.map_or(nodes / 2 + 1, |quorum| quorum as usize)
    }
}

impl Default for RunParams {
    fn default() -> RunParams {
        RunParams {
            id: "run".into(),
            seed: 1,
            rounds: 500,
            evaluate_every: 25,
            mean_every: None,
            out: None,
            allow_unstable: false,
            patience_s: 120.0,
            work_s: 3600.0,
            connect_s: 3600.0,
            start: StartParams::All,
            minimum_rows: None,
            require: None,
            stop_early: None,
            transport: Transport::Tcp,
            relayed: false,
            congestion: None,
        }
    }
}

/// How hosts on one machine connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP, TLS or Noise, Yamux.
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
#[non_exhaustive]
pub struct TopologyParams {
    /// A topology file, or a spec such as `ring:8`.
    ///
    /// Accepts: the path of a `.toml`, `.graphml`, `.dot`, `.gv` or `.csv` file, or a spec; not
    /// together with `family`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A family by name. Either this or `file` is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// How many nodes. Required with each family but `torus`.
    ///
    /// Accepts: a whole number from 1 to 1048576; for `hypercube` a power of two. The graph has at
    /// most 4194304 links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// A torus's rows. Required with `torus`.
    ///
    /// Accepts: a whole number from 1 to 1048576; `rows` times `columns` is at most 1048576.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// A torus's columns. Required with `torus`.
    ///
    /// Accepts: a whole number from 1 to 1048576; `rows` times `columns` is at most 1048576.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<u32>,
    /// A random regular graph's degree: the links of each node. Required with `random-regular`.
    ///
    /// Accepts: a whole number below `nodes`; even where `nodes` is odd; from 2 where there are
    /// more than 2 nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degree: Option<u32>,
    /// How link weights are chosen.
    ///
    /// Default: those of the file; `metropolis` for a family or a spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Who meets whom in which round. With `static` each node meets all its neighbours in every
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
    /// The rows to train and test on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// A source for each node instead of one that is divided: node i has the rows of the i-th, as
    /// if it were a site with this file. So a deployment is rehearsed on one machine, and ends with
    /// the same bits. `gradvine node` ignores the key. The nodes are in the order of the topology
    /// file; if they are numbered in another order, the list is refused. Nodes that have only
    /// numbers are named by their files.
    ///
    /// Accepts: a list of one path or dataset for each node, as `source`; not with `source`,
    /// `split`, `sizes` or `labels`. Default: `source` is divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<String>>,
    /// Synthetic: rows of all nodes together.
    ///
    /// Accepts: a whole number from 1 to 1073741824; `rows` times `features` is at most 1073741824.
    /// Default: 2048.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Synthetic: features of a row, d.
    ///
    /// Accepts: a whole number from 1 to 1073741824; `rows` times `features` is at most 1073741824.
    /// Default: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<u64>,
    /// Synthetic: the standard deviation of the targets' noise.
    ///
    /// Accepts: a number from 0 to 1000000. Default: 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// Synthetic: how far apart the nodes' optima are, in units of their length.
    ///
    /// Accepts: a number from 0 to 1000000; above 0 only with `split = "contiguous"` and
    /// `test_share = 0`. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heterogeneity: Option<f64>,
    /// How rows are divided among nodes.
    pub split: SplitKind,
    /// The concentration of a dirichlet split: with 0.1 the classes of the nodes differ much, with
    /// 100 hardly.
    ///
    /// Accepts: a number above 0; only with `split = "dirichlet"`, where it is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// The relative sizes of the nodes' parts of the rows: with `[1, 2, 4]` the last of three nodes
    /// has four times as many rows as the first.
    ///
    /// Accepts: a list of one number above 0 for each node; not with `split = "dirichlet"`.
    /// Default: parts of the same size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Vec<f64>>,
    /// The share of rows that leave for the test set first, stratified by label.
    ///
    /// Accepts: a number from 0 to below 1; at least one row must be left for training.
    pub test_share: f64,
    /// Whether features are scaled to mean 0 and deviation 1 by sums over all nodes.
    pub standardize: bool,
    /// Scaling that is given instead of being computed over all nodes.
    ///
    /// Accepts: a table with `mean` (finite numbers) and `deviation` (finite numbers above 0), each
    /// a list of one number per feature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<crate::data::Scale>,
    /// Scaling of the predicted numbers that is given instead of being computed over all nodes: a
    /// regression of `mlp` computes numbers of a common size, which are multiplied by `deviation`
    /// before `mean` is added. Losses, metrics and predictions have the units of the data.
    ///
    /// Accepts: a table with `mean` (finite numbers) and `deviation` (finite numbers above 0), each
    /// a list of one number per predicted one; only with `kind = "mlp"` and `task = "regression"`.
    /// Default: computed by sums over all nodes; mean 0 and deviation 1 change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_scale: Option<crate::data::Scale>,
    /// The target column of a CSV, Parquet, Arrow or NPY file, or the array of labels of an NPZ
    /// file.
    ///
    /// Accepts: a column's name, or its position from 0 (-1 is the last); for regression a text
    /// with several of them, separated by commas; an array's name. Default: the last column; of an
    /// NPZ file the array `y`, `labels` or `target` (the features are then the other one, or `x`,
    /// `X`, `features` or `data`).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "name_or_position")]
    pub target: Option<String>,
    /// The features of a CSV file, by the names in its first line (of a file without names by their
    /// positions, as `"0"`), in the order of the model's inputs. Files may have their columns in
    /// any order, and others, which are ignored. Without it all columns but the target are
    /// features, and the nodes compare their names.
    ///
    /// Accepts: a list of names; only with `target`. Default: the other columns, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// The features of a CSV file by name, in the order of the model's inputs, with what their
    /// cells hold: see `docs/data.md`. `gradvine data describe FILE` drafts it. Files may have
    /// their columns in any order, and others, which are ignored.
    ///
    /// Accepts: a list of tables with `name`; `kind`: `"number"`, `"category"` (with `values`, a
    /// list of texts, and `other`, `true` or `false`), `"boolean"`, `"date"` (with `origin`, a date
    /// as text) or `"ignore"`; and `missing`: `"refuse"`, `"mean"`, `"median"`, `"category"`,
    /// `"other"` or a number; only with `target`, not together with `columns`. Default: every
    /// column but the target is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
    /// The names of the classes, in the order of the model's outputs: the labels of a CSV file are
    /// these names. If none of them is a number, labels may also be their positions from 0.
    ///
    /// Accepts: a list of different names, as many as `model.outputs`; only with classes. Default:
    /// labels are whole numbers from 0; where all rows are in one file, they may be text, and the
    /// classes are then those of the file, sorted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    /// Whether the first line of a CSV file names the columns.
    ///
    /// Accepts: `true` or `false`; not with a dataset that is shipped. Default: `true` if the first
    /// line has text above numbers; a warning says so where the lines do not decide it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<bool>,
    /// The file of labels that belongs to an IDX or NPY file of features.
    ///
    /// Accepts: the path of an IDX or NPY file. Default: beside `NAME.npy` `NAME-labels.npy`,
    /// beside `NAME.idx` `NAME-labels.idx`, beside `images-idx3-ubyte` `labels-idx1-ubyte`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// How the nodes' losses are weighted in the mean. With `"rows"` the updates of a node with w
    /// times the mean number of rows count w times, also in its own model: choose a step that suits
    /// the largest node.
    ///
    /// Default: `"rows"` for `gradvine node`, and with `sources` or `sizes`, except with rules
    /// in which nodes count alike (`sign-sgd`, `clipped-gossip`, `trimmed-mean`: a node could claim
    /// any number of rows); `"nodes"` where one source is divided evenly, and for the objectives of
    /// a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weighting: Option<Weighting>,
}

impl Default for DataParams {
    fn default() -> DataParams {
        DataParams {
            source: "digits".into(),
            sources: None,
            rows: None,
            features: None,
            noise: None,
            heterogeneity: None,
            split: SplitKind::Iid,
            alpha: None,
            sizes: None,
            test_share: 0.2,
            standardize: false,
            scale: None,
            target_scale: None,
            target: None,
            columns: None,
            schema: None,
            classes: None,
            header: None,
            labels: None,
            weighting: None,
        }
    }
}

/// How rows are divided among nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
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
#[non_exhaustive]
pub enum Weighting {
    /// f is the mean of the f_i.
    #[default]
    Nodes,
    /// f_i is weighted by its share of the rows.
    Rows,
}

/// A column, `"label"` or `3`, as text.
fn name_or_position<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    struct Column;
    impl Visitor<'_> for Column {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
