//! A report as text.

use std::fmt::Write as _;

use gradvine::units::duration;
use gradvine_report::wrapped;

use crate::{Finding, Level, NeighbourFigures, Report};

impl Report {
    /// The report as text: findings, links, the forecast, and what to do. `width`: the columns of
    /// the terminal, if it is shown on one.
    pub fn text(&self, width: Option<usize>) -> String {
        let mut text = match &self.node {
            Some(name) => format!("node {name}\n\n"),
            None => "node: its files are wrong\n\n".to_string(),
        };
        let column = self.findings.iter().map(|finding| finding.about.len()).max().unwrap_or(0);
        for finding in &self.findings {
            let Finding { about, text: fact, remedy, .. } = finding;
            let word = match finding.level {
                Level::Ok => "ok     ",
                Level::Warning => "warning",
                Level::Error => "ERROR  ",
            };
            text += &wrapped(&format!("  {word}  {about:column$}  "), fact, width);
            if let Some(remedy) = remedy {
                text += &wrapped(&format!("           {:column$}  -> ", ""), remedy, width);
            }
        }
        if !self.neighbours.is_empty() {
            text += &links(&self.neighbours, width);
        }
        if let Some(forecast) = &self.forecast {
            let (known, all) = forecast.measured;
            let mut words = format!(
                "a round takes {}, {} rounds take {}: gradients {}",
                duration(forecast.round_s),
                forecast.rounds,
                duration(forecast.run_s),
                duration(forecast.gradients_s)
            );
            if let Some(bottleneck) = &forecast.bottleneck {
                let _ = write!(words, ", the slowest link {bottleneck}");
            }
            let _ = write!(words, " (figures of {known} of {all} links are known)");
            text.push('\n');
            text += &wrapped("", &words, width);
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

fn links(neighbours: &[NeighbourFigures], width: Option<usize>) -> String {
    let mut text = "\n".to_string();
    for neighbour in neighbours {
        let _ = writeln!(text, "  {}", neighbour.name);
        for address in &neighbour.addresses {
            let outcome = match address.connected_ms {
                Some(ms) => format!("connected in {ms:.1} ms"),
                None => "not reached".into(),
            };
            text += &wrapped("    ", &format!("{}: {outcome}", address.address), width);
        }
        if let Some(link) = &neighbour.link {
            let runs = link.neighbour_runs;
            let way = if link.relayed { "through a relay" } else { "direct" };
            let mtu = link.path_mtu.map_or(String::new(), |mtu| format!(", path MTU {mtu}"));
            let cipher = &link.cipher;
            let words = format!("{way}, {cipher}{mtu}; `gradvine {runs}` runs there");
            text += &wrapped("    ", &words, width);
            let words = format!(
                "round trip {:.1} ms, {:.1} Mbit/s there, {:.1} Mbit/s back, clock {:+.3} s",
                link.round_trip_ms, link.sent_mbps, link.received_mbps, link.clock_s
            );
            text += &wrapped("    ", &words, width);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let limit = Finding::error(
            "open files",
            "this process may open 8 files; the node needs 34",
            "ulimit -n, LimitNOFILE= of systemd, whichever of the two starts this node",
        );
        let key = Finding::ok("key", "PeerId 12D3KooWGHuyTmTNs9TWZy6dWPxEJT1Wh2nZ9xJ3Jr6C");
        Report { node: Some("oslo".into()), findings: vec![key, limit], ..Report::default() }
    }

    #[test]
    fn findings_are_lines_where_there_is_no_terminal() {
        let text = report().text(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[3],
            "  ERROR    open files  this process may open 8 files; the node needs 34"
        );
        assert!(lines[4].starts_with("                       -> ulimit") && lines[5].is_empty());
        assert_eq!(report().text(Some(200)), text);
    }

    #[test]
    fn findings_are_wrapped_below_their_text() {
        assert_eq!(
            report().text(Some(60)),
            "node oslo\n\n  \
               ok       key         PeerId\n                       \
                                    12D3KooWGHuyTmTNs9TWZy6dWPxEJT1Wh2nZ9xJ3Jr6C\n  \
               ERROR    open files  this process may open 8 files; the\n                       \
                                    node needs 34\n                       \
                                    -> ulimit -n, LimitNOFILE= of\n                          \
                                       systemd, whichever of the two\n                          \
                                       starts this node\n\n\
             a run is not possible; errors: 1\n"
        );
        let narrow = report().text(Some(45));
        assert!(narrow.contains("this process may open\n      8 files;"), "{narrow}");
    }

    #[test]
    fn only_words_that_are_wider_than_the_terminal_leave_it() {
        for width in 40..120 {
            for line in report().text(Some(width)).lines() {
                let is_word = line.contains("12D3KooW");
                assert!(line.chars().count() <= width || is_word, "{width}: {line}");
            }
        }
    }
}
