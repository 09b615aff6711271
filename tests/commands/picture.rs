//! The picture in the README shows what the present version prints.

use crate::command;

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
