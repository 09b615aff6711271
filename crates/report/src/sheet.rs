//! An SVG under construction, with the areas that words and nodes occupy.

use std::fmt::{Display, Write as _};

use quick_xml::escape::escape;

/// The width of a character in units of its font size, a little more than that of a digit in wide
/// sans-serif fonts.
const ADVANCE: f64 = 0.64;
/// The free room between two words.
const AIR: f64 = 1.0;

/// A point, in pixels from the upper left corner.
pub(crate) type Point = (f64, f64);

/// The position of a word's anchor point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A word: its position, size and colour.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    /// Where on the sheet `anchor` of the word lies.
    pub at: Point,
    /// Where in the word the anchor point is.
    pub anchor: Anchor,
    /// Height of the letters, in pixels.
    pub size: f64,
    /// A colour as CSS has it.
    pub colour: &'static str,
    pub bold: bool,
    pub text: String,
}

/// A rectangle, in pixels from the top left corner.
#[allow(missing_docs, reason = "the four edges")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Word {
    /// A dark word in the size of plain text, whose anchor point is at half its height.
    pub(crate) fn new(at: Point, anchor: Anchor, text: impl Into<String>) -> Word {
        Word { at, anchor, size: 12.0, colour: INK, bold: false, text: text.into() }
    }

    /// The same word in another size.
    pub(crate) fn sized(self, size: f64) -> Word {
        Word { size, ..self }
    }

    /// The same word in another colour.
    pub(crate) fn coloured(self, colour: &'static str) -> Word {
        Word { colour, ..self }
    }

    /// The area that it occupies.
    pub(crate) fn extent(&self) -> Extent {
        let (x, y) = self.at;
        let width = width(&self.text, self.size);
        let left = match self.anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        Extent { left, top: y - self.size / 2.0, right: left + width, bottom: y + self.size / 2.0 }
    }
}

/// The width of a text, in pixels.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let wide = |c: char| if c >= '\u{1100}' { 1.05 } else { ADVANCE };
    size * text.chars().map(wide).sum::<f64>()
}

impl Extent {
    /// A square around a point.
    pub(crate) fn around((x, y): Point, half: f64) -> Extent {
        Extent { left: x - half, top: y - half, right: x + half, bottom: y + half }
    }

    /// Whether the two overlap, or nearly so.
    pub(crate) fn meets(&self, other: &Extent) -> bool {
        self.left < other.right + AIR
            && other.left < self.right + AIR
            && self.top < other.bottom + AIR
            && other.top < self.bottom + AIR
    }

    /// Whether a point lies inside.
    pub(crate) fn holds(&self, (x, y): Point) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }
}

/// Text and lines.
pub(crate) const INK: &str = "#1b2733";
/// Secondary text.
pub(crate) const FAINT: &str = "#5d6b78";
/// Grid lines.
pub(crate) const RULE: &str = "#d5dce3";
/// Nodes.
pub(crate) const BLUE: &str = "#2b6cb0";
pub(crate) const ORANGE: &str = "#b45309";
/// An error.
pub(crate) const RED: &str = "#b91c1c";
/// What is inactive.
pub(crate) const GREY: &str = "#8fa3b8";

pub(crate) struct Sheet {
    size: Point,
    body: String,
    /// The areas where a word would cover something.
    pub(crate) taken: Vec<Extent>,
}

impl Sheet {
    /// A white sheet; `title` is the text for screen readers.
    pub(crate) fn new(size: Point, title: &str) -> Sheet {
        let mut sheet = Sheet { size, body: String::new(), taken: Vec::new() };
        sheet.raw(format_args!("<title>{}</title>", escape(title)));
        sheet.raw(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"));
        sheet
    }

    /// Adds an element of SVG as it is.
    pub(crate) fn raw(&mut self, element: impl Display) {
        let _ = writeln!(self.body, "{element}");
    }

    /// A straight line; `more` has further attributes.
    pub(crate) fn line(&mut self, from: Point, to: Point, colour: &str, more: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let ends = format!("x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
        self.raw(format_args!("<line {ends} stroke=\"{colour}\" {more}/>"));
    }

    pub(crate) fn disc(&mut self, (x, y): Point, radius: f64, fill: &str) {
        self.raw(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{fill}\"/>"
        ));
    }

    /// Writes a word at its position, and occupies its area.
    pub(crate) fn write(&mut self, word: &Word) {
        self.taken.push(word.extent());
        self.letters(word, "");
    }

    /// Writes a word without occupying its area; `more` has further attributes.
    pub(crate) fn letters(&mut self, word: &Word, more: &str) {
        let anchor = match word.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (word.at.0, word.at.1 + 0.36 * word.size);
        let weight = if word.bold { " font-weight=\"bold\"" } else { "" };
        let Word { size, colour, text, .. } = word;
        self.raw(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" text-anchor=\"{anchor}\" \
             fill=\"{colour}\"{weight} {more}>{}</text>",
            escape(text.as_str())
        ));
    }

    /// Whether a word would overlap nothing and lie on the sheet.
    pub(crate) fn free(&self, extent: &Extent) -> bool {
        let inside = extent.left >= 2.0
            && extent.top >= 2.0
            && extent.right <= self.size.0 - 2.0
            && extent.bottom <= self.size.1 - 2.0;
        inside && !self.taken.iter().any(|other| other.meets(extent))
    }

    /// The complete `<svg>` element.
    pub(crate) fn finish(self) -> String {
        let (width, height) = self.size;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" \
             font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\" \
             role=\"img\">\n{}</svg>\n",
            self.body
        )
    }
}
