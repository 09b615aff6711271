//! The evaluations of a run, as a run directory has them.

use std::{collections::BTreeSet, fs, path::Path};

use gradvine::{
    config::ConfigError,
    run::{Metric, Run},
};
use time::{PrimitiveDateTime, macros::format_description};

/// The evaluations of a run.
pub(crate) struct Curves {
    /// The names of all nodes of the topology, by number.
    names: Vec<String>,
    /// One evaluation of one node each, in the order of the file.
    pub(crate) metrics: Vec<Metric>,
    /// The start of the run in seconds since 1970, if the name of its folder has it; else 0.
    pub(crate) start_s: f64,
}

impl Curves {
    /// Reads a run directory, also of a run that failed or has not ended.
    ///
    /// # Errors
    /// As [`Run::load`]; if there is no evaluation.
    pub(crate) fn read(path: &Path) -> Result<Curves, ConfigError> {
        let mut metrics = Vec::new();
        let run = Run::load_with(path, true, &mut |metric| metrics.push(metric.clone()))?;
        if metrics.is_empty() {
            let nodes = path.join("nodes");
            let elsewhere = match nodes.is_dir() {
                true => {
                    format!("; until the run ends, those of its nodes are in {}", nodes.display())
                }
                false => String::new(),
            };
            let problem = format!(
                "has no evaluation yet: a run writes the first one after run.evaluate_every = {} \
                 rounds{elsewhere}",
                run.experiment.run.evaluate_every
            );
            return Err(ConfigError::at("metrics.jsonl", problem).within(path.display()));
        }
        let names = (0..run.topology.nodes()).map(|node| run.topology.node(node.into()));
        let names = names.map(|node| node.name.clone()).collect();
        Ok(Curves { names, metrics, start_s: start_s(path) })
    }

    /// The nodes that have evaluations.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u32> {
        self.metrics.iter().map(|metric| metric.node).collect::<BTreeSet<u32>>().into_iter()
    }

    /// The name of a node that has evaluations.
    pub(crate) fn name(&self, node: u32) -> &str {
        &self.names[node as usize]
    }

    /// The names of all measures of the program, in ascending order.
    pub(crate) fn measures(&self) -> BTreeSet<&str> {
        self.metrics.iter().flat_map(|metric| metric.measures.keys().map(String::as_str)).collect()
    }
}

/// The start of a run whose folder has the name that gradvine gives it, such as
/// `20260102-030405-choco-ring-8`, which is in UTC. 0 for another name.
fn start_s(path: &Path) -> f64 {
    let stamp = || {
        let full = fs::canonicalize(path).ok()?;
        let (stamp, _) = full.file_name()?.to_str()?.split_at_checked("20260102-030405".len())?;
        let form = format_description!("[year][month][day]-[hour][minute][second]");
        PrimitiveDateTime::parse(stamp, form).ok()
    };
    stamp().map_or(0.0, |start| start.assume_utc().unix_timestamp() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_folder_has_the_start() {
        let folder = tempfile::tempdir().unwrap();
        for (name, expected) in [
            ("20260102-030405-choco-ring-8", 1_767_323_045.0),
            ("20260102-030405", 1_767_323_045.0),
            ("20261302-030405-choco-ring-8", 0.0),
            ("first", 0.0),
            ("m\u{fc}nchen-20260102-030405", 0.0),
        ] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            assert_eq!(start_s(&path), expected, "{name}");
        }
        assert_eq!(start_s(Path::new("nowhere")), 0.0);
    }
}
