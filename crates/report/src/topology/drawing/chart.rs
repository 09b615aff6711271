//! The spectrum as a picture: every eigenvalue of W, rho, and the gap.

use gradvine::mixing::{Spectrum, Topology};

use crate::sheet::{Anchor, BLUE, FAINT, INK, ORANGE, RULE, Sheet, Word};

use super::figure;

/// The frame of the plot, in pixels: left, right, the height of eigenvalue 1 and that of -1.
const LEFT: f64 = 640.0;
const RIGHT: f64 = 850.0;
const TOP: f64 = 120.0;
const BOTTOM: f64 = 540.0;
/// The minimum distance between two words beside the plot.
const LINE: f64 = 16.0;
/// Up to this many eigenvalues each has a stem; above, only a dot.
const MAX_STEMS: usize = 64;

/// Draws the right half of the page.
pub(super) fn spectrum(topology: &Topology, sheet: &mut Sheet) {
    let spectrum = topology.spectrum();
    axes(sheet);
    let known = match &spectrum.eigenvalues {
        Some(values) => values.clone(),
        None => vec![1.0, spectrum.lambda_2, spectrum.lambda_n],
    };
    let caption = match (&spectrum.eigenvalues, spectrum.converged) {
        (Some(_), _) => format!("{} eigenvalues of W, the largest first", known.len()),
        (None, true) => "the largest, second and least eigenvalue of W".to_string(),
        (None, false) => "not converged: rho is at least this".to_string(),
    };
    sheet.write(
        &Word::new((f64::midpoint(LEFT, RIGHT), BOTTOM + 22.0), Anchor::Middle, caption)
            .sized(11.0)
            .coloured(FAINT),
    );
    band(spectrum, sheet);
    points(&known, spectrum.rho, sheet);
}

fn height(eigenvalue: f64) -> f64 {
    TOP + (1.0 - eigenvalue) / 2.0 * (BOTTOM - TOP)
}

fn axes(sheet: &mut Sheet) {
    sheet.write(&Word {
        bold: true,
        ..Word::new((LEFT, TOP - 24.0), Anchor::Start, "Spectrum of W").sized(13.0)
    });
    for tick in [1.0, 0.5, 0.0, -0.5, -1.0] {
        let y = height(tick);
        sheet.line(
            (LEFT, y),
            (RIGHT, y),
            if tick == 0.0 { FAINT } else { RULE },
            "stroke-width=\"1\"",
        );
        sheet.write(
            &Word::new((LEFT - 8.0, y), Anchor::End, figure(tick)).sized(11.0).coloured(FAINT),
        );
    }
}

/// Draws the range of the eigenvalues other than the first, and their distance to 1.
fn band(spectrum: &Spectrum, sheet: &mut Sheet) {
    let (rho, top, bottom) = (spectrum.rho, height(spectrum.rho), height(-spectrum.rho));
    sheet.raw(format_args!(
        "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{}\" height=\"{:.1}\" fill=\"{ORANGE}\" \
         fill-opacity=\"0.07\"/>",
        RIGHT - LEFT,
        bottom - top
    ));
    for y in [top, bottom] {
        sheet.line((LEFT, y), (RIGHT, y), ORANGE, "stroke-width=\"1\" stroke-dasharray=\"5 4\"");
    }
    let bracket = RIGHT + 8.0;
    let mut marks = vec![
        (f64::midpoint(TOP, top), format!("gap {}", figure(spectrum.gap)), INK),
        (top, format!("rho {}", figure(rho)), ORANGE),
    ];
    if bottom - top > LINE {
        marks.push((bottom, "-rho".into(), ORANGE));
    }
    for y in [TOP, top] {
        sheet.line((bracket - 3.0, y), (bracket + 3.0, y), INK, "stroke-width=\"1.5\"");
    }
    sheet.line((bracket, TOP), (bracket, top), INK, "stroke-width=\"1.5\"");
    let wanted: Vec<f64> = marks.iter().map(|mark| mark.0).collect();
    for ((y, text, colour), placed) in marks.into_iter().zip(apart(&wanted)) {
        sheet.line((bracket + 5.0, y), (bracket + 16.0, placed), RULE, "stroke-width=\"1\"");
        sheet.write(&Word::new((bracket + 19.0, placed), Anchor::Start, text).coloured(colour));
    }
}

/// Moves ascending heights apart, as little as necessary.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut placed: Vec<f64> = Vec::with_capacity(wanted.len());
    for &y in wanted {
        placed.push(placed.last().map_or(y, |last| y.max(last + LINE)));
    }
    placed
}

fn points(values: &[f64], rho: f64, sheet: &mut Sheet) {
    let step = (RIGHT - LEFT - 24.0) / values.len().max(2) as f64;
    let radius = (0.45 * step).clamp(1.2, 4.0);
    for (i, &value) in values.iter().enumerate() {
        let (x, y) = (LEFT + 12.0 + step * (i as f64 + 0.5), height(value));
        let decides = i > 0 && (value.abs() - rho).abs() < 1e-9;
        let colour = if decides { ORANGE } else { BLUE };
        if values.len() <= MAX_STEMS {
            sheet.line(
                (x, height(0.0)),
                (x, y),
                colour,
                &format!("stroke-width=\"{:.1}\"", radius / 2.0),
            );
        }
        sheet.disc((x, y), radius, colour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_move_apart_and_keep_their_order() {
        assert_eq!(apart(&[10.0, 100.0, 200.0]), [10.0, 100.0, 200.0]);
        assert_eq!(apart(&[10.0, 12.0, 200.0]), [10.0, 26.0, 200.0]);
        assert_eq!(apart(&[10.0, 12.0, 14.0]), [10.0, 26.0, 42.0]);
    }
}
