//! The file of a relay.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{self, ConfigError};

/// `relay.toml`: a relay for nodes without a public address. Paths are relative to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayFile {
    /// The relay's key file, made by `gradvine identity new`.
    ///
    /// Accepts: the path of a key file that only its owner can read (mode 600).
    pub key: PathBuf,
    /// Addresses to listen on, which the nodes can reach.
    ///
    /// Accepts: a list of multiaddresses of TCP or QUIC, such as `/ip4/0.0.0.0/tcp/4100` or
    /// `/ip4/0.0.0.0/udp/4100/quic-v1`.
    pub listen: Vec<String>,
    /// Topology files: the relay serves only the nodes that they name.
    ///
    /// Accepts: a list of paths of `.toml`, `.graphml`, `.dot`, `.gv` or `.csv` files; these,
    /// `runs` or `peers` must name a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<PathBuf>,
    /// PeerIds of further nodes to serve.
    ///
    /// Accepts: a list of PeerIds, as `gradvine identity show KEY` prints them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Runs whose sites are served, and those that have a ticket. They are read again whenever they
    /// change.
    ///
    /// Accepts: a list of paths of `run.json` files, which `gradvine init` and `gradvine join` make
    /// in the folder of a site.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<PathBuf>,
    /// The most that a relayed link carries in each direction, in 10^6 bits per second.
    ///
    /// Accepts: a number from 0.001 to 10000000. Default: `100.0`.
    #[serde(default = "link_mbps")]
    pub link_mbps: f64,
    /// The most that all relayed links carry together, both directions added, in 10^6 bits per
    /// second.
    ///
    /// Accepts: a number from 0.001 to 10000000. Default: `1000.0`.
    #[serde(default = "total_mbps")]
    pub total_mbps: f64,
    /// The most relayed links at a time.
    ///
    /// Accepts: a whole number from 1 to 65536. Default: `256`.
    #[serde(default = "links")]
    pub links: usize,
}

fn link_mbps() -> f64 {
    100.0
}

fn total_mbps() -> f64 {
    1000.0
}

fn links() -> usize {
    256
}

impl RelayFile {
    /// Reads a file and resolves its paths.
    ///
    /// # Errors
    /// If it cannot be read, a key is unknown, missing or of the wrong type, or a value is out of
    /// its bounds.
    pub fn load(path: &Path) -> Result<RelayFile, ConfigError> {
        let mut file: RelayFile = config::read_file("relay", path)?;
        file.check().map_err(|error| error.within(path.display()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        file.key = folder.join(&file.key);
        let paths = file.topologies.iter_mut().chain(&mut file.runs);
        paths.for_each(|path| *path = folder.join(&*path));
        Ok(file)
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (key, rate) in [("link_mbps", self.link_mbps), ("total_mbps", self.total_mbps)] {
            if !(1e-3..=1e7).contains(&rate) {
                let place = format!("relay.{key}");
                let problem = "expected a number from 0.001 to 10000000 (10^6 bits per second)";
                return Err(ConfigError::new(place, rate, problem));
            }
        }
        if !(1..=65536).contains(&self.links) {
            let problem = "expected a whole number from 1 to 65536";
            return Err(ConfigError::new("relay.links", self.links, problem));
        }
        if self.listen.is_empty() {
            let problem = "expected at least one address, such as \"/ip4/0.0.0.0/tcp/4100\"";
            return Err(ConfigError::new("relay.listen", "[]", problem));
        }
        if self.topologies.is_empty() && self.runs.is_empty() && self.peers.is_empty() {
            let problem = "expected the nodes to serve: `topologies`, `runs`, `peers`, or several";
            return Err(ConfigError::at("relay", problem));
        }
        Ok(())
    }
}
