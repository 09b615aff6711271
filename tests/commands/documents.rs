//! The commands that documents show. Each block of them is run here, or a mark above it says which
//! test runs them (`<!-- run by: FILE NAME -->`) or why none does (`<!-- not run: REASON -->`).

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::command::{ROOT, folder};

/// The documents, by their paths in the repository.
const DOCUMENTS: [&str; 5] = ["README.md", "CONTRIBUTING.md", "docs", "deploy/README.md", "data"];

/// What runs the commands of a block.
#[derive(Debug, PartialEq)]
enum Runs {
    This,
    /// A test, by its file and its name; or a script.
    Other(String),
    Nothing(String),
}

/// A block of code that shows commands.
#[derive(Debug)]
struct Block {
    place: String,
    runs: Runs,
    /// Each command with the output that is shown below it.
    commands: Vec<(String, Vec<String>)>,
}

/// What follows the prompt, if the line begins with one: `$ ` or `berlin$ `.
fn after_prompt(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("$ ")?;
    before.chars().all(char::is_alphanumeric).then(|| rest.trim_start())
}

/// The blocks of a document that show commands.
fn blocks(path: &str, text: &str) -> Vec<Block> {
    let (mut all, mut mark, mut open) = (Vec::new(), Runs::This, None);
    for (number, line) in (1..).zip(text.lines()) {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let commands = Vec::new();
                let place = format!("{path}:{number}");
                let runs = std::mem::replace(&mut mark, Runs::This);
                open = Some((language.to_string(), Block { place, runs, commands }));
            }
            (Some(_), Some(_)) => {
                let (_, block) = open.take().unwrap();
                all.extend((!block.commands.is_empty()).then_some(block));
            }
            (None, Some((language, block))) => {
                let is_script = ["sh", "bash"].contains(&language.as_str());
                let command = after_prompt(line).or(is_script.then_some(line));
                let continued = block
                    .commands
                    .last_mut()
                    .filter(|(command, shown)| shown.is_empty() && command.ends_with('\\'));
                match (continued, command) {
                    (Some((whole, _)), _) => {
                        whole.pop();
                        whole.push_str(line.trim_start_matches("> ").trim_start());
                    }
                    (None, Some(command)) if !command.is_empty() => {
                        block.commands.push((command.to_string(), Vec::new()));
                    }
                    _ => block.commands.last_mut().into_iter().for_each(|(_, shown)| {
                        shown.push(line.trim_end().to_string());
                    }),
                }
            }
            (None, None) if line.is_empty() => {}
            (None, None) => {
                let of = |start: &str| line.strip_prefix(start)?.strip_suffix(" -->");
                mark = match (of("<!-- run by: "), of("<!-- not run: ")) {
                    (Some(by), _) => Runs::Other(by.into()),
                    (_, Some(why)) => Runs::Nothing(why.into()),
                    _ => Runs::This,
                };
            }
        }
    }
    assert!(open.is_none(), "{path}: the last block has no end");
    all
}

/// All blocks that show commands, by document.
fn all() -> BTreeMap<PathBuf, Vec<Block>> {
    let root = Path::new(ROOT);
    let mut pages = Vec::new();
    for one in DOCUMENTS {
        match root.join(one).is_dir() {
            false => pages.push(PathBuf::from(one)),
            true => pages.extend(fs::read_dir(root.join(one)).unwrap().filter_map(|entry| {
                let name = PathBuf::from(entry.unwrap().file_name());
                name.extension().is_some_and(|end| end == "md").then(|| Path::new(one).join(name))
            })),
        }
    }
    let read = |page: PathBuf| {
        let text = fs::read_to_string(root.join(&page)).unwrap();
        let blocks = blocks(&page.display().to_string(), &text);
        (page, blocks)
    };
    pages.into_iter().map(read).filter(|(_, blocks)| !blocks.is_empty()).collect()
}

#[test]
fn a_mark_names_a_test_or_a_reason() {
    let (mut here, mut elsewhere, mut nowhere) = (0, 0, 0);
    for block in all().values().flatten() {
        match &block.runs {
            Runs::This => here += block.commands.len(),
            Runs::Nothing(why) => {
                assert!(why.split(' ').count() > 2, "{}: {why}", block.place);
                nowhere += block.commands.len();
            }
            Runs::Other(by) => {
                let (file, name) = by.split_once(' ').unwrap_or((by, ""));
                let text = fs::read_to_string(Path::new(ROOT).join(file));
                let text = text.unwrap_or_else(|error| panic!("{}: {file}: {error}", block.place));
                let has = name.is_empty() || text.contains(&format!("fn {name}("));
                assert!(has, "{}: {file} has no test {name}", block.place);
                elsewhere += block.commands.len();
            }
        }
    }
    println!("{here} commands run here, {elsewhere} elsewhere, {nowhere} nowhere");
    assert!(here > 20 && elsewhere > 20, "{here} {elsewhere} {nowhere}");
}

/// A folder like that of a reader: the repository's topologies and experiments, and own rows.
fn workplace() -> tempfile::TempDir {
    let place = folder();
    let root = Path::new(ROOT).canonicalize().unwrap();
    for one in ["topologies", "experiments", "data"] {
        symlink(root.join(one), place.path().join(one)).unwrap();
    }
    fs::copy(root.join("tests/commands/patients.csv"), place.path().join("patients.csv")).unwrap();
    // Two pictures of digits, each with the name of a patient.
    let pixels: Vec<String> = (0..64).map(|pixel| format!("pixel-{pixel}")).collect();
    let row = |patient: u32, of: u32| {
        let values: Vec<String> = (0..64).map(|pixel| (pixel * of % 17).to_string()).collect();
        format!("{patient},{}\n", values.join(","))
    };
    let rows = format!("patient,{}\n{}{}", pixels.join(","), row(7, 3), row(9, 5));
    fs::write(place.path().join("my.csv"), rows).unwrap();
    place
}

#[test]
#[ignore = "slow"]
fn what_documents_show_is_what_commands_do() {
    let program = Path::new(env!("CARGO_BIN_EXE_gradvine")).parent().unwrap();
    let mut paths = vec![program.to_path_buf()];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let paths = env::join_paths(paths).unwrap();
    for (page, blocks) in all() {
        let place = workplace();
        for block in blocks.iter().filter(|block| block.runs == Runs::This) {
            for (command, shown) in &block.commands {
                let output = Command::new("bash")
                    .args(["-euc", command])
                    .current_dir(place.path())
                    .env("PATH", &paths)
                    .env("HOME", place.path())
                    .output()
                    .unwrap();
                let (out, errors) = (&output.stdout, &output.stderr);
                let text = String::from_utf8_lossy(out) + String::from_utf8_lossy(errors);
                let told = format!("{} of {}: {command}\n{text}", block.place, page.display());
                let is_error = shown.iter().any(|line| line.starts_with("error: "));
                assert_eq!(output.status.success(), !is_error, "{told}");
                let mut lines = text.lines().map(str::trim_end);
                for line in shown.iter().filter(|line| !line.is_empty()) {
                    let found = lines.any(|one| one == line);
                    assert!(found, "{told}\nit does not print, or not there: {line}");
                }
            }
        }
    }
}
