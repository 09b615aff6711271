//! What has happened, as sentences: the difference between two looks at a network.

use std::collections::{BTreeMap, VecDeque};

use gradvine_page::{Event, Network, Node};

/// Events that are retained.
const MOST: usize = 10_000;

/// The events of a run, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Events {
    all: VecDeque<Event>,
    next: u64,
    before: Option<Network>,
}

impl Events {
    /// Those with at least this number.
    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = &Event> {
        self.all.iter().skip_while(move |event| event.number < number)
    }

    /// The number of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Notes what is different now.
    pub(crate) fn look(&mut self, now: &Network) {
        let before = self.before.replace(now.clone());
        let mut news = News { time: now.time.clone(), found: Vec::new() };
        match before {
            None => news.add("info", "", format!("{} watches the run {}", now.node, now.run)),
            Some(before) => news.compare(&before, now),
        }
        for mut event in news.found {
            event.number = self.next;
            self.next += 1;
            self.all.push_back(event);
        }
        let extra = self.all.len().saturating_sub(MOST);
        self.all.drain(..extra);
    }
}

struct News {
    time: String,
    found: Vec<Event>,
}

impl News {
    fn add(&mut self, level: &str, node: &str, text: String) {
        let (level, node, time) = (level.to_string(), node.to_string(), self.time.clone());
        self.found.push(Event { number: 0, time, level, node, text });
    }

    fn compare(&mut self, before: &Network, now: &Network) {
        for (was, is) in before.nodes.iter().zip(&now.nodes) {
            self.state(was, is);
            self.links(was, is, now);
            let known = |text: &&String| was.warnings.contains(text);
            // Links that break and return are told of as links.
            let is_link = |text: &&String| text.starts_with("the link to ");
            for text in is.warnings.iter().filter(|text| !known(text) && !is_link(text)) {
                self.add("warning", &is.name, format!("{} warns: {text}", is.name));
            }
            if let (Some(was), Some(at)) = (was.uptime_s, is.uptime_s)
                && at < was
            {
                self.add("warning", &is.name, format!("{} was started again", is.name));
            }
        }
        let members = |network: &Network| -> Vec<String> {
            let members = network.nodes.iter().filter(|node| node.member);
            members.map(|node| node.name.clone()).collect()
        };
        let (were, are) = (members(before), members(now));
        for name in were.iter().filter(|name| !are.contains(name)) {
            self.add("warning", name, format!("the run continues without {name}"));
        }
        for name in are.iter().filter(|name| !were.contains(name)) {
            self.add("info", name, format!("{name} takes part again"));
        }
        if before.holding_up != now.holding_up {
            match now.holding_up.first() {
                Some(first) => self.add("warning", first, now.sentence.clone()),
                None => self.add("info", "", format!("nobody is waited for: {}", now.sentence)),
            }
        } else if before.state != now.state {
            let level = if now.state == "failed" { "error" } else { "info" };
            self.add(level, "", now.sentence.clone());
        }
    }

    fn state(&mut self, was: &Node, is: &Node) {
        if was.state == is.state {
            return;
        }
        let level = match is.state.as_str() {
            "silent" | "left" => "warning",
            "failed" => "error",
            "done" => "info",
            _ if matches!(was.state.as_str(), "silent" | "unknown" | "left" | "failed") => "info",
            // The rest is the course of a run.
            _ => return,
        };
        let name = &is.name;
        let text = match was.state.as_str() {
            "silent" | "left" | "failed" if level == "info" => {
                format!("{name} is back: it {}", is.reason)
            }
            "unknown" if level == "info" => format!("{name} is here: it {}", is.reason),
            _ => format!("{name} {}", is.reason),
        };
        self.add(level, name, text);
    }

    /// A link is told of once, by the end that comes first in the topology.
    fn links(&mut self, was: &Node, is: &Node, now: &Network) {
        let before: BTreeMap<&str, bool> =
            was.links.iter().map(|link| (link.to.as_str(), link.up)).collect();
        // A node that opens its links again has none for a moment.
        if matches!(is.state.as_str(), "starting" | "choosing" | "checkpoint") {
            return;
        }
        for link in &is.links {
            let other = now.nodes.iter().find(|node| node.name == link.to);
            let second = other.is_some_and(|other| {
                let sees = other.links.iter().any(|back| back.to == is.name && back.up == link.up);
                other.number < is.number && sees
            });
            let (name, to) = (&is.name, &link.to);
            match before.get(to.as_str()) {
                Some(&up) if up != link.up && !second => {}
                _ => continue,
            }
            if link.up {
                let how = if link.relayed { "through a relay" } else { "directly" };
                self.add("info", name, format!("{name} and {to} are linked {how}"));
            } else {
                let text = format!("the link between {name} and {to} is down: {}", link.reason);
                self.add("warning", name, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::example;

    /// The levels and texts of what is new after each change of the example.
    fn told(changes: &[&dyn Fn(&mut Network)]) -> Vec<(String, String)> {
        let (mut events, mut network) = (Events::default(), example());
        events.look(&network);
        let first = events.next();
        for change in changes {
            change(&mut network);
            events.look(&network);
        }
        let text = |event: &Event| (event.level.clone(), event.text.clone());
        events.since(first).map(text).collect()
    }

    fn line(level: &str, text: &str) -> (String, String) {
        (level.into(), text.into())
    }

    #[test]
    fn what_differs_is_told_once() {
        let nothing = |_: &mut Network| {};
        assert_eq!(told(&[&nothing, &nothing]), []);
        let back = |network: &mut Network| {
            let oslo = &mut network.nodes[1];
            (oslo.state, oslo.reason) = ("computing".into(), "computes".into());
            (network.holding_up, network.state) = (Vec::new(), "training".into());
            network.sentence = "3 nodes train".into();
        };
        let expected = [
            line("info", "oslo is back: it computes"),
            line("info", "nobody is waited for: 3 nodes train"),
        ];
        assert_eq!(told(&[&back, &nothing]), expected);
    }

    #[test]
    fn a_link_is_told_of_once_however_many_ends_see_it() {
        let cut = |network: &mut Network| {
            for (node, to) in [(0, "rome"), (2, "berlin")] {
                let links = &mut network.nodes[node].links;
                if let Some(link) = links.iter_mut().find(|link| link.to == to) {
                    (link.up, link.reason) = (false, "reset".into());
                } else {
                    let mut link = links[0].clone();
                    (link.to, link.up, link.reason) = (to.into(), false, "reset".into());
                    links.push(link);
                }
            }
        };
        let [told] = &told(&[&cut])[..] else { panic!("{:?}", told(&[&cut])) };
        assert_eq!(*told, line("warning", "the link between berlin and rome is down: reset"));
        // A node that opens its links again has none for a moment.
        let starts_again = |network: &mut Network| network.nodes[0].state = "starting".into();
        let both = |network: &mut Network| {
            starts_again(network);
            cut(network);
        };
        let told = self::told(&[&both]);
        assert!(told.iter().all(|(_, text)| !text.contains("is down")), "{told:?}");
    }

    #[test]
    fn members_restarts_failures_and_warnings_are_told() {
        let leaves = |network: &mut Network| network.nodes[2].member = false;
        let again = |network: &mut Network| network.nodes[0].uptime_s = Some(-1.0);
        let warns = |network: &mut Network| {
            let warnings = ["the disk is full", "the link to rome is lost: reset; reconnecting"];
            network.nodes[0].warnings = warnings.map(String::from).to_vec();
        };
        let fails = |network: &mut Network| {
            let node = &mut network.nodes[0];
            (node.state, node.reason) = ("failed".into(), "has failed: no memory".into());
        };
        let expected = [
            line("warning", "the run continues without rome"),
            line("warning", "berlin was started again"),
            line("warning", "berlin warns: the disk is full"),
            line("error", "berlin has failed: no memory"),
        ];
        assert_eq!(told(&[&leaves, &again, &warns, &fails]), expected);
    }

    #[test]
    fn the_oldest_events_go_first() {
        let (mut events, mut network) = (Events::default(), example());
        for number in 0..MOST + 10 {
            network.nodes[0].warnings = vec![format!("warning {number}")];
            events.look(&network);
        }
        let all: Vec<&Event> = events.since(0).collect();
        assert_eq!((all.len(), events.next() as usize), (MOST, MOST + 10));
        assert_eq!(all[MOST - 1].text, format!("berlin warns: warning {}", MOST + 9));
        assert_eq!(events.since(events.next() - 1).count(), 1);
    }
}
