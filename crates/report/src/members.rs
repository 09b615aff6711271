//! Who takes part in a run, as text and as JSON.

use std::collections::BTreeMap;

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
    let reasons: BTreeMap<_, _> =
        of.reasons.iter().filter(|(node, _)| away.contains(node)).collect();
    json!({
        "members": members,
        "away": away,
        "reasons": reasons,
        "cut": cut,
        "history": of.history,
    })
}

/// The members of a run, the links that they do not use, and the changes, one a line.
pub fn members_text(of: &Members) -> String {
    let Names { members, away, cut } = Names::of(of);
    let nodes = of.topology.nodes();
    let mut text = format!("members  {} of {nodes}: {}\n", members.len(), members.join(", "));
    if !away.is_empty() {
        text += &format!("away     {}\n", away.join(", "));
        for (node, why) in away.iter().filter_map(|node| of.reasons.get_key_value(node)) {
            text += &format!("         {node}: {why}\n");
        }
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

#[cfg(test)]
mod tests {
    use std::fs;

    use gradvine::mixing::Topology;

    use super::*;

    #[test]
    fn a_node_that_is_away_has_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        Topology::parse("ring:3", 0).unwrap().write(&path.join("topology.toml")).unwrap();
        fs::create_dir_all(path.join("checkpoints/0")).unwrap();
        let membership = r#"{ "id": 4294967296, "members": [0, 1], "cut": [] }"#;
        fs::write(path.join("checkpoints/0/membership.json"), membership).unwrap();
        let reasons =
            r#"{ "1": "it was away before", "2": "dialling /ip4/9.9.9.9/tcp/1: no answer" }"#;
        fs::write(path.join("away.json"), reasons).unwrap();
        let members = Members::load(path).unwrap();
        let text = members_text(&members);
        assert!(text.starts_with("members  2 of 3: 0, 1\naway     2\n"), "{text}");
        assert!(text.contains("\n         2: dialling /ip4/9.9.9.9/tcp/1: no answer\n"), "{text}");
        assert!(!text.contains("before"), "{text}");
        let json = members_json(&members);
        assert_eq!(json["reasons"], json!({ "2": "dialling /ip4/9.9.9.9/tcp/1: no answer" }));
    }
}
