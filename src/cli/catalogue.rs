//! `gradvine rules` and `gradvine compressors`: the registries as tables.

use gradvine::{compress::COMPRESSORS, gossip::rule::RULES};
use serde_json::json;

use super::{Exit, print, print_json};

/// The arguments of both
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine rules                          what there is, with papers, conditions and constants\n  \
    gradvine train --set rule.kind=dcd --set compressor.kind=min-max --set compressor.bits=8\n  \
    gradvine compressors --json             for programs")]
pub struct Args {
    /// Print an array of objects
    #[arg(long)]
    json: bool,
}

/// Prints the update rules.
pub fn rules(args: &Args) -> Result<(), Exit> {
    if args.json {
        let all: Vec<_> = (RULES.iter())
            .map(|rule| {
                json!({
                    "name": rule.name, "summary": rule.summary, "paper": rule.paper, "update": rule.update, "state": rule.state,
                    "sends": rule.sends, "conditions": rule.conditions, "compresses": rule.compresses,
                    "home": rule.home,
                    "constants": constants(rule.constants),
                })
            })
            .collect();
        return Ok(print_json(&all)?);
    }
    let mut text = String::new();
    for rule in RULES {
        text += &format!("{}\n  {}\n", rule.name, rule.summary);
        let rows = [
            ("update", rule.update),
            ("keeps", rule.state),
            ("sends", rule.sends),
            ("needs", rule.conditions),
            ("paper", rule.paper),
        ];
        text += &table(&rows, rule.constants);
    }
    Ok(print(&text)?)
}

/// Prints the compressors.
pub fn compressors(args: &Args) -> Result<(), Exit> {
    if args.json {
        let all: Vec<_> = (COMPRESSORS.iter())
            .map(|entry| {
                json!({
                    "name": entry.name, "summary": entry.summary, "paper": entry.paper, "class": entry.class_words,
                    "constants": constants(entry.constants),
                })
            })
            .collect();
        return Ok(print_json(&all)?);
    }
    let mut text = String::new();
    for entry in COMPRESSORS {
        text += &format!("{}\n  {}\n", entry.name, entry.summary);
        text += &table(&[("class", entry.class_words), ("paper", entry.paper)], entry.constants);
    }
    Ok(print(&text)?)
}

/// What is known of an entry, and its constants, one a line.
fn table(rows: &[(&str, &str)], constants: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, words) in rows.iter().filter(|(_, words)| !words.is_empty()) {
        text += &format!("  {name:<9} {words}\n");
    }
    for (index, (name, meaning)) in constants.iter().enumerate() {
        text += &format!("  {:<9} {name}: {meaning}\n", if index == 0 { "constants" } else { "" });
    }
    text + "\n"
}

fn constants(constants: &[(&str, &str)]) -> serde_json::Value {
    constants.iter().map(|(name, meaning)| json!({ "name": name, "meaning": meaning })).collect()
}
