//! What all members report about their checkpoints before an attempt, and where the run continues.
//!
//! * Each node signs a report. The reports of all members pass through other nodes, which can change
//!   none of them.
//! * From the same reports each node forms the same decision. So no node can dictate it.
//! * A checkpoint that some nodes lack counts only if a quorum has it: the word of fewer nodes
//!   replaces no model.

use litemap::LiteMap;
use serde::Serialize;

use crate::{
    cluster::{
        members::keys,
        message::{
            Beginning, CheckpointId, CheckpointReport, MOST_ROUNDS, Reports, Saved, most_changes,
        },
    },
    drive::{Change, Membership},
    gossip::tree::Signer,
    units::{NodeId, Round},
};

impl CheckpointReport {
    /// The report of this node, by its number among the members, in an attempt.
    pub(crate) fn new(
        (node, attempt): (NodeId, u64),
        saved: &Saved,
        signer: &dyn Signer,
    ) -> CheckpointReport {
        let (kept, common) = (saved.kept.clone(), saved.common);
        let report = CheckpointReport { node, attempt, kept, common, signature: Vec::new() };
        CheckpointReport { signature: signer.sign(&report.statement()), ..report }
    }

    /// The bytes that the signature covers, besides the membership.
    fn statement(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Statement<'r>(&'static str, NodeId, u64, &'r [CheckpointId], CheckpointId);
        let CheckpointReport { node, attempt, kept, common, .. } = self;
        let statement = Statement("gradvine checkpoints", *node, *attempt, kept, *common);
        bincode::serde::encode_to_vec(statement, bincode::config::standard())
            .expect("a report serialises")
    }

    /// Whether it says the same of the same checkpoints, in any attempt.
    pub(crate) fn agrees_with(&self, other: &CheckpointReport) -> bool {
        (&self.kept, self.common) == (&other.kept, other.common)
    }
}

/// What reports must keep to.
pub(super) struct Bounds<'b> {
    /// The nodes that report, ascending.
    pub nodes: &'b [NodeId],
    /// The newest membership.
    pub membership: u64,
    /// The rounds of the run.
    pub rounds: u64,
    pub signer: &'b dyn Signer,
}

impl Reports {
    /// Adds those of other nodes.
    pub(crate) fn add(&mut self, other: &Reports) {
        self.nodes.extend(other.nodes.iter().cloned());
        self.nodes.sort_unstable_by_key(|report| report.node);
        for history in &other.histories {
            if !self.histories.iter().any(|known| known.starts_with(history)) {
                self.histories.retain(|known| !history.starts_with(known));
                self.histories.push(history.clone());
            }
        }
    }

    /// The changes before a checkpoint.
    fn history_of(&self, id: CheckpointId) -> Option<Vec<Change>> {
        if id.history == 0 {
            return Some(Vec::new());
        }
        let history = self.histories.iter().find(|history| id.belongs_to(history))?;
        let is_before = |change: &&Change| change.is_before(id.membership, id.rounds);
        Some(history.iter().filter(is_before).cloned().collect())
    }

    /// Checks them. A node passes on what it has checked only.
    ///
    /// # Errors
    /// Why the node that sends them is at fault.
    pub(super) fn check(&self, bounds: &Bounds<'_>) -> Result<(), String> {
        let Bounds { nodes, membership, rounds, signer } = *bounds;
        if !self.nodes.iter().map(|report| &report.node).eq(nodes) {
            return Err("it reports checkpoints of other nodes than it speaks for".into());
        }
        for report in &self.nodes {
            let node = report.node;
            if report.signature.len() > keys::LONGEST
                || !signer.verify(node, &report.statement(), &report.signature)
            {
                return Err(format!("it reports checkpoints that node {node} has not signed"));
            }
            let exists = |kept: &CheckpointId| {
                kept.membership <= membership && (1..=rounds).contains(&kept.rounds)
            };
            let ascend = |a: &CheckpointId, b: &CheckpointId| {
                (a.membership, a.rounds) < (b.membership, b.rounds)
            };
            let newest = report.kept.last().map_or((0, 0), |kept| (kept.membership, kept.rounds));
            let can_be = report.kept.iter().all(exists)
                && report.kept.len() <= MOST_ROUNDS
                && report.kept.is_sorted_by(ascend)
                && (report.common.membership, report.common.rounds) <= newest;
            if !can_be {
                return Err(format!(
                    "it reports checkpoints of node {node} beyond the {rounds} rounds of the run \
                     or its memberships"
                ));
            }
        }
        self.check_histories(bounds)
    }

    /// Each checkpoint needs its history, and a history that a run can have had.
    fn check_histories(&self, bounds: &Bounds<'_>) -> Result<(), String> {
        for history in &self.histories {
            let mut before = None;
            for change in history {
                if !change.can_follow(before, bounds.membership, bounds.rounds) {
                    return Err(
                        "it names changes of the members that this run cannot have had".into()
                    );
                }
                before = Some(change);
            }
        }
        let mut all: Vec<CheckpointId> =
            self.nodes.iter().flat_map(|report| &report.kept).copied().collect();
        all.sort_unstable();
        all.dedup();
        if self.histories.len() > self.nodes.len() {
            return Err("it names more histories than nodes".into());
        }
        match all.iter().find(|id| self.history_of(**id).is_none()) {
            None => Ok(()),
            Some(id) => Err(format!(
                "it reports a checkpoint of round {} without the changes of the members before it",
                id.rounds
            )),
        }
    }

    /// Where the run continues with these checkpoints of all members.
    ///
    /// * After the newest round of which all have one, written by these members.
    /// * If some have lost theirs, or the members have changed: after the round of which most have
    ///   one, from the mean of their models, if they are a quorum.
    /// * Otherwise at round 0.
    pub(crate) fn decide(&self, membership: &Membership, quorum: usize) -> Beginning {
        let attempts = self.nodes.iter().map(|report| report.attempt).collect();
        let from = Beginning { attempts, ..Beginning::default() };
        let kept = || self.nodes.iter().flat_map(|report| &report.kept);
        let common = self.nodes.iter().map(|report| report.common).max().unwrap_or_default();
        let mut memberships: Vec<u64> = kept().map(|kept| kept.membership).collect();
        memberships.sort_unstable();
        memberships.dedup();
        let Membership { id, members, cut } = membership;
        for of in memberships.into_iter().rev() {
            let mut count: LiteMap<CheckpointId, usize> = LiteMap::new();
            for kept in kept().filter(|kept| kept.membership == of) {
                *count.entry(*kept).or_insert(0) += 1;
            }
            let of_all = count.iter().rfind(|(_, count)| **count == self.nodes.len());
            if let (Some((at, _)), true) = (of_all, of == *id)
                && let Some(history) = self.history_of(*at)
            {
                return Beginning { rounds: at.rounds, history, ..from };
            }
            let most = count.iter().max_by_key(|(_, count)| **count);
            let Some((&at, _)) = most.filter(|(_, count)| **count >= quorum) else { continue };
            // Some members have their first one, the others none yet.
            let is_first = (common.membership, common.rounds) < (*id, 1);
            let Some(mut history) = self.history_of(at).filter(|_| of < *id || !is_first) else {
                continue;
            };
            let has = |report: &&CheckpointReport| report.kept.contains(&at);
            let (with, without): (Vec<_>, Vec<_>) = self.nodes.iter().partition(has);
            let models = with.iter().filter_map(|report| members.get(report.node.index()));
            history.truncate(most_changes(members.len()).max(1) - 1);
            history.push(Change {
                id: *id,
                round: Round(at.rounds),
                members: members.clone(),
                cut: cut.clone(),
                models: models.copied().collect(),
            });
            let without = without.iter().map(|report| report.node).collect();
            return Beginning { rounds: at.rounds, from_mean: true, without, history, ..from };
        }
        let first =
            Change { id: *id, members: members.clone(), cut: cut.clone(), ..Change::default() };
        let history = if *id == 0 { Vec::new() } else { vec![first] };
        Beginning { history, ..from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::begin::gathering::tests::Signs;

    const OLD: u64 = 1 << 32;
    const NEW: u64 = 2 << 32;

    fn change(id: u64, round: u64) -> Change {
        Change { id, round: Round(round), ..Change::default() }
    }

    /// The reports of members: the memberships and rounds of their checkpoints.
    fn reports(kept: &[&[(u64, u64)]], common: (u64, u64), history: &[Change]) -> Reports {
        let id =
            |&(membership, rounds): &(u64, u64)| CheckpointId::within(membership, rounds, history);
        let one = |(node, kept): (usize, &&[(u64, u64)])| {
            let kept: Vec<CheckpointId> = kept.iter().map(id).collect();
            let newest = kept.last().copied().unwrap_or_default();
            let saved = Saved { kept, common: id(&common).min(newest), history: Vec::new() };
            CheckpointReport::new((node.into(), 0), &saved, &Signs(node.into()))
        };
        let nodes = kept.iter().enumerate().map(one).collect();
        Reports { nodes, histories: vec![history.to_vec()] }
    }

    /// The round, and the members without a checkpoint if all begin at a mean.
    fn decided(id: u64, reports: &Reports) -> (u64, Option<Vec<u32>>) {
        let members = [2, 3, 5, 7].map(NodeId).to_vec();
        let at = reports.decide(&Membership { id, members, cut: Vec::new() }, 3);
        let numbers = at.without.iter().map(|node| node.0).collect();
        (at.rounds, at.from_mean.then_some(numbers))
    }

    #[test]
    fn the_run_continues_from_the_newest_checkpoint_that_all_have() {
        let of = |first: &[u64], last: &[u64], common: u64| {
            let kept = |rounds: &[u64]| rounds.iter().map(|round| (0, *round)).collect::<Vec<_>>();
            let (first, all, last) = (kept(first), kept(&[4, 8, 12]), kept(last));
            decided(0, &reports(&[&first, &all, &all, &last], (0, common), &[]))
        };
        assert_eq!(of(&[4, 8, 12], &[4, 8, 12], 8), (12, None));
        assert_eq!(of(&[4, 8], &[8, 12], 8), (8, None));
        // Nodes without any return to the others.
        assert_eq!(of(&[], &[4, 8], 4), (8, Some(vec![0])));
        assert_eq!(of(&[4, 8], &[4], 8), (4, None));
        assert_eq!(of(&[8], &[4], 8), (8, Some(vec![3])));
        // Two of four are no quorum.
        assert_eq!(of(&[], &[], 4), (0, None));
        // Some have their first one, the others none yet.
        assert_eq!(of(&[], &[4, 8, 12], 0), (0, None));
    }

    #[test]
    fn the_word_of_fewer_than_a_quorum_replaces_no_model() {
        let honest = [(OLD, 40)];
        let history = [change(OLD, 3), change(NEW, 40)];
        let of = |kept: &[&[(u64, u64)]]| decided(NEW, &reports(kept, (NEW, 90), &history));
        // Node 1 has checkpoints of a membership that was chosen just now.
        assert_eq!(of(&[&honest, &[(NEW, 90)], &honest, &honest]), (40, Some(vec![1])));
        // All start for the first time, but for one or two that bring a late one.
        let late: &[(u64, u64)] = &[(NEW, 90)];
        assert_eq!(of(&[&[], late, &[], &[]]), (0, None));
        assert_eq!(of(&[&[], late, late, &[]]), (0, None));
        assert_eq!(of(&[&[], late, late, late]), (90, Some(vec![0])));
        // Checkpoints after another history are other checkpoints.
        let mut two = reports(&[&honest[..]; 4], (OLD, 40), &history);
        let other = [change(OLD, 4)];
        two.nodes[3].kept[0] = CheckpointId::new(OLD, 40, &other);
        two.histories.push(other.to_vec());
        assert_eq!(decided(NEW, &two), (40, Some(vec![3])));
        two.nodes[2].kept[0] = two.nodes[3].kept[0];
        assert_eq!(decided(NEW, &two), (0, None));
    }

    #[test]
    fn reports_are_signed_within_the_run_and_with_their_histories() {
        let (all, signer) = ([0, 1].map(NodeId), Signs(NodeId(9)));
        let history = [change(1, 5), change(2, 5), change(2, 9)];
        let refusal = |kept: &[(u64, u64)], edit: &dyn Fn(&mut Reports)| {
            let mut given = reports(&[kept, &[]], (0, 0), &history);
            edit(&mut given);
            let bounds = Bounds { nodes: &all, membership: 2, rounds: 100, signer: &signer };
            given.check(&bounds).err().unwrap_or_default()
        };
        let kept = [(1, 10), (2, 20)];
        assert_eq!(refusal(&kept, &|_| ()), "");
        let beyond = "beyond the 100 rounds of the run or its memberships";
        for (at, wrong) in [(1, (2, 101)), (0, (1, 0)), (1, (3, 20)), (0, (2, 21)), (1, (1, 10))] {
            let mut kept = kept;
            kept[at] = wrong;
            assert!(refusal(&kept, &|_| ()).contains(beyond), "{wrong:?}");
        }
        let edited = |edit: &dyn Fn(&mut Reports), text: &str| {
            let found = refusal(&kept, edit);
            assert!(found.contains(text), "{found}, not {text}");
        };
        let unsigned = "that node 0 has not signed";
        edited(&|all| all.nodes[0].attempt = 7, unsigned);
        edited(&|all| all.nodes[0].kept.clear(), unsigned);
        edited(&|all| all.nodes[0].signature = vec![1], unsigned);
        edited(&|all| all.nodes.truncate(1), "other nodes");
        edited(&|all| all.nodes.swap(0, 1), "other nodes");
        edited(&|all| all.histories.clear(), "without the changes of the members");
        edited(&|all| all.histories.extend([vec![], vec![]]), "more histories than nodes");
        let cannot = [vec![change(1, 5), change(2, 4)], vec![change(2, 5), change(1, 6)]];
        for history in cannot.into_iter().chain([vec![change(1, 101)], vec![change(3, 5)]]) {
            edited(&|all| all.histories.push(history.clone()), "changes of the members that");
        }
    }
}
