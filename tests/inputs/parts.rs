//! Some nodes of a topology, and W on their links.

use gradvine::{
    mixing::{Topology, Weights},
    units::NodeId,
};
use proptest::prelude::*;

proptest! {
    /// W of some nodes is symmetric and doubly stochastic, and it keeps every weight that is not
    /// computed again.
    #[test]
    fn parts_of_a_topology_are_doubly_stochastic(
        spec in prop::sample::select(vec![
            "ring:7", "torus:3x4", "star:6", "hypercube:8", "complete:5",
        ]),
        weights in prop::sample::select(vec![
            Weights::Metropolis, Weights::LazyMetropolis, Weights::MaxDegree, Weights::BestConstant,
        ]),
        stay in prop::collection::vec(prop::bool::weighted(0.8), 12),
        cut in any::<prop::sample::Index>(),
    ) {
        let Ok(whole) = Topology::parse_with(spec, Some(weights), 0) else { return Ok(()) };
        let all = (0..whole.nodes()).map(NodeId::from);
        let members: Vec<NodeId> = all.filter(|node| stay[node.index()]).collect();
        let links: Vec<(NodeId, NodeId)> = whole.edges().collect();
        let cut = links[cut.index(links.len())];
        let left = |&&(a, b): &&(NodeId, NodeId)| {
            (a, b) != cut && members.contains(&a) && members.contains(&b)
        };
        let left: Vec<_> = links.iter().filter(left).copied().collect();
        // The nodes that the first member reaches.
        let mut reached: Vec<NodeId> = members.first().copied().into_iter().collect();
        for _ in 0..members.len() {
            for (a, b) in &left {
                match (reached.contains(a), reached.contains(b)) {
                    (true, false) => reached.push(*b),
                    (false, true) => reached.push(*a),
                    _ => {}
                }
            }
        }
        let part = whole.restricted(&members, &[cut]);
        prop_assert_eq!(part.is_ok(), !members.is_empty() && reached.len() == members.len());
        let Ok(part) = part else { return Ok(()) };
        prop_assert_eq!(part.links(), left.len());
        let (w, before) = (part.matrix().dense(), whole.matrix());
        for (i, row) in w.iter().enumerate() {
            prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            prop_assert_eq!(&part.node(NodeId::from(i)).name, &whole.node(members[i]).name);
            for (j, weight) in row.iter().enumerate() {
                prop_assert!(*weight >= 0.0 && *weight == w[j][i]);
                let (a, b) = (members[i], members[j]);
                let kept = left.contains(&(a.min(b), a.max(b)));
                prop_assert!(i == j || kept == (*weight > 0.0));
                if kept && !matches!(weights, Weights::Metropolis | Weights::LazyMetropolis) {
                    prop_assert_eq!(*weight, before.weight(a, b));
                }
            }
        }
    }
}
