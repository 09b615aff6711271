//! A report as text.

use std::fmt::Write as _;

use gradvine::units::duration;

use crate::{Finding, Level, NeighbourFigures, Report};

impl Report {
    /// The report as text: findings, links, the forecast, and what to do.
    pub fn text(&self) -> String {
        let mut text = match &self.node {
            Some(name) => format!("node {name}\n\n"),
            None => "node: its files are wrong\n\n".to_string(),
        };
        let width = self.findings.iter().map(|finding| finding.about.len()).max().unwrap_or(0);
        for finding in &self.findings {
            let Finding { about, text: fact, remedy, .. } = finding;
            let word = match finding.level {
                Level::Ok => "ok     ",
                Level::Warning => "warning",
                Level::Error => "ERROR  ",
            };
            let _ = writeln!(text, "  {word}  {about:width$}  {fact}");
            if let Some(remedy) = remedy {
                let _ = writeln!(text, "           {:width$}  -> {remedy}", "");
            }
        }
        if !self.neighbours.is_empty() {
            text += &links(&self.neighbours);
        }
        if let Some(forecast) = &self.forecast {
            let (known, all) = forecast.measured;
            let _ = write!(
                text,
                "\na round takes {}, {} rounds take {}: gradients {}",
                duration(forecast.round_s),
                forecast.rounds,
                duration(forecast.run_s),
                duration(forecast.gradients_s)
            );
            if let Some(bottleneck) = &forecast.bottleneck {
                let _ = write!(text, ", the slowest link {bottleneck}");
            }
            let _ = writeln!(text, " (figures of {known} of {all} links are known)");
        }
        let count = |level| self.findings.iter().filter(|finding| finding.level == level).count();
        let (errors, warnings) = (count(Level::Error), count(Level::Warning));
        let _ = match (errors, warnings) {
            (0, 0) => writeln!(text, "\nnothing prevents a run"),
            (0, _) => writeln!(text, "\nnothing prevents a run; warnings: {warnings}"),
            (_, 0) => writeln!(text, "\na run is not possible; errors: {errors}"),
            _ => writeln!(text, "\na run is not possible; errors: {errors}, warnings: {warnings}"),
        };
        text
    }
}

fn links(neighbours: &[NeighbourFigures]) -> String {
    let mut text = "\n".to_string();
    for neighbour in neighbours {
        let _ = writeln!(text, "  {}", neighbour.name);
        for address in &neighbour.addresses {
            let outcome = match address.connected_ms {
                Some(ms) => format!("connected in {ms:.1} ms"),
                None => "not reached".into(),
            };
            let _ = writeln!(text, "    {}: {outcome}", address.address);
        }
        if let Some(link) = &neighbour.link {
            let runs = link.neighbour_runs;
            let way = if link.relayed { "through a relay" } else { "direct" };
            let mtu = link.path_mtu.map_or(String::new(), |mtu| format!(", path MTU {mtu}"));
            let _ = writeln!(text, "    {way}, {}{mtu}; `gradvine {runs}` runs there", link.cipher);
            let _ = writeln!(
                text,
                "    round trip {:.1} ms, {:.1} Mbit/s there, {:.1} Mbit/s back, clock {:+.3} s",
                link.round_trip_ms, link.sent_mbps, link.received_mbps, link.clock_s
            );
        }
    }
    text
}
