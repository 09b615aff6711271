//! What topologies there are: families, weights, schedules, and the files of a folder.

use std::path::{Path, PathBuf};

use gradvine::mixing::{FileFormat, Topology, Weights, family, schedule};
use serde_json::{Value, json};

use super::Figures;

/// The families, weights and schedules of the registries, and the topology files of a folder.
pub struct Listing {
    folder: PathBuf,
    files: Vec<File>,
}

impl Listing {
    /// Reads the topology files of a folder, which may not exist.
    pub fn of(folder: &Path) -> Listing {
        Listing { folder: folder.to_path_buf(), files: files(folder) }
    }

    /// An object with the families, schedules and presets.
    pub fn to_json(&self) -> Value {
        let families: Vec<Value> = (family::REGISTRY.iter())
            .map(|f| {
                json!({
                    "name": f.name,
                    "arguments": f.keys,
                    "optional": f.optional,
                    "example": family::example(f),
                    "about": f.about,
                })
            })
            .collect();
        let weights: Vec<Value> =
            Weights::ALL.iter().map(|w| json!({ "name": w, "about": w.about() })).collect();
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|file| match &file.topology {
                Ok(topology) => json!({
                    "file": file.path.display().to_string(),
                    "about": file.about,
                    "name": topology.name(),
                    "nodes": topology.nodes(),
                    "links": topology.links(),
                    "gap": topology.spectrum().gap,
                }),
                Err(error) => json!({
                    "file": file.path.display().to_string(),
                    "about": file.about,
                    "error": error,
                }),
            })
            .collect();
        let schedules: Vec<Value> = (schedule::REGISTRY.iter())
            .map(|s| json!({ "name": s.name, "about": s.about, "paper": s.paper }))
            .collect();
        json!({
            "families": families,
            "weights": weights,
            "schedules": schedules,
            "files": files,
        })
    }

    /// Lists, one line for each family, kind of weights and schedule, a few for each file.
    pub fn text(&self) -> String {
        let folder = self.folder.display();
        let mut text = String::from(
            "Families, for `topology show`, `topology make` and --topology; in files as family \
             = \"...\":\n\n",
        );
        for f in &family::REGISTRY {
            let keys = f.keys;
            let optional = keys.len() - f.optional;
            let keys: Vec<String> = keys
                .iter()
                .enumerate()
                .map(|(i, key)| if i < optional { (*key).into() } else { format!("[{key}]") })
                .collect();
            text += &format!("  {:<22} {:<24} {}\n", family::example(f), keys.join(", "), f.about);
        }
        text += &format!(
            "  {:<22} {:<24} {}\n",
            family::CUSTOM,
            "-",
            "in files only: a graph that lists its links"
        );
        text += "\nWeights of links, for --weights; in files as weights = \"...\":\n\n";
        for weights in Weights::ALL {
            text += &format!("  {:<22} {}\n", weights.name(), weights.about());
        }
        text +=
            "\nSchedules, for --schedule; in an experiment as [topology] schedule = \"...\":\n\n";
        for s in &schedule::REGISTRY {
            text += &format!("  {:<22} {}\n", s.example(), s.about);
        }
        if self.files.is_empty() {
            return text + &format!("\nThere is no folder {folder} here with topology files.\n");
        }
        text += &format!("\nFiles in {folder}:\n\n");
        for file in &self.files {
            text += &format!("  {}\n", file.path.display());
            text += &match &file.topology {
                Ok(topology) => format!("      {}\n", Figures::of(topology).in_short()),
                Err(error) => format!("      wrong: {error}\n"),
            };
            if let Some(about) = &file.about {
                text += &format!("      {about}\n");
            }
        }
        text
    }
}

struct File {
    path: PathBuf,
    /// The comment at the start of the file.
    about: Option<String>,
    topology: Result<Topology, String>,
}

fn files(folder: &Path) -> Vec<File> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| FileFormat::of(path).is_some() && path.is_file());
    paths.sort();
    let read = |path: PathBuf| {
        let topology = Topology::load(&path).map_err(|error| error.to_string());
        let comment =
            |text: String| Some(text.lines().next()?.strip_prefix('#')?.trim().to_string());
        // What was loaded is within the limits.
        let about = topology
            .is_ok()
            .then(|| std::fs::read_to_string(&path).ok().and_then(comment))
            .flatten();
        File { path, about, topology }
    };
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_comment_and_wrong_ones_their_error() {
        let folder = tempfile::tempdir().unwrap();
        let net = "# Three in a row.\nfamily = \"path\"\nnodes = 3\n";
        std::fs::write(folder.path().join("net.toml"), net).unwrap();
        std::fs::write(folder.path().join("wrong.toml"), "family = \"pth\"\n").unwrap();
        std::fs::write(folder.path().join("notes.txt"), "no topology").unwrap();
        let listing = Listing::of(folder.path());
        let text = listing.text();
        for line in ["      Three in a row.\n", "      wrong: ", "ring:8", "metropolis", "base-2"] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let value = listing.to_json();
        assert_eq!(value["files"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&value["files"][0]["nodes"], &value["files"][0]["links"]),
            (&3.into(), &2.into())
        );
        assert!(value["files"][1]["error"].is_string());
    }

    #[test]
    fn a_folder_that_does_not_exist_has_no_files() {
        let text = Listing::of(Path::new("no/such/folder")).text();
        assert!(text.ends_with("\nThere is no folder no/such/folder here with topology files.\n"));
    }
}
