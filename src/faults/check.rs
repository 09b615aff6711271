//! What must hold after every event.
//!
//! At all nodes but a hostile one, which counts as if it held every checkpoint and all results:
//!
//! * No id has two memberships, and at most one membership can continue. W is doubly stochastic.
//! * *results*: no node takes the run for over, or removes its checkpoints at the end, before a
//!   quorum has the same results.
//! * *beginning*: no node that lacks a checkpoint begins from it unless a quorum has had it.
//! * *removal*: no node removes a checkpoint that all its members have had, before a later one, or
//!   the one from which the node begins, has been durable at a quorum.
//! * *blame*: no node refuses a node that has kept to the protocol, or ends because of it.
//! * *report*: a checkpoint that a node reports is on its disk.
//! * *choices*: a node does not choose members more often than the budgets of its neighbours allow,
//!   without a later checkpoint that all members have.
//! * *schedule*: checkpoints that are due by time are written, with [`LONGEST_GAP`] between them.
//! * *end*: a run ends within its [bound](World::bound), if the nodes that are not hostile can
//!   reach each other and are a quorum.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use super::{hostile::Hostile, journal::Id, world::World};
use crate::{
    cluster::{
        Opening, Outcome, Standing,
        checkpoints::longest_gap,
        members::{assembly::check::check_adopted, setbacks},
        message::Beginning,
        statements::{All, Said, Statement},
    },
    data::Disk,
    digest,
    drive::{Membership, RunError},
    mixing::Topology,
    run::checkpoint::Every,
    units::NodeId,
};

/// The longest time in the rounds without a checkpoint, and the most rounds, besides the turns of
/// all nodes and the time in which a silent neighbour is given up: three intervals until a schedule
/// that was missed is replaced, and twice the time in which one crosses the network, with room.
const LONGEST_GAP: u64 = 20;

/// How often a refused member comes back in the longest run, at the most: each refusal takes twice
/// as long as the one before it, from a minute on.
const MOST_RETURNS: u32 = 10;

impl World<'_> {
    /// Whether a node is not the hostile one.
    fn is_honest(&self, node: NodeId) -> bool {
        !self.is_hostile(node) && self.liar.as_ref().is_none_or(|liar| liar.node != node)
    }

    /// Whether these nodes, with the hostile one, are a quorum.
    fn is_quorum(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let hostile = self.hostile.iter().filter(|hostile| !nodes.contains(&hostile.node)).count();
        let design = &self.whole.design;
        let quorum = design.topology.nodes() / 2 + 1;
        nodes.len() + hostile >= quorum
    }

    /// Whether an ordinary fault concerns a node.
    pub(super) fn is_disturbed(&self, node: NodeId) -> bool {
        self.journal.disturbed.contains(&node)
    }

    fn was_at_quorum(&self, checkpoint: Id) -> bool {
        self.journal.durable.get(&checkpoint).is_some_and(|nodes| self.is_quorum(nodes))
    }

    /// Whether nodes have checkpoints, and a quorum has none of them now.
    fn has_too_few(&self) -> bool {
        let has = |node: usize, rounds| self.machines[node].files.is_durable(rounds);
        let nodes = 0..self.machines.len();
        let count = |rounds| nodes.clone().filter(|node| has(*node, rounds)).count();
        let honest =
            |rounds| nodes.clone().any(|node| self.is_honest(node.into()) && has(node, rounds));
        let mut all =
            self.journal.durable.keys().map(|(_, rounds)| *rounds).filter(|it| honest(*it));
        all.clone().next().is_some() && all.all(|rounds| 2 * count(rounds) <= nodes.len())
    }

    /// The checkpoints that a program has on its disk.
    pub(super) fn on_disk(&self, node: NodeId) -> Vec<Id> {
        let program = self.machines[node.index()].program.as_ref();
        let all = program.and_then(|program| program.checkpoints.available().ok());
        let all = all.map_or(Vec::new(), |(all, _)| all);
        all.into_iter().map(|(membership, rounds, _)| (membership, rounds)).collect()
    }

    /// A node has written a checkpoint.
    pub(super) fn check_written(&mut self, node: NodeId, checkpoint: Id) {
        self.journal.durable.entry(checkpoint).or_default().insert(node);
        let now = self.now();
        if let Some((_, since)) = self.journal.begun.get_mut(&node) {
            *since = now;
        }
        if checkpoint > self.journal.common && self.was_common(checkpoint, false) {
            self.journal.common = checkpoint;
            self.journal.choices.clear();
        }
    }

    /// Whether all members have had a checkpoint; all but the hostile one, or that one too.
    fn was_common(&self, checkpoint: Id, with_hostile: bool) -> bool {
        let members = self.journal.adopted.get(&checkpoint.0);
        let holders = self.journal.durable.get(&checkpoint);
        let (Some(members), Some(holders)) = (members, holders) else { return false };
        let counts = |node: &&NodeId| with_hostile || self.is_honest(**node);
        members.members.iter().filter(counts).all(|node| holders.contains(node))
    }

    /// The newest checkpoint that a node knows to be common, as it has reported.
    fn known_common(&self, node: NodeId) -> Option<Id> {
        let program = self.machines[node.index()].program.as_ref()?;
        let me = program.cluster.part().id;
        program.statements.statements.iter().find_map(|(_, one)| match &one.said {
            Said::Report(own) if one.node == me => Some((own.common.membership, own.common.rounds)),
            _ => None,
        })
    }

    /// A node has removed all that it had before and has no longer; it begins there, if it does.
    /// What it has not known to be common may go with the attempt.
    pub(super) fn check_removed(&self, node: NodeId, before: &[Id], at: Option<&Beginning>) {
        if self.hostile.is_none() || !self.is_honest(node) {
            return;
        }
        let after = self.on_disk(node);
        let begins = at.is_some_and(|at| {
            let mut all = self.journal.durable.keys().filter(|(_, rounds)| *rounds == at.rounds);
            all.any(|checkpoint| self.was_at_quorum(*checkpoint))
        });
        let common = self.known_common(node);
        let is_known = |removed: &&Id| common.is_none_or(|common| **removed <= common);
        let removed = before.iter().filter(|checkpoint| !after.contains(checkpoint));
        for removed in removed.filter(is_known) {
            let mut later = self.journal.durable.keys().filter(|other| *other > removed);
            let is_replaced = later.any(|other| self.was_at_quorum(*other));
            assert!(
                is_replaced || begins || !self.was_common(*removed, true),
                "removal: node {node} removes {removed:?}, and a quorum has no later checkpoint; \
                 it begins at {at:?}"
            );
        }
    }

    /// A node has written its results.
    pub(super) fn check_results(&mut self, node: NodeId) {
        if let Some(results) = &self.machines[node.index()].results {
            let mean = digest::short(&results.mean);
            self.journal.results.entry(mean).or_default().insert(node);
        }
    }

    /// A node takes the run for over.
    pub(super) fn check_over(&self, node: NodeId) {
        if self.hostile.is_some() && self.is_honest(node) {
            let has_quorum = self.journal.results.values().any(|nodes| self.is_quorum(nodes));
            let results = &self.journal.results;
            assert!(has_quorum, "results: node {node} takes the run for over: {results:?}");
        }
    }

    /// The rounds of a node begin there, as one of the members of its links.
    pub(super) fn check_begins(&mut self, node: NodeId, at: &Beginning) {
        let now = self.now();
        self.journal.begun.insert(node, (at.rounds, now));
        self.journal.has_begun |= self.is_honest(node);
        if self.hostile.is_none() || !self.is_honest(node) {
            return;
        }
        if at.rounds == 0 {
            // No faults beside a hostile member lose what is durable. But in the membership that
            // has it, one that has never shown any may bring all back to the beginning.
            let (common, nodes) = (self.journal.common, self.whole.design.topology.nodes());
            let holders = self.journal.durable.get(&common).into_iter().flatten().copied();
            let holds =
                |node: &NodeId| self.is_honest(*node) && self.on_disk(*node).contains(&common);
            let honest = holders.filter(holds).count();
            let membership = at.history.last().map_or(0, |change| change.id);
            // Those that begin may not have heard that all others have it, too.
            let knows = |node: usize| self.known_common(node.into()) >= Some(common);
            let is_known = (0..nodes).any(|node| self.is_honest(node.into()) && knows(node));
            let is_lost = 2 * honest > nodes && common.0 < membership && is_known;
            assert!(!is_lost, "beginning: node {node} begins anew, {honest} have had {common:?}");
            return;
        }
        let has = |(_, rounds): &Id| *rounds == at.rounds;
        let is_own = self.on_disk(node).iter().any(has);
        let mut known = self.journal.durable.keys().filter(|id| has(id));
        let is_known = known.any(|id| self.was_at_quorum(*id));
        assert!(
            is_known || (is_own && !at.from_mean),
            "beginning: node {node} begins at {at:?}, which no quorum has had: {:?}",
            self.journal.durable
        );
    }

    /// A node opens links.
    pub(super) fn check_opens(&mut self, node: NodeId, opening: &Opening) {
        self.journal.begun.remove(&node);
        if !self.is_honest(node) {
            return;
        }
        for (peer, ban) in &opening.bans {
            if self.journal.bans.insert((node, *peer, ban.until)) {
                self.check_blame(node, *peer, &ban.reason);
            }
        }
        if opening.chooses && self.hostile.is_some() {
            // Each neighbour has its own budget. Ordinary faults and returns cause some choices.
            let most = self.most_setbacks();
            let times = self.journal.choices.entry(node).or_default();
            *times += 1;
            assert!(
                *times <= most + MOST_RETURNS,
                "choices: node {node} chooses members for the {times}th time since the members \
                 have had the checkpoint {:?}",
                self.journal.common
            );
        }
    }

    /// A node refuses another one, or ends because of it. One that waits for a node which a fault
    /// concerns may give it up.
    fn check_blame(&self, node: NodeId, peer: NodeId, reason: &str) {
        let waits = reason.contains(" waited ") || reason.contains("was started again");
        // One that has a checkpoint which too few have does not begin without that checkpoint.
        let holds = !self.on_disk(peer).is_empty() && self.has_too_few();
        let is_late = waits && (holds || self.journal.disturbed.contains(&peer));
        let may = !self.is_honest(peer) || is_late;
        assert!(may, "blame: node {node} refuses node {peer}: {reason}");
    }

    /// The program of a node ends.
    pub(super) fn check_ends(&self, node: NodeId, outcome: &Outcome) {
        let Outcome::Failed(error) = outcome else { return };
        if !self.is_honest(node) {
            return;
        }
        match error {
            RunError::Failed { failure, .. } => {
                if let Some(peer) = failure.culprit() {
                    let reason = failure.describe(&|node| node.to_string());
                    self.check_blame(node, peer, &reason);
                }
            }
            RunError::Over => self.check_over(node),
            RunError::Alone(text) if text.starts_with("the run is over") => self.check_over(node),
            RunError::Setup(error) if self.hostile.is_some() => {
                let few = error.to_string().contains("nodes report the same checkpoint");
                // Nor are those a quorum that cannot reach each other without it.
                if few && (self.has_too_few() || self.bound().is_none()) {
                    return;
                }
                panic!("end: node {node} ends by the word of another one: {error}");
            }
            _ => {}
        }
    }

    /// A node tells others what is new of these statements: that it has a checkpoint, unless that
    /// is where it has begun.
    pub(super) fn check_told(&self, node: NodeId, all: &All) {
        let Some(program) = &self.machines[node.index()].program else { return };
        // The cluster may have begun to choose others meanwhile.
        let me = program.numbers.iter().position(|one| *one == node).map(NodeId::from);
        let told = program.statements.statements.last().map_or(0, |(number, _)| *number);
        let begun = self.journal.begun.get(&node).map_or(0, |(rounds, _)| *rounds);
        let is_news =
            |(number, one): &&(u64, Arc<Statement>)| *number > told && Some(one.node) == me;
        for (_, statement) in all.statements.iter().filter(is_news) {
            match &statement.said {
                Said::Saved(rounds) if *rounds != begun => self.check_reported(node, *rounds),
                Said::Report(report) => {
                    report.kept.iter().for_each(|kept| self.check_reported(node, kept.rounds));
                }
                _ => {}
            }
        }
    }

    fn check_reported(&self, node: NodeId, rounds: u64) {
        let is_there = self.machines[node.index()].files.is_durable(rounds);
        assert!(is_there, "report: node {node} reports a checkpoint of round {rounds}");
    }

    /// Time has passed.
    pub(super) fn check_time(&self) {
        if self.hostile.is_none() {
            return;
        }
        let (now, design) = (self.now(), &self.whole.design);
        if let Every::Time(every) = Every::of(design) {
            let limits = (design.experiment.run.patience_s, design.experiment.absence.deadline_s);
            let gap =
                Duration::from_secs(LONGEST_GAP) + Duration::from_secs_f64(limits.0 + limits.1);
            for (node, (rounds, since)) in &self.journal.begun {
                let Some(program) = &self.machines[node.index()].program else { continue };
                let (turns, most) = longest_gap(program.cluster.part().topology(), every);
                // One that does no rounds for long has nothing to write.
                let last = program.checkpoints.newest().max(*rounds);
                let standing = program.cluster.standing();
                let is_late = |round: u64| round > last + LONGEST_GAP + most;
                let is_over = !matches!(standing, Standing::Rounds(round) if is_late(round.0));
                let since = since.0.max(self.healed().0);
                assert!(
                    is_over
                        || !self.is_honest(*node)
                        || now.0 <= since + (gap + turns).as_nanos() as u64,
                    "schedule: node {node} has written no checkpoint since round {last}, \
                     {standing:?}"
                );
            }
        }
        if let Some(bound) = self.bound() {
            let is_within = now.0 as f64 <= 1e9 * bound || self.is_over();
            assert!(is_within, "end: the run takes longer than {bound} s");
        }
    }

    /// How often the hostile member may throw back all others, by the budgets that it has at its
    /// neighbours.
    fn most_setbacks(&self) -> u32 {
        let topology = &self.whole.design.topology;
        let count = |hostile: &Hostile| topology.neighbours(hostile.node).len() as u32;
        let neighbours = self.hostile.as_ref().map_or(0, count);
        neighbours * setbacks::most(neighbours)
    }

    /// The seconds within which the nodes that are not hostile end; `None` if they are not a
    /// quorum, or cannot reach each other without the hostile one.
    ///
    /// All start within `run.connect_s`. Then the rounds take their gradients, twice that with the
    /// links. The hostile one interrupts them as often as its budget and its returns allow. Each
    /// interruption costs at most all the rounds again, its silence until it is given up, and a
    /// choice: a lost link, a node that has just returned, two seconds in which all hear of it, and
    /// as long again until all continue. Faults add their lengths.
    pub(super) fn bound(&self) -> Option<f64> {
        let experiment = &self.whole.design.experiment;
        let hostile = self.hostile.as_ref()?.node;
        let topology = &self.whole.design.topology;
        let nodes = topology.nodes();
        let honest: Vec<NodeId> =
            (0..nodes).map(NodeId::from).filter(|node| *node != hostile).collect();
        if 2 * honest.len() <= nodes || topology.restricted(&honest, &[]).is_err() {
            return None;
        }
        let rounds = experiment.run.rounds as f64;
        let compute = 2.0 * rounds * experiment.network.compute_ms.unwrap_or(50.0) / 1e3;
        let silence = experiment.absence.deadline_s + experiment.run.patience_s;
        let choice = 2.0 * (experiment.absence.deadline_s + 10.0);
        let faults: f64 = self.faults.iter().map(|fault| fault.length.0 as f64 / 1e9).sum();
        let each = compute + silence + choice;
        let interruptions = f64::from(self.most_setbacks() + MOST_RETURNS);
        Some(experiment.run.connect_s + compute + interruptions * each + faults)
    }

    /// Checks the membership that a node has just recorded against those of the others.
    pub(super) fn check_recorded(&mut self, node: NodeId) {
        let design = &self.whole.design;
        let nodes = design.topology.nodes();
        let recorded = |node: usize| {
            let name = &design.topology.node(node.into()).name;
            let path = format!("run/checkpoints/{name}/membership.json");
            match self.machines[node].files.read(Path::new(&path)) {
                Ok(bytes) => serde_json::from_slice(&bytes).expect("a whole membership"),
                Err(_) => Membership::all(nodes),
            }
        };
        let disks: Vec<Membership> = (0..nodes).map(recorded).collect();
        check_adopted(&design.topology, node.index(), &disks, &mut self.journal.adopted);
        let Membership { members, cut, .. } = &disks[node.index()];
        check_weights(&design.topology.restricted(members, cut).expect("a part of the topology"));
    }
}

/// Checks that W is symmetric with weights of at least 0, and that its rows have the sum 1.
fn check_weights(topology: &Topology) {
    let (w, nodes) = (topology.matrix(), topology.nodes());
    for i in (0..nodes).map(NodeId::from) {
        let all = (0..nodes).map(NodeId::from);
        let row: f64 = all.clone().map(|j| w.weight(i, j)).sum();
        assert!((row - 1.0).abs() < 1e-12, "row {i} of W has the sum {row}");
        for j in all {
            let (one, other) = (w.weight(i, j), w.weight(j, i));
            assert!(one == other && one >= 0.0, "W({i}, {j}) = {one}, W({j}, {i}) = {other}");
        }
    }
}
