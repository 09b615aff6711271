//! The faults of a simulated run: from a file, or drawn from a seed.

use std::path::Path;

use serde::Deserialize;

use crate::{
    config::{ConfigError, in_document},
    drive::Change,
    experiment::Policy,
    inputs,
    mixing::Topology,
    rng::{Purpose, Sequence, Stream},
    run::Design,
    units::{NodeId, Round, Time},
};

/// The most faults of one run.
const MOST: usize = 1_000;

/// How many names of nodes a message lists.
const SHOWN: usize = 20;

/// When a fault begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// At this virtual time.
    At(Time),
    /// When the first node has done so many rounds.
    Round(u64),
    /// When all members have a checkpoint of this round, which they write for it.
    Checkpoint(Round),
}

/// What is kept on the disk of a machine whose program is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskAfter {
    /// All that was written.
    #[default]
    Kept,
    /// What was synced: the machine has lost its power.
    Unsynced,
    /// Nothing.
    Lost,
    /// All but the newest checkpoint, which cannot be used.
    Damaged,
}

/// What goes wrong, until the fault is over.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// The programs of these nodes are killed, and start again at the end.
    Kill(Vec<NodeId>, DiskAfter),
    /// A node is asked to leave, and starts again at the end.
    Leave(NodeId),
    /// Nothing leaves or reaches these nodes.
    Hang(Vec<NodeId>),
    /// These links carry nothing, and nobody is told.
    Cut(Vec<(NodeId, NodeId)>),
    /// Nothing passes from the first to the second node of these links.
    OneWay(Vec<(NodeId, NodeId)>),
    /// Nothing passes between these nodes and the others.
    Partition(Vec<NodeId>),
    /// The connections of these links are reset, and one end only sees the next handshake succeed.
    Reset(Vec<(NodeId, NodeId)>),
    /// Gradients of these nodes take longer by this factor.
    Slow(Vec<NodeId>, f64),
    /// The disks of these nodes are full.
    DiskFull(Vec<NodeId>),
    /// The disks of these nodes take so much longer for a checkpoint.
    DiskSlow(Vec<NodeId>, Time),
    /// The members change, as they have in a run that is repeated.
    Members(Change),
    /// The user asks all nodes to end the run after this round.
    Stop(Round),
}

/// A fault of a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When it begins.
    pub when: When,
    /// How long it lasts.
    pub length: Time,
    /// What goes wrong.
    pub kind: Kind,
}

/// A fault as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    kind: String,
    at_s: Option<f64>,
    at_round: Option<u64>,
    for_s: Option<f64>,
    #[serde(default)]
    nodes: Vec<String>,
    #[serde(default)]
    links: Vec<[String; 2]>,
    disk: Option<DiskAfter>,
    factor: Option<f64>,
    seconds: Option<f64>,
}

const KINDS: &str =
    "kill, leave, hang, cut, one-way, partition, reset, slow, disk-full or disk-slow";

/// The faults that an argument names: `seed:N`, or a file of TOML.
///
/// # Errors
/// If the file cannot be read, or names a fault that the run cannot have.
pub fn faults_of(argument: &str, design: &Design) -> Result<Vec<Fault>, ConfigError> {
    if let Some(seed) = argument.strip_prefix("seed:") {
        let seed = seed.parse().map_err(|_| {
            ConfigError::new("faults", argument, "expected seed: and a number from 0 to 2^64 - 1")
        })?;
        return Ok(drawn(seed, design));
    }
    let path = Path::new(argument);
    let text = inputs::read_to_string(path).map_err(|error| {
        let problem = format!("cannot be read: {error}; seed:N draws faults from a number");
        ConfigError::new("faults", argument, problem)
    })?;
    parse(&text, &design.topology).map_err(|error| error.within(path.display()))
}

/// The faults in a file's text.
///
/// # Errors
/// If a fault is wrong; the error names it.
pub fn parse(text: &str, topology: &Topology) -> Result<Vec<Fault>, ConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        fault: Vec<Entry>,
    }
    let File { fault } = toml::from_str(text).map_err(|error| in_document(text, &error))?;
    if fault.len() > MOST {
        let problem = format!("{} faults: at most {MOST} are accepted", fault.len());
        return Err(ConfigError::at("fault", problem));
    }
    let numbered = (1..).zip(fault);
    numbered.map(|(number, entry)| entry.fault(number, topology)).collect()
}

impl Entry {
    fn fault(self, number: usize, topology: &Topology) -> Result<Fault, ConfigError> {
        let key = |key: &str| format!("fault {number}: {key}");
        let wrong = |at: &str, problem: &str| ConfigError::at(key(at), problem.to_string());
        let when = match (self.at_s, self.at_round) {
            (Some(s), None) => When::At(seconds(s).ok_or_else(|| {
                ConfigError::new(key("at_s"), s, "expected a number of seconds from 0 to 1e9")
            })?),
            (None, Some(round)) => When::Round(round),
            _ => return Err(wrong("at_s", "expected either at_s or at_round")),
        };
        let length = self.for_s.unwrap_or(0.0);
        let length = seconds(length).ok_or_else(|| {
            ConfigError::new(key("for_s"), length, "expected a number of seconds from 0 to 1e9")
        })?;
        let node = |name: &String| {
            named(topology, name).map_err(|known| ConfigError::new(key("nodes"), name, known))
        };
        let nodes = self.nodes.iter().map(node).collect::<Result<Vec<_>, _>>()?;
        let link = |[a, b]: &[String; 2]| {
            let (a, b) = (node(a)?, node(b)?);
            match topology.link(a, b) {
                Some(_) if self.kind == "one-way" => Ok((a, b)),
                Some(_) => Ok((a.min(b), a.max(b))),
                None => Err(wrong("links", "the topology has no link between these nodes")),
            }
        };
        let links = self.links.iter().map(link).collect::<Result<Vec<_>, _>>()?;
        let by_links = matches!(self.kind.as_str(), "cut" | "one-way" | "reset");
        if by_links == links.is_empty() || by_links != nodes.is_empty() {
            return Err(match by_links {
                true => wrong("links", "expected the names of both ends of links, and no nodes"),
                false => wrong("nodes", "expected the names of nodes, and no links"),
            });
        }
        for (at, is_there, of) in [
            ("disk", self.disk.is_some(), "kill"),
            ("factor", self.factor.is_some(), "slow"),
            ("seconds", self.seconds.is_some(), "disk-slow"),
        ] {
            if is_there && self.kind != of {
                return Err(wrong(at, &format!("only a fault of the kind {of} has it")));
            }
        }
        let kind = match self.kind.as_str() {
            "kill" => Kind::Kill(nodes, self.disk.unwrap_or_default()),
            "leave" if nodes.len() == 1 => Kind::Leave(nodes[0]),
            "leave" => return Err(wrong("nodes", "expected one node")),
            "hang" => Kind::Hang(nodes),
            "cut" => Kind::Cut(links),
            "one-way" => Kind::OneWay(links),
            "partition" => Kind::Partition(nodes),
            "reset" => Kind::Reset(links),
            "slow" => match self.factor.filter(|factor| (1.0..=1e6).contains(factor)) {
                Some(factor) => Kind::Slow(nodes, factor),
                None => return Err(wrong("factor", "expected a number from 1 to 1e6")),
            },
            "disk-full" => Kind::DiskFull(nodes),
            "disk-slow" => match self.seconds.and_then(seconds) {
                Some(time) => Kind::DiskSlow(nodes, time),
                None => return Err(wrong("seconds", "expected a number from 0 to 1e9")),
            },
            other => {
                return Err(ConfigError::new(key("kind"), other, format!("expected {KINDS}")));
            }
        };
        Ok(Fault { when, length, kind })
    }
}

/// The node of this name.
///
/// # Errors
/// If there is none: which ones there are.
fn named(topology: &Topology, name: &str) -> Result<NodeId, String> {
    let mut all = (0..topology.nodes()).map(NodeId::from);
    all.find(|node| topology.node(*node).name == name).ok_or_else(|| {
        let shown = (0..topology.nodes()).take(SHOWN).map(NodeId::from);
        let shown: Vec<&str> = shown.map(|node| topology.node(node).name.as_str()).collect();
        let more = if topology.nodes() > SHOWN { " and others" } else { "" };
        format!("the topology has the nodes {}{more}", shown.join(", "))
    })
}

/// Seconds from 0 to 1e9 as a time.
fn seconds(seconds: f64) -> Option<Time> {
    (0.0..=1e9).contains(&seconds).then_some(Time((seconds * 1e9) as u64))
}

fn pick<T: Clone>(rng: &mut Sequence, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize].clone()
}

/// One to five faults, drawn from a seed.
fn drawn(seed: u64, design: &Design) -> Vec<Fault> {
    let rng = &mut Stream::new(seed, Purpose::Fault).sequence();
    let may_continue = design.experiment.absence.policy == Policy::Continue;
    let rounds = design.experiment.run.rounds;
    let count = 1 + rng.below(5);
    (0..count)
        .map(|_| {
            let when = When::Round(rng.below(rounds.max(1)));
            let length = Time((100 + rng.below(4_000)) * 1_000_000);
            Fault { when, length, kind: any(rng, may_continue, &design.topology) }
        })
        .collect()
}

/// Any fault.
fn any(rng: &mut Sequence, may_continue: bool, topology: &Topology) -> Kind {
    let all: Vec<NodeId> = (0..topology.nodes()).map(NodeId::from).collect();
    let edges: Vec<(NodeId, NodeId)> = topology.edges().collect();
    let some = |rng: &mut Sequence| -> Vec<NodeId> {
        let some: Vec<NodeId> = all.iter().copied().filter(|_| rng.below(2) == 0).collect();
        if some.is_empty() { all[..1].to_vec() } else { some }
    };
    let one = pick(rng, &all);
    match rng.below(16) {
        0..=4 => {
            let nodes = match rng.below(6) {
                0 => all.clone(),
                1 => some(rng),
                _ => vec![one],
            };
            let disk = match rng.below(8) {
                0 => DiskAfter::Lost,
                1 => DiskAfter::Damaged,
                2..=4 => DiskAfter::Unsynced,
                _ => DiskAfter::Kept,
            };
            Kind::Kill(nodes, disk)
        }
        5 if !edges.is_empty() => Kind::Cut(vec![pick(rng, &edges)]),
        6 => Kind::Partition(some(rng)),
        7 | 8 if !edges.is_empty() => Kind::Reset(vec![pick(rng, &edges)]),
        9 | 10 => Kind::Slow(vec![one], 20.0),
        11 => Kind::DiskFull(vec![one]),
        12 => Kind::DiskSlow(vec![one], Time((rng.below(3_000)) * 1_000_000)),
        13 if !edges.is_empty() => {
            let (a, b) = pick(rng, &edges);
            Kind::OneWay(vec![if rng.below(2) == 0 { (a, b) } else { (b, a) }])
        }
        _ if may_continue => Kind::Leave(one),
        _ => Kind::Hang(vec![one]),
    }
}

impl Kind {
    /// In words, with the names of nodes.
    pub fn describe(&self, topology: &Topology) -> String {
        let name = |node: &NodeId| topology.node(*node).name.clone();
        let names = |nodes: &[NodeId]| nodes.iter().map(name).collect::<Vec<_>>().join(", ");
        let links = |links: &[(NodeId, NodeId)]| {
            let one = |(a, b): &(NodeId, NodeId)| format!("{} - {}", name(a), name(b));
            links.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        match self {
            Kind::Kill(nodes, disk) => {
                let disk = match disk {
                    DiskAfter::Kept => "",
                    DiskAfter::Unsynced => "; the power fails",
                    DiskAfter::Lost => "; the files are lost",
                    DiskAfter::Damaged => "; the newest checkpoint is damaged",
                };
                format!("killed: {}{disk}", names(nodes))
            }
            Kind::Leave(node) => format!("asked to leave: {}", name(node)),
            Kind::Hang(nodes) => format!("not reachable: {}", names(nodes)),
            Kind::Cut(of) => format!("cut: {}", links(of)),
            Kind::OneWay(of) => {
                let one = |(a, b): &(NodeId, NodeId)| format!("{} to {}", name(a), name(b));
                let all = of.iter().map(one).collect::<Vec<_>>().join(", ");
                format!("nothing passes from {all}")
            }
            Kind::Partition(nodes) => format!("apart from the others: {}", names(nodes)),
            Kind::Reset(of) => format!("connections reset: {}", links(of)),
            Kind::Slow(nodes, factor) => {
                format!("gradients take {factor} times as long: {}", names(nodes))
            }
            Kind::DiskFull(nodes) => format!("disk full: {}", names(nodes)),
            Kind::DiskSlow(nodes, Time(time)) => {
                let time = *time as f64 / 1e9;
                format!("disks take {time} s longer for a checkpoint: {}", names(nodes))
            }
            Kind::Members(change) => match change.models.is_empty() {
                true => format!("the run begins with {}", names(&change.members)),
                false => format!(
                    "after {} rounds {} continue from the mean of the models of {}",
                    change.round,
                    names(&change.members),
                    names(&change.models)
                ),
            },
            Kind::Stop(last) => format!("asked to end after {} rounds", last.0 + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Topology {
        Topology::parse("ring:4", 0).unwrap()
    }

    #[test]
    fn a_file_names_nodes_links_and_times() {
        let text = "[[fault]]\nkind = 'kill'\nnodes = ['2']\nat_s = 1.5\nfor_s = 2\ndisk = 'lost'\n\
                    [[fault]]\nkind = 'cut'\nlinks = [['1', '0']]\nat_round = 7\nfor_s = 0.5\n";
        let faults = parse(text, &ring()).unwrap();
        let kill = Kind::Kill(vec![NodeId(2)], DiskAfter::Lost);
        let (at, length) = (Time(1_500_000_000), Time(2_000_000_000));
        assert_eq!(faults[0], Fault { when: When::At(at), length, kind: kill });
        let cut = Kind::Cut(vec![(NodeId(0), NodeId(1))]);
        let half = Time(500_000_000);
        assert_eq!(faults[1], Fault { when: When::Round(7), length: half, kind: cut });
        assert_eq!(faults[0].kind.describe(&ring()), "killed: 2; the files are lost");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        for (entry, place, accepted) in [
            ("kind = 'kil'\nnodes = ['1']\nat_s = 1", "fault 1: kind", KINDS),
            ("kind = 'kill'\nnodes = ['x']\nat_s = 1", "fault 1: nodes", "nodes 0, 1, 2, 3"),
            ("kind = 'kill'\nat_s = 1", "fault 1: nodes", "expected the names of nodes"),
            ("kind = 'kill'\nnodes = ['1']", "fault 1: at_s", "either at_s or at_round"),
            ("kind = 'kill'\nnodes = ['1']\nat_s = -1", "fault 1: at_s", "from 0 to 1e9"),
            ("kind = 'cut'\nlinks = [['0', '2']]\nat_s = 1", "fault 1: links", "no link between"),
            ("kind = 'slow'\nnodes = ['1']\nat_s = 1", "fault 1: factor", "from 1 to 1e6"),
            ("kind = 'disk-slow'\nnodes = ['1']\nat_s = 1", "fault 1: seconds", "from 0 to 1e9"),
            ("kind = 'one-way'\nnodes = ['1']\nat_s = 1", "fault 1: links", "both ends"),
            ("kind = 'hang'\nnodes = ['1']\nat_s = 1\ndisk = 'lost'", "fault 1: disk", "kill"),
        ] {
            let error = parse(&format!("[[fault]]\n{entry}"), &ring()).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains(accepted), "{entry}: {error}");
        }
    }
}
