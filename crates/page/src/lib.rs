//! The page of a run: its files, and the data that it reads. A node serves it while the run lasts
//! (`gradvine-watch`); a report is the same page with its data inside (`gradvine-report`).
//!
//! | file | has |
//! |---|---|
//! | `lib` | the files of the page, and [`written`]: the page as one file |
//! | `network` | [`Network`]: what is known of a run and its nodes |
//! | `curves` | [`Series`]: the figures of a node over rounds, time and bytes |
//! | `sections` | [`Section`]: what only a report shows: tables, charts, texts |
#![forbid(unsafe_code)]

mod curves;
mod network;
mod sections;

pub use curves::{Curves, Point, Series};
pub use network::{Checkpoint, Event, Link, Network, Node, VERSION};
pub use sections::{Block, Cell, Chart, Curve, Level, Matrix, Note, Section, Table};

use std::iter;

use serde::Serialize;

/// The document.
pub const INDEX: &str = include_str!("../assets/index.html");
/// Its style sheet.
pub const STYLE: &str = include_str!("../assets/page.css");
/// What draws the page.
pub const SCRIPT: &str = include_str!("../assets/page.js");
/// The library that draws charts: uPlot, under the MIT licence at its begin.
pub const UPLOT: &str = include_str!("../assets/uplot.js");
/// Its style sheet.
pub const UPLOT_STYLE: &str = include_str!("../assets/uplot.css");
/// What draws the parts that only a report has.
const REPORT: &str = include_str!("../assets/report.js");

/// The first line of a page that was written.
pub const MARK: &str = "<!doctype html><!-- gradvine report -->";

/// What a written page may do: nothing outside itself.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
                      style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">";

/// The page as one file with its data inside. It loads nothing.
///
/// # Panics
/// If the data have no form as JSON.
pub fn written(data: &impl Serialize) -> String {
    let json = plain(&serde_json::to_string(data).expect("names and figures have a form"));
    let (_, rest) = INDEX.split_once('\n').unwrap_or_default();
    let mut html = format!("{MARK}\n{rest}");
    html = html.replacen("<title>", &format!("{POLICY}\n<title>"), 1);
    for (name, content) in [("uplot.css", UPLOT_STYLE), ("page.css", STYLE)] {
        let link = format!("<link rel=\"stylesheet\" href=\"{name}\">");
        html = html.replacen(&link, &format!("<style>\n{content}</style>"), 1);
    }
    let data = format!("<script type=\"application/json\" id=\"data\">{json}</script>\n");
    let scripts = [
        ("uplot.js", format!("{data}<script>\n{UPLOT}</script>")),
        ("page.js", format!("<script>\n{REPORT}</script>\n<script>\n{SCRIPT}</script>")),
    ];
    for (name, content) in scripts {
        html = html.replacen(&format!("<script src=\"{name}\"></script>"), &content, 1);
    }
    html
}

/// JSON of which no text can end the element that it is in, or has a control character but for line
/// ends and tabs: a sign stands for it.
fn plain(json: &str) -> String {
    const SIGN: &str = "\\ufffd";
    let mut text = String::with_capacity(json.len());
    let mut rest = json.chars();
    while let Some(one) = rest.next() {
        match one {
            '<' => text += "\\u003c",
            '\\' => match rest.next() {
                Some('b' | 'f' | 'r') => text += SIGN,
                // serde_json writes so only the control characters without a letter of their own.
                Some('u') => {
                    rest.by_ref().take(4).for_each(drop);
                    text += SIGN;
                }
                other => text.extend(iter::once('\\').chain(other)),
            },
            one if one.is_control() => text += SIGN,
            one => text.push(one),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_page_is_one_file_whose_data_cannot_end_it() {
        let html = written(&["</script><b>", "a\\u\u{7}\u{9b}\r\n\t\"é"]);
        let data = r#"["\u003c/script>\u003cb>","a\\u\ufffd\ufffd\ufffd\n\t\"é"]"#;
        assert!(html.starts_with(MARK) && html.contains(data));
        for outside in ["<link rel=\"stylesheet\"", "<script src", "@import", "url(http"] {
            assert!(!html.contains(outside), "{outside}");
        }
        for part in [UPLOT, UPLOT_STYLE, STYLE, SCRIPT, REPORT] {
            assert!(html.contains(part));
        }
        assert_eq!(html.matches("</script>").count(), html.matches("<script").count());
    }
}
