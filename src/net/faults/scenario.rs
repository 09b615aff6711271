//! What a simulated run does, and which faults it meets.

use std::time::Duration;

use crate::{
    experiment::Experiment,
    mixing::Topology,
    rng::{Purpose, Sequence, Stream},
};

/// How long the faults of a run last at most, in milliseconds from its start.
const FAULTS: u64 = 9_000;

/// How long nodes wait for an absent one, if the run does not continue without it.
pub(super) const DEADLINE: Duration = Duration::from_secs(100);

/// What the nodes do without an absent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// They wait: no fault lasts longer than they do.
    Wait,
    /// They continue after three seconds.
    Continue,
}

#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Programs are killed, and start again at the end of the fault.
    Kill {
        machines: Vec<usize>,
        /// Their machines lose power: what was not synced is lost.
        power: bool,
        /// Their disks lose all files.
        wipe: bool,
        /// Their newest checkpoints are damaged.
        damage: bool,
    },
    /// A link carries nothing until the fault is over.
    Cut {
        link: usize,
    },
    /// Nothing passes between some nodes and the others.
    Partition {
        group: Vec<usize>,
    },
    Reset {
        link: usize,
    },
    Delay,
    /// A node takes 40 ms for each event.
    Slow {
        machine: usize,
    },
    FullDisk {
        machine: usize,
    },
    /// A disk is 200 times slower.
    SlowDisk {
        machine: usize,
    },
    /// A node is asked to leave, and starts again at the end of the fault.
    Leave {
        machine: usize,
    },
    /// Nothing leaves or reaches a machine.
    Hang {
        machine: usize,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub seed: u64,
    pub topology: &'static str,
    pub policy: Policy,
    pub settings: Vec<String>,
    /// When each fault begins, how long it lasts, what it is.
    pub faults: Vec<(Duration, Duration, Fault)>,
}

const TOPOLOGIES: [&str; 6] = ["ring:3", "ring:4", "ring:5", "path:4", "complete:4", "star:5"];

/// Rules with state of all kinds.
const RULES: [(&str, &str); 8] = [
    ("d-psgd", "identity"),
    ("dcd", "min-max"),
    ("choco", "top-k"),
    ("deep-squeeze", "sign"),
    ("beer", "top-k"),
    ("gradient-tracking", "identity"),
    ("c-sgd", "identity"),
    ("sgp", "identity"),
];

fn pick<T: Clone>(rng: &mut Sequence, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize].clone()
}

impl Scenario {
    /// The scenario of a seed.
    pub(super) fn of(seed: u64) -> Scenario {
        let rng = &mut Stream::new(seed, Purpose::Graph).sequence();
        let (rule, compressor) = pick(rng, &RULES);
        let topology = match rule {
            // Not all topologies have a collective.
            "c-sgd" => "complete:4",
            _ => pick(rng, &TOPOLOGIES),
        };
        let parsed = Topology::parse(topology, seed).expect("a valid topology");
        let (nodes, links) = (parsed.nodes(), parsed.edges().count());
        let policy = pick(rng, &[Policy::Wait, Policy::Continue]);
        let optimizer = pick(rng, &["momentum=0.0", "momentum=0.9", "kind=adamw"]);
        let every = 2 + rng.below(4);
        let settings = vec![
            format!("rule.kind={rule}"),
            format!("compressor.kind={compressor}"),
            format!("optimizer.{optimizer}"),
            format!("checkpoint.every_rounds={every}"),
        ];
        let mut faults = Vec::new();
        for _ in 0..1 + rng.below(5) {
            let from = Duration::from_millis(rng.below(FAULTS));
            let length = Duration::from_millis(100 + rng.below(4_000));
            let fault = Fault::any(rng, policy, nodes, links);
            faults.push((from, length, fault));
        }
        Scenario { seed, topology, policy, settings, faults }
    }

    /// A run whose nodes wait for one that is away for longer than they do.
    pub(super) fn too_long(seed: u64) -> Scenario {
        let kill = Fault::Kill { machines: vec![0], power: false, wipe: false, damage: false };
        let faults = vec![(Duration::from_secs(2), 3 * DEADLINE, kill)];
        let mut scenario = Scenario::of(seed);
        (scenario.policy, scenario.faults) = (Policy::Wait, faults);
        scenario
    }

    pub(super) fn experiment(&self) -> Experiment {
        let mut settings: Vec<String> = [
            "run.rounds=30",
            "run.evaluate_every=30",
            "run.allow_unstable=true",
            "data.source=synthetic",
            "run.connect_s=60",
            "data.rows=60",
            "data.features=12",
            "data.test_share=0",
            "data.standardize=true",
            "model.kind=least-squares",
            "optimizer.step=0.02",
            "optimizer.batch=4",
        ]
        .map(String::from)
        .into();
        settings.push(format!("topology.file={}", self.topology));
        settings.push(format!("run.seed={}", 1 + self.seed));
        settings.extend(self.settings.iter().cloned());
        match self.policy {
            Policy::Wait => {
                settings.push(format!("absence.deadline_s={}", DEADLINE.as_secs()));
            }
            Policy::Continue => {
                settings.push("absence.deadline_s=3".into());
                settings.push("absence.policy=continue".into());
                settings.push("absence.wait_s=200".into());
            }
        }
        Experiment::parse("", &settings).expect("a valid experiment")
    }

    /// Whether a machine loses its files.
    pub(super) fn wipes(&self, machine: usize) -> bool {
        let wipes = |fault: &Fault| match fault {
            Fault::Kill { machines, wipe, .. } => *wipe && machines.contains(&machine),
            _ => false,
        };
        self.faults.iter().any(|(_, _, fault)| wipes(fault))
    }

    /// Whether a machine may lose its results: its disk is wiped, or is full when they are written.
    pub(super) fn loses(&self, machine: usize) -> bool {
        let is_full = |fault: &Fault| match fault {
            Fault::FullDisk { machine: full } => *full == machine,
            _ => false,
        };
        self.wipes(machine) || self.faults.iter().any(|(_, _, fault)| is_full(fault))
    }

    /// Whether no machine loses a checkpoint.
    pub(super) fn keeps_disks(&self) -> bool {
        let loses = |fault: &Fault| match fault {
            Fault::Kill { wipe, damage, .. } => *wipe || *damage,
            Fault::FullDisk { .. } => true,
            _ => false,
        };
        !self.faults.iter().any(|(_, _, fault)| loses(fault))
    }
}

impl Fault {
    fn any(rng: &mut Sequence, policy: Policy, nodes: usize, links: usize) -> Fault {
        let all: Vec<usize> = (0..nodes).collect();
        let machine = pick(rng, &all);
        let link = rng.below(links as u64) as usize;
        match rng.below(14) {
            0..=4 => {
                let mut machines = vec![machine];
                match rng.below(6) {
                    0 => machines = all,
                    1 => machines = all.into_iter().filter(|_| rng.below(2) == 0).collect(),
                    _ => {}
                }
                let power = rng.below(2) == 0;
                let (wipe, damage) = (rng.below(8) == 0, rng.below(8) == 0);
                Fault::Kill { machines, power, wipe, damage }
            }
            5 => Fault::Cut { link },
            6 => {
                let group = all.into_iter().filter(|_| rng.below(2) == 0).collect();
                Fault::Partition { group }
            }
            7 | 8 => Fault::Reset { link },
            9 => Fault::Delay,
            10 => Fault::Slow { machine },
            11 => Fault::FullDisk { machine },
            12 => Fault::SlowDisk { machine },
            _ if policy == Policy::Continue => Fault::Leave { machine },
            _ => Fault::Hang { machine },
        }
    }
}
