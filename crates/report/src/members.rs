//! Who takes part in a run, as text and as JSON.

use gradvine::{
    run::{Change, Members},
    units::NodeId,
};
use serde_json::{Value, json};

/// The names of the members, of the nodes that are away, and of the ends of unused links.
struct Names {
    members: Vec<String>,
    away: Vec<String>,
    cut: Vec<[String; 2]>,
}

impl Names {
    fn of(of: &Members) -> Names {
        let Members { topology, membership, .. } = of;
        let name = |node: &NodeId| topology.node(*node).name.clone();
        let all = (0..topology.nodes()).map(NodeId::from);
        let away = all.filter(|node| !membership.members.contains(node));
        Names {
            members: membership.members.iter().map(name).collect(),
            away: away.map(|node| name(&node)).collect(),
            cut: membership.cut.iter().map(|(a, b)| [name(a), name(b)]).collect(),
        }
    }
}

/// The members of a run as one JSON object.
pub fn members_json(of: &Members) -> Value {
    let Names { members, away, cut } = Names::of(of);
    json!({ "members": members, "away": away, "cut": cut, "history": of.history })
}

/// The members of a run, the links that they do not use, and the changes, one a line.
pub fn members_text(of: &Members) -> String {
    let Names { members, away, cut } = Names::of(of);
    let nodes = of.topology.nodes();
    let mut text = format!("members  {} of {nodes}: {}\n", members.len(), members.join(", "));
    if !away.is_empty() {
        text += &format!("away     {}\n", away.join(", "));
    }
    for [a, b] in cut {
        text += &format!("unused   the link {a} - {b}\n");
    }
    for Change { round, members, models, .. } in &of.history {
        let from = match models.as_slice() {
            [] => "the beginning".to_string(),
            models => format!("the mean of {}", models.join(", ")),
        };
        text += &format!("history  from round {round} on {}, from {from}\n", members.join(", "));
    }
    text
}
