//! One topology in full, and files that were checked.

use std::path::{Path, PathBuf};

use gradvine::{
    config::ConfigError,
    mixing::{LinkInfo, Topology},
    units::NodeId,
};
use serde_json::{Value, json};

use super::{Figures, draw};

/// The maximum number of links that are listed one by one.
const MAX_LISTED: usize = 40;

/// The figures of a topology, its links unless they are all alike or many, and a drawing.
pub fn sheet(topology: &Topology, figures: &Figures) -> String {
    format!("{figures}{}\n{}", links(topology), draw(topology))
}

/// The links of a small topology, unless they are all alike.
fn links(topology: &Topology) -> String {
    let known = |link: &LinkInfo| link.latency_ms.is_some() || link.bandwidth_mbps.is_some();
    let all: Vec<_> =
        topology.edges().filter_map(|(a, b)| Some((a, b, topology.link(a, b)?))).collect();
    let alike =
        topology.matrix().constant().is_some() && !all.iter().any(|(_, _, link)| known(link));
    if alike || all.len() > MAX_LISTED {
        return String::new();
    }
    let name = |id: NodeId| topology.node(id).name.as_str();
    let words: Vec<String> =
        all.iter().map(|&(a, b, _)| format!("{} - {}", name(a), name(b))).collect();
    let widest = words.iter().map(|word| word.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "\n  {:<widest$}  {:>9}  {:>11}  {:>12}\n",
        "link", "weight", "one way", "bandwidth"
    );
    for (word, (_, _, link)) in words.iter().zip(&all) {
        let latency = link.latency_ms.map_or_else(|| "-".into(), |ms| format!("{ms} ms"));
        let bandwidth =
            link.bandwidth_mbps.map_or_else(|| "-".into(), |rate| format!("{rate} Mbit/s"));
        text +=
            &format!("  {word:<widest$}  {:>9.6}  {latency:>11}  {bandwidth:>12}\n", link.weight);
    }
    text
}

/// Topology files that were checked.
pub struct Checks(Vec<(PathBuf, Result<Figures, ConfigError>)>);

impl Checks {
    /// Reads the files. `check` finds further problems of a topology.
    pub fn of(files: &[PathBuf], check: &dyn Fn(&Topology) -> Result<(), ConfigError>) -> Checks {
        let figures = |file: &PathBuf| {
            let topology = Topology::load(file)?;
            check(&topology).map_err(|error| error.within(file.display()))?;
            Ok(Figures::of(&topology))
        };
        Checks(files.iter().map(|file| (file.clone(), figures(file))).collect())
    }

    /// The figures of each valid file, one a line.
    pub fn text(&self) -> String {
        let line = |(file, result): &(PathBuf, Result<Figures, ConfigError>)| {
            Some(format!("{}: fine: {}\n", file.display(), result.as_ref().ok()?.in_short()))
        };
        self.0.iter().filter_map(line).collect()
    }

    /// A JSON array: for each file its figures, or why it is wrong.
    pub fn to_json(&self) -> Value {
        self.0.iter().map(|(file, result)| checked(file, result)).collect()
    }

    /// What is wrong with the others.
    pub fn into_errors(self) -> Vec<ConfigError> {
        self.0.into_iter().filter_map(|(_, result)| result.err()).collect()
    }
}

/// The figures of a topology file, or why it is wrong, as a JSON object.
fn checked(file: &Path, result: &Result<Figures, ConfigError>) -> Value {
    match result {
        Ok(figures) => {
            let mut value = json!({ "file": file.display().to_string(), "ok": true });
            if let (Value::Object(all), Ok(Value::Object(figures))) =
                (&mut value, serde_json::to_value(figures))
            {
                all.extend(figures);
            }
            value
        }
        Err(error) => json!({
            "file": file.display().to_string(),
            "ok": false,
            "place": error.place,
            "value": error.value,
            "problem": error.problem,
            "error": error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_listed_unless_they_are_alike() {
        let sheet = |spec: &str| {
            let topology = Topology::parse(spec, 0).unwrap();
            sheet(&topology, &Figures::of(&topology))
        };
        assert!(!sheet("ring:8").contains("one way"));
        let topology = Topology::parse("ring:4", 0).unwrap();
        let pair = (NodeId::from(0), NodeId::from(1));
        let topology = topology.with_link(pair, 12.5, 100.0).unwrap();
        let listed = links(&topology);
        assert_eq!(listed.lines().count(), 6, "{listed}");
        assert!(listed.contains("12.5 ms    100 Mbit/s") && listed.contains("            -\n"));
    }

    #[test]
    fn a_wrong_file_has_its_place_and_problem() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["right.toml", "wrong.toml"].map(|name| folder.path().join(name));
        std::fs::write(&files[0], "family = \"ring\"\nnodes = 4\n").unwrap();
        std::fs::write(&files[1], "family = \"ring\"\nnodes = 0\n").unwrap();
        let checks = Checks::of(&files, &|_| Ok(()));
        let value = checks.to_json();
        assert_eq!((&value[0]["ok"], &value[0]["nodes"]), (&true.into(), &4.into()));
        assert_eq!(value[1]["ok"], false);
        let text = checks.text();
        assert!(text.lines().count() == 1 && text.contains("right.toml: fine: "), "{text}");
        let errors = checks.into_errors();
        assert_eq!(errors.len(), 1);
        assert_eq!(value[1]["place"], *errors[0].place);
    }
}
