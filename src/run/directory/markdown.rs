//! Tables in Markdown whose columns are aligned in the text, too.

use std::fmt;

/// A table; the first line names its columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Whether each column is aligned to the right.
    right: Vec<bool>,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. A name that ends with `>` makes a column of numbers.
    pub(crate) fn new(heads: &[impl AsRef<str>]) -> Table {
        let heads = || heads.iter().map(AsRef::as_ref);
        let name = |head: &str| head.strip_suffix('>').unwrap_or(head).to_string();
        Table {
            right: heads().map(|head| head.ends_with('>')).collect(),
            lines: vec![heads().map(name).collect()],
        }
    }

    /// Adds a line of as many cells, which [`escape`] has prepared.
    ///
    /// # Panics
    /// If there are more or fewer cells than columns.
    pub(crate) fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.right.len(), "a cell for each column");
        self.lines.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |cell: &String| cell.chars().count();
        let widest = |column: usize| self.lines.iter().map(|line| width(&line[column])).max();
        let widths: Vec<usize> =
            (0..self.right.len()).map(|column| widest(column).unwrap_or(0).max(3)).collect();
        for (index, line) in self.lines.iter().enumerate() {
            for ((cell, &width), &right) in line.iter().zip(&widths).zip(&self.right) {
                match right {
                    true => write!(f, "| {cell:>width$} ")?,
                    false => write!(f, "| {cell:<width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if index == 0 {
                for (&width, &right) in widths.iter().zip(&self.right) {
                    let end = if right { ':' } else { '-' };
                    write!(f, "|{}{end}", "-".repeat(width + 1))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// A text within a cell or a line, such as a column's name: it ends neither.
pub(super) fn escape(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let is_letter = |at: Option<usize>| {
        at.and_then(|at| chars.get(at)).is_some_and(|c| c.is_alphanumeric() || *c == '_')
    };
    let escaped = |(at, &c): (usize, &char)| match c {
        // Within a word it has no meaning.
        '_' if is_letter(at.checked_sub(1)) && is_letter(Some(at + 1)) => "_".into(),
        '|' | '\\' | '`' | '*' | '_' | '<' | '[' => format!("\\{c}"),
        c if c.is_control() => " ".into(),
        c => c.to_string(),
    };
    chars.iter().enumerate().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cells_stay_cells() {
        let mut table = Table::new(&["site", "rows>"]);
        table.add([escape("Köln | a\nb"), "12".into()]);
        table.add([escape("x_y_"), "1234567".into()]);
        let expected = "\
| site        |    rows |
|-------------|--------:|
| Köln \\| a b |      12 |
| x_y\\_       | 1234567 |
";
        assert_eq!(table.to_string(), expected);
    }
}
