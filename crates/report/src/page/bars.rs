//! Charts of bars with names: bytes of nodes, links and runs.

use super::markup::{self, short};
use crate::sheet::{Anchor, FAINT, GREY, INK, Point, RULE, Sheet, Word, width};

use crate::chart::{COLOURS, Scale, Spacing, Unit, figure};

/// The height of a bar, and the room between two rows.
const BAR: f64 = 10.0;
const AIR: f64 = 9.0;

/// The measures of a drawing, in pixels.
struct Frame {
    /// The width of the page.
    wide: f64,
    /// The right and the upper limit of the bars.
    right: f64,
    top: f64,
    /// The size of the title, and where the subtitle is.
    title: f64,
    under: f64,
    margin: f64,
    /// The maximum length of a name, in characters.
    longest: usize,
}

const WIDE: Frame = Frame {
    wide: 900.0,
    right: 800.0,
    top: 62.0,
    title: 16.0,
    under: 45.0,
    margin: 24.0,
    longest: 40,
};
const NARROW: Frame = Frame {
    wide: 360.0,
    right: 298.0,
    top: 76.0,
    title: 13.0,
    under: 36.0,
    margin: 8.0,
    longest: 14,
};

/// Bars of bytes: one row per name, one bar per series.
#[derive(Clone, Debug)]
pub(super) struct Bars {
    pub title: String,
    /// The line below the title, smaller.
    pub subtitle: String,
    /// The names of a row's bars, at most four.
    pub series: Vec<&'static str>,
    /// The rows from above, each with one value per series.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// The colours of the series, in order.
const FILLS: [&str; 4] = [COLOURS[0], COLOURS[1], GREY, COLOURS[2]];

impl Bars {
    /// The bars as an SVG file; `description` is the text for screen readers after the title.
    pub(super) fn svg(&self, description: &str) -> String {
        self.drawn(&WIDE, description)
    }

    /// The same for narrow screens.
    pub(super) fn narrow(&self, description: &str) -> String {
        self.drawn(&NARROW, description)
    }

    fn drawn(&self, frame: &Frame, description: &str) -> String {
        let (top, margin) = (frame.top, frame.margin);
        let row = self.series.len() as f64 * BAR + AIR;
        let bottom = top + 8.0 + row * self.rows.len() as f64;
        let mut sheet = Sheet::new((frame.wide, bottom + 44.0), &self.title);
        sheet.describe(description);
        // A long title gets smaller.
        let room = (frame.wide - 2.0 * margin) / (width(&self.title, 0.86) + 0.1);
        sheet.write(&Word {
            bold: true,
            ..Word::new((margin, frame.under - 21.0), Anchor::Start, &self.title)
                .sized(frame.title.min(room))
        });
        let under = Word::new((margin, frame.under), Anchor::Start, &self.subtitle);
        sheet.write(&under.coloured(FAINT));
        self.legend(frame, &mut sheet);
        let names: Vec<String> =
            self.rows.iter().map(|(name, _)| short(name, frame.longest)).collect();
        let left = margin + 10.0 + names.iter().map(|name| width(name, 9.6)).fold(0.0, f64::max);
        let most = self
            .rows
            .iter()
            .flat_map(|(_, values)| values.iter().flatten())
            .fold(0.0, |a: f64, b| a.max(*b));
        let ends = [0.0, if most > 0.0 { most } else { 1.0 }];
        let limits = (left, frame.right);
        let Some(scale) = Scale::over(ends.into_iter(), Spacing::Linear, limits, false) else {
            return sheet.finish();
        };
        for (tick, _) in scale.ticks(if frame.wide < 500.0 { 3 } else { 6 }) {
            let x = scale.place(tick);
            sheet.line((x, top), (x, bottom), RULE, "stroke-width=\"1\"");
            let word = Word::new((x, bottom + 16.0), Anchor::Middle, figure(tick, Unit::Bytes));
            sheet.write(&word.sized(11.0).coloured(INK));
        }
        sheet.line((left, top), (left, bottom), FAINT, "stroke-width=\"1.2\"");
        for (index, ((_, values), name)) in self.rows.iter().zip(&names).enumerate() {
            let above = top + 8.0 + row * index as f64;
            let middle = above + (row - AIR) / 2.0;
            sheet.write(
                &Word::new((left - 8.0, middle), Anchor::End, name).sized(11.0).coloured(INK),
            );
            for (bar, value) in values.iter().enumerate() {
                let at = (left, above + BAR * bar as f64);
                self::bar(at, *value, FILLS[bar % FILLS.len()], &scale, &mut sheet);
            }
        }
        sheet.finish()
    }

    /// The names of the series: at the right of the subtitle, or below it on a narrow page.
    fn legend(&self, frame: &Frame, sheet: &mut Sheet) {
        let narrow = frame.wide < 500.0;
        let height = if narrow { frame.under + 20.0 } else { frame.under };
        let long = |name: &str| width(name, 10.4) + 32.0;
        let whole: f64 = self.series.iter().map(|name| long(name)).sum();
        let mut x = if narrow { frame.margin } else { frame.wide - frame.margin - whole + 14.0 };
        for (bar, name) in self.series.iter().enumerate() {
            rectangle((x, height - 5.5), 12.0, 11.0, FILLS[bar % FILLS.len()], sheet);
            sheet.write(&Word::new((x + 18.0, height), Anchor::Start, *name).coloured(INK));
            x += long(name);
        }
    }
}

fn bar((x, y): Point, value: Option<f64>, fill: &str, scale: &Scale, sheet: &mut Sheet) {
    let Some(value) = value else { return };
    let long = (scale.place(value) - x).max(0.0);
    rectangle((x, y), long.max(0.8), BAR - 1.5, fill, sheet);
    let word =
        Word::new((x + long + 5.0, y + BAR / 2.0 - 0.7), Anchor::Start, markup::bytes(value));
    sheet.letters(&word.sized(9.0).coloured(FAINT), "");
}

fn rectangle((x, y): Point, wide: f64, high: f64, fill: &str, sheet: &mut Sheet) {
    sheet.raw(format_args!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"{fill}\"/>"
    ));
}
