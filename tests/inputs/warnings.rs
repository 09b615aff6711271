//! Each warning that a node can write is explained in `docs/operations.md`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Warnings whose text is made elsewhere in their file: words of it, as they are in the code.
const MADE: [(&str, &str, &[&str]); 3] = [
    (
        "run/shards/row_constants.rs",
        "{warning}",
        &[
            "the values of {} are around {}, at the other nodes around {}",
            "features have 24 binary digits",
        ],
    ),
    ("net/link/connection.rs", "{text}", &["two programs run with the key of node {name}"]),
    ("run/checkpoint/mod.rs", "{error}; an earlier one is used", &["an earlier one is used"]),
];

/// Warnings of the cluster whose text is made elsewhere in their file.
const MADE_IN_CLUSTER: [(&str, &[&str]); 3] = [
    ("cluster/members/choosing.rs", &[" nodes are present, at least ", "the run continues with "]),
    ("cluster/begin/rendezvous.rs", &["is linked, the run has not started: "]),
    (
        "cluster/rounds.rs",
        &[
            "waits for {links}",
            "; {} waits for {}",
            "; {} gives no sign of work",
            "node {name} holds the run up: it works all the time",
        ],
    ),
];

/// Warnings that are an error of a file, of a program, of the system or of the run, which explains
/// itself. The driver passes those of the cluster on.
const ERRORS: [(&str, &str); 3] = [
    ("net/driver/saver.rs", "{error}"),
    ("net/driver/perform.rs", "{text}"),
    ("node/builder.rs", "{line}"),
];

/// The string literal that begins first in `code`, without its line breaks.
fn literal(code: &str) -> String {
    let (mut text, mut chars) = (String::new(), code.chars().skip_while(|c| *c != '"').skip(1));
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => {
                let next = chars.next().filter(|c| *c != '\n');
                text.extend(next.or_else(|| chars.find(|c| !c.is_whitespace())));
            }
            c => text.push(c),
        }
    }
    text
}

/// The longest part of a format string without placeholders.
fn constant(format: &str) -> &str {
    let parts = format.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    parts.max_by_key(|part| part.len()).unwrap_or_default().trim()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn operations_explains_every_warning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/operations.md")).unwrap();
    // A placeholder in the page is a capital letter.
    let (mut files, mut found, mut missing) = (Vec::new(), 0, Vec::new());
    rust_files(&root.join("src"), &mut files);
    for path in files {
        let code = fs::read_to_string(&path).unwrap();
        let warnings = code.match_indices("tracing::warn!(");
        let warnings = warnings.chain(code.match_indices("tracing::error!("));
        for (place, _) in warnings.chain(code.match_indices("Effect::Warn(format!(")) {
            let format = literal(&code[place..]);
            found += 1;
            if ERRORS.iter().any(|(file, text)| path.ends_with(file) && *text == format) {
                continue;
            }
            let made = MADE.iter().find(|(file, text, _)| path.ends_with(file) && *text == format);
            let words = match made {
                Some((_, _, words)) => words.to_vec(),
                None => vec![&*format],
            };
            for words in words {
                let constant = constant(words);
                assert!(constant.len() > 4, "{}: {words}: what does it say?", path.display());
                assert!(made.is_none() || code.contains(words), "{}: {words}", path.display());
                if !page.contains(constant) {
                    missing.push(format!("{}: {constant}", path.display()));
                }
            }
        }
    }
    for (file, words) in MADE_IN_CLUSTER {
        let code = fs::read_to_string(root.join("src").join(file)).unwrap();
        for words in words {
            assert!(code.contains(words), "{file}: {words}");
            if !page.contains(constant(words)) {
                missing.push(format!("{file}: {words}"));
            }
        }
    }
    assert!(found > 20, "only {found} warnings were found");
    assert!(missing.is_empty(), "docs/operations.md lacks:\n{}", missing.join("\n"));
}

#[test]
fn literals_and_constants_are_read_as_they_are_printed() {
    assert_eq!(
        literal("warn!(\n    \"one \\\n     two {} \\\"three\\\"\",\n x"),
        "one two {} \"three\""
    );
    assert_eq!(constant("{a}; of {b} nodes are present, {c}"), "nodes are present,");
}
