//! Who holds a run up: from what each node says about itself to names and a sentence.
//!
//! A node that waits may wait for one that waits itself. So chains of waiting are followed to their
//! ends. At an end is a node that does not wait: it is silent, has failed, or computes; or a link
//! that is down between two nodes that both live. If nobody waits for long, but most nodes wait
//! most of the time for one that hardly does, that one is slow.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gradvine::{
    mixing::Topology,
    status::{Busy, Record, State, slowest},
    units::NodeId,
};

/// What is known of a node.
pub(crate) struct Seen {
    pub record: Record,
    pub age: Duration,
    /// Whether the record is older than it should be: the node has stopped, or nothing of it comes
    /// through.
    pub silent: bool,
}

/// A record is made once a second, and takes up to half a second from node to node.
const SILENT: Duration = Duration::from_secs(3);
const HOP: Duration = Duration::from_millis(500);

/// Links that are opened at the same time need a moment.
const SETTLED: Duration = Duration::from_millis(1500);

/// How much later than the others one says that it waits, at the most.
const TELLING: Duration = Duration::from_secs(1);

impl Seen {
    /// A record of this age, made so many links away.
    pub(crate) fn new(record: Record, age: Duration, hops: usize) -> Seen {
        let is_last = matches!(record.state, State::Done | State::Left | State::Failed);
        let silent = !is_last && age > SILENT + HOP * hops as u32;
        Seen { record, age, silent }
    }
}

/// The state of a run as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overall {
    Starting,
    Training,
    HeldUp,
    Finishing,
    Done,
    Failed,
    Stopped,
}

impl Overall {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Overall::Starting => "starting",
            Overall::Training => "training",
            Overall::HeldUp => "held-up",
            Overall::Finishing => "finishing",
            Overall::Done => "done",
            Overall::Failed => "failed",
            Overall::Stopped => "stopped",
        }
    }
}

pub(crate) struct Diagnosis {
    pub overall: Overall,
    pub holding_up: Vec<NodeId>,
    pub sentence: String,
}

/// Where a chain of waiting ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Node(NodeId),
    /// A link that is down between two nodes that live; the lower number first.
    Link(NodeId, NodeId),
}

/// What the records of all nodes say together.
pub(crate) struct Network<'a> {
    pub topology: &'a Topology,
    /// The node that sees this.
    pub me: NodeId,
    /// By number; `None` if nothing was heard of a node.
    pub seen: &'a [Option<Seen>],
    pub members: &'a [NodeId],
    pub rounds: u64,
}

impl Network<'_> {
    pub(crate) fn name(&self, node: NodeId) -> &str {
        &self.topology.node(node).name
    }

    /// Names in words, a few of many.
    fn names(&self, nodes: &[NodeId]) -> String {
        let names: Vec<&str> = nodes.iter().map(|node| self.name(*node)).collect();
        match &names[..] {
            [] => String::new(),
            [one] => (*one).to_string(),
            [few @ .., last] if few.len() < 4 => format!("{} and {last}", few.join(", ")),
            [first, second, rest @ ..] => format!("{first}, {second} and {} others", rest.len()),
        }
    }

    fn of(&self, node: NodeId) -> Option<&Seen> {
        self.seen.get(node.index())?.as_ref()
    }

    /// The record of a node that lives.
    fn fresh(&self, node: NodeId) -> Option<&Record> {
        self.of(node).filter(|seen| !seen.silent).map(|seen| &seen.record)
    }

    /// What a node that lives says about its lost link to another one.
    fn down(&self, node: NodeId, other: NodeId) -> Option<&str> {
        let links = &self.fresh(node)?.links;
        links.iter().find(|link| link.to == other && !link.up).map(|link| link.reason.as_str())
    }

    pub(crate) fn diagnose(&self) -> Diagnosis {
        let states: Vec<State> = self
            .members
            .iter()
            .filter_map(|node| self.fresh(*node))
            .map(|record| record.state)
            .collect();
        let all = |wanted: &[State]| {
            states.len() == self.members.len() && states.iter().all(|state| wanted.contains(state))
        };
        let own = self.fresh(self.me);
        // No node is done before all have their results; the last words of others may be lost.
        if let Some(own) = own.filter(|own| own.state == State::Done) {
            let sentence = format!("the run is over after {} rounds", own.round);
            return Diagnosis { overall: Overall::Done, holding_up: Vec::new(), sentence };
        }
        let own = own.map(|record| record.state);
        let leaves = [State::Left, State::Failed];
        if own.is_some_and(|own| leaves.contains(&own))
            || all(&[State::Done, State::Left, State::Failed])
        {
            return self.ended();
        }
        let (ends, waiters) = self.ends();
        if let Some(held_up) = self.held_up(&ends, &waiters) {
            return held_up;
        }
        if let Some(slow) = self.slow() {
            return slow;
        }
        let [trains, starts, ends] = [
            &[State::Computing, State::Waiting, State::Sending][..],
            &[State::Starting, State::Checkpoint, State::Choosing],
            &[State::Finishing, State::Done],
        ]
        .map(|kinds| states.iter().any(|state| kinds.contains(state)));
        let (members, round) = (self.members.len(), self.least_round());
        let (overall, sentence) = match (trains, starts, ends) {
            (_, _, true) if !trains => {
                (Overall::Finishing, "the rounds are over; the results are written".to_string())
            }
            (true, ..) => {
                let away = self.topology.nodes() - members.min(self.topology.nodes());
                let without = match away {
                    0 => String::new(),
                    _ => format!(" without {}", self.names(&self.away())),
                };
                let text =
                    format!("{members} nodes train{without}: round {round} of {}", self.rounds);
                (Overall::Training, text)
            }
            (false, true, _) if states.contains(&State::Choosing) => {
                (Overall::Starting, "the nodes choose members".to_string())
            }
            _ => (Overall::Starting, "the nodes open their links".to_string()),
        };
        Diagnosis { overall, holding_up: Vec::new(), sentence }
    }

    /// No node runs any more, and not all have their results.
    fn ended(&self) -> Diagnosis {
        let of = |state: State| -> Vec<NodeId> {
            let is = |node: &&NodeId| self.fresh(**node).is_some_and(|one| one.state == state);
            self.members.iter().filter(is).copied().collect()
        };
        let (failed, left) = (of(State::Failed), of(State::Left));
        // Where one leaves, the others fail because of it.
        let (overall, first) = match left.first() {
            Some(first) => (Overall::Stopped, *first),
            None => (Overall::Failed, failed.first().copied().unwrap_or_default()),
        };
        let record = self.fresh(first).cloned().unwrap_or_default();
        let sentence = format!("the run has ended early: {} {}", self.name(first), said(&record));
        Diagnosis { overall, holding_up: Vec::new(), sentence }
    }

    /// The nodes that take no part.
    fn away(&self) -> Vec<NodeId> {
        let all = (0..self.topology.nodes()).map(NodeId::from);
        all.filter(|node| !self.members.contains(node)).collect()
    }

    /// The rounds that all members have done, as far as they have said so.
    pub(crate) fn least_round(&self) -> u64 {
        let rounds = self.members.iter().filter_map(|node| self.of(*node));
        rounds.map(|seen| seen.record.round).min().unwrap_or(0)
    }

    /// The ends of all chains of waiting, with how many nodes are behind each, and all that wait.
    fn ends(&self) -> (BTreeMap<End, usize>, Vec<NodeId>) {
        let (mut ends, mut waiters) = (BTreeMap::new(), Vec::new());
        for &node in self.members {
            let Some(record) = self.fresh(node) else { continue };
            let since = Duration::from_millis(record.since_ms) + self.age(node);
            let is_short = record.state != State::Waiting && since < SETTLED;
            if record.waits_for.is_empty() || is_short {
                continue;
            }
            waiters.push(node);
            let (mut open, mut seen, mut found) = (vec![node], BTreeSet::new(), BTreeSet::new());
            while let Some(next) = open.pop() {
                if !seen.insert(next) {
                    continue;
                }
                let Some(record) = self.fresh(next) else {
                    found.insert(End::Node(next));
                    continue;
                };
                if record.waits_for.is_empty() {
                    if ends_itself(record.state) || self.could_tell(next, &seen) {
                        found.insert(End::Node(next));
                    }
                    continue;
                }
                for &other in &record.waits_for {
                    let (down, lives) = (self.down(next, other), self.fresh(other));
                    if down.is_some() && self.is_cut_off(other) {
                        found.insert(End::Node(other));
                    } else if down.is_some()
                        && lives.is_some_and(|record| !ends_itself(record.state))
                    {
                        // Both live: what is wrong is between them.
                        found.insert(End::Link(next.min(other), next.max(other)));
                    } else {
                        open.push(other);
                    }
                }
            }
            found.into_iter().for_each(|end| *ends.entry(end).or_insert(0) += 1);
        }
        (ends, waiters)
    }

    fn age(&self, node: NodeId) -> Duration {
        self.of(node).map_or(Duration::ZERO, |seen| seen.age)
    }

    /// Whether a node that does not say that it waits has made its record since one of `behind`
    /// waits for it, and long enough after: else it may wait too.
    fn could_tell(&self, node: NodeId, behind: &BTreeSet<NodeId>) -> bool {
        let known = behind.iter().filter_map(|waiter| self.fresh(*waiter).zip(self.of(*waiter)));
        let mut since = known.filter(|(record, _)| record.waits_for.contains(&node)).map(
            // A node says that it waits a second after it began to.
            |(record, seen)| Duration::from_millis(record.since_ms) + seen.age,
        );
        since.any(|since| self.age(node) + TELLING <= since)
    }

    /// Whether all neighbours of a node that live have lost their links to it.
    fn is_cut_off(&self, node: NodeId) -> bool {
        let neighbours = self.topology.neighbours(node).iter();
        let mut linked = neighbours.filter(|other| self.fresh(**other).is_some());
        linked.all(|other| self.down(*other, node).is_some())
    }

    fn held_up(&self, ends: &BTreeMap<End, usize>, waiters: &[NodeId]) -> Option<Diagnosis> {
        // Nodes that are known to have ended come before those that only compute.
        let weight = |end: &End| match end {
            End::Link(..) => 0,
            End::Node(node) => match self.fresh(*node) {
                None => 0,
                Some(record) if ends_itself(record.state) || self.is_cut_off(*node) => 0,
                Some(_) => 1,
            },
        };
        let least = ends.keys().map(weight).min()?;
        let ends: Vec<End> = ends.keys().copied().filter(|end| weight(end) == least).collect();
        let (mut holding_up, mut causes) = (Vec::new(), Vec::new());
        for end in &ends {
            match *end {
                End::Node(node) => {
                    holding_up.push(node);
                    causes.push(format!("{}, {}", self.name(node), self.why(node, waiters)));
                }
                End::Link(a, b) => {
                    holding_up.extend([a, b]);
                    let why = self.down(a, b).or_else(|| self.down(b, a)).unwrap_or_default();
                    let (a, b) = (self.name(a), self.name(b));
                    causes.push(match why {
                        "" => format!("the link between {a} and {b}, which is down"),
                        why => format!("the link between {a} and {b}, which is down ({why})"),
                    });
                }
            }
        }
        holding_up.sort_unstable();
        holding_up.dedup();
        let causes = match &causes[..] {
            [few @ .., last] if !few.is_empty() => format!("{}; and for {last}", few.join("; ")),
            _ => causes.concat(),
        };
        let verb = if waiters.len() == 1 { "waits" } else { "wait" };
        let sentence = format!("{} {verb} for {causes}", self.names(waiters));
        let failed = ends.iter().any(|end| match end {
            End::Node(node) => {
                self.fresh(*node).is_some_and(|record| record.state == State::Failed)
            }
            End::Link(..) => false,
        });
        let starting = waiters
            .iter()
            .all(|node| self.fresh(*node).is_some_and(|record| record.state == State::Starting));
        let overall = match (failed, starting) {
            (true, _) => Overall::Failed,
            (_, true) => Overall::Starting,
            _ => Overall::HeldUp,
        };
        Some(Diagnosis { overall, holding_up, sentence })
    }

    /// Why others wait for a node, as a clause after its name and a comma.
    fn why(&self, node: NodeId, waiters: &[NodeId]) -> String {
        let longest = waiters.iter().filter_map(|waiter| {
            let seen = self.of(*waiter)?;
            let direct = seen.record.waits_for.contains(&node);
            direct.then(|| Duration::from_millis(seen.record.since_ms) + seen.age)
        });
        let longest = longest.max().unwrap_or_default().as_secs().max(1);
        let lost = || waiters.iter().find_map(|waiter| self.down(*waiter, node));
        let not_linked = || match lost() {
            Some(why) if !why.is_empty() => format!("which is not linked ({why})"),
            _ => "which has not been heard of".into(),
        };
        let Some(seen) = self.of(node) else { return not_linked() };
        if seen.silent {
            return format!("which has been silent for {} s", seen.age.as_secs());
        }
        match seen.record.state {
            state if ends_itself(state) => format!("which {}", said(&seen.record)),
            _ if lost().is_some() => not_linked(),
            State::Computing => format!("whose frames have not come for {longest} s"),
            State::Sending => match self.rate(node) {
                Some(rate) => format!("which sends {rate}"),
                None => "which sends its frames".into(),
            },
            _ => format!("which {}", said(&seen.record)),
        }
    }

    /// Over which link a node sends most, at what rate, and that of the line if it is known.
    fn rate(&self, node: NodeId) -> Option<String> {
        let links = self.fresh(node)?.links.iter();
        let most = links.max_by(|a, b| a.sent_bps.total_cmp(&b.sent_bps))?;
        let rate = f64::from(most.sent_bps);
        let line = self.topology.link(node, most.to).and_then(|link| link.bandwidth_mbps);
        let of = line.map(|mbps| format!(" of its line's {}", bytes_a_second(mbps * 1e6 / 8.0)));
        let (to, of) = (self.name(most.to), of.unwrap_or_default());
        (rate > 0.0).then(|| format!("to {to} at {}{of}", bytes_a_second(rate)))
    }

    /// A node that all others wait for although it never stops.
    fn slow(&self) -> Option<Diagnosis> {
        let records = || {
            let fresh = |node: &NodeId| Some((*node, self.fresh(*node)?));
            self.members.iter().filter_map(fresh)
        };
        let (slow, median) =
            slowest(records().filter_map(|(node, record)| Some((node, record.waiting?))))?;
        let name = self.name(slow);
        let own = self.fresh(slow)?;
        let others = |figure: &dyn Fn(&Record) -> Option<u64>| {
            let others = records().filter(|(node, _)| *node != slow);
            let mut others: Vec<u64> = others.filter_map(|(_, record)| figure(record)).collect();
            others.sort_unstable();
            others.get(others.len() / 2).copied().unwrap_or(0)
        };
        let typical = others(&|record| record.gradient_us).max(1);
        let gradient = own.gradient_us.unwrap_or(0);
        let factor = gradient as f64 / typical as f64;
        let held = u64::from(own.held.unwrap_or(0));
        let what = if held >= 30 && held >= 2 * others(&|record| record.held.map(u64::from)) {
            format!(
                "is ready to run and does not run for {held} % of its time: it is stopped, its \
                 processor is limited or other programs take it"
            )
        } else if factor >= 1.5 {
            format!(
                "computes {factor:.1} times as long as the others ({:.1} ms of gradients a round \
                 instead of {:.1} ms)",
                gradient as f64 / 1e3,
                typical as f64 / 1e3
            )
        } else {
            busy_with(own)
        };
        let sentence =
            format!("{name} holds the run up: it {what}; the others wait for {median} % of theirs");
        Some(Diagnosis { overall: Overall::HeldUp, holding_up: vec![slow], sentence })
    }
}

/// What a node does that is slow and computes as fast as the others.
fn busy_with(record: &Record) -> String {
    let Busy { mixing, evaluating, disk } = record.busy.unwrap_or_default();
    let tasks = [
        (mixing, "vectors: it decodes, mixes and encodes them"),
        (evaluating, "evaluations of its model"),
        (disk, "its disk: checkpoints and results"),
    ];
    match tasks.into_iter().max_by_key(|(share, _)| *share) {
        Some((share, what)) if share >= 20 => format!("spends {share} % of its time on {what}"),
        _ => "is busy beside its gradients".to_string(),
    }
}

/// Whether a node in this state takes no part any more.
fn ends_itself(state: State) -> bool {
    matches!(state, State::Done | State::Left | State::Failed)
}

fn said(record: &Record) -> String {
    clause(record.state, &record.reason)
}

/// A state as a clause after a name.
pub(crate) fn clause(state: State, reason: &str) -> String {
    let with = |text: &str| match reason {
        "" => text.to_string(),
        reason => format!("{text}: {reason}"),
    };
    match state {
        State::Starting => with("opens its links"),
        State::Checkpoint => "reads a checkpoint".into(),
        State::Computing => "computes".into(),
        State::Waiting => with("waits"),
        State::Sending => "sends its frames".into(),
        State::Choosing => "chooses members".into(),
        State::Finishing => with("has done its rounds"),
        State::Done => "is done".into(),
        State::Left => with("has left"),
        State::Failed => with("has failed"),
        _ => String::new(),
    }
}

/// A rate in words.
pub(crate) fn bytes_a_second(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.1} MB/s", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} kB/s", rate / 1e3),
        rate => format!("{rate:.0} B/s"),
    }
}

#[cfg(test)]
mod tests {
    use gradvine::status::LinkRecord;

    use super::*;

    const NAMES: [&str; 5] = ["berlin", "lyon", "oslo", "rome", "turin"];

    /// A ring of five nodes, of which each says what `says` returns, that long ago.
    fn diagnose(says: impl Fn(usize) -> Option<(Record, u64)>) -> (Vec<String>, String) {
        let nodes = NAMES.map(gradvine::mixing::NodeInfo::named).into();
        diagnose_on(&Topology::parse("ring:5", 1).unwrap().with_nodes(nodes).unwrap(), says)
    }

    fn diagnose_on(
        topology: &Topology,
        says: impl Fn(usize) -> Option<(Record, u64)>,
    ) -> (Vec<String>, String) {
        let seen = |node: usize| {
            says(node).map(|(record, age)| Seen::new(record, Duration::from_secs(age), 2))
        };
        let seen: Vec<Option<Seen>> = (0..5).map(seen).collect();
        let members: Vec<NodeId> = (0..5).map(NodeId).collect();
        let network =
            Network { topology, seen: &seen, members: &members, me: NodeId(0), rounds: 100 };
        let Diagnosis { holding_up, sentence, .. } = network.diagnose();
        (holding_up.iter().map(|node| network.name(*node).to_string()).collect(), sentence)
    }

    fn computes(round: u64) -> Record {
        Record { state: State::Computing, round, waiting: Some(20), ..Record::default() }
    }

    fn waits(nodes: &[u32]) -> Record {
        let waits_for = nodes.iter().copied().map(NodeId).collect();
        Record { state: State::Waiting, since_ms: 4000, waits_for, ..computes(7) }
    }

    fn down(to: u32, reason: &str) -> Vec<LinkRecord> {
        vec![LinkRecord { to: NodeId(to), reason: reason.into(), ..LinkRecord::default() }]
    }

    #[test]
    fn a_stopped_node_is_named_and_nobody_else() {
        // Oslo (2) is stopped: lyon (1) and rome (3) wait for it, berlin for lyon, turin for rome.
        let (names, sentence) = diagnose(|node| {
            Some(match node {
                0 => (waits(&[1]), 1),
                1 | 3 => (waits(&[2]), 1),
                // When it was stopped, it had just waited for lyon.
                2 => (waits(&[1]), 12),
                _ => (waits(&[3]), 1),
            })
        });
        assert_eq!(names, ["oslo"]);
        assert_eq!(
            sentence,
            "berlin, lyon, rome and turin wait for oslo, which has been silent for 12 s"
        );
    }

    #[test]
    fn a_cut_link_is_named_with_its_reason() {
        let (names, sentence) = diagnose(|node| {
            Some(match node {
                0 => (Record { links: down(1, "timed out"), ..waits(&[1]) }, 0),
                1 => (Record { links: down(0, "timed out"), ..waits(&[0]) }, 0),
                2 => (waits(&[1]), 0),
                _ => (waits(&[(node as u32 + 1) % 5]), 0),
            })
        });
        assert_eq!(names, ["berlin", "lyon"]);
        assert!(
            sentence.ends_with(
                "wait for the link between berlin and lyon, which is down \
                                (timed out)"
            ),
            "{sentence}"
        );
    }

    #[test]
    fn a_node_that_was_never_heard_of_or_has_failed_is_named() {
        let starting = |node: usize| match node {
            4 => None,
            3 | 0 => {
                let record = waits(&[4]);
                let links = down(4, "connection refused");
                Some((Record { state: State::Starting, links, ..record }, 0))
            }
            _ => Some((Record { state: State::Starting, ..Record::default() }, 0)),
        };
        let (names, sentence) = diagnose(starting);
        assert_eq!(names, ["turin"]);
        assert_eq!(
            sentence,
            "berlin and rome wait for turin, which is not linked (connection refused)"
        );
        let failed = |node: usize| match node {
            4 => {
                let reason = "its loss is not finite".into();
                Some((Record { state: State::Failed, reason, ..computes(7) }, 60))
            }
            _ => Some((waits(&[4]), 0)),
        };
        let (names, sentence) = diagnose(failed);
        assert_eq!(names, ["turin"]);
        assert!(
            sentence.ends_with("turin, which has failed: its loss is not finite"),
            "{sentence}"
        );
    }

    #[test]
    fn a_killed_node_is_named_before_it_is_silent() {
        let killed = |node: usize| {
            let waits = waits(&[4]);
            match node {
                4 => (computes(7), 2),
                0 | 3 => (Record { links: down(4, "refused"), ..waits }, 0),
                _ => (Record { waits_for: vec![NodeId(3 * u32::from(node == 2))], ..waits }, 0),
            }
        };
        let (names, sentence) = diagnose(|node| Some(killed(node)));
        assert_eq!(names, ["turin"], "a moment after it was killed");
        assert!(sentence.ends_with("wait for turin, which is not linked (refused)"), "{sentence}");
    }

    #[test]
    fn a_throttled_node_is_named_with_what_is_slow() {
        let (names, sentence) = diagnose(|node| {
            let (share, held) = if node == 1 { (10, 80) } else { (90, 5) };
            Some((Record { waiting: Some(share), held: Some(held), ..computes(7) }, 0))
        });
        assert_eq!(names, ["lyon"]);
        assert!(sentence.starts_with("lyon holds the run up: it is ready to run"), "{sentence}");
        let (names, sentence) = diagnose(|node| {
            let (share, gradient) = if node == 3 { (0, 12_000) } else { (80, 2_000) };
            let gradient_us = Some(gradient);
            Some((Record { waiting: Some(share), gradient_us, ..computes(7) }, 0))
        });
        assert_eq!(names, ["rome"]);
        assert_eq!(
            sentence,
            "rome holds the run up: it computes 6.0 times as long as the others (12.0 ms of \
             gradients a round instead of 2.0 ms); the others wait for 80 % of theirs"
        );
    }

    #[test]
    fn one_that_is_busy_beside_its_gradients_is_named_with_what_it_does() {
        let rome = |busy: Option<Busy>| {
            let (_, sentence) = diagnose(|node| {
                let (share, busy) = if node == 3 { (0, busy) } else { (80, None) };
                Some((Record { waiting: Some(share), busy, ..computes(7) }, 0))
            });
            let (words, _) = sentence.split_once("; ").unwrap();
            words.strip_prefix("rome holds the run up: it ").unwrap().to_string()
        };
        let busy = |mixing, evaluating, disk| rome(Some(Busy { mixing, evaluating, disk }));
        assert_eq!(busy(3, 9, 71), "spends 71 % of its time on its disk: checkpoints and results");
        assert_eq!(busy(3, 60, 9), "spends 60 % of its time on evaluations of its model");
        let vectors = "spends 55 % of its time on vectors: it decodes, mixes and encodes them";
        assert_eq!(busy(55, 9, 9), vectors);
        for unclear in [busy(19, 9, 9), rome(None)] {
            assert_eq!(unclear, "is busy beside its gradients");
        }
    }

    #[test]
    fn one_that_sends_is_named_with_its_line() {
        let sends = |node: usize| {
            let link = |to, sent_bps| LinkRecord {
                to: NodeId(to),
                up: true,
                sent_bps,
                ..Default::default()
            };
            Some(match node {
                2 => {
                    let links = vec![link(1, 600e3), link(3, 20e3)];
                    (Record { state: State::Sending, since_ms: 4000, links, ..computes(7) }, 0)
                }
                1 | 3 => (waits(&[2]), 0),
                _ => (waits(&[if node == 0 { 1 } else { 3 }]), 0),
            })
        };
        let (names, sentence) = diagnose(sends);
        assert_eq!(names, ["oslo"]);
        assert!(sentence.ends_with("for oslo, which sends to lyon at 600.0 kB/s"), "{sentence}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.csv");
        let links = "source,target,bandwidth_mbps\nberlin,lyon,50\nlyon,oslo,5\noslo,rome,50\n\
                     rome,turin,50\nturin,berlin,50\n";
        std::fs::write(&path, links).unwrap();
        let (_, sentence) = diagnose_on(&Topology::load(&path).unwrap(), sends);
        let line = "for oslo, which sends to lyon at 600.0 kB/s of its line's 625.0 kB/s";
        assert!(sentence.ends_with(line), "{sentence}");
    }

    #[test]
    fn a_run_that_is_well_names_nobody() {
        let (names, sentence) = diagnose(|node| Some((computes(7 + node as u64), 2)));
        assert!(names.is_empty());
        assert_eq!(sentence, "5 nodes train: round 7 of 100");
        let (names, sentence) =
            diagnose(|_| Some((Record { state: State::Done, ..computes(100) }, 3600)));
        assert!(names.is_empty());
        assert_eq!(sentence, "the run is over after 100 rounds");
    }

    #[test]
    fn one_that_had_no_time_to_say_that_it_waits_is_not_named() {
        let (names, _) = diagnose(|node| {
            Some(match node {
                0 => (Record { since_ms: 200, ..waits(&[1]) }, 0),
                _ => (computes(7), 1),
            })
        });
        assert!(names.is_empty(), "{names:?}");
    }

    /// Two wait for each other, and no link is down: nobody is blamed.
    #[test]
    fn a_circle_has_no_end() {
        let (names, _) = diagnose(|node| {
            Some(match node {
                0 => (waits(&[1]), 0),
                1 => (waits(&[0]), 0),
                _ => (computes(7), 0),
            })
        });
        assert!(names.is_empty(), "{names:?}");
    }
}
