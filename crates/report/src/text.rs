//! Tables of text, and short texts.

use textwrap::{Options, WordSeparator, WordSplitter, fill};
use unicode_width::UnicodeWidthStr;

/// Between two columns.
const GAP: usize = 2;

/// Writes rows as lines of columns, two spaces apart. The columns at the positions `left` are
/// aligned to the left, the others to the right. Rows may have fewer cells than the longest one.
pub fn aligned<Row: AsRef<[String]>>(rows: &[Row], left: &[usize]) -> String {
    let rows = lines(rows);
    let shown: Vec<usize> = (0..widths(&rows).len()).collect();
    joined(&rows, left, &shown)
}

/// As [`aligned`], where lines have at most `width` columns, if that is known: a terminal has so
/// many. Columns whose heads are in `least` are left out one after another until the rest fits, and
/// a last line names them.
pub fn fitted<Row: AsRef<[String]>>(
    rows: &[Row],
    left: &[usize],
    least: &[&str],
    width: Option<usize>,
) -> String {
    let rows = lines(rows);
    let widths = widths(&rows);
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    let is_wide = |shown: &[usize]| {
        let all: usize = shown.iter().map(|&column| widths[column] + GAP).sum();
        width.is_some_and(|width| all > width + GAP)
    };
    let mut dropped = Vec::new();
    for head in least {
        if !is_wide(&shown) {
            break;
        }
        let is_it = |column: usize| rows[0].get(column).is_some_and(|cell| cell.trim() == *head);
        let before = shown.len();
        shown.retain(|&column| !is_it(column));
        dropped.extend((shown.len() < before).then_some(*head));
    }
    let mut text = joined(&rows, left, &shown);
    if !dropped.is_empty() {
        let dropped = dropped.join(", ");
        let words = format!("not shown: {dropped} (see --json, or a wider terminal)");
        text += &wrapped("", &words, width);
    }
    text
}

/// The rows with cells that are lines.
fn lines<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<Vec<String>> {
    rows.iter().map(|row| row.as_ref().iter().map(|cell| on_a_line(cell)).collect()).collect()
}

/// The width of each column.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths = vec![0; rows.iter().map(Vec::len).max().unwrap_or(0)];
    for row in rows {
        let cells = widths.iter_mut().zip(row);
        cells.for_each(|(width, cell)| *width = cell.width().max(*width));
    }
    widths
}

/// The columns at the positions `shown` as lines.
fn joined(rows: &[Vec<String>], left: &[usize], shown: &[usize]) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for row in rows {
        let cells = shown.iter().filter_map(|&column| Some((column, row.get(column)?)));
        let cells: Vec<String> = cells
            .map(|(column, cell)| {
                let spaces = " ".repeat(widths[column] - cell.width());
                if left.contains(&column) { format!("{cell}{spaces}") } else { spaces + cell }
            })
            .collect();
        text += cells.join(&" ".repeat(GAP)).trim_end();
        text.push('\n');
    }
    text
}

/// The least width of a text beside a column of words; where it is less, the next lines of a text
/// begin further to the left.
const NARROWEST: usize = 30;

/// Where they begin then.
const STEP: usize = 4;

/// A line that begins with `head`, wrapped to the columns of the terminal, if it is shown on one.
/// The next lines begin below the text. Words stay whole: a path can be copied.
pub fn wrapped(head: &str, words: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return format!("{head}{words}\n") };
    let below = head.width();
    let indent = head.chars().take_while(|one| *one == ' ').count();
    let near = if width < below + NARROWEST { indent.min(STEP) + STEP } else { below };
    let indent = " ".repeat(near.min(below));
    let options = Options::new(width)
        .initial_indent(head)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    fill(words, options) + "\n"
}

/// Text without line ends and tabs, which the name of a class may have.
pub fn on_a_line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\t', "\\t")
}

/// At most this many characters; dots replace the rest.
pub(crate) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A figure with four decimals; a very small or large one with an exponent.
pub fn number(value: f64) -> String {
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) {
        format!("{value:.4}")
    } else {
        format!("{value:.3e}")
    }
}

/// A loss with five decimals; a very small or large one with an exponent.
pub fn loss(value: f64) -> String {
    if value == 0.0 || (1e-5..1e6).contains(&value.abs()) {
        format!("{value:.5}")
    } else {
        format!("{value:.4e}")
    }
}

/// A number with its noun.
pub(crate) fn count(n: usize, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [["node", "rows", "note"], ["é", "1234567", ""]].map(|row| row.map(String::from));
        assert_eq!(aligned(&rows, &[0, 2]), "node     rows  note\né     1234567\n");
        let lines = [["a\nb", "c"]].map(|row| row.map(String::from));
        assert_eq!(aligned(&lines, &[0]), "a\\nb  c\n");
        let short = vec![vec!["a".to_string()], vec!["b".to_string(), "c".to_string()]];
        assert_eq!(aligned(&short, &[]), "a\nb  c\n");
    }

    /// A table of 40 columns.
    fn wide() -> Vec<Vec<String>> {
        [
            ["node", "rows", "classes (rows)", "own", "sent"],
            ["oslo", "1234", "a (617), b (617)", "93.1%", "1.2 MB"],
        ]
        .map(|row| row.map(String::from).to_vec())
        .to_vec()
    }

    #[test]
    fn columns_that_do_not_fit_are_dropped_in_their_order_and_named() {
        let least = ["classes (rows)", "no such column", "sent", "rows"];
        let of = |width| fitted(&wide(), &[0, 2], &least, width);
        let whole = aligned(&wide(), &[0, 2]);
        assert_eq!(of(None), whole);
        assert_eq!(whole.lines().map(UnicodeWidthStr::width).max(), Some(43));
        assert_eq!(of(Some(43)), whole);
        assert_eq!(
            of(Some(42)),
            "node  rows    own    sent\noslo  1234  93.1%  1.2 MB\n\
             not shown: classes (rows) (see --json, or\na wider terminal)\n"
        );
        assert_eq!(
            of(Some(24)),
            "node  rows    own\noslo  1234  93.1%\n\
             not shown: classes\n(rows), sent (see\n--json, or a wider\nterminal)\n"
        );
        // What is not in the list stays, even if it does not fit.
        assert!(of(Some(3)).starts_with("node    own\noslo  93.1%\nnot\nshown:\n"));
    }

    #[test]
    fn letters_of_two_columns_count_twice() {
        let rows = [["\u{4e00}", "1"], ["ab", "22"]].map(|row| row.map(String::from));
        assert_eq!(aligned(&rows, &[0]), "\u{4e00}   1\nab  22\n");
        let cut = fitted(&rows, &[0], &["1"], Some(5));
        assert!(cut.starts_with("\u{4e00}\nab\nnot\n"), "{cut}");
    }
}
