//! The picture in the README shows what the present version prints, and a browser shows every
//! picture of the documents whole.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    command,
    report_pictures::{address, browse, browser},
};

use command::gradvine;

/// The lines of the picture, as text.
fn picture() -> Vec<String> {
    let svg = include_str!("../../docs/img/train.svg");
    let unescape = |text: &str| {
        let text = text.replace("&#x27;", "'").replace("&quot;", "\"");
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    };
    svg.lines()
        .filter_map(|line| line.strip_prefix("<text")?.split_once('>')?.1.strip_suffix("</text>"))
        .map(unescape)
        .collect()
}

/// A line without what differs between two runs: seconds, the share of computing, paths.
fn steady(line: &str) -> Option<String> {
    let line = line.trim_end().replace("target/release/gradvine", "gradvine");
    let varies = ["$ ", "computing ", "run directory", "round "];
    if line.is_empty() || varies.iter().any(|start| line.trim_start().starts_with(start)) {
        return None;
    }
    match line.split_once(" rounds in ") {
        Some((before, after)) => {
            let after = after.split_once(" s ").map_or("", |(_, after)| after);
            Some(format!("{before} rounds in .. s {after}"))
        }
        None => Some(line),
    }
}

#[test]
#[ignore = "slow"]
fn the_picture_in_the_readme_is_of_this_version() {
    assert!(include_str!("../../README.md").contains("(docs/img/train.svg)"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("picture");
    let assert = gradvine().arg("train").arg("--out").arg(&out).assert().success();
    let output = assert.get_output();
    let text = [&output.stderr[..], &output.stdout[..]].concat();
    let text = String::from_utf8(text).unwrap();
    let text = text.replace(&out.display().to_string(), "runs/picture");
    let printed: Vec<String> = text.lines().filter_map(steady).collect();
    let shown: Vec<String> = picture().iter().filter_map(|line| steady(line)).collect();
    assert!(shown.iter().any(|line| line.starts_with("digest ")), "the picture has the digest");
    assert_eq!(shown, printed, "draw docs/img/train.svg again: docs/img/terminal.py says how");
}

/// The pictures of the documents.
fn drawings() -> Vec<PathBuf> {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/img");
    let mut found: Vec<PathBuf> = [images.join("results"), images]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "svg"))
        .collect();
    found.sort();
    found
}

/// What a browser leaves out of pictures that are `width` pixels wide: texts that reach beyond the
/// frame, and texts of which it shows fewer characters than the file has.
fn cut<'a>(browser: &Path, drawings: impl Iterator<Item = &'a str>, width: u32) -> Value {
    const SCRIPT: &str = "const cut = []; let count = 0; \
        for (const svg of \
        [...document.querySelectorAll('div')].map(one => one.shadowRoot.querySelector('svg'))) { \
        const frame = svg.getBoundingClientRect(), near = 1; \
        for (const text of svg.querySelectorAll('text')) { if (!text.textContent) continue; \
        const at = text.getBoundingClientRect(); count += 1; \
        if (text.getNumberOfChars() < text.textContent.length) \
        cut.push('spaces: ' + text.textContent); \
        if (at.left < frame.left - near || at.right > frame.right + near || \
        at.top < frame.top - near || at.bottom > frame.bottom + near) \
        cut.push('outside: ' + text.textContent); } } \
        document.body.textContent = JSON.stringify({cut, count});";
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("pictures.html");
    let mut html = "<!doctype html><meta charset=utf-8><body>".to_string();
    for svg in drawings {
        // A style of one picture is not to reach another, as with pictures of their own.
        html += "<div><template shadowrootmode=open>";
        html += &svg[svg.find("<svg").expect("an SVG")..];
        html += &format!("<style>svg{{width:{width}px;height:auto}}</style></template></div>");
    }
    html += &format!("<script>{SCRIPT}</script>");
    fs::write(&page, html).unwrap();
    let dom = browse(browser, &address(&page), 1400, 1000, &["--dump-dom"]);
    let start = dom.find("{\"cut\"").unwrap_or_else(|| panic!("{dom}"));
    let dom = dom[start..=dom.rfind('}').unwrap()].replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&dom.replace("&amp;", "&")).unwrap()
}

#[test]
#[ignore = "slow"]
fn a_browser_shows_every_picture_of_the_documents_whole() {
    let Some(browser) = browser() else {
        println!("skipped: there is no chromium on the path");
        return;
    };
    let drawings: Vec<String> =
        drawings().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    assert!(drawings.len() > 30, "{}", drawings.len());
    for width in [1131, 390] {
        let seen = cut(&browser, drawings.iter().map(String::as_str), width);
        assert_eq!(seen["cut"], json!([]), "at {width} pixels");
        assert!(seen["count"].as_u64() > Some(400), "{seen}");
    }
    // Spaces that collapse, and a line that is longer than its frame, are found.
    let svg = include_str!("../../docs/img/train.svg");
    let collapsed = svg.replace("white-space: pre", "");
    let long = format!("runs/picture{}</text>", "x".repeat(200));
    let long = svg.replacen("runs/picture</text>", &long, 1);
    let seen = cut(&browser, [&*collapsed, &*long].into_iter(), 390);
    let found = |start: &str| {
        let mut lines = seen["cut"].as_array().unwrap().iter();
        lines.any(|line| line.as_str().unwrap().starts_with(start))
    };
    assert!(found("spaces: ") && found("outside: $ cargo"), "{seen}");
}
