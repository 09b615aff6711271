//! `gradvine topology list`: families, weights, schedules and files.

use std::path::{Path, PathBuf};

use gradvine::mixing::{FileFormat, Topology, Weights, family, schedule};
use serde_json::{Value, json};

use gradvine_terminal::{print, print_json};

use super::Figures;

/// The folder of the topology files, relative to the project.
const FOLDER: &str = "topologies";

/// Prints families, weights and files.
pub(super) fn run(as_json: bool) -> anyhow::Result<()> {
    let files = files(Path::new(FOLDER));
    if as_json {
        let families: Vec<Value> = (family::REGISTRY.iter())
            .map(|f| {
                json!({
                    "name": f.name(),
                    "arguments": f.keys(),
                    "optional": f.optional(),
                    "example": family::example(*f),
                    "about": f.about(),
                })
            })
            .collect();
        let weights: Vec<Value> =
            Weights::ALL.iter().map(|w| json!({ "name": w, "about": w.about() })).collect();
        let files: Vec<Value> = files
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
            .map(|s| json!({ "name": s.name(), "about": s.about(), "paper": s.paper() }))
            .collect();
        let all = json!({
            "families": families,
            "weights": weights,
            "schedules": schedules,
            "files": files,
        });
        return Ok(print_json(&all)?);
    }
    Ok(print(&text(&files))?)
}

fn text(files: &[File]) -> String {
    let mut text = String::from(
        "Families, for `topology show`, `topology make` and --topology; in files as family \
         = \"...\":\n\n",
    );
    for &f in &family::REGISTRY {
        let keys = f.keys();
        let optional = keys.len() - f.optional();
        let keys: Vec<String> = keys
            .iter()
            .enumerate()
            .map(|(i, key)| if i < optional { (*key).into() } else { format!("[{key}]") })
            .collect();
        text += &format!("  {:<22} {:<24} {}\n", family::example(f), keys.join(", "), f.about());
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
    text += "\nSchedules, for --schedule; in an experiment as [topology] schedule = \"...\":\n\n";
    for &s in &schedule::REGISTRY {
        text += &format!("  {:<22} {}\n", s.example(), s.about());
    }
    if files.is_empty() {
        return text + &format!("\nThere is no folder {FOLDER} here with topology files.\n");
    }
    text += &format!("\nFiles in {FOLDER}:\n\n");
    for file in files {
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
