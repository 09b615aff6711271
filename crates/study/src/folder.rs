//! Study files of a folder: loading them, finding their data, writing their pages.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use gradvine::{
    config::ConfigError,
    data::{check_unread, write_atomically},
};

use crate::{Check, Outcome, Study, Verdict, chart, page};

/// The list of all studies, in the folder of pages.
pub(crate) const LIST: &str = "results.md";

/// Loads study files, and those of folders in the order of their names. Every name in `only` must
/// be that of a study.
///
/// # Errors
/// If a path or name does not exist, a file is wrong, or two files have one name.
pub fn load(paths: &[PathBuf], only: &[String]) -> Result<Vec<Study>, ConfigError> {
    let mut files = Vec::new();
    for path in paths {
        let wrong = |problem: String| ConfigError::new("STUDIES", path.display(), problem);
        if !path.exists() {
            return Err(wrong(
                "does not exist: expected study files (.toml) or folders of them".into(),
            ));
        }
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries =
            fs::read_dir(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let mut inside: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inside.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        inside.sort();
        if inside.is_empty() {
            return Err(wrong("holds no study file (.toml)".into()));
        }
        files.extend(inside);
    }
    let name = |path: &Path| {
        path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let names: Vec<String> = files.iter().map(|path| name(path)).collect();
    if let Some(missing) = only.iter().find(|only| !names.contains(only)) {
        let problem = format!("there is no such study; there are {}", names.join(", "));
        return Err(ConfigError::new("--only", missing, problem));
    }
    if let Some(twice) =
        names.iter().enumerate().find_map(|(at, name)| names[..at].contains(name).then_some(name))
    {
        return Err(ConfigError::new(
            "STUDIES",
            twice,
            "two study files have this name, and pages are named by it",
        ));
    }
    files.iter().map(|path| Study::load(path)).collect()
}

/// The page of a study below the folder of pages, and its pictures in order.
fn pages(study: &Study) -> (String, Vec<String>) {
    let name = &study.name;
    let picture = |number| format!("img/results/{name}-{number}.svg");
    (format!("results/{name}.md"), (1..=study.picture.len()).map(picture).collect())
}

/// The file of a row as an experiment; `number` counts from 1.
fn row_file(study: &Study, number: usize, row: &str) -> String {
    let words = row.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    format!("{}-{number:02}-{name}.toml", study.name)
}

/// Refuses folders in which a study would write over a file that it reads.
///
/// # Errors
/// If it would; `place` is `--out` or `--experiments`.
pub fn check_outputs(
    study: &Study,
    out: Option<&Path>,
    experiments: Option<&Path>,
) -> Result<(), ConfigError> {
    study.rows.iter().for_each(|(case, _)| case.note_files());
    let (page, pictures) = pages(study);
    if let Some(out) = out {
        let files = pictures.iter().chain([&page]).map(|file| out.join(file));
        files.chain([out.join(LIST)]).try_for_each(|file| check_unread("--out", &file))?;
    }
    if let Some(folder) = experiments {
        let rows = (1..).zip(&study.rows);
        let files = rows.map(|(number, (case, _))| row_file(study, number, &case.name));
        files
            .map(|file| folder.join(file))
            .try_for_each(|file| check_unread("--experiments", &file))?;
    }
    Ok(())
}

/// Writes a study's page and pictures. `again`: the command that makes them; `quick`: whether the
/// study was shortened.
///
/// # Errors
/// If a file cannot be written.
pub fn write(
    out: &Path,
    study: &Study,
    outcomes: &[Outcome],
    checks: &[Check],
    again: &str,
    quick: bool,
) -> Result<(), ConfigError> {
    let wrong = |error: std::io::Error| {
        ConfigError::new("--out", out.display(), format!("cannot be written: {error}"))
    };
    fs::create_dir_all(out.join("results")).map_err(wrong)?;
    fs::create_dir_all(out.join("img/results")).map_err(wrong)?;
    let mut pictures = Vec::new();
    let (page_file, files) = pages(study);
    for (picture, file) in study.picture.iter().zip(files) {
        let chosen: Vec<(&str, &Outcome)> = (outcomes.iter())
            .map(|outcome| (outcome.case.name.as_str(), outcome))
            .filter(|(name, _)| {
                picture.rows.is_empty() || picture.rows.iter().any(|row| row == name)
            })
            .collect();
        let drawn = chart(&picture.title, &picture.words, picture.curve(), &chosen).svg();
        write_atomically(&out.join(&file), &[drawn.as_bytes()])?;
        pictures.push(format!("../{file}"));
    }
    let text = page(study, outcomes, checks, &pictures, again, quick);
    write_atomically(&out.join(page_file), &[text.as_bytes()])?;
    Ok(())
}

/// The folders of data sets by name, each from a text `NAME=DIR`.
///
/// # Errors
/// If a text has another form; `place` is `--data`.
pub fn named(texts: &[String]) -> Result<BTreeMap<String, PathBuf>, ConfigError> {
    let pair = |text: &String| {
        let (name, folder) = text.split_once('=')?;
        let full = !name.is_empty() && !folder.is_empty();
        full.then(|| (name.to_string(), PathBuf::from(folder)))
    };
    let wrong = |text: &String| {
        ConfigError::new("--data", format!("\"{text}\""), "expected NAME=DIR: mnist=my/mnist")
    };
    texts.iter().map(|text| pair(text).ok_or_else(|| wrong(text))).collect()
}

/// Sets the folder of a study's data; returns the reason if the study cannot run.
pub fn fill(study: &mut Study, folders: &BTreeMap<String, PathBuf>) -> Option<String> {
    let needs = study.needs.clone()?;
    let named =
        format!("--data {0}=DIR or {1} in the environment", needs.name, variable(&needs.name));
    let Some(folder) = folders
        .get(&needs.name)
        .cloned()
        .or_else(|| env::var_os(variable(&needs.name)).map(Into::into))
    else {
        return Some(format!(
            "it needs {} in a folder: name it by {named}",
            needs.files.join(", ")
        ));
    };
    if let Some(file) = needs.files.iter().find(|file| !folder.join(file).is_file()) {
        return Some(format!(
            "{} does not exist: name its folder by {named}",
            folder.join(file).display()
        ));
    }
    // Relative to the working directory, not to the study.
    study.fill(&std::path::absolute(&folder).unwrap_or(folder));
    None
}

/// The environment variable that names the folder of a data set.
fn variable(name: &str) -> String {
    format!("GRADVINE_{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// Writes each row that can run as an experiment file, tuned, with the first seed.
///
/// # Errors
/// If a file cannot be written.
pub fn export(folder: &Path, study: &Study, outcomes: &[Outcome]) -> Result<(), ConfigError> {
    let wrong = |error: std::io::Error| {
        ConfigError::new("--experiments", folder.display(), format!("cannot be written: {error}"))
    };
    fs::create_dir_all(folder).map_err(wrong)?;
    for (number, outcome) in (1..).zip(outcomes) {
        let mut sets = outcome.tuned.as_ref().map_or_else(Vec::new, |tuned| tuned.chosen.clone());
        sets.push(format!("run.seed={}", study.seed));
        let Ok(experiment) = outcome.case.experiment(&sets) else { continue };
        let file = folder.join(row_file(study, number, &outcome.case.name));
        write_atomically(&file, &[experiment.moved().to_toml().as_bytes()])?;
    }
    Ok(())
}

/// A study's expectations as text, one a line.
pub fn listed(study: &Study, checks: &[Check]) -> String {
    let mut text = format!("{}: {}\n", study.name, study.title);
    for check in checks {
        let word = match check.verdict {
            Verdict::Agrees => "agrees        ",
            Verdict::Contradicted => "DOES NOT AGREE",
            Verdict::Undecided => "UNDECIDED     ",
            Verdict::NoEvidence => "NO EVIDENCE   ",
        };
        text += &format!(
            "  {word} {}: {}\n",
            check.words.split_whitespace().collect::<Vec<_>>().join(" "),
            check.figures
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_data_have_names() {
        let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let folders = named(&texts(&["mnist=my/mnist", "other=a=b"])).unwrap();
        assert_eq!(folders["mnist"], Path::new("my/mnist"));
        assert_eq!(folders["other"], Path::new("a=b"));
        for wrong in ["mnist", "=a", "mnist="] {
            let error = named(&texts(&[wrong])).unwrap_err().to_string();
            assert!(error.contains("expected NAME=DIR"), "{error}");
        }
    }
}
