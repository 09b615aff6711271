//! A link that carries nothing for some time: `london-tokyo@10s+5s`.

use std::time::Duration;

use gradvine::{config::ConfigError, mixing::Topology, units::NodeId};

/// Cuts both directions of a link from a moment on, for some time. Time counts from the start of
/// the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The link's ends, the lower node first.
    pub between: (NodeId, NodeId),
    /// The time at which it breaks.
    pub begin: Duration,
    /// The time at which it works again.
    pub end: Duration,
}

impl Cut {
    /// Parses `A-B@BEGIN+FOR`: two neighbours of the topology, and two times such as `10s` or
    /// `250ms`.
    ///
    /// # Errors
    /// If it is not of that form, or there is no such link.
    pub fn parse(text: &str, topology: &Topology) -> Result<Cut, ConfigError> {
        let wrong = |problem: String| ConfigError::new("--cut", text, problem);
        let parts =
            text.rsplit_once('@').and_then(|(ends, times)| Some((ends, times.split_once('+')?)));
        let Some((ends, (begin, length))) = parts else {
            return Err(wrong("expected NODE-NODE@BEGIN+FOR, such as london-tokyo@10s+5s".into()));
        };
        let time = |text: &str| {
            duration(text).ok_or_else(|| {
                wrong(format!("\"{text}\" is not a time: expected seconds such as 10s, or 250ms"))
            })
        };
        let (begin, length) = (time(begin)?, time(length)?);
        let find = |name: &str| {
            (0..topology.nodes()).map(NodeId::from).find(|&node| topology.node(node).name == name)
        };
        // Names may contain hyphens: each hyphen may be the separator.
        let ends = ends
            .match_indices('-')
            .find_map(|(at, _)| Some((find(&ends[..at])?, find(&ends[at + 1..])?)));
        let Some((a, b)) = ends.filter(|(a, b)| topology.neighbours(*a).contains(b)) else {
            return Err(wrong(format!(
                "no such link: expected two neighbours of {}, joined by a hyphen",
                topology.name()
            )));
        };
        Ok(Cut { between: (a.min(b), a.max(b)), begin, end: begin + length })
    }

    /// Whether it drops packets from one node to the other at this time.
    pub fn stops(&self, from: NodeId, to: NodeId, since: Duration) -> bool {
        self.between == (from.min(to), from.max(to)) && (self.begin..self.end).contains(&since)
    }
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit)
        .ok()
        .filter(|time| *time < Duration::from_secs(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradvine::mixing::NodeInfo;

    fn topology() -> Topology {
        let named = |name: &str| NodeInfo { name: name.into(), peer: None, addresses: Vec::new() };
        Topology::parse("path:3", 1)
            .unwrap()
            .with_nodes(["us-east", "oslo", "eu-west"].map(named).into())
            .unwrap()
    }

    #[test]
    fn cuts_are_read_with_names_that_have_hyphens() {
        let cut = Cut::parse("oslo-us-east@1.5s+250ms", &topology()).unwrap();
        assert_eq!(cut.between, (NodeId(0), NodeId(1)));
        let at = Duration::from_millis;
        assert_eq!((cut.begin, cut.end), (at(1500), at(1750)));
        let stops = |ms| cut.stops(NodeId(1), NodeId(0), at(ms));
        assert_eq!([1499, 1500, 1749, 1750].map(stops), [false, true, true, false]);
        assert!(!cut.stops(NodeId(1), NodeId(2), at(1600)));
    }

    #[test]
    fn invalid_cuts_are_refused_with_the_expected_form() {
        for (text, problem) in [
            ("oslo", "expected NODE-NODE@BEGIN+FOR"),
            ("oslo-us-east@1s", "expected NODE-NODE@BEGIN+FOR"),
            ("oslo-us-east@1s+x", "\"x\" is not a time"),
            ("oslo-us-east@-1s+2s", "\"-1s\" is not a time"),
            ("eu-west-us-east@1s+2s", "no such link"),
            ("oslo-rome@1s+2s", "no such link"),
        ] {
            let error = Cut::parse(text, &topology()).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
