//! Early stopping: the loss on validation rows of all nodes, summed during the rounds.
//!
//! * Upon a tally of the own model: keep it. Once those of all nodes below this one in the spanning
//!   tree are there too, send all of them to the parent, each with the signature of its node.
//! * Upon those of a child: each has the signature of its node, or the child is at fault.
//! * A tally crosses a link before the frames of the rounds after it. So a fixed number of rounds
//!   after an evaluation the root has the sum over all nodes (else it waits), and decides there:
//!   the end depends on the losses only, and not on when frames arrive.
//! * If the loss has not fallen in so many evaluations, the root requests an early end.
//! * The result may be the model of the lowest loss: each node keeps a copy of its model at each
//!   evaluation to which a decision may go back. From the round of the end follows which it is.
//!
//! The root adds its own tally and those of its children's subtrees, in ascending order; a node
//! comes before those below it. L. Prechelt, "Early Stopping - But When?", 1998.

use std::collections::BTreeSet;

use litemap::LiteMap;

use super::{
    plan::{self, Plan},
    tree::{SIGNATURE, Signatures, TALLY},
};
use crate::{
    mixing::{SpanningTree, Topology},
    state::Visitor,
    units::NodeId,
};

/// When a run ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Rounds between two evaluations of the validation rows.
    pub every: u64,
    /// The number of evaluations without a lower loss after which the run ends.
    pub evaluations: u64,
    /// Whether each node's result is then its model at the evaluation of the lowest loss.
    pub keeps_best: bool,
}

impl Patience {
    /// The copies of its model that a node keeps.
    pub fn models(&self, plan: &dyn Plan, topology: &Topology) -> u64 {
        if !self.keeps_best {
            return 0;
        }
        (rounds_to_end(plan, topology) / self.every.max(1)).saturating_add(self.evaluations + 2)
    }
}

/// The rounds in which a tally or a notice crosses a link: as many as a neighbour may be ahead,
/// times those in which a schedule uses every link.
pub(super) fn rounds_of_a_link(plan: &dyn Plan) -> u64 {
    (plan::lag(plan) + 1).saturating_mul(plan.period())
}

/// The rounds between an evaluation and the end of a run that it brings about: the tallies go up
/// the spanning tree, and the notice down.
pub fn rounds_to_end(plan: &dyn Plan, topology: &Topology) -> u64 {
    let links = topology.spanning_tree().height() as u64 + 1;
    (2 * links).saturating_mul(rounds_of_a_link(plan))
}

/// The loss of a model on validation rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// The sum over the rows.
    pub loss: f64,
    /// The number of rows in the sum.
    pub rows: u64,
}

impl Tally {
    pub(crate) const BYTES: usize = 16;

    /// The loss in `f64` and the rows in 64 bits, least significant bytes first.
    pub(crate) fn to_bytes(self) -> [u8; Tally::BYTES] {
        let mut bytes = [0; Tally::BYTES];
        bytes[..8].copy_from_slice(&self.loss.to_le_bytes());
        bytes[8..].copy_from_slice(&self.rows.to_le_bytes());
        bytes
    }

    /// Reads these bytes; `None` if there are more or fewer.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Tally> {
        let (loss, rows) = bytes.split_first_chunk::<8>()?;
        let rows = <[u8; 8]>::try_from(rows).ok()?;
        Some(Tally { loss: f64::from_le_bytes(*loss), rows: u64::from_le_bytes(rows) })
    }

    /// What its node signs about the model of this round.
    fn statement(self, round: u64) -> [u8; 8 + Tally::BYTES] {
        let mut statement = [0; 8 + Tally::BYTES];
        statement[..8].copy_from_slice(&round.to_le_bytes());
        statement[8..].copy_from_slice(&self.to_bytes());
        statement
    }

    fn and(self, other: Tally) -> Tally {
        Tally { loss: self.loss + other.loss, rows: self.rows.saturating_add(other.rows) }
    }
}

/// The bytes of a tally with the signature of its node.
pub(crate) const SIGNED: usize = Tally::BYTES + SIGNATURE;

/// The tallies of one round.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tallies {
    own: Option<Tally>,
    /// Those of each child and the nodes below it, with their signatures.
    below: Vec<Option<Vec<u8>>>,
}

/// A node and those below it: each before those below it, and children in ascending order.
fn subtree(tree: &SpanningTree, node: NodeId) -> Vec<NodeId> {
    let (mut all, mut open) = (Vec::new(), vec![node]);
    while let Some(node) = open.pop() {
        all.push(node);
        open.extend(tree.children(node).iter().rev());
    }
    all
}

/// What one node knows about an early end.
pub(super) struct Stopping {
    patience: Patience,
    /// After how many rounds the root decides on an evaluation.
    delay: u64,
    /// The first round whose evaluation counts.
    from: u64,
    parent: Option<NodeId>,
    /// The children, each with the nodes below it.
    children: Vec<Vec<NodeId>>,
    signatures: Signatures,
    tallies: LiteMap<u64, Tallies>,
    /// The rounds whose tallies have been sent to the parent.
    sent: BTreeSet<u64>,
    /// The root's lowest mean loss, and the evaluations since.
    best: f64,
    since: u64,
    /// The own models at the last evaluations, if the best is the result.
    models: LiteMap<u64, Vec<f32>>,
}

impl Stopping {
    /// Of a node that begins after `from` rounds; a tally crosses a link within `hop` rounds.
    pub(super) fn new(
        patience: Patience,
        topology: &Topology,
        id: NodeId,
        hop: u64,
        from: u64,
        signatures: &Signatures,
    ) -> Stopping {
        let tree = topology.spanning_tree();
        let children = tree.children(id).iter().map(|child| subtree(&tree, *child));
        Stopping {
            patience: Patience { every: patience.every.max(1), ..patience },
            delay: (tree.height() as u64 + 1).saturating_mul(hop),
            from,
            parent: tree.parent(id),
            children: children.collect(),
            signatures: signatures.clone(),
            tallies: LiteMap::new(),
            sent: BTreeSet::new(),
            best: f64::INFINITY,
            since: 0,
            models: LiteMap::new(),
        }
    }

    /// The rounds from an evaluation to the root's decision on it, and from there until all nodes
    /// know.
    pub(super) fn delay(&self) -> u64 {
        self.delay
    }

    /// Whether the result of an end that the losses bring about is the model of the lowest loss.
    pub(super) fn keeps_best(&self) -> bool {
        self.patience.keeps_best
    }

    /// The rounds between the evaluation of the lowest loss and the last round: the evaluations
    /// without a lower one, the time until the root decides on the last of them, and as much until
    /// all nodes know.
    fn rounds_since_best(&self) -> u64 {
        let Patience { every, evaluations, .. } = self.patience;
        every.saturating_mul(evaluations).saturating_add(self.delay.saturating_mul(2))
    }

    /// Keeps the own model at the beginning of a round, if it may be the result.
    pub(super) fn keep_model(&mut self, round: u64, x: &[f32]) {
        if !self.patience.keeps_best || !self.is_evaluated(round) {
            return;
        }
        self.models.insert(round, x.to_vec());
        let oldest = round.saturating_sub(self.rounds_since_best());
        self.models.retain(|round, _| *round >= oldest);
    }

    /// The own model of the lowest loss, after a run of so many rounds that ended because of the
    /// losses; `None` if no loss was a number. Forgets all.
    pub(super) fn best_model(&mut self, rounds: u64) -> Option<Vec<f32>> {
        let models = std::mem::take(&mut self.models);
        let best = rounds.checked_sub(1)?.checked_sub(self.rounds_since_best())?;
        models.into_iter().find_map(|(round, model)| (round == best).then_some(model))
    }

    /// Whether there is an evaluation at the beginning of this round.
    fn is_evaluated(&self, round: u64) -> bool {
        round > 0 && round >= self.from && round.is_multiple_of(self.patience.every)
    }

    fn entry(&mut self, round: u64) -> &mut Tallies {
        let below = self.children.len();
        let none = || Tallies { own: None, below: vec![None; below] };
        self.tallies.entry(round).or_insert_with(none)
    }

    /// Keeps the tally of the own model at the beginning of a round.
    pub(super) fn keep(&mut self, round: u64, tally: Tally) {
        if self.is_evaluated(round) {
            self.entry(round).own = Some(tally);
        }
    }

    /// Keeps the tallies of a child and the nodes below it. `rounds`: the first round that no
    /// neighbour can be in.
    ///
    /// # Errors
    /// If there are no such tallies, or a node has not signed its own.
    pub(super) fn arrived(
        &mut self,
        from: NodeId,
        round: u64,
        tallies: &[u8],
        rounds: u64,
    ) -> Result<(), String> {
        let Some(child) = self.children.iter().position(|child| child[0] == from) else {
            return Err("only children in the spanning tree send tallies".into());
        };
        if !self.is_evaluated(round) || round >= rounds {
            return Err(format!("there is no tally of round {round}"));
        }
        let nodes = &self.children[child];
        if tallies.len() != nodes.len() * SIGNED {
            return Err(format!(
                "the tallies of {} nodes have {} bytes",
                nodes.len(),
                tallies.len()
            ));
        }
        for ((tally, signature), node) in signed(tallies).zip(nodes) {
            if !self.signatures.fits(TALLY, *node, &tally.statement(round), signature) {
                return Err(format!("node {node} has not signed what is said to be its loss"));
            }
        }
        // One of a round that is decided on, after a restart, is forgotten in the next round.
        self.entry(round).below[child] = Some(tallies.to_vec());
        Ok(())
    }

    /// The sum over this node and those below it; `None` until all tallies are there.
    fn sum(&self, round: u64) -> Option<Tally> {
        let Tallies { own, below } = self.tallies.get(&round)?;
        below.iter().try_fold((*own)?, |sum, child| {
            Some(signed(child.as_ref()?).fold(sum, |sum, (tally, _)| sum.and(tally)))
        })
    }

    /// The neighbour that gets the tallies.
    pub(super) fn parent(&self) -> Option<NodeId> {
        self.parent
    }

    /// The first round whose tallies the parent lacks, and all of them, if they are there. They
    /// count as sent.
    pub(super) fn next(&mut self) -> Option<(u64, Vec<u8>)> {
        let is_whole = |all: &Tallies| all.own.is_some() && all.below.iter().all(Option::is_some);
        let mut unsent = self.tallies.iter_mut().filter(|(round, _)| !self.sent.contains(round));
        let (&round, all) = unsent.find(|(_, all)| is_whole(all))?;
        let own = all.own?;
        let signature = self.signatures.signature(TALLY, &own.statement(round));
        let mut bytes = [&own.to_bytes()[..], &signature].concat();
        all.below.iter_mut().filter_map(Option::take).for_each(|child| bytes.extend(child));
        self.sent.insert(round);
        Some((round, bytes))
    }

    /// The round of the evaluation on which the root decides in this round.
    fn due(&self, round: u64) -> Option<u64> {
        let at = round.checked_sub(self.delay)?;
        (self.parent.is_none() && self.is_evaluated(at)).then_some(at)
    }

    /// The children whose sums the root lacks for its decision in this round.
    pub(super) fn late(&self, round: u64) -> Vec<NodeId> {
        let Some(at) = self.due(round) else { return Vec::new() };
        let known = self.tallies.get(&at);
        let lacks = |child: &usize| {
            known.is_none_or(|known| known.below.get(*child).is_none_or(Option::is_none))
        };
        (0..self.children.len()).filter(lacks).map(|child| self.children[child][0]).collect()
    }

    /// Whether this node may begin this round: the root waits for the sums on which it decides.
    pub(super) fn may_begin(&self, round: u64) -> bool {
        self.due(round).is_none_or(|at| self.sum(at).is_some())
    }

    /// Decides at the beginning of a round whether the run is to end, and forgets old tallies.
    pub(super) fn decides(&mut self, round: u64) -> bool {
        let sum = self.due(round).and_then(|at| self.sum(at));
        let kept = round.saturating_sub(self.delay).saturating_add(u64::from(sum.is_some()));
        self.tallies.retain(|round, _| *round >= kept);
        self.sent = self.sent.split_off(&kept);
        let Some(sum) = sum.filter(|sum| sum.rows > 0) else { return false };
        let loss = sum.loss / sum.rows as f64;
        if loss < self.best {
            (self.best, self.since) = (loss, 0);
        } else {
            self.since += 1;
        }
        self.since >= self.patience.evaluations
    }

    /// Visits what later rounds need. After a restart each node signs its tallies again, and sends
    /// them again: they may not have arrived.
    pub(super) fn state(&mut self, visitor: &mut dyn Visitor) {
        let mut count = |name: &str, value: &mut u64| {
            let mut number = *value as f64;
            visitor.number(name, &mut number);
            *value = number as u64;
        };
        count("stopping.from", &mut self.from);
        count("stopping.since", &mut self.since);
        let own = self.tallies.iter().filter_map(|(round, all)| Some((*round, all.own?)));
        let mut known: Vec<(u64, Tally)> = own.collect();
        let mut length = known.len() as u64;
        count("stopping.tallies", &mut length);
        known.resize(length.min(MOST_KEPT) as usize, (0, Tally::default()));
        for (round, tally) in &mut known {
            count("stopping.round", round);
            count("stopping.rows", &mut tally.rows);
        }
        let mut models: Vec<(u64, Vec<f32>)> =
            std::mem::take(&mut self.models).into_iter().collect();
        if self.patience.keeps_best {
            let mut length = models.len() as u64;
            count("stopping.models", &mut length);
            models.resize(length.min(MOST_KEPT) as usize, (0, Vec::new()));
            models.iter_mut().for_each(|(round, _)| count("stopping.model_of", round));
        }
        models.iter_mut().for_each(|(_, model)| visitor.vector("stopping.model", model));
        self.models = models.into_iter().collect();
        visitor.number("stopping.best", &mut self.best);
        for (_, tally) in &mut known {
            visitor.number("stopping.loss", &mut tally.loss);
        }
        for (round, tally) in known {
            self.entry(round).own = Some(tally);
        }
    }
}

/// The tallies in these bytes, each with the signature behind it.
fn signed(tallies: &[u8]) -> impl Iterator<Item = (Tally, &[u8])> {
    tallies.chunks_exact(SIGNED).filter_map(|one| {
        let (tally, signature) = one.split_at(Tally::BYTES);
        Some((Tally::from_bytes(tally)?, signature))
    })
}

/// The maximum number of tallies in a checkpoint.
const MOST_KEPT: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{gossip::tree::Signer, state::State};

    const PATIENCE: Patience = Patience { every: 10, evaluations: 2, keeps_best: false };

    /// A signature names its node and what it has signed.
    struct Signs(NodeId);

    impl Signer for Signs {
        fn sign(&self, statement: &[u8]) -> Vec<u8> {
            let sum = crc32c::crc32c(statement);
            [self.0.0.to_le_bytes(), sum.to_le_bytes()].concat()
        }

        fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool {
            signature.starts_with(&Signs(node).sign(statement))
        }
    }

    fn part(patience: Patience, node: u32, from: u64) -> Stopping {
        let path = Topology::parse("path:3", 0).unwrap();
        let signatures = Signatures::new(Some(Arc::new(Signs(NodeId(node)))));
        Stopping::new(patience, &path, NodeId(node), 1, from, &signatures)
    }

    /// The parts of the nodes of a path of three; tallies take 2 rounds to the root.
    fn parts(from: u64) -> [Stopping; 3] {
        [0, 1, 2].map(|node| part(PATIENCE, node, from))
    }

    fn tally(loss: f64) -> Tally {
        Tally { loss, rows: 2 }
    }

    /// What these nodes have signed about the losses of this round.
    fn tallies(of: &[(u32, f64)], round: u64) -> Vec<u8> {
        let one = |&(node, loss): &(u32, f64)| {
            let mut one = tally(loss).to_bytes().to_vec();
            let signatures = Signatures::new(Some(Arc::new(Signs(NodeId(node)))));
            one.extend(signatures.signature(TALLY, &tally(loss).statement(round)));
            one
        };
        of.iter().flat_map(one).collect()
    }

    #[test]
    fn tallies_survive_as_bytes() {
        let one = Tally { loss: 0.1, rows: u64::MAX };
        assert_eq!(Tally::from_bytes(&one.to_bytes()), Some(one));
        assert_eq!(Tally::from_bytes(&[0; 15]), None);
        assert_eq!(Tally::from_bytes(&[0; 17]), None);
    }

    #[test]
    fn a_subtree_begins_with_its_root() {
        let tree = Topology::parse("ring:7", 0).unwrap().spanning_tree().clone();
        let nodes = |node| subtree(&tree, NodeId(node)).iter().map(|node| node.0).collect();
        let [all, one, last]: [Vec<u32>; 3] = [0, 1, 6].map(nodes);
        assert_eq!((all, one, last), (vec![0, 1, 2, 3, 6, 5, 4], vec![1, 2, 3], vec![6, 5, 4]));
    }

    #[test]
    fn tallies_go_up_and_the_root_decides_in_fixed_rounds() {
        let [mut root, mut middle, mut leaf] = parts(0);
        // The losses of the evaluations in rounds 10, 20, ...: it falls once, then not.
        for (round, loss) in [(10, 3.0), (20, 2.0), (30, 2.0), (40, f64::NAN)] {
            leaf.keep(round, tally(loss));
            let (at, sent) = leaf.next().unwrap();
            assert_eq!((leaf.parent(), at), (Some(NodeId(1)), round));
            assert_eq!(sent, tallies(&[(2, loss)], round));
            assert_eq!(leaf.next(), None);
            middle.arrived(NodeId(2), round, &sent, 60).unwrap();
            assert_eq!(middle.next(), None, "its own is missing");
            middle.keep(round, tally(1.0));
            let (at, sent) = middle.next().unwrap();
            assert_eq!((middle.parent(), at), (Some(NodeId(0)), round));
            assert_eq!(sent, tallies(&[(1, 1.0), (2, loss)], round));
            assert_eq!(middle.next(), None);
            // Two links high: three rounds later.
            root.keep(round, tally(1.0));
            assert!(root.may_begin(round + 2) && !root.may_begin(round + 3));
            assert_eq!(root.late(round + 3), [NodeId(1)]);
            root.arrived(NodeId(1), round, &sent, 60).unwrap();
            assert!(root.may_begin(round + 3) && root.late(round + 3).is_empty());
            assert!(!root.decides(round + 2));
            assert_eq!(root.decides(round + 3), round == 40);
            assert!(root.may_begin(round + 4) && root.tallies.is_empty());
        }
        assert_eq!(root.best, 4.0 / 6.0);
        for round in 40..60 {
            assert!(!leaf.decides(round) && !middle.decides(round), "only the root decides");
        }
        assert!(leaf.tallies.is_empty() && leaf.sent.is_empty());
    }

    #[test]
    fn a_node_between_others_cannot_change_what_they_have_lost() {
        let [mut root, mut middle, _] = parts(0);
        let refused = |node: &mut Stopping, from, round, bytes: &[u8], why: &str| {
            let refused = node.arrived(NodeId(from), round, bytes, 60).unwrap_err();
            assert!(refused.contains(why), "{refused}");
            assert!(node.tallies.is_empty());
        };
        let good = tallies(&[(1, 1.0), (2, 3.0)], 20);
        for (bytes, why) in [
            ([&good[..SIGNED], &tallies(&[(1, 3.0)], 20)].concat(), "node 2 has not signed"),
            ([&tallies(&[(2, 1.0)], 20), &good[SIGNED..]].concat(), "node 1 has not signed"),
            (tallies(&[(1, 1.0), (2, 3.0)], 10), "node 1 has not signed"),
            (good[..SIGNED].to_vec(), "the tallies of 2 nodes have 88 bytes"),
            ([&good[..], &good[SIGNED..]].concat(), "the tallies of 2 nodes have 264 bytes"),
            (Vec::new(), "the tallies of 2 nodes have 0 bytes"),
        ] {
            refused(&mut root, 1, 20, &bytes, why);
        }
        let mut other = good.clone();
        other[SIGNED] ^= 1;
        refused(&mut root, 1, 20, &other, "node 2 has not signed");
        refused(&mut middle, 2, 20, &other[SIGNED..], "node 2 has not signed");
        root.arrived(NodeId(1), 20, &good, 60).unwrap();
    }

    #[test]
    fn the_model_of_the_lowest_loss_is_found_from_the_end() {
        let new = || part(Patience { keeps_best: true, ..PATIENCE }, 2, 0);
        let mut leaf = new();
        for round in 0..=56 {
            leaf.keep_model(round, &[round as f32]);
        }
        // Two evaluations and twice three rounds: none before round 50 - 26 is kept.
        assert_eq!(leaf.models.keys().copied().collect::<Vec<_>>(), [30, 40, 50]);
        let mut again = new();
        let state = State::copy(|visitor| leaf.state(visitor));
        state.restore(|visitor| again.state(visitor)).unwrap();
        assert_eq!(again.models, leaf.models);
        // The lowest loss in round 30, then 40 and 50: decided in 53, the last round is 56.
        assert_eq!(again.best_model(57), Some(vec![30.0]));
        assert!(again.models.is_empty());
        // No loss was a number: 10 and 20, decided in 23, the last round is 26.
        assert_eq!(leaf.best_model(27), None);
        let mut without = part(PATIENCE, 2, 0);
        without.keep_model(10, &[1.0]);
        assert!(without.models.is_empty());
    }

    #[test]
    fn tallies_that_cannot_be_are_refused() {
        let [mut root, ..] = parts(0);
        let of = |round| tallies(&[(1, 1.0), (2, 1.0)], round);
        for (from, round) in [(2, 10), (1, 0), (1, 15), (1, 60), (1, 70)] {
            let refused = root.arrived(NodeId(from), round, &of(round), 60);
            assert!(refused.is_err(), "{from} {round}");
        }
        assert!(root.tallies.is_empty());
        // After a change of the members only later evaluations count: no node waits for ones
        // that never were.
        let [mut root, ..] = parts(15);
        assert!(root.arrived(NodeId(1), 10, &of(10), 60).is_err());
        assert!(root.may_begin(13) && !root.may_begin(23));
    }

    #[test]
    fn without_validation_rows_no_run_ends() {
        let [mut root, ..] = parts(0);
        let none = Signatures::default();
        root.signatures = none;
        for round in [10, 20, 30, 40, 50] {
            root.keep(round, Tally::default());
            root.arrived(NodeId(1), round, &[0; 2 * SIGNED], 60).unwrap();
            assert!(!root.decides(round + 3));
        }
    }

    /// Each node keeps its own tallies, and sends them again.
    #[test]
    fn a_restart_goes_on_from_the_same_state() {
        let [mut root, mut middle, mut leaf] = parts(0);
        root.keep(10, tally(1.0));
        root.arrived(NodeId(1), 10, &tallies(&[(1, 0.1), (2, 0.2)], 10), 60).unwrap();
        assert!(!root.decides(13));
        root.keep(20, tally(0.1));
        middle.keep(20, tally(0.7));
        leaf.keep(20, tally(f64::NAN));
        let (_, sent) = leaf.next().unwrap();
        middle.arrived(NodeId(2), 20, &sent, 60).unwrap();
        let before = middle.next().unwrap();
        let restart = |node: &mut Stopping, new: &mut Stopping| {
            let state = State::copy(|visitor| node.state(visitor));
            state.restore(|visitor| new.state(visitor)).unwrap();
        };
        let [mut other, mut again, mut last] = parts(0);
        restart(&mut root, &mut other);
        restart(&mut middle, &mut again);
        restart(&mut leaf, &mut last);
        assert_eq!((other.best, other.since), (root.best, root.since));
        assert_eq!(other.tallies, root.tallies);
        assert_eq!(again.next(), None, "those below it send theirs again");
        let (_, sent) = last.next().expect("it is sent again");
        again.arrived(NodeId(2), 20, &sent, 60).unwrap();
        assert_eq!(again.next(), Some(before));
    }
}
