//! Pieces of HTML. Every text that comes from a file passes through [`text`].

use std::fmt::Write as _;

use quick_xml::escape::escape;

use crate::units::Bytes;

/// A text as HTML shows it: markup becomes letters, and control characters a sign that one was
/// there.
pub(super) fn text(raw: &str) -> String {
    escape(visible(raw)).into_owned()
}

/// A sign in place of each control character but ends of lines: XML has no way to write them.
pub(super) fn visible(raw: &str) -> String {
    raw.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

/// At most so many characters, the last of them dots where there were more.
pub(super) fn short(raw: &str, most: usize) -> String {
    if raw.chars().count() <= most {
        return raw.to_string();
    }
    raw.chars().take(most - 1).chain(['…']).collect()
}

/// So many of something.
pub(super) fn count(n: usize, word: &str) -> String {
    format!("{} {word}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// A whole number, thousands apart.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A figure with enough digits to tell two runs apart.
pub(super) fn number(x: f64) -> String {
    let size = x.abs();
    if !x.is_finite() {
        "not finite".into()
    } else if x == 0.0 {
        "0".into()
    } else if (1e-3..1e6).contains(&size) {
        format!("{x:.5}")
    } else {
        format!("{x:.4e}")
    }
}

/// Bytes, of which a mean may have a part.
pub(super) fn bytes(x: f64) -> String {
    Bytes(x.round() as u64).to_string()
}

/// A share as per cent.
pub(super) fn percent(x: f64) -> String {
    format!("{:.2} %", 100.0 * x)
}

/// What a table's cell holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// Words, to the left.
    Word(String),
    /// A figure, to the right.
    Figure(String),
    /// The best of its column.
    Best(String),
    /// The row's name.
    Name(String),
    /// There is none.
    Nothing,
}

/// A table: its columns, and its rows as far as they are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// What screen readers and readers of print see of it first.
    pub caption: String,
    /// Above the columns.
    pub head: Vec<String>,
    /// Each as long as `head`.
    pub rows: Vec<Vec<Cell>>,
    /// What is not shown, in a sentence; empty where nothing is left out.
    pub left_out: String,
}

impl Table {
    /// As HTML, in a box that scrolls by itself where the page is narrow.
    pub(super) fn html(&self) -> String {
        let mut html = String::from("<div class=\"table\" tabindex=\"0\" role=\"group\"");
        let _ = writeln!(
            html,
            " aria-label=\"{0}\"><table><caption>{0}</caption><thead><tr>",
            text(&self.caption)
        );
        for word in &self.head {
            let _ = write!(html, "<th scope=\"col\">{}</th>", text(word));
        }
        html += "</tr></thead><tbody>\n";
        for row in &self.rows {
            html += "<tr>";
            for cell in row {
                let _ = match cell {
                    Cell::Word(word) => write!(html, "<td>{}</td>", text(word)),
                    Cell::Figure(figure) => write!(html, "<td class=\"n\">{}</td>", text(figure)),
                    Cell::Best(figure) => {
                        write!(html, "<td class=\"n\"><strong>{}*</strong></td>", text(figure))
                    }
                    Cell::Name(name) => write!(html, "<th scope=\"row\">{}</th>", text(name)),
                    Cell::Nothing => write!(html, "<td class=\"n\">–</td>"),
                };
            }
            html += "</tr>\n";
        }
        html += "</tbody></table></div>\n";
        if !self.left_out.is_empty() {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", text(&self.left_out));
        }
        html
    }
}

/// What is hidden until it is asked for; `body` is HTML.
pub(super) fn details(title: &str, body: &str) -> String {
    format!("<details><summary>{}</summary>\n{body}</details>\n", text(title))
}

/// A paragraph.
pub(super) fn paragraph(words: &str) -> String {
    format!("<p>{}</p>\n", text(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_become_markup() {
        assert_eq!(
            text("<a href='x'>&\"\u{1b}[1m"),
            "&lt;a href=&apos;x&apos;&gt;&amp;&quot;\u{fffd}[1m"
        );
        let table = Table {
            caption: "<c>".into(),
            head: vec!["<h>".into()],
            rows: ["<w>", "<f>"]
                .map(|word| vec![Cell::Word(word.into()), Cell::Best(word.into())])
                .to_vec(),
            left_out: "<l>".into(),
        };
        let html = table.html();
        for word in ["<c>", "<h>", "<w>", "<f>", "<l>"] {
            assert!(
                !html.contains(word)
                    && html.contains(&word.replace('<', "&lt;").replace('>', "&gt;")),
                "{word}"
            );
        }
    }

    #[test]
    fn figures_keep_their_digits() {
        let shown = [0.0, 0.123_456_78, 1e-9, 2e7, f64::NAN].map(number);
        assert_eq!(shown, ["0", "0.12346", "1.0000e-9", "2.0000e7", "not finite"]);
        assert_eq!(
            (grouped(1_234_567), count(1, "run"), short("abcdef", 4)),
            ("1,234,567".into(), "1 run".into(), "abc…".into())
        );
    }
}
