//! Tables of text, and short texts.

/// Writes rows as lines of columns, two spaces apart. The columns at the positions `left` are
/// aligned to the left, the others to the right. Rows may have fewer cells than the longest one.
pub fn aligned<Row: AsRef<[String]>>(rows: &[Row], left: &[usize]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.as_ref().iter().map(|cell| on_a_line(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells
            .map(|(column, (cell, &width))| match left.contains(&column) {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            })
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
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
}
