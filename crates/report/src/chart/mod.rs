//! Line charts as SVG: one line per name, a band around it, and a legend at the ends of the lines.
//!
//! Made for documents: 900 pixels wide, dark words on white, colours that colour-blind readers can
//! distinguish (Okabe and Ito, "Color Universal Design", 2008, darkened for thin lines), dashes
//! from the ninth line on.

mod scale;

pub(crate) use scale::{Scale, figure};

use crate::sheet::{Anchor, FAINT, INK, Point, RULE, Sheet, Word, width};

/// The wide page, and the frame of the plot in it, in pixels. The right edge leaves room for the
/// legend.
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

/// In the order of lines.
const COLOURS: [&str; 8] =
    ["#0064a8", "#d55e00", "#008a62", "#b0427f", "#1b2733", "#a87900", "#3a9bd1", "#7a4ea3"];
const DASHES: [&str; 3] = ["", "7 3", "2 3"];

/// The unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers without a unit, as they are.
    Plain,
    /// Bytes, in decimal units such as kB.
    Bytes,
    /// Shares of 1, shown as per cent.
    Percent,
}

/// How figures are spaced along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Equal differences lie equally far from each other.
    Linear,
    /// By their logarithms; figures at or below 0 are left out.
    Log,
    /// Shares of 1 by the logarithm of their distance from 1, so that good ones are told apart:
    /// 90 %, 99 % and 99.9 % lie equally far from each other. A share of 1 is drawn half as far
    /// from 1 as the best other one; above 1 they are left out.
    Error,
}

/// One of the two axes.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its label, with the unit if `unit` does not show it.
    pub words: String,
    /// How the figures at its ticks are written.
    pub unit: Unit,
    /// How its figures are spaced.
    pub spacing: Spacing,
}

/// A point of a line: the mean over seeds, and the least and the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// In the unit of the horizontal axis.
    pub x: f64,
    /// The mean, in the unit of the vertical axis.
    pub y: f64,
    /// The lower edge of the band.
    pub low: f64,
    /// The upper edge of the band.
    pub high: f64,
}

/// A curve of a chart, with the band around it.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// From left to right, by `x`.
    pub dots: Vec<Dot>,
    /// Whether it ended by divergence: a cross marks the end.
    pub broken: bool,
}

/// A chart of one or more lines, which [`Chart::svg`] draws.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The line on top, in bold.
    pub title: String,
    /// The line below the title, smaller.
    pub subtitle: String,
    /// The axis from left to right.
    pub x: Axis,
    /// The axis from below to above.
    pub y: Axis,
    /// Lines that rise above this leave the plot.
    pub ceiling: Option<f64>,
    /// In the order of the colours.
    pub lines: Vec<Line>,
}

impl Chart {
    /// The chart as an SVG file.
    pub fn svg(&self) -> String {
        let names: Vec<String> = self.lines.iter().map(label).collect();
        let longest = names.iter().map(|name| width(name, 0.86 * LETTERS)).fold(0.0, f64::max);
        let right = (PAGE.0 - 62.0 - longest).max(NARROWEST);
        let frame = Frame { left: LEFT, right, top: TOP, bottom: BOTTOM };
        let mut sheet = Sheet::new(PAGE, &self.title);
        sheet.write(&Word {
            bold: true,
            ..Word::new((24.0, 24.0), Anchor::Start, &self.title).sized(16.0)
        });
        sheet.write(&Word::new((24.0, 45.0), Anchor::Start, &self.subtitle).coloured(FAINT));
        if let Some((x, y)) = self.plot(&frame, &mut sheet) {
            self.legend(&names, &x, &y, right, &mut sheet);
        }
        sheet.finish()
    }

    /// Draws axes and lines; `None` if there is nothing to draw.
    fn plot(&self, frame: &Frame, sheet: &mut Sheet) -> Option<(Scale, Scale)> {
        let (Some(x), Some(y)) = (self.across(frame), self.upwards(frame)) else {
            let at = (frame.left, f64::midpoint(frame.top, frame.bottom));
            sheet.write(&Word::new(at, Anchor::Start, "There is nothing to draw."));
            return None;
        };
        self.axes(&x, &y, frame, sheet);
        sheet.raw(format_args!(
            "<clipPath id=\"plot\"><rect x=\"{}\" y=\"{}\" width=\"{:.1}\" \
             height=\"{:.1}\"/></clipPath>",
            frame.left,
            frame.top,
            frame.right - frame.left,
            frame.bottom - frame.top
        ));
        let place = Place { x: &x, y: &y, frame };
        for (index, line) in self.lines.iter().enumerate() {
            place.band(line, index, sheet);
        }
        for (index, line) in self.lines.iter().enumerate() {
            place.stroke(line, index, sheet);
        }
        Some((x, y))
    }

    fn across(&self, frame: &Frame) -> Option<Scale> {
        let values = self.lines.iter().flat_map(|line| line.dots.iter().map(|dot| dot.x));
        Scale::over(values, self.x.spacing, (frame.left, frame.right), false)
    }

    fn upwards(&self, frame: &Frame) -> Option<Scale> {
        let most = self.ceiling.unwrap_or(f64::INFINITY);
        let dots = self.lines.iter().flat_map(|line| &line.dots);
        let values = dots
            .flat_map(|dot| [dot.y, dot.low, dot.high])
            .map(|y| if y > most { most } else { y });
        Scale::over(values, self.y.spacing, (frame.bottom, frame.top), true)
    }

    fn axes(&self, x: &Scale, y: &Scale, frame: &Frame, sheet: &mut Sheet) {
        let Frame { left, right, top, bottom } = *frame;
        for (tick, major) in y.ticks(6) {
            let at = y.place(tick);
            sheet.line(
                (left, at),
                (right, at),
                RULE,
                if major { "stroke-width=\"1\"" } else { "stroke-width=\"0.4\"" },
            );
            if major {
                let word = Word::new((left - 7.0, at), Anchor::End, figure(tick, self.y.unit));
                sheet.write(&word.sized(11.0).coloured(INK));
            }
        }
        for (tick, major) in self.ticks_across(x) {
            let at = x.place(tick);
            sheet.line(
                (at, bottom),
                (at, bottom + if major { 6.0 } else { 3.0 }),
                FAINT,
                "stroke-width=\"1\"",
            );
            if major {
                let label = figure(tick, self.x.unit);
                let half = 0.5 * width(&label, 11.0);
                // A label at the edge of the page would be cut off.
                let middle = at.min(PAGE.0 - half);
                let word = Word::new((middle, bottom + 16.0), Anchor::Middle, label);
                sheet.write(&word.sized(11.0).coloured(INK));
            }
        }
        sheet.line((left, bottom), (right, bottom), FAINT, "stroke-width=\"1.2\"");
        sheet.line((left, top), (left, bottom), FAINT, "stroke-width=\"1.2\"");
        let middle = f64::midpoint(left, right);
        sheet.write(
            &Word::new((middle, bottom + 40.0), Anchor::Middle, &self.x.words).coloured(INK),
        );
        let at = (18.0, f64::midpoint(top, bottom));
        let turn = format!("transform=\"rotate(-90 {} {})\"", at.0, at.1);
        sheet.letters(&Word::new(at, Anchor::Middle, &self.y.words).coloured(INK), &turn);
    }

    /// Ticks of the horizontal axis: as many as have room for their labels.
    fn ticks_across(&self, x: &Scale) -> Vec<(f64, bool)> {
        let fit = |ticks: &Vec<(f64, bool)>| {
            let label = |tick: f64| 0.5 * width(&figure(tick, self.x.unit), 11.0);
            let major: Vec<f64> =
                ticks.iter().filter(|(_, major)| *major).map(|(tick, _)| *tick).collect();
            major
                .windows(2)
                .all(|pair| x.place(pair[1]) - x.place(pair[0]) >= label(pair[0]) + label(pair[1]))
        };
        [6, 4, 3].map(|about| x.ticks(about)).into_iter().find(fit).unwrap_or_else(|| x.ticks(2))
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
        for (&(index, end, height), placed) in ends.iter().zip(heights) {
            if right - end < 6.0 {
                let from = (right + 3.0, height);
                sheet.line(from, (right + 14.0, placed), RULE, "stroke-width=\"1\"");
            }
            let spare = PAGE.0 - right - 56.0;
            entry(index, &names[index], (right + 16.0, placed), spare, sheet);
        }
    }
}

/// The frame of the plot.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// A piece of a line and its name, which shrinks to at most `spare` pixels.
fn entry(index: usize, name: &str, (x, y): Point, spare: f64, sheet: &mut Sheet) {
    let colour = COLOURS[index % COLOURS.len()];
    let dashes = DASHES[index / COLOURS.len() % DASHES.len()];
    let more = format!("stroke-width=\"2.4\" stroke-dasharray=\"{dashes}\"");
    sheet.line((x, y), (x + 24.0, y), colour, &more);
    let size = (LETTERS * spare / (width(name, 0.86 * LETTERS) + 0.1)).min(LETTERS);
    sheet.write(&Word::new((x + 30.0, y), Anchor::Start, name).sized(size));
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

/// The place where lines are drawn.
struct Place<'a> {
    x: &'a Scale,
    y: &'a Scale,
    frame: &'a Frame,
}

impl Place<'_> {
    /// The dots of a line that are on both scales.
    fn dots<'a>(&self, line: &'a Line) -> Vec<&'a Dot> {
        let is_there = |dot: &&Dot| self.x.has(dot.x) && self.y.has(dot.y);
        line.dots.iter().filter(is_there).collect()
    }

    fn band(&self, line: &Line, index: usize, sheet: &mut Sheet) {
        let Place { x, y, frame } = *self;
        let colour = COLOURS[index % COLOURS.len()];
        let dots = self.dots(line);
        if dots.len() < 2 || dots.iter().all(|dot| dot.low >= dot.high) {
            return;
        }
        let low = |dot: &Dot| if y.has(dot.low) { y.place(dot.low) } else { frame.bottom };
        let there = dots.iter().map(|dot| (x.place(dot.x), y.place(dot.high)));
        let back = dots.iter().rev().map(|dot| (x.place(dot.x), low(dot)));
        sheet.raw(format_args!(
            "<path d=\"{}Z\" fill=\"{colour}\" fill-opacity=\"0.13\" clip-path=\"url(#plot)\"/>",
            path(there.chain(back))
        ));
    }

    fn stroke(&self, line: &Line, index: usize, sheet: &mut Sheet) {
        let Place { x, y, frame } = *self;
        let colour = COLOURS[index % COLOURS.len()];
        let dashes = DASHES[index / COLOURS.len() % DASHES.len()];
        let dots = self.dots(line);
        let Some(last) = dots.last() else { return };
        let way = path(dots.iter().map(|dot| (x.place(dot.x), y.place(dot.y))));
        sheet.raw(format_args!(
            "<path d=\"{way}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-linejoin=\"round\" stroke-dasharray=\"{dashes}\" clip-path=\"url(#plot)\"/>"
        ));
        let end = (x.place(last.x), y.place(last.y).clamp(frame.top, frame.bottom));
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let axis = |spacing| Axis { words: "a < b".into(), unit: Unit::Plain, spacing };
        let dots = vec![
            dot(0.0, 1.0),
            dot(1.0, f64::NAN),
            dot(2.0, 0.0),
            dot(3.0, 1e300),
            dot(4.0, f64::INFINITY),
        ];
        for spacing in [Spacing::Linear, Spacing::Log, Spacing::Error] {
            let lines = vec![
                Line { name: "<one>".into(), dots: dots.clone(), broken: true },
                Line { name: "none".into(), dots: Vec::new(), broken: false },
            ];
            let chart = Chart {
                title: "t".into(),
                subtitle: String::new(),
                x: axis(spacing),
                y: axis(spacing),
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
