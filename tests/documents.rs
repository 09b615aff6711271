//! Links in documents lead somewhere, and the site of the documentation has all pages.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").into()
}

/// All documents of the repository, by their paths in it.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let folders = ["bindings/python", "crates", "data", "deploy", "docs", "examples", "tests"];
    let mut due: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    let is_page = |path: &Path| path.extension().is_some_and(|end| end == "md");
    for entry in fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()) {
        if is_page(&entry) {
            due.push(entry.strip_prefix(root()).unwrap().into());
        }
    }
    while let Some(path) = due.pop() {
        let whole = root().join(&path);
        let name = path.file_name().unwrap().to_string_lossy().to_string();
        if whole.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            let entries = fs::read_dir(&whole).unwrap().map(|entry| entry.unwrap().file_name());
            due.extend(entries.map(|name| path.join(name)));
        } else if is_page(&path) {
            all.insert(path, fs::read_to_string(whole).unwrap());
        }
    }
    all
}

/// The text outside blocks of code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook form them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text);
    let headings = headings.lines().filter_map(|line| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let anchor = |title: &str| -> String {
        // Of a link the heading shows the words.
        let shown = title.split("](").map(|part| part.split_once(')').map_or(part, |(_, b)| b));
        let shown = shown.collect::<String>().to_lowercase();
        let letters = shown.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        letters.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// The targets of a page's links.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    ends.map(|(target, _)| target.to_string()).filter(|target| !target.contains(' ')).collect()
}

/// The path that a link of this page names.
fn target(page: &Path, link: &str) -> PathBuf {
    let mut path: Vec<Component> = page.parent().unwrap().components().collect();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path.iter().collect()
}

#[test]
fn links_between_documents_lead_to_files_and_headings() {
    let all = documents();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (page, text) in &all {
        for link in links(text).iter().filter(|link| !link.contains("://")) {
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if path.is_empty() { page.clone() } else { target(page, path) };
            let known = |text: &String| anchor.is_empty() || anchors(text).contains(anchor);
            let is_right = match all.get(&to) {
                Some(text) => known(text),
                None => root().join(&to).exists(),
            };
            if !is_right {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(count > 300, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_site_has_each_page_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let named = links(&summary);
    let pages: BTreeSet<&String> = named.iter().collect();
    assert_eq!(pages.len(), named.len(), "a page is named twice");
    for entry in fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name().to_string_lossy().to_string();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert!(pages.contains(&name), "docs/SUMMARY.md lacks {name}");
        }
    }
}

/// The names in all comments `<!-- test: a, b -->` of a text.
fn tests_named_in(text: &str) -> Vec<String> {
    let comments = text.split("<!-- test: ").skip(1).filter_map(|rest| rest.split_once("-->"));
    let names = comments.flat_map(|(names, _)| names.split(','));
    names.map(|name| name.trim().to_string()).collect()
}

/// The names of the functions in all sources of Rust and Python.
fn functions() -> BTreeSet<String> {
    let (mut all, mut due) = (BTreeSet::new(), Vec::new());
    due.extend(["bindings", "crates", "src", "tests"].map(|folder| root().join(folder)));
    while let Some(path) = due.pop() {
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("node_modules") {
            due.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|end| end == "rs" || end == "py") {
            let text = fs::read_to_string(&path).unwrap();
            let after = ["fn ", "def "].map(|word| text.split(word).skip(1).collect::<Vec<_>>());
            let names = after.iter().flatten().filter_map(|rest| rest.split_once('('));
            all.extend(names.map(|(name, _)| name.to_string()));
        }
    }
    all
}

/// The rows of tables, the items of lists and the paragraphs of a page, but for the sections with
/// these headings.
fn statements<'t>(text: &'t str, but: &[&str]) -> Vec<&'t str> {
    let mut all = Vec::new();
    for section in text.split("\n## ").skip(1) {
        let (heading, rest) = section.split_once('\n').unwrap_or((section, ""));
        if but.contains(&heading) {
            continue;
        }
        for block in rest.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
            match block.chars().next() {
                Some('|') => all.extend(block.lines().skip(2)),
                Some('-') => all.extend(block.split("\n- ")),
                _ => all.push(block),
            }
        }
    }
    all.retain(|statement| !statement.ends_with(':'));
    all
}

#[test]
fn each_promise_about_trust_names_the_test_that_shows_it() {
    let security = ["What is where", "What is not protected"];
    let sites = ["The files of a site", "How long it takes", "What goes wrong"];
    for (name, but) in [("security", &security[..]), ("sites", &sites)] {
        let page = fs::read_to_string(root().join(format!("docs/{name}.md"))).unwrap();
        // A transcript names the test that runs it.
        let lacks = |statement: &&str| {
            tests_named_in(statement).is_empty() && !statement.starts_with("<!-- run by: ")
        };
        let bare: Vec<&str> = statements(&page, but).into_iter().filter(lacks).collect();
        let bare = bare.join("\n");
        assert!(bare.is_empty(), "docs/{name}.md: no `<!-- test: NAME -->`:\n{bare}");
    }
    let functions = functions();
    let (mut count, mut wrong) = (0, Vec::new());
    for (page, text) in documents() {
        for name in tests_named_in(&text) {
            count += 1;
            if !functions.contains(&name) {
                wrong.push(format!("{}: no test has the name {name}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty() && count > 20, "{count} names\n{}", wrong.join("\n"));
}

#[cfg(feature = "net")]
#[test]
fn the_change_log_names_the_wire_format() {
    let log = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let row = format!("| wire | {}:", gradvine::net::VERSION);
    assert!(log.contains(&row), "CHANGELOG.md lacks `{row}`");
}

#[test]
fn these_checks_find_what_they_look_for() {
    let page = "# A `first`, and more\n[here](#a-first-and-more) ```\n[no](x)\n``` [b](../c.md#d)";
    assert_eq!(links(page), ["#a-first-and-more", "../c.md#d"]);
    assert_eq!(anchors(page), BTreeSet::from(["a-first-and-more".to_string()]));
    assert_eq!(anchors("## [Time to 92 %](x.md)\n"), BTreeSet::from(["time-to-92-".to_string()]));
    assert_eq!(target(Path::new("docs/a.md"), "../c.md"), Path::new("c.md"));
    assert_eq!(tests_named_in("a <!-- test: b, c --> d <!-- test: e -->"), ["b", "c", "e"]);
    let page = "# A\n\nx\n\n## B\n\nSo:\n\n| h |\n|---|\n| r |\n\n- i\n- j\n\np\nq\n\n## C\n\nz\n";
    assert_eq!(statements(page, &["C"]), ["| r |", "- i", "j", "p\nq"]);
    assert!(functions().contains("these_checks_find_what_they_look_for"));
}
