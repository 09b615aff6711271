//! What no compiler checks: who may import whom, what the core must not touch, how long files and
//! lines are, and that ARCHITECTURE.md names every folder once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The layers from the ground up: each imports only what stands above it in this table and, where
/// `Only` is said, nothing else of that.
const LAYERS: &[(&str, May)] = &[
    ("units", May::Only("")),
    ("rng", May::Only("units")),
    ("vector", May::Only("")),
    ("digest", May::Only("")),
    ("printable", May::Only("")),
    ("inputs", May::Only("")),
    ("files", May::Only("inputs")),
    ("threads", May::Only("")),
    ("config", May::Only("printable inputs")),
    ("memory", May::Only("units config")),
    ("registry", May::Only("config")),
    ("state", May::Only("")),
    ("mixing", May::Only("units rng printable inputs config registry")),
    ("compress", May::Only("rng vector config registry")),
    ("data", May::Only("units rng vector printable inputs files config memory registry")),
    ("learn", May::Only("units rng vector inputs config state data")),
    ("gossip", May::Only("units rng vector config mixing compress registry state")),
    ("experiment", May::Only("inputs config data learn")),
    ("links", May::Only("units rng config mixing experiment")),
    ("drive", May::Only("units config state mixing learn gossip")),
    ("predict", May::Only("units gossip links")),
    ("run", May::Above),
    ("sim", May::Only("units digest gossip links drive")),
    ("upnp", May::Only("")),
    (
        "net",
        May::Only(
            "units rng digest inputs threads config memory state mixing learn gossip experiment \
             drive run",
        ),
    ),
    ("node", May::Only("units threads config state mixing learn gossip experiment drive run net")),
    ("replay", May::Above),
    ("prelude", May::Above),
    ("terminal", May::Above),
    ("processes", May::Above),
    ("lab", May::Above),
    ("report", May::Only("units config mixing compress data learn gossip experiment links run")),
    ("study", May::Above),
    ("plan", May::Above),
    ("doctor", May::Above),
    ("reference", May::Only("data mixing learn experiment links")),
    ("onnx", May::Only("digest config data learn")),
    ("cli", May::Above),
];

/// What a layer may import.
enum May {
    /// These alone.
    Only(&'static str),
    /// All that stands above it.
    Above,
}

/// Folders of the core: the same inputs give the same effects, so nothing whose order differs from
/// run to run.
const ORDERED: [&str; 6] = ["gossip", "sim", "links", "compress", "mixing", "learn"];

/// Folders that are given the time.
const CLOCKLESS: [&str; 4] = ["gossip", "links", "predict", "sim"];

/// A test in files of its own, which runs whole nodes.
const FAULTS: &str = "src/net/faults/";

/// Lines of a file, at the most.
const LONGEST: usize = 660;

/// Characters of a line, at the most.
const WIDEST: usize = 100;

/// Folders beside `src` that ARCHITECTURE.md names where they exist.
const BESIDE: [&str; 10] = [
    "benches",
    "bindings",
    "crates",
    "data",
    "deploy",
    "docs",
    "examples",
    "experiments",
    "tests",
    "topologies",
];

#[test]
fn imports_point_one_way() {
    let place = |module: &str| LAYERS.iter().position(|(name, _)| *name == module);
    let mut wrong = Vec::new();
    for (path, text) in program() {
        let module = module_of(&path);
        if path.starts_with(FAULTS) {
            continue;
        }
        // Within a package of `crates/`, the compiler and Cargo check the imports.
        let doors: &[&str] = if path.starts_with("src/") { &["crate::"] } else { &["gradvine::"] };
        let Some(here) = place(&module) else {
            // lib.rs declares modules and belongs to no layer.
            if module != "lib" {
                wrong.push(format!("{path}: `{module}` is in no layer; add it to LAYERS"));
            }
            continue;
        };
        for import in imports(&code(&text), doors).into_iter().filter(|import| *import != module) {
            let allowed = match (&LAYERS[here].1, place(&import)) {
                (_, None) => false,
                (May::Only(list), Some(there)) => {
                    there < here && list.split(' ').any(|name| name == import)
                }
                (May::Above, Some(there)) => there < here,
            };
            if !allowed {
                wrong.push(format!("{path}: `{module}` must not import `{import}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_core_has_no_clock_and_no_unordered_containers() {
    let mut wrong = Vec::new();
    for (path, text) in program() {
        let module = module_of(&path);
        let mut banned = Vec::new();
        if ORDERED.contains(&module.as_str()) {
            banned.extend(["HashMap", "HashSet"]);
        }
        if CLOCKLESS.contains(&module.as_str()) {
            banned.extend(["std::time", "Instant", "SystemTime"]);
        }
        wrong.extend(places(&path, &code(&text), &banned));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn runs_do_not_read_the_clock_that_can_jump() {
    // The doctor compares clocks; folders of runs are named by date.
    let may = ["src/net/answers.rs", "src/run/begin.rs"];
    let uses = |(path, text): &(String, String)| {
        text.contains("SystemTime") && !may.iter().any(|may| path.ends_with(may))
    };
    let found: Vec<String> = program().into_iter().filter(uses).map(|(path, _)| path).collect();
    assert!(found.is_empty(), "use Instant: {found:?}");
}

#[test]
fn nothing_unwraps_outside_tests() {
    let unwraps = |(path, text): &(String, String)| places(path, &code(text), &[".unwrap()"]);
    let wrong: Vec<String> = program().iter().flat_map(unwraps).collect();
    let all = wrong.join("\n");
    assert!(wrong.is_empty(), "say why it cannot fail (`expect`), or return an error:\n{all}");
}

#[test]
fn files_are_short_enough_to_read() {
    let mut wrong = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "examples"] {
        for (path, text) in sources(folder) {
            let lines = text.lines().count();
            if lines > LONGEST {
                wrong.push(format!("{path}: {lines} lines; at most {LONGEST}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The command is arguments and printing: what else it does belongs to a package that a program
/// can use.
#[test]
fn the_command_is_small() {
    let lines: usize = sources("crates/cli/src").iter().map(|(_, text)| text.lines().count()).sum();
    assert!(lines < 2000, "crates/cli/src has {lines} lines: fewer than 2000 are accepted");
}

#[test]
fn lines_are_narrow_enough_to_read() {
    let mut wrong = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "examples"] {
        for (path, text) in sources(folder) {
            wrong.extend(too_wide(&path, &text));
        }
    }
    assert!(wrong.is_empty(), "at most {WIDEST} characters:\n{}", wrong.join("\n"));
}

#[test]
fn commands_and_files_in_documents_are_narrow_enough_to_read() {
    let mut wrong = Vec::new();
    let mut read = 0;
    for folder in ["", "data", "deploy", "docs", "examples", "experiments"] {
        let mut files = Vec::new();
        documents(folder, &mut files);
        for path in files.into_iter().filter(|path| path.ends_with(".md")) {
            let text = fs::read_to_string(root().join(&path)).expect("a document can be read");
            read += 1;
            wrong.extend(too_wide_blocks(&path, &text));
        }
    }
    assert!(read > 10, "{read} documents: where are they?");
    assert!(wrong.is_empty(), "at most {WIDEST} characters:\n{}", wrong.join("\n"));
}

#[test]
fn architecture_names_each_folder_once() {
    let text =
        fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let named = folders_named(&text);
    let mut folders: BTreeSet<String> = BTreeSet::new();
    folders_below("src", &mut folders);
    let packages = entries("crates").into_iter().filter(|(_, is_folder)| *is_folder);
    folders.extend(packages.map(|(path, _)| path));
    folders.extend(
        BESIDE.iter().filter(|folder| root().join(folder).is_dir()).map(ToString::to_string),
    );
    let mut wrong = Vec::new();
    for folder in &folders {
        match named.get(folder.as_str()) {
            Some(1) => {}
            Some(times) => wrong.push(format!("`{folder}/` stands in {times} headings or rows")),
            None => wrong.push(format!("`{folder}/` stands in no heading or row")),
        }
    }
    for folder in named.keys().filter(|folder| folder.contains('/') && !folders.contains(**folder))
    {
        wrong.push(format!("`{folder}/` is named and does not exist"));
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

/// `cargo install` forgets Cargo.lock unless it is told not to, and the places of random-k depend
/// on the version of `libm`: nodes that were installed on different days would form different
/// models.
#[test]
fn documents_install_the_locked_versions() {
    let mut wrong = Vec::new();
    let mut read = 0;
    for folder in ["", ".ci", "crates", "deploy", "docs", "src", "examples", "benches"] {
        let mut files = Vec::new();
        documents(folder, &mut files);
        for path in files {
            let text = fs::read_to_string(root().join(&path)).expect("a document can be read");
            read += 1;
            wrong.extend(unlocked(&path, &text));
        }
    }
    assert!(read > 20, "{read} documents: where are they?");
    assert!(wrong.is_empty(), "--locked is missing:\n{}", wrong.join("\n"));
}

#[test]
fn these_checks_find_what_they_look_for() {
    let text = "use crate::{\n    config::{self, ConfigError},\n    units::NodeId,\n};\nfn f() -> \
                crate::data::Scale {}\nuse gradvine::net;\n";
    let found: Vec<String> = imports(text, &["crate::", "gradvine::"]).into_iter().collect();
    assert_eq!(found, ["config", "data", "net", "units"]);

    let text = "a.unwrap(); // b\n/// c.unwrap()\n#[cfg(test)]\nmod tests {\n    \
                d.unwrap();\n}\ne.unwrap();\n";
    assert_eq!(
        places("x.rs", &code(text), &[".unwrap()"]),
        ["x.rs:1: .unwrap()", "x.rs:7: .unwrap()"]
    );

    let text = "# `src/gossip/`: rounds\nIn prose, `src/gossip/` counts for nothing.\n| \
                `src/net/` | links |\n| `src/net/` | again |\n";
    assert_eq!(folders_named(text), BTreeMap::from([("src/gossip", 1), ("src/net", 2)]));

    let text = "$ cargo install --locked --path .\n$ cargo install --path .\n`cargo install x` \
                and `cargo install --locked y`\n";
    assert_eq!(
        unlocked("a.md", text),
        ["a.md:2: cargo install --path .", "a.md:3: cargo install x"]
    );
    let text = "RUN cargo build --release && cargo build --locked\n";
    assert_eq!(unlocked("Dockerfile", text), ["Dockerfile:1: cargo build --release "]);
    assert!(unlocked("a.md", "$ cargo build --release\n").is_empty());
}

#[test]
fn wide_lines_are_found_but_those_that_cannot_be_broken() {
    let wide = "x".repeat(WIDEST);
    let text =
        format!("let a = {wide};\nlet b = \"\n{wide} x\n\"; // {wide}\nlet c = '\"';\n// {wide}\n");
    let lines = |found: Vec<String>| -> Vec<String> {
        let number = |place: &String| place.split(':').nth(1).unwrap_or_default().to_string();
        found.iter().map(number).collect()
    };
    assert_eq!(lines(too_wide("x.rs", &text)), ["1", "6"]);
    let text = format!(
        "//! | {wide} |\n//! ```text\n//! {wide}\n//! ```\n//! ```\n//! {wide}\n//! ```\n\
         let a = r#\"\"\n{wide} \\\n\"#;\nlet b = '\\''; // {wide}\nfn c<'a>() {{}} // {wide}\n"
    );
    assert_eq!(lines(too_wide("x.rs", &text)), ["6", "11", "12"]);
    let text = format!(
        "{wide} x\n```console\n$ {wide}\n{wide} said\n```\n```text\n{wide} x\n```\n\
         ```toml\n{wide} = 1\n```\n"
    );
    assert_eq!(lines(too_wide_blocks("docs/a.md", &text)), ["3", "10"]);
    assert_eq!(lines(too_wide_blocks("a.md", &text)), ["3", "7", "10"]);
}

/// Lines of a Rust file that are too wide. Rows of tables and formulas in documentation, and lines
/// that begin within a literal, cannot be broken.
fn too_wide(path: &str, text: &str) -> Vec<String> {
    let within = within_literals(text);
    let mut found = Vec::new();
    // The language of the block of code that documentation is in, if it is in one.
    let mut block: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let words = ["//!", "///"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        let words = words.map(str::trim_start);
        let language = words.and_then(|words| words.strip_prefix("```"));
        block = match (block, language) {
            _ if words.is_none() => None,
            (None, language) => language,
            (Some(_), Some(_)) => None,
            (open, None) => open,
        };
        let row = words.is_some_and(|words| words.starts_with('|'));
        let width = line.chars().count();
        if width > WIDEST && !row && block != Some("text") && !within.contains(&index) {
            found.push(format!("{path}:{}: {width} characters", index + 1));
        }
    }
    found
}

/// The lines, from 0, that begin within a text literal.
fn within_literals(text: &str) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let (mut rest, mut line) = (text, 0);
    while let Some(c) = rest.chars().next() {
        let (length, literal) = token(rest, c);
        for _ in rest[..length].matches('\n') {
            line += 1;
            if literal {
                found.insert(line);
            }
        }
        rest = &rest[length..];
    }
    found
}

/// The length in bytes of what a text begins with, and whether that is a text literal: a comment, a
/// literal, a word, or one character.
fn token(text: &str, first: char) -> (usize, bool) {
    if text.starts_with("//") {
        return (text.find('\n').unwrap_or(text.len()), false);
    }
    if first == '"' {
        return (quoted(text, '"'), true);
    }
    if first == '\'' {
        // A lifetime has no closing quotation mark behind its first character.
        let mut chars = text.chars().skip(1);
        let character = chars.next() == Some('\\') || chars.next() == Some('\'');
        return (if character { quoted(text, '\'') } else { 1 }, false);
    }
    if !first.is_alphanumeric() && first != '_' {
        return (first.len_utf8(), false);
    }
    let word = word(text).len();
    let hashes = text[word..].chars().take_while(|c| *c == '#').count();
    let raw = matches!(&text[..word], "r" | "br") && text[word + hashes..].starts_with('"');
    if !raw {
        return (word, false);
    }
    let begin = word + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = text[begin..].find(&end).map_or(text.len(), |at| begin + at + end.len());
    (length, true)
}

/// The length in bytes of a literal that begins and ends with this character.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Lines that are too wide in the blocks of code of a document. What a command has printed stays as
/// it is: in `console` all but the commands, in `docs/` blocks of `text` and without a language.
fn too_wide_blocks(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = if block.is_none() { Some(language) } else { None };
            continue;
        }
        let typed = match block {
            None => false,
            Some("" | "text") => !path.starts_with("docs/"),
            Some("console") => line.starts_with(['$', '#', '>']),
            Some(_) => true,
        };
        let width = line.chars().count();
        if typed && width > WIDEST {
            found.push(format!("{path}:{}: {width} characters", index + 1));
        }
    }
    found
}

/// Files below a folder that tell a reader or a machine what to type, with their paths; of the root
/// those that stand in it.
fn documents(folder: &str, found: &mut Vec<String>) {
    if !root().join(folder).is_dir() {
        return;
    }
    for (path, is_folder) in entries(folder) {
        let path = path.trim_start_matches('/').to_string();
        if is_folder {
            if !folder.is_empty() {
                documents(&path, found);
            }
            continue;
        }
        let name = path.rsplit('/').next().unwrap_or(&path);
        let told = [".md", ".rs", ".sh", ".yaml", ".toml", ".service"]
            .iter()
            .any(|end| name.ends_with(end));
        if told || !name.contains('.') {
            found.push(path);
        }
    }
}

/// Install commands of a document that do not ask for the locked versions; a Dockerfile's builds
/// are installs.
fn unlocked(path: &str, text: &str) -> Vec<String> {
    let commands: &[&str] = if path.ends_with("Dockerfile") {
        &["cargo install", "cargo build"]
    } else {
        &["cargo install"]
    };
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for command in commands {
            for (at, _) in line.match_indices(command) {
                let rest = &line[at..];
                let end = rest.find(['`', '&', ';', '#', '|', ')', '"']).unwrap_or(rest.len());
                if rest[..end].len() > command.len() && !rest[..end].contains("--locked") {
                    found.push(format!("{path}:{}: {}", index + 1, &rest[..end]));
                }
            }
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in a folder").into()
}

/// All Rust files below a folder of the package: their paths from its root, and their texts.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if root().join(folder).is_dir() {
        collect(folder, &mut found);
    }
    found
}

/// The files below `src` and `crates`, but for tests in files of their own.
fn program() -> Vec<(String, String)> {
    let all = sources("src").into_iter().chain(sources("crates"));
    all.filter(|(path, _)| !path.ends_with("/tests.rs")).collect()
}

fn collect(folder: &str, found: &mut Vec<(String, String)>) {
    for (path, is_folder) in entries(folder) {
        if is_folder {
            collect(&path, found);
        } else if path.ends_with(".rs") {
            let text = fs::read_to_string(root().join(&path)).expect("a source file can be read");
            found.push((path, text));
        }
    }
}

/// `folder` itself is not among them.
fn folders_below(folder: &str, found: &mut BTreeSet<String>) {
    for (path, is_folder) in entries(folder) {
        if is_folder {
            folders_below(&path, found);
            found.insert(path);
        }
    }
}

/// What is in a folder, in order: paths from the package's root, and whether each is a folder.
fn entries(folder: &str) -> Vec<(String, bool)> {
    let listed = fs::read_dir(root().join(folder)).expect("a folder can be listed");
    let mut entries: Vec<(String, bool)> = listed
        .map(|entry| {
            let path = entry.expect("an entry can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
            (format!("{folder}/{name}"), path.is_dir())
        })
        .collect();
    entries.sort();
    entries
}

/// `src/gossip/rule/dcd.rs` and `src/gossip.rs` belong to `gossip`, `crates/lab/src/cut.rs` to
/// `lab`.
fn module_of(path: &str) -> String {
    let part = path.split('/').nth(1).unwrap_or(path);
    Path::new(part).file_stem().and_then(|stem| stem.to_str()).unwrap_or(part).to_string()
}

/// A file without comments and test modules, line for line. Relies on rustfmt: a module that starts
/// at the margin ends there.
fn code(text: &str) -> String {
    let mut kept = String::new();
    let mut testing = false;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let module =
            lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        testing |= line == "#[cfg(test)]" && module;
        if !testing {
            kept += line.split("//").next().unwrap_or("");
        }
        kept.push('\n');
        testing &= line != "}";
    }
    kept
}

/// The modules of the library that a text refers to behind one of these prefixes.
fn imports(code: &str, doors: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for door in doors {
        for (at, _) in code.match_indices(door) {
            let rest = &code[at + door.len()..];
            match rest.strip_prefix('{') {
                Some(list) => found.extend(heads(list)),
                None => {
                    found.insert(word(rest));
                }
            }
        }
    }
    found
}

/// The first word of each part of a braced list, whose opening brace is cut off.
fn heads(list: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut depth, mut fresh) = (0, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if depth == 0 && fresh && !c.is_whitespace() => {
                found.push(word(&list[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    found
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// `path:line: what` for each line that holds one of the banned texts.
fn places(path: &str, code: &str, banned: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for text in banned.iter().filter(|text| line.contains(**text)) {
            found.push(format!("{path}:{}: {text}", index + 1));
        }
    }
    found
}

/// How many headings and table rows of a document name each folder, as `folder/` in backquotes; a
/// line counts a folder once.
fn folders_named(text: &str) -> BTreeMap<&str, usize> {
    let mut named = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('#') || line.starts_with('|')) {
        let quoted = line.split('`').skip(1).step_by(2);
        let folders: BTreeSet<&str> = quoted.filter_map(|word| word.strip_suffix('/')).collect();
        for folder in folders {
            *named.entry(folder).or_insert(0) += 1;
        }
    }
    named
}
