//! What no compiler checks: who may import whom, that no files import each other in a circle, that
//! every file is compiled, what the core must not touch, how wide lines are, and that
//! ARCHITECTURE.md names every folder once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

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
    ("mixing", May::Only("units rng printable inputs files config registry")),
    ("compress", May::Only("rng vector config registry")),
    ("data", May::Only("units rng vector printable inputs files config memory registry")),
    ("learn", May::Only("units rng vector inputs config state data")),
    ("gossip", May::Only("units rng vector digest config mixing compress registry state")),
    ("experiment", May::Only("inputs config mixing compress data learn gossip registry")),
    ("links", May::Only("units rng config mixing experiment")),
    ("drive", May::Only("units config state mixing learn gossip")),
    ("predict", May::Only("units compress gossip links")),
    ("run", May::Above),
    ("sim", May::Only("units digest gossip links drive")),
    ("cluster", May::Only("units digest config state mixing gossip experiment drive run")),
    ("upnp", May::Only("")),
    ("status", May::Only("units printable gossip cluster")),
    (
        "net",
        May::Only(
            "units rng digest inputs threads config memory state mixing learn gossip experiment \
             drive run cluster status",
        ),
    ),
    (
        "node",
        May::Only("units threads config state mixing learn gossip experiment drive run status net"),
    ),
    ("simulation", May::Above),
    ("faults", May::Above),
    ("prelude", May::Above),
    ("tables", May::Only("config data memory")),
    ("evaluate", May::Only("printable config data learn run")),
    ("terminal", May::Above),
    ("processes", May::Above),
    ("lab", May::Above),
    ("page", May::Only("")),
    ("report", May::Only("units config mixing compress data learn gossip experiment links run")),
    ("watch", May::Above),
    ("study", May::Above),
    ("plan", May::Above),
    ("doctor", May::Above),
    ("enrol", May::Only("printable digest config mixing data learn experiment run net units")),
    ("reference", May::Only("data mixing learn experiment links run")),
    ("export", May::Only("config data files run")),
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
const ORDERED: [&str; 7] = ["gossip", "cluster", "sim", "links", "compress", "mixing", "learn"];

/// Folders that are given the time.
const CLOCKLESS: [&str; 4] = ["gossip", "links", "predict", "sim"];

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
    for source in program() {
        let (path, module) = (&source.path, source.layer());
        let Some(here) = place(&module) else {
            // lib.rs declares modules and belongs to no layer.
            if module != "lib" {
                wrong.push(format!("{path}: `{module}` is in no layer; add it to LAYERS"));
            }
            continue;
        };
        // Within a package of `crates/`, the compiler and Cargo check the imports.
        let door = if path.starts_with("src/") { "crate" } else { "gradvine" };
        let heads = source.paths.iter().filter(|path| path.len() > 1 && path[0] == door);
        let imported: BTreeSet<&String> = heads.map(|path| &path[1]).collect();
        for import in imported.into_iter().filter(|import| **import != module) {
            let allowed = match (&LAYERS[here].1, place(import)) {
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

/// A `mod.rs` or `lib.rs` is the door of its folder: it names what is behind it and counts for
/// nothing here.
#[test]
fn no_files_import_each_other_in_a_circle() {
    let files = program();
    let is_door = |path: &str| path.ends_with("/mod.rs") || path.ends_with("/lib.rs");
    let rooms: Vec<&Source> = files.iter().filter(|file| !is_door(&file.path)).collect();
    let index: BTreeMap<Vec<String>, usize> =
        rooms.iter().enumerate().map(|(number, file)| (file.module(), number)).collect();
    let mut imports: Vec<BTreeSet<usize>> = rooms
        .iter()
        .map(|file| file.imported().filter_map(|module| deepest(&index, &module)).collect())
        .collect();
    // What is reached through others is imported too.
    for through in 0..rooms.len() {
        for from in 0..rooms.len() {
            if imports[from].contains(&through) && from != through {
                let more = imports[through].clone();
                imports[from].extend(more);
            }
        }
    }
    let is_circular = |&one: &usize| {
        imports[one].iter().any(|&other| other != one && imports[other].contains(&one))
    };
    let circular: Vec<&str> =
        (0..rooms.len()).filter(is_circular).map(|one| rooms[one].path.as_str()).collect();
    assert!(circular.is_empty(), "these import files that import them: {circular:#?}");
}

/// The file whose module a path names, or the nearest around it.
fn deepest(index: &BTreeMap<Vec<String>, usize>, path: &[String]) -> Option<usize> {
    (1..=path.len()).rev().find_map(|length| index.get(&path[..length]).copied())
}

/// A file without its `mod` line is not compiled: its tests would pass by not being there.
#[test]
fn every_file_has_its_line() {
    let folders = ["src", "crates", "tests", "benches", "examples", "bindings"];
    let files: Vec<(String, String)> = folders.iter().flat_map(|folder| sources(folder)).collect();
    let orphans = undeclared(&files);
    assert!(files.len() > 500, "{} files: where are they?", files.len());
    assert!(orphans.is_empty(), "no `mod` line or path names these: {orphans:#?}");
}

/// The files for which no file of their folder, nor that of the folder's own module, has a `mod`
/// line, and that no file has in a `#[path]`. Files that Cargo finds by itself need none.
fn undeclared(files: &[(String, String)]) -> Vec<String> {
    // Modules by their places, and the ends of paths.
    let (mut declared, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in files {
        let module = path.trim_end_matches(".rs");
        let (folder, _) = module.rsplit_once('/').unwrap_or(("", module));
        for line in text.lines().map(str::trim) {
            if let Some(named) = line.strip_prefix("#[path = \"") {
                let named = named.trim_start_matches("../").trim_end_matches("\"]");
                paths.insert(format!("/{named}"));
            } else if let Some((before, name)) = line.split_once("mod ")
                && (before.is_empty() || before.starts_with("pub"))
            {
                let name = name.trim_end_matches([';', '{', ' ']);
                declared.extend([folder, module].map(|place| format!("{place}/{name}")));
            }
        }
    }
    let is_found = |path: &str| {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let last = folder.rsplit('/').next().unwrap_or(folder);
        // `a/b/mod.rs` is the module `b` of the folder `a`.
        let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
        ["main.rs", "lib.rs", "build.rs"].contains(&name)
            // A program, test, bench or example of one file.
            || ["bin", "tests", "benches", "examples"].contains(&last)
            || declared.contains(module)
            || paths.iter().any(|end| path.ends_with(end.as_str()))
    };
    files.iter().map(|(path, _)| path).filter(|path| !is_found(path)).cloned().collect()
}

#[test]
fn the_core_has_no_clock_and_no_unordered_containers() {
    let mut wrong = Vec::new();
    for source in program() {
        let layer = source.layer();
        let mut banned = Vec::new();
        if ORDERED.contains(&layer.as_str()) {
            banned.extend(["HashMap", "HashSet"]);
        }
        if CLOCKLESS.contains(&layer.as_str()) {
            banned.extend(["std::time", "Instant", "SystemTime"]);
        }
        let paths = source.paths.iter().map(|path| path.join("::"));
        let found = paths.filter(|path| banned.iter().any(|name| path.contains(name)));
        wrong.extend(found.map(|found| format!("{}: {found}", source.path)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn runs_do_not_read_the_clock_that_can_jump() {
    // The doctor compares clocks; folders of runs are named by date; lines of a log have a time;
    // status records are numbered by the clock, and stay in order where it jumps; tickets expire by
    // date.
    let may = [
        "src/net/answers.rs",
        "src/run/directory/begin.rs",
        "src/status/board.rs",
        "crates/enrol/src/book.rs",
        "crates/terminal/src/log.rs",
    ];
    let reads = |source: &Source| source.paths.iter().flatten().any(|name| name == "SystemTime");
    let found: Vec<String> = program()
        .into_iter()
        .filter(|source| reads(source) && !may.contains(&source.path.as_str()))
        .map(|source| source.path)
        .collect();
    assert!(found.is_empty(), "use Instant: {found:?}");
}

#[test]
fn nothing_unwraps_outside_tests() {
    let calls = program().into_iter().filter(|source| source.unwraps);
    let wrong: Vec<String> = calls.map(|source| source.path).collect();
    assert!(wrong.is_empty(), "say why it cannot fail (`expect`), or return an error: {wrong:#?}");
}

#[test]
fn lines_are_narrow_enough_to_read() {
    let mut wrong = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "bindings", "examples"] {
        for (path, text) in sources(folder) {
            wrong.extend(too_wide(&path, &text));
        }
    }
    assert!(wrong.is_empty(), "at most {WIDEST} characters:\n{}", wrong.join("\n"));
}

/// What a check finds in the documents below these folders, of which there are at least so many.
fn in_documents(
    folders: &[&str],
    least: usize,
    check: impl Fn(&str, &str) -> Vec<String>,
) -> String {
    let mut files = Vec::new();
    folders.iter().for_each(|folder| documents(folder, &mut files));
    assert!(files.len() > least, "{} documents: where are they?", files.len());
    let found = files.iter().flat_map(|path| {
        check(path, &fs::read_to_string(root().join(path)).expect("a document can be read"))
    });
    found.collect::<Vec<String>>().join("\n")
}

#[test]
fn commands_and_files_in_documents_are_narrow_enough_to_read() {
    let folders = ["", "data", "deploy", "docs", "examples", "experiments"];
    let wrong = in_documents(&folders, 10, |path, text| match path.ends_with(".md") {
        true => too_wide_blocks(path, text),
        false => Vec::new(),
    });
    assert!(wrong.is_empty(), "at most {WIDEST} characters:\n{wrong}");
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
    let folders = ["", ".ci", "crates", "deploy", "docs", "src", "examples", "benches"];
    let wrong = in_documents(&folders, 20, unlocked);
    assert!(wrong.is_empty(), "--locked is missing:\n{wrong}");
}

#[test]
fn these_checks_find_what_they_look_for() {
    let text = "use crate::{config::{self, ConfigError}, units as u};\nfn f() -> \
                crate::data::Scale { vec![super::a(x.unwrap())] }\n#[cfg(test)]\nmod tests \
                { use crate::net; }\n/// crate::comment\nfn g() {}\n";
    let source = Source::new("src/run/x.rs".into(), text);
    assert!(source.unwraps);
    let found: Vec<String> = source.imported().map(|module| module.join("/")).collect();
    let expected = ["src/config", "src/config/ConfigError", "src/units", "src/data/Scale"];
    assert_eq!(found[..4], expected);
    assert_eq!(found[4..], ["src/run/a"]);
    assert!(!Source::new("src/x.rs".into(), "#[cfg(test)]\nmod t { x.unwrap() }").unwraps);

    let file = |path: &str, text: &str| (path.to_string(), text.to_string());
    let tree = [
        file("src/lib.rs", "pub mod a;\n#[cfg(test)]\nmod c;"),
        file("src/a/mod.rs", "mod b;"),
        file("src/a/b.rs", ""),
        file("src/c.rs", "// mod d; is said in words\nmod e;"),
        file("src/a/d.rs", ""),
        file("src/c/e.rs", ""),
        file("tests/rules/exact/mod.rs", ""),
        file("tests/rules/main.rs", "mod exact;\n#[path = \"../x/far.rs\"]\nmod far;"),
        file("tests/x/far.rs", "// mod near;"),
        file("tests/x/near.rs", ""),
        file("tests/rules/exact/lost.rs", ""),
    ];
    assert_eq!(undeclared(&tree), ["src/a/d.rs", "tests/x/near.rs", "tests/rules/exact/lost.rs"]);

    let wide = "x".repeat(WIDEST);
    let text = format!("let a = {wide};\n/// | {wide} |\n/// ```text\n/// {wide}\n/// ```\n");
    assert_eq!(too_wide("x.rs", &text), ["x.rs:1: 109 characters"]);
    let text = format!("```console\n$ {wide}\n{wide} said\n```\n```toml\n{wide} = 1\n```\n");
    assert_eq!(too_wide_blocks("docs/a.md", &text).len(), 2);

    let text = "# `src/gossip/`: rounds\nIn prose, `src/gossip/` counts for nothing.\n| \
                `src/net/` | links |\n| `src/net/` | again |\n";
    assert_eq!(folders_named(text), BTreeMap::from([("src/gossip", 1), ("src/net", 2)]));

    let text = "$ cargo install --locked --path .\n$ cargo install --path .\n`cargo install x` \
                and `cargo install --locked y`\n";
    assert_eq!(
        unlocked("a.md", text),
        ["a.md:2: cargo install --path .", "a.md:3: cargo install x"]
    );
}

/// A file of Rust as tokens.
struct Source {
    path: String,
    /// All paths outside test modules, with the trees of `use` taken apart.
    paths: Vec<Vec<String>>,
    /// Whether it calls `unwrap` outside test modules.
    unwraps: bool,
}

impl Source {
    fn new(path: String, text: &str) -> Source {
        let tokens = TokenStream::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut source = Source { path, paths: Vec::new(), unwraps: false };
        source.read(tokens, &[]);
        source
    }

    /// Reads these tokens, whose paths begin with `prefix`.
    fn read(&mut self, tokens: TokenStream, prefix: &[String]) {
        let mut rest = &tokens.into_iter().collect::<Vec<_>>()[..];
        let mut path = prefix.to_vec();
        let mut testing = false;
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match token {
                // `pub(super)` imports nothing.
                TokenTree::Ident(name) if name == "pub" => {
                    if let Some(TokenTree::Group(_)) = rest.first() {
                        rest = &rest[1..];
                    }
                }
                // The other name of what stands before.
                TokenTree::Ident(name) if name == "as" => rest = rest.get(1..).unwrap_or(&[]),
                TokenTree::Ident(name) => {
                    path.push(name.to_string());
                    // In `x.unwrap()` the name stands alone.
                    self.unwraps |= path == ["unwrap"];
                    if is_joint(rest) {
                        rest = &rest[2..];
                        continue;
                    }
                    self.paths.push(std::mem::replace(&mut path, prefix.to_vec()));
                }
                TokenTree::Group(group) => {
                    let text = group.stream().to_string();
                    testing |= group.delimiter() == Delimiter::Bracket && text == "cfg (test)";
                    let is_test = group.delimiter() == Delimiter::Brace && testing;
                    // A brace behind `::` is a tree of paths.
                    let inner = std::mem::replace(&mut path, prefix.to_vec());
                    if !is_test {
                        self.read(group.stream(), if inner == prefix { &[] } else { &inner });
                    }
                    testing &= group.delimiter() != Delimiter::Brace;
                }
                TokenTree::Punct(mark) => {
                    testing &= mark.as_char() != ';';
                    if mark.as_char() == ',' {
                        path = prefix.to_vec();
                    }
                }
                TokenTree::Literal(_) => {}
            }
        }
    }

    /// `src/gossip/rule/dcd.rs` and `src/gossip.rs` belong to `gossip`, `crates/lab/src/cut.rs` to
    /// `lab`.
    fn layer(&self) -> String {
        let part = self.path.split('/').nth(1).unwrap_or(&self.path);
        Path::new(part).file_stem().and_then(|stem| stem.to_str()).unwrap_or(part).to_string()
    }

    /// The folders and the name of this file's module.
    fn module(&self) -> Vec<String> {
        let path = self.path.trim_end_matches(".rs").trim_end_matches("/mod");
        path.split('/').map(ToString::to_string).collect()
    }

    /// The modules and items of its own package that it names.
    fn imported(&self) -> impl Iterator<Item = Vec<String>> {
        let root = self.path.split_inclusive("src/").next().unwrap_or_default();
        let root: Vec<String> =
            root.trim_end_matches('/').split('/').map(ToString::to_string).collect();
        let here = self.module();
        self.paths.iter().filter_map(move |path| {
            let up = path.iter().take_while(|name| *name == "super").count();
            let base = match path[0].as_str() {
                "crate" => &root[..],
                "super" => &here[..here.len().checked_sub(up)?],
                _ if path.len() > 1 => &here[..],
                _ => return None,
            };
            let doors = ["crate", "super", "self"];
            let rest = path.iter().filter(|name| !doors.contains(&name.as_str()));
            Some(base.iter().chain(rest).cloned().collect())
        })
    }
}

/// Whether `::` comes next.
fn is_joint(tokens: &[TokenTree]) -> bool {
    let is_colon =
        |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':');
    tokens.len() > 2 && is_colon(&tokens[0]) && is_colon(&tokens[1])
}

/// Lines of a Rust file that are too wide. Rows of tables and blocks of text in documentation
/// cannot be broken.
fn too_wide(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block = false;
    for (index, line) in text.lines().enumerate() {
        let words = ["//!", "///"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        let words = words.map(str::trim_start);
        block = match words {
            Some(words) if words.starts_with("```") => !block && words == "```text",
            Some(_) => block,
            None => false,
        };
        let row = words.is_some_and(|words| words.starts_with('|'));
        let width = line.chars().count();
        if width > WIDEST && !row && !block {
            found.push(format!("{path}:{}: {width} characters", index + 1));
        }
    }
    found
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
fn program() -> Vec<Source> {
    let all = sources("src").into_iter().chain(sources("crates"));
    all.filter(|(path, _)| !path.ends_with("/tests.rs") && !path.contains("/tests/"))
        .map(|(path, text)| Source::new(path, &text))
        .collect()
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
