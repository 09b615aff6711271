//! What must hold after each input, whatever the neighbours say.

use std::collections::{BTreeMap, BTreeSet};

use super::disk::Disk;
use crate::{
    cluster::{
        Effect,
        members::{
            assembly::{News, View, statement},
            keys::{Keys, Named},
        },
        message::Beginning,
    },
    drive::Membership,
    mixing::Topology,
    units::NodeId,
};

/// The effects of one input, at the most: a few for each neighbour and each frame that waits.
const MOST_EFFECTS: usize = 200;

/// The characters of a message or a line for the log, at the most. What it repeats of the
/// neighbours' messages is shorter than these, and they are short here.
const LONGEST: usize = 1 << 16;

/// How far a node has come with its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    pub inputs: u64,
    pub begins: u64,
    /// How often the rounds began from checkpoints, and how often from a mean.
    pub resumes: u64,
    pub means: u64,
    pub rounds: u64,
    pub writes: u64,
    pub retains: u64,
    pub choices: u64,
    pub records: u64,
    pub bans: u64,
    pub results: u64,
    pub ends: u64,
}

/// What is remembered for the checks.
#[derive(Default)]
pub(super) struct Checks {
    pub reached: Reached,
    /// Since the members are chosen: what the node has heard that its node has signed.
    heard: BTreeMap<NodeId, Vec<View>>,
    /// The greatest membership that this program has recorded, or had when it started.
    pub newest: u64,
    /// Whether it has taken part in the run.
    pub started: bool,
    /// Whether it has results.
    pub is_over: bool,
    /// Whether a checkpoint was damaged, of which the program does not know, since the last one.
    pub damaged: bool,
}

impl Checks {
    /// The effects of one input.
    pub(super) fn effects(&mut self, effects: &[Effect]) {
        self.reached.inputs += 1;
        assert!(effects.len() <= MOST_EFFECTS, "{} effects of one input", effects.len());
        for effect in effects {
            let length = match effect {
                Effect::SendNews { news, .. } => format!("{news:?}").len(),
                Effect::Tell(all) => 100 * all.statements.len(),
                Effect::Warn(text) | Effect::Info(text) | Effect::Debug(text) => text.len(),
                Effect::Open(opening) => format!("{opening:?}").len(),
                Effect::Close { reason, .. } => format!("{reason:?}").len(),
                _ => 0,
            };
            assert!(length <= LONGEST, "{length} characters: {effect:?}");
        }
    }

    /// Members are chosen from now on.
    pub(super) fn choose(&mut self) {
        self.reached.choices += 1;
        self.heard.clear();
    }

    /// The node hears these news.
    pub(super) fn hear(&mut self, news: &News) {
        for (node, view) in &news.views {
            if Named(*node).verify(*node, &statement(*node, view), &view.signature) {
                self.heard.entry(*node).or_default().push(view.clone());
            }
        }
    }

    /// The node records a membership.
    pub(super) fn record(
        &mut self,
        topology: &Topology,
        (me, linked): (NodeId, &BTreeSet<NodeId>),
        [first, quorum]: [usize; 2],
        membership: &Membership,
    ) {
        self.reached.records += 1;
        let Membership { id, members, cut } = membership;
        assert!(members.is_sorted_by(|a, b| a < b) && members.contains(&me), "{membership:?}");
        assert!(membership.has_own_id(topology.nodes()), "{membership:?}");
        let views = || self.heard.iter().flat_map(|(node, all)| all.iter().map(move |v| (node, v)));
        let has_started = self.started || views().any(|(_, view)| view.started);
        let least = if has_started { quorum } else { first };
        assert!(members.len() >= least, "less than a quorum of {least}: {membership:?}");
        assert!(*id > self.newest, "an older one than {}: {membership:?}", self.newest);
        let adopted = views().map(|(_, view)| view.adopted >> 32).max().unwrap_or(0);
        let most = 1 + adopted.max(self.newest >> 32);
        assert!(id >> 32 <= most, "change {} after {most}", id >> 32);
        // All members are connected by links that both ends have signed.
        let says = |a: NodeId, b: NodeId| match a == me {
            true => linked.contains(&b),
            false => {
                self.heard.get(&a).is_some_and(|all| all.iter().any(|v| v.linked.contains(&b)))
            }
        };
        let mut reached = BTreeSet::from([me]);
        let mut open = vec![me];
        while let Some(node) = open.pop() {
            for &peer in topology.neighbours(node) {
                let is_used = !cut.contains(&(node.min(peer), node.max(peer)));
                if is_used && says(node, peer) && says(peer, node) && reached.insert(peer) {
                    open.push(peer);
                }
            }
        }
        let unsigned: Vec<_> = members.iter().filter(|node| !reached.contains(node)).collect();
        assert!(unsigned.is_empty(), "nobody has signed that {unsigned:?} take part");
        self.newest = *id;
    }

    /// The rounds begin there, before other checkpoints are removed; `me` is the node's number
    /// among the members. `by_quorum`: whether the others that have a checkpoint of that round are
    /// a quorum, with the hostile one.
    pub(super) fn begin(
        &mut self,
        disk: &Disk,
        me: NodeId,
        by_quorum: bool,
        id: u64,
        at: &Beginning,
    ) {
        self.reached.begins += 1;
        self.reached.resumes += u64::from(at.rounds > 0 && !at.from_mean);
        self.reached.means += u64::from(at.from_mean);
        let lacks = at.without.contains(&me);
        let stays = disk.checkpoints.contains_key(&at.rounds) && !lacks;
        assert!(stays || at.rounds == 0 || lacks, "it begins where it has no checkpoint: {at:?}");
        let newest =
            disk.checkpoints.values().max_by_key(|kept| (kept.membership, kept.snapshot.rounds));
        let Some(newest) = newest.filter(|_| !stays) else { return };
        // Before all members have had one, or when others have gone on.
        let may = match newest.membership == id {
            true => newest.common == 0,
            false => at.rounds > 0,
        };
        assert!(by_quorum || may, "it removes the common checkpoint {}: {at:?}", newest.common);
    }

    /// The node takes the run for over; these others have results.
    pub(super) fn over(&self, others: usize, quorum: usize) {
        // The hostile one may have them.
        let all = 1 + others + usize::from(self.is_over);
        assert!(all >= quorum, "the run is over for {all} nodes only");
    }

    /// The checkpoints of earlier rounds were removed.
    pub(super) fn retain(&mut self, rounds: u64, before: usize, disk: &Disk) {
        self.reached.retains += 1;
        assert!(
            before == 0 || self.damaged || !disk.checkpoints.is_empty(),
            "it removes all of its checkpoints, which are before round {rounds}"
        );
    }

    /// All checkpoints are removed.
    pub(super) fn clear(&self, disk: &Disk) {
        assert!(self.is_over || disk.results.is_some(), "no results, and no checkpoints");
    }
}
