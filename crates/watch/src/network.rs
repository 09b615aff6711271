//! What one node knows of its whole run, from the records of all nodes.

use std::time::{Duration, Instant};

use gradvine::{
    mixing::Topology,
    printable::Printable,
    status::{Board, Record, State},
    units::NodeId,
};
use gradvine_page::{Checkpoint, Link, Network, Node, VERSION};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::diagnosis::{self, Diagnosis, Seen, clause};

/// How long what a node has written is of now.
const OF_NOW: i64 = 10;

/// The age of a network in seconds, if its node should have written something newer: it does not
/// run any more, and the run was not over for it.
pub fn old(network: &Network) -> Option<i64> {
    let own = network.nodes.iter().find(|node| node.name == network.node);
    let is_over = own.is_some_and(|own| matches!(own.state.as_str(), "done" | "left" | "failed"));
    let made = OffsetDateTime::parse(&network.time, &Rfc3339).ok()?;
    let age = (OffsetDateTime::now_utc() - made).whole_seconds();
    (!is_over && age > OF_NOW).then_some(age)
}

/// A run, and where its records are.
pub(crate) struct Run<'a> {
    pub id: &'a str,
    pub topology: &'a Topology,
    pub rounds: u64,
    pub board: &'a Board,
    /// The links between this node and each.
    pub hops: &'a [usize],
}

/// The least number of links from a node to each.
pub(crate) fn hops(topology: &Topology, from: NodeId) -> Vec<usize> {
    let far = topology.nodes();
    let mut hops = vec![far; far];
    let mut next = std::collections::VecDeque::from([from]);
    hops[from.index()] = 0;
    while let Some(node) = next.pop_front() {
        for other in topology.neighbours(node) {
            if hops[other.index()] == far {
                hops[other.index()] = hops[node.index()] + 1;
                next.push_back(*other);
            }
        }
    }
    hops
}

/// A text of another node, without characters that control a terminal.
fn plain(text: &str) -> String {
    Printable(text).to_string()
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

impl Run<'_> {
    /// What is known now, without events.
    pub(crate) fn look(&self, now: Instant, time: String) -> Network {
        let mut seen: Vec<Option<Seen>> = (0..self.topology.nodes()).map(|_| None).collect();
        self.board.each(|node, heard| {
            let age = now.saturating_duration_since(heard.at);
            if let Some(place) = seen.get_mut(node.index()) {
                *place = Some(Seen::new(heard.record.clone(), age, self.hops[node.index()]));
            }
        });
        let all = || (0..self.topology.nodes()).map(NodeId::from);
        let own = seen[self.board.node().index()].as_ref();
        let members = own.map(|seen| seen.record.members.clone()).filter(|all| !all.is_empty());
        let members = members.unwrap_or_else(|| all().collect());
        let rounds = self.rounds;
        let network = diagnosis::Network {
            topology: self.topology,
            me: self.board.node(),
            seen: &seen,
            members: &members,
            rounds,
        };
        let Diagnosis { overall, holding_up, sentence } = network.diagnose();
        let round = match overall {
            diagnosis::Overall::Done => own.map_or(0, |seen| seen.record.round),
            _ => network.least_round(),
        };
        let name = |node: NodeId| network.name(node).to_string();
        let records = || members.iter().filter_map(|node| seen[node.index()].as_ref());
        let shares: Vec<f64> =
            records().filter_map(|seen| Some(f64::from(seen.record.computing?) / 100.0)).collect();
        let utilisation = mean(&shares);
        let paces: Vec<f64> =
            records().filter_map(|seen| Some(seen.record.round_us? as f64 / 1e6)).collect();
        let trains = matches!(overall, diagnosis::Overall::Training);
        let left = rounds.saturating_sub(round) as f64;
        let eta_s = mean(&paces).filter(|_| trains).map(|pace| pace * left);
        Network {
            version: VERSION,
            run: self.id.to_string(),
            node: name(self.board.node()),
            program: env!("CARGO_PKG_VERSION").into(),
            time,
            topology: self.topology.name().to_string(),
            rounds,
            round,
            state: overall.word().into(),
            sentence: plain(&sentence),
            holding_up: holding_up.into_iter().map(name).collect(),
            eta_s,
            utilisation,
            nodes: all()
                .map(|node| self.node(node, seen[node.index()].as_ref(), members.contains(&node)))
                .collect(),
            edges: self.topology.edges().map(|(a, b)| (name(a), name(b))).collect(),
            events: Vec::new(),
        }
    }

    fn node(&self, node: NodeId, seen: Option<&Seen>, member: bool) -> Node {
        let name = |node: NodeId| self.topology.node(node).name.clone();
        let nothing = Record::default();
        let record = seen.map_or(&nothing, |seen| &seen.record);
        let age = seen.map(|seen| seen.age);
        let older = age.unwrap_or(Duration::ZERO).as_secs_f64();
        let (state, said, reason) = match seen {
            None => ("unknown", None, "has not been heard of".to_string()),
            Some(Seen { silent: true, age, record }) => {
                let reason = format!("has been silent for {} s", age.as_secs());
                ("silent", Some(record.state.word().to_string()), reason)
            }
            Some(seen) => (seen.record.state.word(), None, self.clause(&seen.record)),
        };
        let share =
            |name: &str, share: Option<u8>| Some((name.to_string(), f64::from(share?) / 100.0));
        let shares = [
            share("computing", record.computing),
            share("waiting", record.waiting),
            share("held", record.held),
            share("mixing", record.busy.map(|busy| busy.mixing)),
            share("evaluating", record.busy.map(|busy| busy.evaluating)),
            share("disk", record.busy.map(|busy| busy.disk)),
        ];
        let checkpoint = record
            .checkpoint
            .map(|kept| Checkpoint { round: kept.round, age_s: seconds(kept.age_ms) + older });
        let link = |link: &gradvine::status::LinkRecord| Link {
            to: name(link.to),
            up: link.up,
            relayed: link.relayed,
            rtt_ms: link.rtt_ms.map(f64::from),
            sent_bytes_s: f64::from(link.sent_bps),
            received_bytes_s: f64::from(link.received_bps),
            sent_bytes: None,
            received_bytes: None,
            reason: plain(&link.reason),
        };
        Node {
            name: name(node),
            number: node.0,
            state: state.into(),
            said,
            member,
            round: record.round,
            age_s: age.map(|age| age.as_secs_f64()),
            since_s: seconds(record.since_ms) + older,
            waits_for: record.waits_for.iter().map(|node| name(*node)).collect(),
            reason: plain(&reason),
            loss: record.loss,
            measures: record.measures.iter().map(|(key, value)| (plain(key), *value)).collect(),
            evaluated: record.evaluated,
            shares: shares.into_iter().flatten().collect(),
            round_s: record.round_us.map(|us| us as f64 / 1e6),
            gradient_s: record.gradient_us.map(|us| us as f64 / 1e6),
            sent_bytes: record.sent,
            received_bytes: record.received,
            checkpoint,
            outages: record.outages,
            program: seen.map(|seen| plain(&seen.record.program)).filter(|text| !text.is_empty()),
            uptime_s: seen.map(|seen| seconds(seen.record.uptime_ms) + older),
            warnings: record.warnings.iter().map(|text| plain(text)).collect(),
            links: record.links.iter().map(link).collect(),
        }
    }

    /// What a node that lives does, as a clause after its name.
    fn clause(&self, record: &Record) -> String {
        let names: Vec<&str> =
            record.waits_for.iter().map(|node| self.topology.node(*node).name.as_str()).collect();
        let whom = match (&names[..], record.state) {
            ([], state) => return clause(state, &record.reason),
            (names, State::Finishing) => {
                format!("has done its rounds, and waits for {}", names.join(", "))
            }
            (names, _) => format!("waits for {}", names.join(", ")),
        };
        match &record.reason[..] {
            "" => whom,
            reason => format!("{whom} ({reason})"),
        }
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use gradvine::status::LinkRecord;

    use super::*;

    /// A ring of three in which oslo is silent.
    pub(crate) fn example() -> Network {
        let nodes = ["berlin", "oslo", "rome"].map(gradvine::mixing::NodeInfo::named).into();
        let topology = Topology::parse("ring:3", 1).unwrap().with_nodes(nodes).unwrap();
        let board = Board::of_one_process(NodeId(0), 3);
        let others = [1, 2].map(|node| Board::of_one_process(NodeId(node), 3));
        let now = Instant::now();
        let link = |to: u32| LinkRecord { to: NodeId(to), up: true, ..LinkRecord::default() };
        let record = |waits_for: Vec<NodeId>| Record {
            state: if waits_for.is_empty() { State::Computing } else { State::Waiting },
            since_ms: 4000,
            waits_for,
            round: 7,
            loss: Some(0.25),
            links: vec![link(1), link(2)],
            ..Record::default()
        };
        others[0].say(now, record(Vec::new()));
        others[1].say(now + Duration::from_secs(9), record(vec![NodeId(1)]));
        board.say(now + Duration::from_secs(9), record(vec![NodeId(1)]));
        others.iter().for_each(|other| board.take(now + Duration::from_secs(9), other));
        let hops = hops(&topology, NodeId(0));
        let run = Run { id: "three", topology: &topology, rounds: 100, board: &board, hops: &hops };
        run.look(now + Duration::from_secs(9), "2026-01-01T00:00:00Z".into())
    }

    #[test]
    fn the_example_names_the_silent_node() {
        let network = example();
        assert_eq!(network.holding_up, ["oslo"]);
        let sentence = "berlin and rome wait for oslo, which has been silent for 9 s";
        assert_eq!((network.sentence.as_str(), network.state.as_str()), (sentence, "held-up"));
        let json = serde_json::to_string(&network).unwrap();
        assert_eq!(serde_json::from_str::<Network>(&json).unwrap(), network);
        assert!(old(&network) > Some(3600), "it was written long ago, and was not over");
    }
}
