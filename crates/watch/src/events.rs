//! What has happened, as sentences: the difference between two looks at a network.

use std::collections::{BTreeMap, VecDeque};

use super::network::{Event, Network, Node};

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
        // Where links are opened anew, all are down for a moment.
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
