//! Charts of bars with names: bytes of nodes, links and runs.

use super::markup::{self, short};
use gradvine::mixing::sheet::{Anchor, FAINT, GREY, INK, Point, RULE, Sheet, Word, width};

use crate::chart::{COLOURS, Scale, Unit, figure};

/// The width of the page in pixels, and the limits of the bars.
const WIDE: f64 = 900.0;
const RIGHT: f64 = 800.0;
const TOP: f64 = 62.0;
/// The height of a bar, and the room between two rows.
const BAR: f64 = 10.0;
const AIR: f64 = 9.0;
/// The maximum length of a name, in characters.
const LONGEST: usize = 40;

/// Bars of bytes: one row per name, one bar per series.
#[derive(Clone, Debug)]
pub(super) struct Bars {
    /// The title, in bold.
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
        let row = self.series.len() as f64 * BAR + AIR;
        let bottom = TOP + 8.0 + row * self.rows.len() as f64;
        let mut sheet = Sheet::new((WIDE, bottom + 44.0), &self.title);
        sheet.describe(description);
        sheet.write(&Word {
            bold: true,
            ..Word::new((24.0, 24.0), Anchor::Start, &self.title).sized(16.0)
        });
        sheet.write(&Word::new((24.0, 45.0), Anchor::Start, &self.subtitle).coloured(FAINT));
        self.legend(&mut sheet);
        let names: Vec<String> = self.rows.iter().map(|(name, _)| short(name, LONGEST)).collect();
        let left = 34.0 + names.iter().map(|name| width(name, 9.6)).fold(0.0, f64::max);
        let most = self
            .rows
            .iter()
            .flat_map(|(_, values)| values.iter().flatten())
            .fold(0.0, |a: f64, b| a.max(*b));
        let ends = [0.0, if most > 0.0 { most } else { 1.0 }];
        let Some(scale) = Scale::over(ends.into_iter(), false, (left, RIGHT), false) else {
            return sheet.finish();
        };
        for (tick, _) in scale.ticks() {
            let x = scale.place(tick);
            sheet.line((x, TOP), (x, bottom), RULE, "stroke-width=\"1\"");
            let word = Word::new((x, bottom + 16.0), Anchor::Middle, figure(tick, Unit::Bytes));
            sheet.write(&word.sized(11.0).coloured(INK));
        }
        sheet.line((left, TOP), (left, bottom), FAINT, "stroke-width=\"1.2\"");
        for (index, ((_, values), name)) in self.rows.iter().zip(&names).enumerate() {
            let top = TOP + 8.0 + row * index as f64;
            let middle = top + (row - AIR) / 2.0;
            sheet.write(
                &Word::new((left - 8.0, middle), Anchor::End, name).sized(11.0).coloured(INK),
            );
            for (bar, value) in values.iter().enumerate() {
                let at = (left, top + BAR * bar as f64);
                self::bar(at, *value, FILLS[bar % FILLS.len()], &scale, &mut sheet);
            }
        }
        sheet.finish()
    }

    fn legend(&self, sheet: &mut Sheet) {
        let mut x = WIDE - 24.0;
        for (bar, name) in self.series.iter().enumerate().rev() {
            x -= width(name, 10.4);
            sheet.write(&Word::new((x, 45.0), Anchor::Start, *name).coloured(INK));
            x -= 18.0;
            rectangle((x, 39.5), 12.0, 11.0, FILLS[bar % FILLS.len()], sheet);
            x -= 14.0;
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
