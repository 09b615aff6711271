//! The results of a laboratory run, as a table and as JSON.

use std::{fmt::Write as _, thread};

use gradvine::{
    experiment::Transport,
    run::{Summary, Whole},
    units::{Bytes, NodeId},
};
use gradvine_report::fitted;
use serde::Serialize;

use crate::{Flow, RouterCounts};

/// Above this load the machine counts as busy, and nodes wait for cores.
const BUSY: f64 = 0.75;

/// Figures of links that a narrow terminal does not show: the first is missing first.
const LEAST_OF_LINKS: [&str; 6] = ["full", "max", "packets", "rate", "bytes", "one way"];

/// The same of the paces.
const LEAST_OF_PACES: [&str; 4] = ["nodes", "single rounds", "round 1", "computing"];

/// All results of a laboratory run, predicted, simulated and measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    topology: String,
    nodes: usize,
    rule: String,
    compressor: String,
    parameters: usize,
    rounds: u64,
    /// Rounds that the figures leave out.
    warm: u64,
    stack: Stack,
    cores: usize,
    /// Gradients of a round, on one core, as measured before the run.
    gradients_s: f64,
    /// Seconds per round, if the rule's plan is fixed.
    predicted_s: Option<f64>,
    simulated: Option<Pace>,
    measured: Option<Pace>,
    measured_per_predicted: Option<f64>,
    measured_per_simulated: Option<f64>,
    /// CPU load of all nodes together.
    load: Option<Load>,
    router: RouterLoad,
    links: Vec<Link>,
    digest: String,
    /// `None` if no digest was expected, as with asynchronous rules.
    pub same_digest_as_simulated: Option<bool>,
}

/// The results before the real run.
pub struct Expected {
    /// Seconds per round, if the rule's plan is fixed.
    pub predicted_s: Option<f64>,
    /// The pace of the simulated nodes; `None` with too few rounds.
    pub pace: Option<Pace>,
    /// The simulation's digest, if the run must have the same.
    pub digest: Option<String>,
}

/// The results of the real nodes.
pub struct Measurement {
    /// The pace of the real nodes; `None` with too few rounds.
    pub pace: Option<Pace>,
    /// `None` if no round was measured.
    pub load: Option<Load>,
    /// The transport of their frames.
    pub stack: Stack,
    /// The counts of the router.
    pub passed: RouterCounts,
    /// The summary that all of them have written.
    pub summary: Summary,
}

/// What carried the nodes' frames.
#[derive(Clone, Debug, Serialize)]
pub struct Stack {
    /// The transport of frames, as `run.transport` says.
    pub transport: Transport,
    /// TCP's congestion controller, by its name in the kernel; `None` if that is not known.
    pub congestion: Option<String>,
    /// Who has set the congestion controller.
    pub chosen: Chosen,
    /// TCP segments retransmitted, by all nodes.
    pub retransmitted: u64,
}

/// The origin of a congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chosen {
    /// The experiment has set `run.congestion`.
    Node,
    /// The user has set `--congestion` for the routes.
    Route,
    /// Nobody has set one: it is the system's default.
    System,
}

/// Seconds per round, over warm rounds only.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pace {
    /// The mean over all nodes and rounds.
    pub mean_s: f64,
    /// The fastest and the slowest node's mean.
    pub nodes_s: (f64, f64),
    /// The first and the last decile of single rounds of single nodes.
    pub tenths_s: (f64, f64),
    /// The first round, of the slowest node.
    pub first_s: f64,
    /// The share of the time in which nodes computed gradients.
    pub computing: f64,
}

/// A node's clocks at the end of a round.
#[derive(Clone, Copy, Debug)]
pub struct RoundEnd {
    /// Rounds done, this one included.
    pub round: u64,
    /// Seconds since the node's start.
    pub time_s: f64,
    /// The part of them spent on gradients.
    pub computing_s: f64,
}

/// The CPU load of the nodes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Load {
    /// Mean number of busy cores.
    pub cores: f64,
    /// CPU seconds per round, of all nodes together.
    pub round_s: f64,
    /// Mean number of busy cores, with all other programs.
    pub machine_cores: f64,
}

#[derive(Debug, Serialize)]
struct RouterLoad {
    /// Its share of a core.
    core: f64,
    /// Mean lateness of packets, in seconds.
    late_mean_s: f64,
    late_max_s: f64,
    /// Packets between nodes without a link.
    strays: u64,
}

/// One direction of a link.
#[derive(Debug, Serialize)]
struct Link {
    from: String,
    to: String,
    latency_ms: f64,
    /// In 10^6 bits a second; `None` for no limit.
    bandwidth_mbps: Option<f64>,
    #[serde(flatten)]
    flow: Flow,
    late_mean_s: f64,
}

impl Pace {
    /// The pace from each node's rounds; `None` if there are too few.
    pub fn of(nodes: &[Vec<RoundEnd>], warm: u64) -> Option<Pace> {
        let (mut means, mut single, mut first_s, mut computing) =
            (Vec::new(), Vec::new(), 0.0f64, 0.0);
        for round_ends in nodes {
            first_s = first_s.max(round_ends.first()?.time_s);
            let round_ends: Vec<&RoundEnd> =
                round_ends.iter().filter(|round_end| round_end.round >= warm).collect();
            let pace =
                |a: &RoundEnd, b: &RoundEnd| (b.time_s - a.time_s) / (b.round - a.round) as f64;
            let (begin, end) = (*round_ends.first()?, *round_ends.last()?);
            if end.round == begin.round {
                return None;
            }
            means.push(pace(begin, end));
            single.extend(round_ends.windows(2).map(|pair| pace(pair[0], pair[1])));
            computing += (end.computing_s - begin.computing_s)
                / (end.time_s - begin.time_s)
                / nodes.len() as f64;
        }
        means.sort_by(f64::total_cmp);
        single.sort_by(f64::total_cmp);
        let tenth = single.len() / 10;
        Some(Pace {
            mean_s: means.iter().sum::<f64>() / means.len() as f64,
            nodes_s: (means[0], means[means.len() - 1]),
            tenths_s: (single[tenth], single[single.len() - 1 - tenth]),
            first_s,
            computing,
        })
    }
}

impl Figures {
    /// Combines the expected and the measured results.
    pub fn new(
        whole: &Whole,
        warm: u64,
        expected: &Expected,
        measurement: &Measurement,
    ) -> Figures {
        let Measurement { pace: measured, load, stack, passed, summary } = measurement;
        let design = &whole.design;
        let name = |node: NodeId| design.topology.node(node).name.clone();
        let link = |(&(from, to), &flow): (&(NodeId, NodeId), &Flow)| {
            let model = whole.conditions.link(from, to);
            Link {
                from: name(from),
                to: name(to),
                latency_ms: model.latency as f64 / 1e6,
                bandwidth_mbps: model.rate.is_finite().then_some(model.rate / 1e6),
                late_mean_s: flow.late_mean_s(),
                flow,
            }
        };
        let packets: u64 = passed.flows.values().map(|flow| flow.packets).sum();
        let per = |than: Option<f64>| Some(measured.as_ref()?.mean_s / than?);
        Figures {
            topology: design.topology.name().to_string(),
            nodes: whole.shards.len(),
            rule: design.rule_name().to_string(),
            compressor: design.compressor.name().to_string(),
            parameters: design.parameters(),
            rounds: summary.rounds,
            warm,
            stack: stack.clone(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            gradients_s: whole.conditions.compute.mean as f64 / 1e9,
            predicted_s: expected.predicted_s,
            simulated: expected.pace,
            measured: *measured,
            measured_per_predicted: per(expected.predicted_s),
            measured_per_simulated: per(expected.pace.map(|pace| pace.mean_s)),
            load: *load,
            router: RouterLoad {
                core: passed.cpu_s / passed.time_s,
                late_mean_s: passed.flows.values().map(|flow| flow.late_sum_s).sum::<f64>()
                    / packets.max(1) as f64,
                late_max_s: passed.flows.values().map(|flow| flow.late_max_s).fold(0.0, f64::max),
                strays: passed.strays,
            },
            links: passed.flows.iter().map(link).collect(),
            digest: summary.digest.clone(),
            same_digest_as_simulated: expected
                .digest
                .as_ref()
                .map(|digest| *digest == summary.digest),
        }
    }

    /// The results as a table. `width`: the columns of the terminal, if it is shown on one.
    pub fn table(&self, width: Option<usize>) -> String {
        let mut text = format!(
            "\n{}: {} nodes, {} with {}, {} parameters; {}\n\n",
            self.topology,
            self.nodes,
            self.rule,
            self.compressor,
            self.parameters,
            self.stack.words()
        );
        text += &fitted(&self.link_rows(), &[0], &LEAST_OF_LINKS, width);
        text.push('\n');
        text += &fitted(&self.pace_rows(), &[0, 6], &LEAST_OF_PACES, width);
        self.machine_into(&mut text);
        text
    }

    /// The links, each below the heads of the columns.
    fn link_rows(&self) -> Vec<Vec<String>> {
        let [one_way, rate, late, max] = ["one way", "rate", "late, mean", "max"];
        let [packets, bytes, full, lost] = ["packets", "bytes", "full", "lost"];
        let mut rows = vec![vec![
            "link".to_string(),
            format!("{one_way:>9}"),
            format!("{rate:>11}"),
            format!("{packets:>8}"),
            format!("{bytes:>9}"),
            format!("{full:>6}"),
            format!("{lost:>6}"),
            format!("{late:>12}"),
            format!("{max:>9}"),
        ]];
        rows.extend(self.links.iter().map(|link| {
            let rate = |rate| format!("{rate} Mbit/s");
            vec![
                format!("{} -> {}", link.from, link.to),
                format!("{} ms", link.latency_ms),
                link.bandwidth_mbps.map_or("no limit".into(), rate),
                link.flow.packets.to_string(),
                Bytes(link.flow.bytes).to_string(),
                link.flow.full.to_string(),
                (link.flow.lost + link.flow.cut).to_string(),
                format!("{:.3} ms", link.late_mean_s * 1e3),
                format!("{:.2} ms", link.flow.late_max_s * 1e3),
            ]
        }));
        rows
    }

    /// Seconds of a round as predicted, simulated and measured, below the heads of the columns.
    fn pace_rows(&self) -> Vec<Vec<String>> {
        let (mean, first, computing) = ("mean", "round 1", "computing");
        let mut rows = vec![vec![
            format!("{:16}", "seconds a round"),
            format!("{mean:>9}"),
            format!("{:>19}", "single rounds"),
            format!("{:>19}", "nodes"),
            format!("{first:>9}"),
            computing.to_string(),
            format!(" rounds {} to {}", self.warm + 1, self.rounds),
        ]];
        let share = |share: f64| format!("{:.1} %", 100.0 * share);
        if let Some(predicted) = self.predicted_s {
            let mut row = vec![String::new(); 6];
            row[0] = "predicted".into();
            row[1] = format!("{predicted:.4}");
            row[5] = share(self.gradients_s / predicted);
            rows.push(row);
        }
        let ratios = self.measured_per_predicted.map(|predicted| {
            let simulated = self.measured_per_simulated;
            let simulated = simulated.map(|simulated| format!(", {simulated:.3} of simulated"));
            format!(" {predicted:.3} of predicted{}", simulated.unwrap_or_default())
        });
        let paces = [("simulated", &self.simulated, None), ("measured", &self.measured, ratios)];
        for (word, pace, ratios) in paces {
            let Some(pace) = pace else { continue };
            let range = |(low, high): (f64, f64)| format!("{low:.4} to {high:.4}");
            rows.push(vec![
                word.into(),
                format!("{:.4}", pace.mean_s),
                range(pace.tenths_s),
                range(pace.nodes_s),
                format!("{:.4}", pace.first_s),
                share(pace.computing),
                ratios.unwrap_or_default(),
            ]);
        }
        rows
    }

    fn machine_into(&self, text: &mut String) {
        let gradients =
            format!("gradients of a round take {:.2} ms on one core", self.gradients_s * 1e3);
        let _ = writeln!(
            text,
            "\nmachine          {} cores for {} nodes; {gradients}",
            self.cores, self.nodes
        );
        if let Some(load) = self.load {
            let _ = writeln!(
                text,
                "nodes            {:.2} cores busy, {:.2} ms of a core per round and node",
                load.cores,
                load.round_s * 1e3 / self.nodes as f64
            );
            if load.machine_cores > BUSY * self.cores as f64 {
                let others = (load.machine_cores - load.cores - self.router.core).max(0.0);
                let _ = writeln!(
                    text,
                    "                 the machine was busy, {others:.1} cores with other work: \
                     the nodes' own work took longer than it needs"
                );
            }
        }
        let _ = writeln!(
            text,
            "router           {:.3} cores busy; packets {:.3} ms late in the mean, {:.2} ms at \
             most",
            self.router.core,
            self.router.late_mean_s * 1e3,
            self.router.late_max_s * 1e3
        );
        let as_simulated = match self.same_digest_as_simulated {
            Some(true) => ", the same as simulated",
            Some(false) => ", NOT the one simulated",
            None => "",
        };
        let _ = writeln!(text, "digest           {}{as_simulated}", self.digest);
    }
}

impl Stack {
    fn words(&self) -> String {
        match (self.transport, &self.congestion) {
            (Transport::Quic, _) => "QUIC with its own congestion control".into(),
            (Transport::Tcp, Some(name)) => {
                let chosen_by = match self.chosen {
                    Chosen::Node => "by the nodes",
                    Chosen::Route => "by the route",
                    Chosen::System => "the system's",
                };
                format!("TCP with {name} ({chosen_by}), {} segments sent again", self.retransmitted)
            }
            (Transport::Tcp, None) => "TCP".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_end(round: u64, time_s: f64, computing_s: f64) -> RoundEnd {
        RoundEnd { round, time_s, computing_s }
    }

    #[test]
    fn a_pace_leaves_out_cold_rounds() {
        // Two slow rounds, then 20 of 0.1 s; the other node takes 0.2 s for each.
        let node = |step: f64| {
            let round_end = |round: u64| {
                round_end(round, 3.0 + step * round.saturating_sub(2) as f64, 0.01 * round as f64)
            };
            (1..=22).map(round_end).collect::<Vec<_>>()
        };
        let pace = Pace::of(&[node(0.1), node(0.2)], 2).expect("there are rounds");
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(pace.mean_s, 0.15) && near(pace.nodes_s.0, 0.1) && near(pace.nodes_s.1, 0.2),
            "{pace:?}"
        );
        assert!(
            near(pace.tenths_s.0, 0.1) && near(pace.tenths_s.1, 0.2) && near(pace.first_s, 3.0),
            "{pace:?}"
        );
        assert!(near(pace.computing, 0.075), "a tenth and a twentieth of the time: {pace:?}");
        assert!(Pace::of(&[node(0.1)], 22).is_none() && Pace::of(&[Vec::new()], 0).is_none());
    }

    #[test]
    fn unobserved_rounds_count_in_the_mean() {
        let pace = Pace::of(
            &[vec![round_end(5, 1.0, 0.0), round_end(10, 2.0, 0.0), round_end(20, 3.0, 0.0)]],
            5,
        )
        .expect("there are rounds");
        assert!((pace.mean_s - 2.0 / 15.0).abs() < 1e-9 && pace.tenths_s == (0.1, 0.2), "{pace:?}");
    }
}
