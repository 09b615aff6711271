//! What must hold at all times.

use std::path::Path;

use super::world::World;
use crate::{
    cluster::{
        members::assembly::check::check_adopted,
        statements::{Said, Statement},
    },
    data::Disk,
    drive::Membership,
    mixing::Topology,
    units::NodeId,
};

impl World<'_> {
    /// Checks that a checkpoint that a node reports is on its disk.
    pub(super) fn check_reported(&self, node: NodeId, statements: &[(u64, Statement)]) {
        let machine = &self.machines[node.index()];
        let Some(program) = &machine.program else { return };
        let me = program.cluster.part().id;
        let told = program.statements.last().map_or(0, |(number, _)| *number);
        for (_, Statement { said, .. }) in
            statements.iter().filter(|(number, statement)| *number > told && statement.node == me)
        {
            let Said::Saved(rounds) = said else { continue };
            let checkpoint = program.checkpoints.load(*rounds);
            assert!(checkpoint.is_ok(), "node {node} reports a checkpoint of round {rounds}");
        }
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
        check_adopted(&design.topology, node.index(), &disks, &mut self.adopted);
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
