//! Names of nodes that would become one file, or look alike, are refused.

use gradvine::{
    mixing::{FileFormat, Topology},
    prelude::ConfigError,
};

/// Why a path of two nodes with these names is refused.
fn refusal(names: [&str; 2]) -> Option<String> {
    let nodes = names.map(|name| format!("[[node]]\nname = '{name}'\n")).concat();
    let text = format!("family = 'path'\nnodes = 2\n{nodes}");
    let result = Topology::from_text(&text, FileFormat::Toml, "net");
    result.err().map(|error| ConfigError::from(error).to_string())
}

#[test]
fn names_that_become_one_file_or_look_alike_are_refused() {
    for (names, parts) in [
        (["a", "Mean"], &["node 1: name = Mean", "model-mean.safetensors"][..]),
        (["Oslo", "oslo"], &["node 1: name = oslo", "node 0 is Oslo", "case only"]),
        (["K\u{d6}LN", "k\u{f6}ln"], &["node 0 is K\u{d6}LN", "case only"]),
        (["os\u{202e}lo", "b"], &["\\u{202e}", "direction of text"]),
        (["a", "os\u{200b}lo"], &["\\u{200b}", "invisible"]),
        (["Ko\u{308}ln", "b"], &["accent", "accented letters"]),
    ] {
        let error = refusal(names).unwrap_or_default();
        for part in parts {
            assert!(error.contains(part), "{part:?} is missing in: {error}");
        }
    }
    assert_eq!(refusal(["means", "K\u{f6}ln"]), None);
}
