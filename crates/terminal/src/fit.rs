//! A line of progress that fits the terminal: where it is too long, whole parts are left out.

use std::time::Duration;

use console::measure_text_width;
use indicatif::HumanDuration;

/// The widest bar, without its brackets.
const WIDEST_BAR: usize = 28;

/// The narrowest bar: where it does not fit, the line has none.
const NARROWEST_BAR: usize = 10;

/// What a part of a line says, from the most to the least important. A line that is too long first
/// has a shorter bar; then parts are left out, from the end of this list. The first part stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// How far it is: rounds, runs, bytes.
    Count,
    /// That links are lost.
    Links,
    /// The rest of the time.
    Left,
    Loss,
    /// The name of a run, a file, the neighbours without a link.
    Name,
    Accuracy,
    Sent,
    /// The bar, which is drawn when the width is known.
    Bar,
    Elapsed,
    /// Virtual time.
    Virtual,
    Consensus,
    Speed,
}

impl Part {
    /// What stands between a part and this one behind it.
    fn gap(self, before: Part) -> &'static str {
        match (before, self) {
            (Part::Elapsed, Part::Left) => " + ",
            (Part::Bar, _) | (_, Part::Bar) | (Part::Links, Part::Name) => " ",
            _ => "  ",
        }
    }
}

/// The parts of a line in the order in which they stand there.
pub(crate) type Parts = Vec<(Part, String)>;

/// The parts with the time that has passed and the rest, which is left out while it is not known.
pub(crate) fn timed(mut parts: Parts, (elapsed, left): (Duration, Duration)) -> Parts {
    parts.retain(|(part, _)| *part != Part::Left || !left.is_zero());
    for (part, text) in &mut parts {
        match part {
            Part::Elapsed => *text = format!("{:#}", HumanDuration(elapsed)),
            Part::Left => *text = format!("{:#} left", HumanDuration(left)),
            _ => {}
        }
    }
    parts
}

/// The parts as a line of at most `width` columns, or the most important one alone. The bar shows
/// `fraction`, from 0 to 1.
pub(crate) fn fitted(mut parts: Parts, fraction: f32, width: usize) -> String {
    loop {
        let spare = width.checked_sub(measure_text_width(&line(&parts, fraction, NARROWEST_BAR)));
        if let Some(spare) = spare {
            return line(&parts, fraction, (NARROWEST_BAR + spare).min(WIDEST_BAR));
        }
        let least = (0..parts.len()).max_by_key(|&at| parts[at].0).unwrap_or(0);
        if parts.len() < 2 {
            return line(&parts, fraction, NARROWEST_BAR);
        }
        parts.remove(least);
    }
}

/// The line with a bar of this width.
fn line(parts: &Parts, fraction: f32, bar: usize) -> String {
    let mut line = String::new();
    let mut before = None;
    for (part, text) in parts {
        line += before.map_or("  ", |before| part.gap(before));
        before = Some(*part);
        match part {
            Part::Bar => line += &drawn(fraction, bar),
            _ => line += text,
        }
    }
    line
}

/// A bar with so many characters in its brackets.
fn drawn(fraction: f32, width: usize) -> String {
    let full = (fraction.clamp(0.0, 1.0) * width as f32) as usize;
    let head = if full < width { ">" } else { "" };
    format!("[{:width$}]", "=".repeat(full) + head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All parts of a run's line.
    fn round() -> Parts {
        [
            (Part::Count, "round 1234/20000"),
            (Part::Bar, ""),
            (Part::Loss, "loss 0.1234"),
            (Part::Accuracy, "test accuracy 93.1%"),
            (Part::Consensus, "consensus 1.23e-3"),
            (Part::Sent, "sent 12.34 MB"),
            (Part::Virtual, "virtual 123.4 s"),
            (Part::Elapsed, "12s"),
            (Part::Left, "3m left"),
        ]
        .map(|(part, text)| (part, text.to_string()))
        .to_vec()
    }

    #[test]
    fn parts_are_dropped_in_their_order() {
        let of = |width| fitted(round(), 0.5, width);
        for (width, line) in [
            (
                200,
                "  round 1234/20000 [==============>             ] loss 0.1234  test accuracy \
                 93.1%  consensus 1.23e-3  sent 12.34 MB  virtual 123.4 s  12s + 3m left",
            ),
            (
                120,
                "  round 1234/20000 [=========>         ] loss 0.1234  test accuracy 93.1%  \
                 sent 12.34 MB  virtual 123.4 s  12s + 3m left",
            ),
            (
                100,
                "  round 1234/20000 [========>       ] loss 0.1234  test accuracy 93.1%  sent \
                 12.34 MB  12s + 3m left",
            ),
            (79, "  round 1234/20000  loss 0.1234  test accuracy 93.1%  sent 12.34 MB  3m left"),
            (60, "  round 1234/20000  loss 0.1234  3m left"),
            (40, "  round 1234/20000  loss 0.1234  3m left"),
            (39, "  round 1234/20000  3m left"),
            (20, "  round 1234/20000"),
            (3, "  round 1234/20000"),
        ] {
            assert_eq!(of(width), line, "{width}");
        }
    }

    #[test]
    fn every_line_fits_and_has_only_whole_parts() {
        let all = round();
        for width in 18..200 {
            let line = fitted(all.clone(), 0.3, width);
            assert!(measure_text_width(&line) <= width, "{width}: {line}");
            let mut rest = line;
            all.iter().for_each(|(_, text)| rest = rest.replacen(text.as_str(), "", 1));
            assert!(rest.chars().all(|one| " []=>+".contains(one)), "{width}: {rest}");
        }
    }

    #[test]
    fn names_count_by_their_columns() {
        let parts = vec![
            (Part::Count, "run 1/2".to_string()),
            (Part::Name, "\u{4e00}\u{4e8c}\u{4e09}".to_string()),
        ];
        assert_eq!(fitted(parts.clone(), 0.0, 17), "  run 1/2  \u{4e00}\u{4e8c}\u{4e09}");
        assert_eq!(fitted(parts, 0.0, 16), "  run 1/2");
    }

    #[test]
    fn the_rest_of_the_time_is_shown_once_it_is_known() {
        let parts = vec![(Part::Elapsed, String::new()), (Part::Left, String::new())];
        let of = |left| fitted(timed(parts.clone(), (Duration::from_secs(80), left)), 0.0, 79);
        assert_eq!(of(Duration::ZERO), "  80s");
        assert_eq!(of(Duration::from_secs(5)), "  80s + 5s left");
    }

    #[test]
    fn a_bar_is_empty_at_first_and_full_at_the_end() {
        let shown = [0.0, 0.5, 1.0].map(|fraction| drawn(fraction, 4));
        assert_eq!(shown, ["[>   ]", "[==> ]", "[====]"]);
    }
}
