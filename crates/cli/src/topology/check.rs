//! `gradvine topology check`: are these files sound?

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use gradvine::{config::ConfigError, mixing::Topology};
use serde_json::{Value, json};

use gradvine_terminal::{print, print_json};

use super::Figures;

/// Prints a line for each valid file on standard output, and each problem on standard error.
pub(super) fn run(files: &[PathBuf], as_json: bool) -> anyhow::Result<()> {
    let results: Vec<Result<Figures, ConfigError>> = files
        .iter()
        .map(|file| Topology::load(file).map(|topology| Figures::of(&topology)))
        .collect();
    if as_json {
        print_json(
            &files
                .iter()
                .zip(&results)
                .map(|(file, result)| object(file, result))
                .collect::<Vec<_>>(),
        )?;
    } else {
        let sound = files
            .iter()
            .zip(&results)
            .filter_map(|(file, result)| Some((file, result.as_ref().ok()?)));
        print(
            &sound
                .map(|(file, figures)| {
                    format!("{}: fine: {}\n", file.display(), figures.in_short())
                })
                .collect::<String>(),
        )?;
    }
    let mut errors: Vec<ConfigError> = results.into_iter().filter_map(Result::err).collect();
    // The caller reports one error: the last of them.
    let Some(last) = errors.pop() else { return Ok(()) };
    for error in errors {
        writeln!(io::stderr().lock(), "error: {error}")?;
    }
    Err(last.into())
}

fn object(file: &Path, result: &Result<Figures, ConfigError>) -> Value {
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
