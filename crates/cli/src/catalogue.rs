//! `gradvine rules` and `gradvine compressors`: the registries as tables.

use std::sync::Arc;

use gradvine::{
    compress::{self, Built, COMPRESSORS},
    config::ConfigError,
    experiment::Experiment,
    gossip::{plan, rule::RULES},
    learn::Tensor,
    mixing::Topology,
    run::Design,
    units::NodeId,
};
use gradvine_plan::{self as prices, Prices};
use gradvine_reference::{self as reference, File};
use gradvine_study::picks;
use gradvine_terminal::{print, print_json};
use serde_json::json;

use super::{Exit, run_args::whole};

/// The most parameters that are priced.
const MOST: u64 = 1 << 40;

/// The arguments of `gradvine rules`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine rules                          what there is, with papers, conditions and constants
  gradvine rules dcd                      one of them
  gradvine rules --parameters 1000000 --topology torus:4x4 --compressor top-k:fraction=0.01
  gradvine train --set rule.kind=dcd --set compressor.kind=min-max --set compressor.bits=8

With --parameters each rule says what it keeps and sends for a model of that many numbers at its \
                        defaults, or why it is refused: read off
the plan that a run would follow.

A run of any rule has diverged, and ends with exit code 4, when a model is not finite or longer \
                        than 1000 (|x_0| + sqrt(d) + S G): S is the sum of
the steps so far, G the longest gradient of the first 16 rounds. Models are looked at in every \
                        16th round and at the end.")]
pub struct RulesArgs {
    /// Only this rule
    name: Option<String>,
    /// Print an array of objects
    #[arg(long)]
    json: bool,
    /// Price the rules for models of this many numbers
    #[arg(long, value_name = "NUMBER", value_parser = dimension)]
    parameters: Option<u64>,
    /// On this topology: a file or a spec such as ring:8 [default: ring:8]
    #[arg(long, value_name = "FILE|SPEC", requires = "parameters")]
    topology: Option<String>,
    /// With this compressor, constants after colons, where a rule compresses [default: min-max]
    #[arg(long, value_name = "NAME", requires = "parameters")]
    compressor: Option<String>,
}

/// The arguments of `gradvine compressors`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine compressors                        what there is, with papers and constants
  gradvine compressors min-max                one of them
  gradvine compressors --parameters 1000000   payload, nominal delta and worst case for that many \
  numbers, at the defaults
  gradvine compressors --json                 for programs")]
pub struct CompressorsArgs {
    /// Only this compressor
    name: Option<String>,
    /// Print an array of objects
    #[arg(long)]
    json: bool,
    /// Say what each makes of a vector of this many numbers
    #[arg(long, value_name = "NUMBER", value_parser = dimension)]
    parameters: Option<u64>,
}

/// The arguments of `gradvine experiment`
#[derive(clap::Args, Debug)]
pub struct ExperimentArgs {
    /// As Markdown: docs/experiment.md
    #[arg(long)]
    markdown: bool,
}

/// The arguments of `gradvine files`
#[derive(clap::Args, Debug)]
pub struct FilesArgs {
    /// Only this kind of file
    #[arg(value_name = "KIND", value_enum, conflicts_with = "markdown")]
    kind: Option<Kind>,
    /// All of them as Markdown: docs/files.md
    #[arg(long)]
    markdown: bool,
}

/// A kind of file that is no experiment.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Kind {
    /// Where the files of a node are
    Node,
    /// Whom a relay serves, and how much it carries
    Relay,
    /// Who is linked with whom
    Topology,
    /// What a paper claims, and rows that try it
    Study,
}

/// Prints what an experiment file may say.
pub fn experiment(args: &ExperimentArgs) -> Result<(), Exit> {
    let text = if args.markdown { reference::experiment() } else { File::Experiment.plain() };
    Ok(print(&text)?)
}

/// Prints what files other than experiments may say.
pub fn files(args: &FilesArgs) -> Result<(), Exit> {
    let text = match args.kind {
        Some(Kind::Node) => File::Node.plain(),
        Some(Kind::Relay) => File::Relay.plain(),
        Some(Kind::Topology) => File::Topology.plain(),
        Some(Kind::Study) => File::Study.plain(),
        None if args.markdown => reference::others(),
        None => other_files(),
    };
    Ok(print(&text)?)
}

/// The reference of all files but experiments, for a terminal.
pub fn other_files() -> String {
    let one = |file: File| format!("{}\n\n{}", file.title(), file.plain());
    File::OTHERS.map(one).join("\n")
}

fn dimension(text: &str) -> Result<u64, String> {
    whole(text, 1)
        .ok()
        .filter(|d| *d <= MOST)
        .ok_or_else(|| format!("expected a whole number from 1 to {MOST}"))
}

impl RulesArgs {
    fn priced(&self) -> Result<Option<Prices>, Exit> {
        let Some(parameters) = self.parameters else { return Ok(None) };
        let spec = self.topology.as_deref().unwrap_or("ring:8");
        let topology = Topology::parse(spec, 1).map_err(|error| match error.file {
            Some(_) => error,
            None => ConfigError {
                place: "--topology".into(),
                value: Some(format!("\"{spec}\"")),
                ..error
            },
        })?;
        let built = |name: &str| -> Result<Built, ConfigError> {
            let found = picks("--compressor", name)?;
            let [pick] = found.as_slice() else {
                return Err(ConfigError::new(
                    "--compressor",
                    format!("\"{name}\""),
                    "expected one compressor",
                ));
            };
            let named = |error: ConfigError| ConfigError::at("--compressor", error.to_string());
            compress::build(&pick.table("compressor").map_err(named)?).map_err(named)
        };
        Ok(Some(Prices {
            parameters: parameters as usize,
            topology: Arc::new(topology),
            compressor: built(self.compressor.as_deref().unwrap_or("min-max"))?,
            identity: built("identity")?,
        }))
    }
}

/// Prints the update rules.
pub fn rules(args: &RulesArgs) -> Result<(), Exit> {
    let (priced, chosen) = (args.priced()?, RULES.select(args.name.as_deref())?);
    if args.json {
        let all: Vec<_> = (chosen.iter())
            .map(|rule| {
                let mut object = json!({
                    "name": rule.name,
                    "summary": rule.summary,
                    "paper": rule.paper,
                    "update": rule.update,
                    "state": rule.state,
                    "sends": rule.sends,
                    "conditions": rule.conditions,
                    "failures": after_failures(rule.name),
                    "compresses": rule.compresses,
                    "home": rule.home,
                    "constants": constants(rule.constants),
                });
                if let Some(priced) = &priced {
                    object["priced"] = priced.rule_json(rule);
                }
                object
            })
            .collect();
        return Ok(print_json(&all)?);
    }
    let mut text = String::new();
    for rule in chosen {
        text += &format!("{}\n  {}\n", rule.name, rule.summary);
        let rows = [
            ("update", rule.update),
            ("keeps", rule.state),
            ("sends", rule.sends),
            ("needs", rule.conditions),
            ("failures", after_failures(rule.name)),
            ("paper", rule.paper),
        ];
        let costs = priced.as_ref().map_or_else(Vec::new, |priced| priced.rule(rule));
        text += &table(&rows, &costs, rule.constants);
    }
    Ok(print(&text)?)
}

/// What a run with this rule does after the restart of a node, and without an absent one: found by
/// trying it with four nodes.
fn after_failures(rule: &str) -> &'static str {
    let tensors = || vec![Tensor { name: "x".into(), shape: vec![8, 8] }];
    let design = |compressor: &str| {
        let sets = [format!("rule.kind={rule}"), format!("compressor.kind={compressor}")];
        let mut experiment = Experiment::parse("", &sets).ok()?;
        experiment.run.allow_unstable = true;
        let topology = Arc::new(Topology::parse("complete:4", 1).ok()?);
        Design::of_tensors(experiment, topology, tensors(), vec![0.0; 64]).ok()
    };
    let design = ["min-max", "identity", "sign", "top-k", "low-rank", "count-sketch"]
        .into_iter()
        .find_map(design);
    let Some(design) = design else { return "" };
    let members = [0, 1, 2].map(NodeId);
    match (plan::can_pause(&*design.rule.plan), design.restricted(&members, &[])) {
        (false, _) => "after a restart a run begins anew; absent nodes are awaited",
        (true, Err(_)) => "after a restart a run goes on; absent nodes are awaited",
        (true, Ok(_)) => {
            "after a restart a run goes on, and without absent nodes if absence.policy says so"
        }
    }
}

/// Prints the compressors.
pub fn compressors(args: &CompressorsArgs) -> Result<(), Exit> {
    let chosen = COMPRESSORS.select(args.name.as_deref())?;
    if args.json {
        let all: Vec<_> = (chosen.iter())
            .map(|entry| {
                let mut object = json!({
                    "name": entry.name,
                    "summary": entry.summary,
                    "paper": entry.paper,
                    "class": entry.class_words,
                    "constants": constants(entry.constants),
                });
                if let Some(parameters) = args.parameters {
                    object["priced"] = prices::compressor_json(entry, parameters as usize);
                }
                object
            })
            .collect();
        return Ok(print_json(&all)?);
    }
    let mut text = String::new();
    for entry in chosen {
        text += &format!("{}\n  {}\n", entry.name, entry.summary);
        let costs =
            args.parameters.map_or_else(Vec::new, |d| prices::compressor(entry, d as usize));
        text += &table(
            &[("class", entry.class_words), ("paper", entry.paper)],
            &costs,
            entry.constants,
        );
    }
    Ok(print(&text)?)
}

/// What is known of an entry, what it costs, and its constants, one a line.
fn table(rows: &[(&str, &str)], costs: &[(&str, String)], constants: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, words) in rows.iter().filter(|(_, words)| !words.is_empty()) {
        text += &format!("  {name:<9} {}\n", words.replace('\n', "\n            "));
    }
    for (name, words) in costs {
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
