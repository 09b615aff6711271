//! A canvas of characters with lines in Braille, eight dots per character.

/// Dots per character, horizontally and vertically.
const ACROSS: usize = 2;
const DOWN: usize = 4;
/// The first of the Braille patterns, the one without dots.
const BLANK: u32 = 0x2800;
/// The bit of each dot of a character in the pattern, row by row.
const BITS: [[u32; ACROSS]; DOWN] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

pub(super) struct Canvas {
    columns: usize,
    dots: Vec<u32>,
    letters: Vec<Option<char>>,
}

impl Canvas {
    /// An empty canvas of this many characters.
    pub(super) fn new(columns: usize, rows: usize) -> Canvas {
        Canvas { columns, dots: vec![0; columns * rows], letters: vec![None; columns * rows] }
    }

    /// Sets one dot; dots outside are ignored.
    pub(super) fn dot(&mut self, x: usize, y: usize) {
        let (column, row) = (x / ACROSS, y / DOWN);
        if column < self.columns && row * self.columns < self.dots.len() {
            self.dots[row * self.columns + column] |= BITS[y % DOWN][x % ACROSS];
        }
    }

    /// A straight line between two points, in dots.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let steps = f64::max((to.0 - from.0).abs(), (to.1 - from.1).abs()).ceil().max(1.0);
        for step in 0..=steps as usize {
            let share = step as f64 / steps;
            let at = |a: f64, b: f64| (a + (b - a) * share).round().max(0.0) as usize;
            self.dot(at(from.0, to.0), at(from.1, to.1));
        }
    }

    /// Writes a word centred on a character, over the dots, with a blank on either side; it is
    /// moved inside if it would leave the canvas.
    pub(super) fn write(&mut self, column: usize, row: usize, word: &str) {
        let word = format!(" {word} ");
        let width = word.chars().count();
        let start = column.saturating_sub(width / 2).min(self.columns.saturating_sub(width));
        let cells = self.letters[row * self.columns..].iter_mut().take(self.columns).skip(start);
        for (cell, letter) in cells.zip(word.chars()) {
            // A neighbour's name is not overwritten with a blank.
            if letter != ' ' || cell.is_none() {
                *cell = Some(letter);
            }
        }
    }

    /// The rows, without trailing blanks.
    pub(super) fn lines(&self) -> Vec<String> {
        let cell = |(&dots, &letter): (&u32, &Option<char>)| match (letter, dots) {
            (Some(letter), _) => letter,
            (None, 0) => ' ',
            (None, dots) => {
                char::from_u32(BLANK + dots).expect("Braille patterns fill a block of 256")
            }
        };
        let rows = self.dots.chunks(self.columns).zip(self.letters.chunks(self.columns));
        rows.map(|(dots, letters)| {
            dots.iter().zip(letters).map(cell).collect::<String>().trim_end().to_string()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_words() {
        let mut canvas = Canvas::new(5, 2);
        canvas.line((0.0, 0.0), (9.0, 0.0));
        canvas.dot(0, 7);
        canvas.dot(99, 99);
        assert_eq!(canvas.lines(), ["⠉⠉⠉⠉⠉", "⡀"]);
        canvas.write(2, 0, "a");
        assert_eq!(canvas.lines()[0], "⠉ a ⠉");
        canvas.write(4, 1, "xyz");
        assert_eq!(canvas.lines()[1], " xyz");
    }
}
