//! What all members report about their checkpoints before an attempt, and where the run continues.
//!
//! * From the same reports each node forms the same decision. So no node can dictate it.
//! * A checkpoint that some nodes lack counts only if a quorum has it: the word of fewer nodes
//!   replaces no model.

use std::sync::LazyLock;

use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use crate::{
    cluster::{
        members::keys,
        message::{
            Beginning, CheckpointId, History, MOST_CHANGES, MOST_ROUNDS, Origin, most_changes,
        },
        part::Part,
    },
    drive::{Change, Membership},
    experiment::Policy,
    units::{NodeId, Round},
};

/// The checkpoints that a quorum may have while other nodes are still expected to write their first
/// one.
const MOST_FIRST: usize = 2;

/// What a node says before an attempt about its checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its checkpoints, ascending, at most 64.
    pub kept: Vec<CheckpointId>,
    /// The newest one of which, as far as it knows, all members have had one.
    pub common: CheckpointId,
    /// Which node was the first of those because of which it begins this attempt.
    pub because: Origin,
    /// Whether all look for a neighbour because of which models diverge.
    pub guards: bool,
}

impl Report {
    /// Whether a node can have these checkpoints. The run has `rounds` rounds, and `newest` is the
    /// id of its newest membership.
    pub(crate) fn is_possible(&self, newest: u64, rounds: u64) -> bool {
        let exists =
            |kept: &CheckpointId| kept.membership <= newest && (1..=rounds).contains(&kept.rounds);
        let ascend = |a: &CheckpointId, b: &CheckpointId| {
            (a.membership, a.rounds) < (b.membership, b.rounds)
        };
        let last = self.kept.last().map_or((0, 0), |kept| (kept.membership, kept.rounds));
        self.kept.iter().all(exists)
            && self.kept.len() <= MOST_ROUNDS
            && self.kept.is_sorted_by(ascend)
            && (self.common.membership, self.common.rounds) <= last
            && self.because.signature.len() <= keys::LONGEST
    }

    /// Whether these are the changes of the members before its checkpoints.
    pub(crate) fn fits(&self, history: &[Change]) -> bool {
        self.kept.iter().all(|kept| kept.belongs_to(history))
    }

    /// The first of these histories that fits; none is needed without a checkpoint.
    pub(crate) fn history<'h>(&self, histories: &'h [History]) -> Option<&'h History> {
        static NONE: LazyLock<History> = LazyLock::new(History::default);
        match self.kept.is_empty() {
            true => Some(&NONE),
            false => histories.iter().chain([&*NONE]).find(|history| self.fits(history)),
        }
    }
}

/// Whether a run with `nodes` nodes and `rounds` rounds can have had this history. `newest` is the
/// id of its newest membership.
pub(crate) fn is_history(history: &[Change], newest: u64, rounds: u64, nodes: usize) -> bool {
    let mut before = None;
    history.len() <= MOST_CHANGES
        && history.iter().all(|change| {
            let follows = change.can_follow(before.replace(change), newest, rounds);
            let ends = change.cut.iter().flat_map(|(a, b)| [a, b]);
            let mut named = change.members.iter().chain(&change.models).chain(ends);
            follows
                && change.members.is_sorted_by(|a, b| a < b)
                && named.all(|node| node.index() < nodes)
        })
}

/// What all members have reported.
pub(crate) struct Gathered<'g> {
    /// One report of each node, ascending.
    pub reports: Vec<&'g Report>,
    /// What they refer to.
    pub histories: &'g [History],
    /// The attempt of each.
    pub attempts: Vec<u64>,
}

impl Gathered<'_> {
    /// The changes before a checkpoint.
    fn history_of(&self, id: CheckpointId) -> Option<Vec<Change>> {
        if id.history == 0 {
            return Some(Vec::new());
        }
        let history = self.histories.iter().find(|history| id.belongs_to(history))?;
        let is_before = |change: &&Change| change.is_before(id.membership, id.rounds);
        Some(history.iter().filter(is_before).cloned().collect())
    }

    /// The members that have a checkpoint of which all have had one.
    pub(crate) fn holders(&self) -> Vec<NodeId> {
        let all = self.reports.iter().enumerate();
        all.filter(|(_, report)| report.common.rounds > 0).map(|(node, _)| node.into()).collect()
    }

    /// Where the run continues with these checkpoints of all members.
    ///
    /// * After the newest round of which all have one, written by these members.
    /// * If some have lost theirs, or the members have changed: after the round of which most have
    ///   one, from the mean of their models, if they are a quorum.
    /// * Otherwise at round 0. So it is, too, if some have none yet of these members. With
    ///   `"continue"` that is so only while no others have had time to write more than a few.
    pub(crate) fn decide(&self, part: &Part<'_>) -> Beginning {
        let absence = &part.whole.experiment.absence;
        let quorum = absence.quorum_of(part.whole.topology.nodes());
        self.place(&part.membership, quorum, absence.policy == Policy::Continue)
    }

    /// The same. A checkpoint that some members lack counts if `quorum` nodes have it.
    fn place(&self, membership: &Membership, quorum: usize, may_continue: bool) -> Beginning {
        let guards = self.reports.iter().any(|report| report.guards);
        let from = Beginning { attempts: self.attempts.clone(), guards, ..Beginning::default() };
        let kept = || self.reports.iter().flat_map(|report| &report.kept);
        let common = self.reports.iter().map(|report| report.common).max().unwrap_or_default();
        let mut memberships: Vec<u64> = kept().map(|kept| kept.membership).collect();
        memberships.sort_unstable();
        memberships.dedup();
        let Membership { id, members, cut } = membership;
        for of in memberships.into_iter().rev() {
            let mut count: LiteMap<CheckpointId, usize> = LiteMap::new();
            for kept in kept().filter(|kept| kept.membership == of) {
                *count.entry(*kept).or_insert(0) += 1;
            }
            let of_all = count.iter().rfind(|(_, count)| **count == self.reports.len());
            if let (Some((at, _)), true) = (of_all, of == *id)
                && let Some(history) = self.history_of(*at)
            {
                return Beginning { rounds: at.rounds, history, ..from };
            }
            let most = count.iter().max_by_key(|(_, count)| **count);
            let Some((&at, _)) = most.filter(|(_, count)| **count >= quorum) else { continue };
            // Some members have their first one, the others none yet. One that has none for long
            // may hide them.
            let holds_many = |report: &&&Report| {
                let of_these = report.kept.iter().filter(|kept| kept.membership == *id);
                of_these.count() > MOST_FIRST && report.kept.contains(&at)
            };
            let many = self.reports.iter().filter(holds_many).count();
            let is_early = !may_continue || many < quorum;
            let is_first = (common.membership, common.rounds) < (*id, 1) && is_early;
            let Some(mut history) = self.history_of(at).filter(|_| of < *id || !is_first) else {
                continue;
            };
            let all = (0..self.reports.len()).map(NodeId::from);
            let (with, without): (Vec<NodeId>, Vec<NodeId>) =
                all.partition(|node| self.reports[node.index()].kept.contains(&at));
            let models = with.iter().filter_map(|node| members.get(node.index()));
            history.truncate(most_changes(members.len()).max(1) - 1);
            history.push(Change {
                id: *id,
                round: Round(at.rounds),
                members: members.clone(),
                cut: cut.clone(),
                models: models.copied().collect(),
            });
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
    use std::sync::Arc;

    use super::*;
    const OLD: u64 = 1 << 32;
    const NEW: u64 = 2 << 32;

    fn change(id: u64, round: u64) -> Change {
        Change { id, round: Round(round), ..Change::default() }
    }

    /// The reports of members: the memberships and rounds of their checkpoints.
    fn reports(
        kept: &[&[(u64, u64)]],
        common: (u64, u64),
        history: &[Change],
    ) -> (Vec<Report>, Vec<History>) {
        let id =
            |&(membership, rounds): &(u64, u64)| CheckpointId::within(membership, rounds, history);
        let one = |kept: &&[(u64, u64)]| {
            let kept: Vec<CheckpointId> = kept.iter().map(id).collect();
            let common = id(&common).min(kept.last().copied().unwrap_or_default());
            Report { kept, common, ..Report::default() }
        };
        (kept.iter().map(one).collect(), vec![Arc::new(history.to_vec())])
    }

    /// The round, and the members without a checkpoint if all begin at a mean.
    fn decided(id: u64, all: &(Vec<Report>, Vec<History>)) -> (u64, Option<Vec<u32>>) {
        decided_with(id, all, true)
    }

    /// The same, if the run may continue without nodes or not.
    fn decided_with(
        id: u64,
        (reports, histories): &(Vec<Report>, Vec<History>),
        may_continue: bool,
    ) -> (u64, Option<Vec<u32>>) {
        let members = [2, 3, 5, 7].map(NodeId).to_vec();
        let attempts = vec![1; reports.len()];
        let gathered = Gathered { reports: reports.iter().collect(), histories, attempts };
        let at = gathered.place(&Membership { id, members, cut: Vec::new() }, 3, may_continue);
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
        assert_eq!(of(&[], &[4, 8], 0), (0, None));
    }

    /// One that hides its checkpoints, and starts again late, does not cost all rounds.
    #[test]
    fn one_without_a_checkpoint_for_long_throws_nobody_back() {
        let kept = |count| (1..=count).map(|number| (OLD, 10 * number)).collect::<Vec<_>>();
        let (two, many) = (kept(2), kept(5));
        let history = [change(OLD, 3)];
        let of = |kept: &[&[(u64, u64)]], may_continue| {
            decided_with(OLD, &reports(kept, (0, 0), &history), may_continue)
        };
        assert_eq!(of(&[&many, &[], &many, &many], true), (50, Some(vec![1])));
        assert_eq!(of(&[&many, &[], &many, &many], false), (0, None));
        // The others have not had long, or are no quorum.
        assert_eq!(of(&[&two, &[], &two, &two], true), (0, None));
        assert_eq!(of(&[&many, &[], &two, &many], true), (0, None));
        assert_eq!(of(&[&many, &[], &[], &many], true), (0, None));
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
        two.0[3].kept[0] = CheckpointId::new(OLD, 40, &other);
        two.1.push(Arc::new(other.to_vec()));
        assert_eq!(decided(NEW, &two), (40, Some(vec![3])));
        two.0[2].kept[0] = two.0[3].kept[0];
        assert_eq!(decided(NEW, &two), (0, None));
    }

    #[test]
    fn reports_are_within_the_run_and_with_their_histories() {
        let history = [change(1, 5), change(2, 5), change(2, 9)];
        let report = |kept: &[(u64, u64)]| reports(&[kept], (0, 0), &history).0.remove(0);
        let kept = [(1, 10), (2, 20)];
        let good = report(&kept);
        assert!(good.is_possible(2, 100) && good.fits(&history) && !good.fits(&history[..2]));
        for (at, wrong) in [(1, (2, 101)), (0, (1, 0)), (1, (3, 20)), (0, (2, 21)), (1, (1, 10))] {
            let mut kept = kept;
            kept[at] = wrong;
            assert!(!report(&kept).is_possible(2, 100), "{wrong:?}");
        }
        let many: Vec<(u64, u64)> = (1..=65).map(|round| (2, round)).collect();
        assert!(report(&many[..64]).is_possible(2, 100) && !report(&many).is_possible(2, 100));
        assert!(is_history(&history, 2, 100, 1));
        let named = Change { members: vec![NodeId(3)], ..change(1, 5) };
        assert!(is_history(std::slice::from_ref(&named), 2, 100, 4));
        for cannot in [
            vec![change(1, 5), change(2, 4)],
            vec![change(2, 5), change(1, 6)],
            vec![change(1, 101)],
            vec![change(3, 5)],
            vec![Change { members: vec![NodeId(3), NodeId(3)], ..change(1, 5) }],
            vec![Change { members: vec![NodeId(4)], ..named }],
            vec![change(1, 5); MOST_CHANGES + 1],
        ] {
            assert!(!is_history(&cannot, 2, 100, 4), "{cannot:?}");
        }
    }
}
