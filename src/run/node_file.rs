//! The file of a node: `node.toml`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    config::{self, ConfigError},
    data,
};

/// How a node encrypts its TCP connections; QUIC has its own TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Security {
    /// TLS 1.3 with AES if both processors have instructions for it, else Noise.
    #[default]
    Auto,
    /// Noise always.
    Noise,
}

impl Security {
    fn is_default(&self) -> bool {
        *self == Security::default()
    }
}

/// `[status]`: what a node tells about the run, and to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StatusFile {
    /// Where this node serves a page about the run, and its figures for Prometheus at `/metrics`.
    ///
    /// Accepts: an IP address and a port, such as `127.0.0.1:9470`; port 0 takes a free one. An
    /// address that other machines can reach needs `status.token`. Default: it serves none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// A file with the secret token that a client of the page must send.
    ///
    /// Accepts: the path of a file of 16 to 200 letters, digits, `-` and `_`, on one line. Default:
    /// no token is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<PathBuf>,
    /// Whether all nodes of the run are told this node's loss, figures, links and warnings. They
    /// are always told its round, and for whom it waits.
    ///
    /// Accepts: `true` or `false`.
    pub share: bool,
}

impl Default for StatusFile {
    fn default() -> StatusFile {
        StatusFile { listen: None, token: None, share: true }
    }
}

impl StatusFile {
    fn is_default(&self) -> bool {
        *self == StatusFile::default()
    }
}

/// `node.toml`: where the files of this node are. Paths are relative to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// The node's key file, made by `gradvine identity new`.
    ///
    /// Accepts: the path of a key file that only its owner can read (mode 600).
    pub key: PathBuf,
    /// Addresses to listen on; port 0 takes a free one.
    ///
    /// Accepts: a list of multiaddresses of TCP or QUIC, such as `/ip4/0.0.0.0/tcp/4001` or
    /// `/ip4/0.0.0.0/udp/4001/quic-v1`; it may be empty where this node dials all its neighbours.
    pub listen: Vec<String>,
    /// The topology file, the same on every node. It names each node by its PeerId.
    ///
    /// Accepts: the path of a `.toml`, `.graphml`, `.dot`, `.gv` or `.csv` file.
    pub topology: PathBuf,
    /// The experiment file, the same on every node. It must have `model.inputs` and
    /// `model.outputs`.
    ///
    /// Accepts: the path of a file.
    pub experiment: PathBuf,
    /// This node's own rows. Required, except where a program brings an objective of its own.
    ///
    /// Accepts: the path of a CSV, NPY, NPZ or IDX file (also .gz) or of a Parquet or Arrow
    /// file, or of a folder of CSV, Parquet or Arrow files with the same columns, or a dataset that
    /// is shipped: `digits` or `breast-cancer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Rows to test on.
    ///
    /// Accepts: as `data`. Default: the share `data.test_share` of the own rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// This node's own initial values, if the experiment says `model.init = "from:NODE"` and this
    /// is the node.
    ///
    /// Accepts: as `model.init`. Default: as the model prefers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<String>,
    /// How TCP connections are encrypted. The two ends of a link agree on the faster kind that
    /// both have.
    ///
    /// Accepts: `auto` (TLS 1.3 with AES if both processors have instructions for it, else Noise)
    /// or `noise`. Default: `auto`.
    #[serde(default, skip_serializing_if = "Security::is_default")]
    pub security: Security,
    /// The proxy of this site through which connections leave it. Only those of TCP do then; the
    /// proxy looks up the names of other sites.
    ///
    /// Accepts: `http://HOST:PORT` (HTTP CONNECT) or `socks5://HOST:PORT`, with `USER:PASSWORD@`
    /// before the host if the proxy asks for them. Default: no proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Whether this node asks its router to forward the ports of `listen` to it while it runs
    /// (UPnP). It does not unless told to, because this opens the network that it is in.
    ///
    /// Accepts: `true` or `false`; `true` needs an IPv4 address in `listen` that is not 127.0.0.1.
    /// Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upnp: bool,
    /// A command that is started when the run begins to wait, loses or regains a member, fails or
    /// ends. It gets a record on its standard input, one line of JSON, which `docs/operations.md`
    /// describes. No shell reads its words.
    ///
    /// Accepts: a list of the program, as a path or as a name on PATH, and its arguments. Default:
    /// no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_event: Option<Vec<String>>,
    /// Seconds after which this command is killed, with what it has started.
    ///
    /// Accepts: a number above 0, at most 3600. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_event_s: Option<f64>,
    /// What this site does not let the others change in a run of several sites (`gradvine start`).
    /// It declines such a proposal by itself. If the others adopt it all the same, it leaves before
    /// the change takes effect.
    ///
    /// Accepts: a list of sections and keys of the experiment, such as `data` or `optimizer.step`,
    /// and of `topology` and `sites`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbid: Vec<String>,
    /// The run directory to make.
    ///
    /// Accepts: the path of a folder that holds no run yet.
    pub out: PathBuf,
    /// What this node tells about the run, and to whom.
    ///
    /// Accepts: a table `[status]`. Default: that of each of its keys.
    #[serde(default, skip_serializing_if = "StatusFile::is_default")]
    pub status: StatusFile,
}

impl NodeFile {
    /// Reads a file and resolves its paths.
    ///
    /// # Errors
    /// If it cannot be read, or a key is unknown, missing or of the wrong type.
    pub fn load(path: &Path) -> Result<NodeFile, ConfigError> {
        let mut file: NodeFile = config::read_file("node", path).map_err(|mut error| {
            if !path.exists() {
                error.problem += "; `gradvine init` or `gradvine join` makes a node file";
            }
            error
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for path in [&mut file.key, &mut file.topology, &mut file.experiment, &mut file.out] {
            *path = folder.join(&*path);
        }
        if let Some(token) = &mut file.status.token {
            *token = folder.join(&*token);
        }
        for source in file.data.iter_mut().chain(&mut file.test) {
            *source = data::beside(folder, source);
        }
        // Without a slash it is a name on PATH.
        let program = file.on_event.iter_mut().flatten().next();
        if let Some(program) = program.filter(|program| program.contains('/')) {
            *program = folder.join(&*program).display().to_string();
        }
        if let Some(init) = &mut file.init {
            let beside = folder.join(&*init);
            if beside.is_file() {
                *init = beside.display().to_string();
            }
        }
        Ok(file)
    }
}
