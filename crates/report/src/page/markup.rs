//! Pieces of HTML. Every text that comes from a file passes through [`text`].

use std::fmt::Write as _;

use quick_xml::escape::escape;

use gradvine::units::Bytes;

pub(super) use crate::text::short;

/// Escapes a text for HTML: markup becomes letters, and control characters become a visible sign.
pub(super) fn text(raw: &str) -> String {
    escape(visible(raw)).into_owned()
}

/// Replaces control characters other than line ends by a sign: XML cannot contain them.
pub(super) fn visible(raw: &str) -> String {
    raw.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

/// A number with its noun.
pub(super) fn count(n: usize, word: &str) -> String {
    format!("{} {word}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// A whole number with separated thousands.
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

/// A figure with enough digits to distinguish two runs.
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

/// Bytes; a mean may have a fraction.
pub(super) fn bytes(x: f64) -> String {
    Bytes(x.round() as u64).to_string()
}

/// A share as per cent.
pub(super) fn percent(x: f64) -> String {
    format!("{:.2} %", 100.0 * x)
}

/// The content of a table's cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// Words, aligned left.
    Word(String),
    /// A figure, aligned right.
    Figure(String),
    /// The best figure of its column.
    Best(String),
    Name(String),
    Nothing,
}

/// Words of at most this many characters stay in one line.
const SHORT: usize = 14;

/// A table: its columns, and the rows that are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The caption, for screen readers and readers of print.
    pub caption: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// The rows, each as long as `head`.
    pub rows: Vec<Vec<Cell>>,
    /// The number of rows left out, in a sentence; empty if none.
    pub left_out: String,
}

impl Table {
    /// The table as HTML, in a box that scrolls by itself on a narrow page.
    pub(super) fn html(&self) -> String {
        let mut html = String::from("<div class=\"table\" tabindex=\"0\" role=\"group\"");
        let _ = writeln!(
            html,
            " aria-label=\"{0}\"><table><caption>{0}</caption><thead><tr>",
            text(&self.caption)
        );
        for (column, word) in self.head.iter().enumerate() {
            let side = if self.has_figures(column) { " class=\"n\"" } else { "" };
            let _ = write!(html, "<th scope=\"col\"{side}>{}</th>", text(word));
        }
        html += "</tr></thead><tbody>\n";
        for row in &self.rows {
            html += "<tr>";
            for cell in row {
                let _ = match cell {
                    Cell::Word(word) => {
                        let short = word.chars().count() <= SHORT;
                        let whole = if short { " class=\"w\"" } else { "" };
                        write!(html, "<td{whole}>{}</td>", text(word))
                    }
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

    /// Whether a column has figures only, so that its name is aligned as they are.
    fn has_figures(&self, column: usize) -> bool {
        let is_figure = |row: &Vec<Cell>| {
            matches!(row.get(column), Some(Cell::Figure(_) | Cell::Best(_) | Cell::Nothing))
        };
        !self.rows.is_empty() && self.rows.iter().all(is_figure)
    }
}

/// Content that the reader can open; `body` is HTML.
pub(super) fn details(title: &str, body: &str) -> String {
    format!("<details><summary>{}</summary>\n{body}</details>\n", text(title))
}

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
