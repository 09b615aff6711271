//! `gradvine members`

use std::path::PathBuf;

use gradvine::{
    run::{Change, Members},
    units::NodeId,
};

use gradvine_terminal::{print, print_json};

use super::Exit;

/// The arguments of `gradvine members`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine members london-run     at a node, while it runs or after it
  gradvine members london-run --json

A run whose absence.policy is \"continue\" goes on without nodes that stay away. This shows the
members that the node has agreed on last and, once the run is over, all changes.")]
pub struct Args {
    /// A run directory
    run: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the members of a run.
pub fn run(args: &Args) -> Result<(), Exit> {
    let Members { topology, membership, history, .. } = Members::load(&args.run)?;
    let name = |node: &NodeId| topology.node(*node).name.clone();
    let members: Vec<String> = membership.members.iter().map(name).collect();
    let all = (0..topology.nodes()).map(NodeId::from);
    let away: Vec<String> =
        all.filter(|node| !membership.members.contains(node)).map(|node| name(&node)).collect();
    let cut: Vec<[String; 2]> = membership.cut.iter().map(|(a, b)| [name(a), name(b)]).collect();
    if args.json {
        return Ok(print_json(&serde_json::json!({
            "members": members, "away": away, "cut": cut, "history": history,
        }))?);
    }
    let mut text =
        format!("members  {} of {}: {}\n", members.len(), topology.nodes(), members.join(", "));
    if !away.is_empty() {
        text += &format!("away     {}\n", away.join(", "));
    }
    for [a, b] in cut {
        text += &format!("unused   the link {a} - {b}\n");
    }
    for Change { round, members, models, .. } in &history {
        let from = match models.as_slice() {
            [] => "the beginning".to_string(),
            models => format!("the mean of {}", models.join(", ")),
        };
        text += &format!("history  from round {round} on {}, from {from}\n", members.join(", "));
    }
    Ok(print(&text)?)
}
