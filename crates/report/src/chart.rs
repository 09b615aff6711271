//! Line charts as SVG: one line per name, a band around it, and a legend at the ends of the lines.
//!
//! Made for documents: 900 pixels wide, dark words on white, colours that colour-blind readers can
//! distinguish (Okabe and Ito, "Color Universal Design", 2008, darkened for thin lines), dashes
//! from the ninth line on.

use gradvine::mixing::sheet::{Anchor, FAINT, INK, Point, RULE, Sheet, Word, width};

/// The page, and the frame of the plot in it, in pixels. The right edge leaves room for the legend.
const PAGE: Point = (900.0, 500.0);
const LEFT: f64 = 78.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 432.0;
const NARROWEST: f64 = 500.0;
/// The legend: size of letters, minimum distance of lines, and maximum length of a name in
/// characters.
const LETTERS: f64 = 11.5;
const LINE: f64 = 16.0;
const LONGEST: usize = 44;
/// The maximum span of a logarithmic axis, in decades.
const MOST_DECADES: f64 = 14.0;

/// In the order of lines.
pub(super) const COLOURS: [&str; 8] =
    ["#0064a8", "#d55e00", "#008a62", "#b0427f", "#1b2733", "#a87900", "#3a9bd1", "#7a4ea3"];
const DASHES: [&str; 3] = ["", "7 3", "2 3"];

/// The unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers.
    Plain,
    /// Bytes, in decimal units.
    Bytes,
    /// Shares of 1, shown as per cent.
    Percent,
}

/// One of the two axes.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its label.
    pub words: String,
    /// Its unit.
    pub unit: Unit,
    /// Whether it is logarithmic; figures at or below 0 are then left out.
    pub log: bool,
}

/// A point of a line: the mean over seeds, and the least and the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// The horizontal position.
    pub x: f64,
    /// The vertical position.
    pub y: f64,
    /// The lower edge of the band.
    pub low: f64,
    /// Its upper edge.
    pub high: f64,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// From left to right.
    pub dots: Vec<Dot>,
    /// Whether it ended by divergence: a cross marks the end.
    pub broken: bool,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title, in bold.
    pub title: String,
    /// The line below the title, smaller.
    pub subtitle: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Lines that rise above this leave the plot.
    pub ceiling: Option<f64>,
    /// In the order of the colours.
    pub lines: Vec<Line>,
}

impl Chart {
    /// The chart as an SVG file.
    pub fn svg(&self) -> String {
        self.drawn("plot", "")
    }

    /// The same for a document with several pictures: `clip` is the one id in it, `description` the
    /// text for screen readers after the title.
    pub fn drawn(&self, clip: &str, description: &str) -> String {
        let mut sheet = Sheet::new(PAGE, &self.title);
        sheet.describe(description);
        sheet.write(&Word {
            bold: true,
            ..Word::new((24.0, 24.0), Anchor::Start, &self.title).sized(16.0)
        });
        sheet.write(&Word::new((24.0, 45.0), Anchor::Start, &self.subtitle).coloured(FAINT));
        let names: Vec<String> = self.lines.iter().map(label).collect();
        let longest = names.iter().map(|name| width(name, 0.86 * LETTERS)).fold(0.0, f64::max);
        let right = (PAGE.0 - 62.0 - longest).max(NARROWEST);
        let (Some(x), Some(y)) = (self.across(right), self.upwards()) else {
            let nothing = Word::new(
                (LEFT, f64::midpoint(TOP, BOTTOM)),
                Anchor::Start,
                "There is nothing to draw.",
            );
            sheet.write(&nothing);
            return sheet.finish();
        };
        self.axes(&x, &y, right, &mut sheet);
        sheet.raw(format_args!(
            "<clipPath id=\"{clip}\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" \
             height=\"{:.1}\"/></clipPath>",
            right - LEFT,
            BOTTOM - TOP
        ));
        for (index, line) in self.lines.iter().enumerate() {
            band(line, index, clip, &x, &y, &mut sheet);
        }
        for (index, line) in self.lines.iter().enumerate() {
            stroke(line, index, clip, &x, &y, &mut sheet);
        }
        self.legend(&names, &x, &y, right, &mut sheet);
        sheet.finish()
    }

    fn across(&self, right: f64) -> Option<Scale> {
        let values = self.lines.iter().flat_map(|line| line.dots.iter().map(|dot| dot.x));
        Scale::over(values, self.x.log, (LEFT, right), false)
    }

    fn upwards(&self) -> Option<Scale> {
        let most = self.ceiling.unwrap_or(f64::INFINITY);
        let dots = self.lines.iter().flat_map(|line| &line.dots);
        let values = dots
            .flat_map(|dot| [dot.y, dot.low, dot.high])
            .map(|y| if y > most { most } else { y });
        Scale::over(values, self.y.log, (BOTTOM, TOP), true)
    }

    fn axes(&self, x: &Scale, y: &Scale, right: f64, sheet: &mut Sheet) {
        for (tick, major) in y.ticks() {
            let at = y.place(tick);
            sheet.line(
                (LEFT, at),
                (right, at),
                RULE,
                if major { "stroke-width=\"1\"" } else { "stroke-width=\"0.4\"" },
            );
            if major {
                let word = Word::new((LEFT - 7.0, at), Anchor::End, figure(tick, self.y.unit));
                sheet.write(&word.sized(11.0).coloured(INK));
            }
        }
        for (tick, major) in x.ticks() {
            let at = x.place(tick);
            sheet.line(
                (at, BOTTOM),
                (at, BOTTOM + if major { 6.0 } else { 3.0 }),
                FAINT,
                "stroke-width=\"1\"",
            );
            if major {
                let word =
                    Word::new((at, BOTTOM + 16.0), Anchor::Middle, figure(tick, self.x.unit));
                sheet.write(&word.sized(11.0).coloured(INK));
            }
        }
        sheet.line((LEFT, BOTTOM), (right, BOTTOM), FAINT, "stroke-width=\"1.2\"");
        sheet.line((LEFT, TOP), (LEFT, BOTTOM), FAINT, "stroke-width=\"1.2\"");
        let middle = f64::midpoint(LEFT, right);
        sheet.write(
            &Word::new((middle, BOTTOM + 40.0), Anchor::Middle, &self.x.words).coloured(INK),
        );
        let at = (18.0, f64::midpoint(TOP, BOTTOM));
        let turn = format!("transform=\"rotate(-90 {} {})\"", at.0, at.1);
        sheet.letters(&Word::new(at, Anchor::Middle, &self.y.words).coloured(INK), &turn);
    }

    /// Writes the names at the ends of their lines, moved apart if they would overlap. A line
    /// without a dot keeps its colour and has no name here.
    fn legend(&self, names: &[String], x: &Scale, y: &Scale, right: f64, sheet: &mut Sheet) {
        let mut ends: Vec<(usize, f64, f64)> = Vec::new();
        for (index, line) in self.lines.iter().enumerate().filter(|(_, line)| !line.dots.is_empty())
        {
            let last = line.dots.iter().rev().find(|dot| x.has(dot.x) && y.has(dot.y));
            let end = last
                .map_or((LEFT, BOTTOM), |dot| (x.place(dot.x), y.place(dot.y).clamp(TOP, BOTTOM)));
            ends.push((index, end.0, end.1));
        }
        ends.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.0.cmp(&b.0)));
        let heights = apart(&ends.iter().map(|end| end.2).collect::<Vec<_>>());
        let spare = PAGE.0 - right - 56.0;
        for (&(index, end, height), placed) in ends.iter().zip(heights) {
            let colour = COLOURS[index % COLOURS.len()];
            if right - end < 6.0 {
                let from = (right + 3.0, height);
                sheet.line(from, (right + 14.0, placed), RULE, "stroke-width=\"1\"");
            }
            let dashes = DASHES[index / COLOURS.len() % DASHES.len()];
            let more = format!("stroke-width=\"2.4\" stroke-dasharray=\"{dashes}\"");
            sheet.line((right + 16.0, placed), (right + 40.0, placed), colour, &more);
            let name = &names[index];
            let size = (LETTERS * spare / (width(name, 0.86 * LETTERS) + 0.1)).min(LETTERS);
            sheet.write(&Word::new((right + 46.0, placed), Anchor::Start, name).sized(size));
        }
    }
}

/// The legend's text for a line.
fn label(line: &Line) -> String {
    let mut name: String = line.name.chars().take(LONGEST).collect();
    if name.len() < line.name.len() {
        name.pop();
        name.push('…');
    }
    name + if line.broken { " (diverged)" } else { "" }
}

fn band(line: &Line, index: usize, clip: &str, x: &Scale, y: &Scale, sheet: &mut Sheet) {
    let colour = COLOURS[index % COLOURS.len()];
    let dots: Vec<&Dot> = line.dots.iter().filter(|dot| x.has(dot.x) && y.has(dot.y)).collect();
    if dots.len() < 2 || dots.iter().all(|dot| dot.low >= dot.high) {
        return;
    }
    let low = |dot: &Dot| if y.has(dot.low) { y.place(dot.low) } else { BOTTOM };
    let there = dots.iter().map(|dot| (x.place(dot.x), y.place(dot.high)));
    let back = dots.iter().rev().map(|dot| (x.place(dot.x), low(dot)));
    sheet.raw(format_args!(
        "<path d=\"{}Z\" fill=\"{colour}\" fill-opacity=\"0.13\" clip-path=\"url(#{clip})\"/>",
        path(there.chain(back))
    ));
}

fn stroke(line: &Line, index: usize, clip: &str, x: &Scale, y: &Scale, sheet: &mut Sheet) {
    let colour = COLOURS[index % COLOURS.len()];
    let dashes = DASHES[index / COLOURS.len() % DASHES.len()];
    let dots: Vec<&Dot> = line.dots.iter().filter(|dot| x.has(dot.x) && y.has(dot.y)).collect();
    let Some(last) = dots.last() else { return };
    let way = path(dots.iter().map(|dot| (x.place(dot.x), y.place(dot.y))));
    sheet.raw(format_args!(
        "<path d=\"{way}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
         stroke-linejoin=\"round\" stroke-dasharray=\"{dashes}\" clip-path=\"url(#{clip})\"/>"
    ));
    let end = (x.place(last.x), y.place(last.y).clamp(TOP, BOTTOM));
    if line.broken {
        for (dx, dy) in [(4.5, 4.5), (4.5, -4.5)] {
            sheet.line(
                (end.0 - dx, end.1 - dy),
                (end.0 + dx, end.1 + dy),
                colour,
                "stroke-width=\"2.2\"",
            );
        }
    } else {
        sheet.disc(end, 3.0, colour);
    }
}

fn path(points: impl Iterator<Item = Point>) -> String {
    let mut text = String::new();
    for (index, (x, y)) in points.enumerate() {
        text += &format!("{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    text
}

/// Moves ascending heights apart, as little as necessary, inside the page.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let lowest = PAGE.1 - 12.0;
    let mut placed: Vec<f64> = Vec::with_capacity(wanted.len());
    for &y in wanted {
        placed.push(placed.last().map_or(y, |last| y.max(last + LINE)));
    }
    let mut limit = lowest;
    for y in placed.iter_mut().rev() {
        *y = y.min(limit);
        limit = *y - LINE;
    }
    placed
}

/// A mapping from figures to pixels.
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    pixels: (f64, f64),
}

impl Scale {
    /// A scale over these figures, with a little room at the ends if `roomy`; `None` if none can be
    /// shown.
    pub(super) fn over(
        values: impl Iterator<Item = f64>,
        log: bool,
        pixels: (f64, f64),
        roomy: bool,
    ) -> Option<Scale> {
        let shown = values
            .filter(|x| x.is_finite() && (!log || *x > 0.0))
            .map(|x| if log { x.log10() } else { x });
        let (mut low, high) =
            shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        if low > high {
            return None;
        }
        if log {
            low = low.max(high - MOST_DECADES);
        }
        let least = if log { 0.3 } else { 1e-9 + 1e-3 * high.abs() };
        let room =
            if roomy { 0.04 * (high - low) } else { 0.0 } + 0.5 * (least - (high - low)).max(0.0);
        Some(Scale { low: low - room, high: high + room, log, pixels })
    }

    fn has(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }

    /// The position, which may lie outside the plot.
    pub(super) fn place(&self, value: f64) -> f64 {
        let x = if self.log { value.log10() } else { value };
        let share = ((x - self.low) / (self.high - self.low)).clamp(-3.0, 4.0);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// Round figures along the axis, and whether each has a label.
    pub(super) fn ticks(&self) -> Vec<(f64, bool)> {
        if !self.log {
            let step = round_step((self.high - self.low) / 6.0);
            let first = (self.low / step).ceil() as i64;
            let last = (self.high / step).floor() as i64;
            return (first..=last).map(|count| (count as f64 * step, true)).collect();
        }
        let span = self.high - self.low;
        let every = (span / 8.0).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        for decade in self.low.floor() as i32..=self.high.ceil() as i32 {
            for digit in 1..10 {
                let value = f64::from(digit) * 10f64.powi(decade);
                if (self.low..=self.high).contains(&value.log10()) {
                    let fine = (span < 2.0 && matches!(digit, 2 | 5))
                        || (span < 0.7 && digit != 9 && digit != 7);
                    ticks.push((
                        value,
                        if digit == 1 { decade.rem_euclid(every) == 0 } else { fine },
                    ));
                }
            }
        }
        ticks.retain(|(_, major)| *major || span < 5.0);
        ticks
    }
}

/// 1, 2 or 5 times a power of ten, not below this.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-300).log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= least * 0.999_999);
    digit.unwrap_or(10.0) * power
}

/// The label of a tick.
pub(super) fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{} %", short(100.0 * value)),
        Unit::Bytes => {
            let names = ["B", "kB", "MB", "GB", "TB"];
            let index = ((value.abs().max(1.0).log10() + 1e-9) / 3.0).floor().min(4.0);
            format!("{} {}", short(value / 1000f64.powf(index)), names[index as usize])
        }
        Unit::Plain => short(value),
    }
}

/// At most five digits, with separated thousands, or a power of ten if it is very large or small.
fn short(value: f64) -> String {
    let size = value.abs();
    if size < 1e-12 {
        return "0".into();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.0e}");
    }
    let digits = format!("{value:.5}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    let (whole, rest) =
        digits.split_once('.').map_or((digits, String::new()), |(a, b)| (a, format!(".{b}")));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if left.is_multiple_of(3)
            && left < whole.len()
            && digit.is_ascii_digit()
            && !grouped.ends_with('-')
        {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_round_and_short() {
        for (value, unit, text) in [
            (0.0, Unit::Plain, "0"),
            (12_000.0, Unit::Plain, "12,000"),
            (-0.5, Unit::Plain, "-0.5"),
            (1e-6, Unit::Plain, "1e-6"),
            (0.85, Unit::Percent, "85 %"),
            (1_500_000.0, Unit::Bytes, "1.5 MB"),
            (1000.0, Unit::Bytes, "1 kB"),
            (20.0, Unit::Bytes, "20 B"),
        ] {
            assert_eq!(figure(value, unit), text);
        }
        assert_eq!([round_step(0.3), round_step(7.0), round_step(20.0)], [0.5, 10.0, 20.0]);
    }

    #[test]
    fn names_stay_in_order_apart_and_on_the_page() {
        let placed = apart(&[100.0, 101.0, 430.0, 431.0, 432.0]);
        assert!(
            placed.windows(2).all(|pair| pair[1] - pair[0] >= LINE) && placed[0] == 100.0,
            "{placed:?}"
        );
        let crowd = apart(&[480.0; 20]);
        assert!(
            crowd.iter().all(|y| *y <= PAGE.1 - 12.0)
                && crowd.windows(2).all(|pair| pair[1] - pair[0] >= LINE)
        );
    }

    #[test]
    fn figures_that_cannot_be_drawn_leave_no_trace() {
        let dot = |x: f64, y: f64| Dot { x, y, low: 0.5 * y, high: 2.0 * y };
        let axis = |log| Axis { words: "a < b".into(), unit: Unit::Plain, log };
        let dots = vec![
            dot(0.0, 1.0),
            dot(1.0, f64::NAN),
            dot(2.0, 0.0),
            dot(3.0, 1e300),
            dot(4.0, f64::INFINITY),
        ];
        for log in [false, true] {
            let lines = vec![
                Line { name: "<one>".into(), dots: dots.clone(), broken: true },
                Line { name: "none".into(), dots: Vec::new(), broken: false },
            ];
            let chart = Chart {
                title: "t".into(),
                subtitle: String::new(),
                x: axis(log),
                y: axis(log),
                ceiling: Some(10.0),
                lines,
            };
            let picture = chart.svg();
            assert!(
                picture.contains("&lt;one&gt; (diverged)")
                    && !picture.contains("NaN")
                    && !picture.contains("inf")
            );
            assert!(Chart { lines: Vec::new(), ..chart }.svg().contains("nothing to draw"));
        }
    }
}
