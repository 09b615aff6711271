//! `gradvine plan`

use std::{fmt::Write as _, sync::Arc};

use gradvine::{
    config::ConfigError,
    experiment::{Compute, Experiment},
    links::{self, Conditions},
    mixing::Topology,
    predict::{LinkLoad, Prediction},
    run::{Constants, Design, Needs, Outlook, Whole, outlook},
    units::{Bytes, NodeId},
};
use gradvine_study::picks;
use serde_json::{Value, json};

use super::{Exit, outcome::duration, print, print_json, run_args::Selection};

/// The arguments of `gradvine plan`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine plan --topology topologies/four-regions.toml --set network.compute=measured
  gradvine plan my.toml --set network.preset=4g --compressors min-max:bits=4,top-k:fraction=0.01
  gradvine plan my.toml --topologies ring:8,hypercube:8 --local-steps 1,4,16
  gradvine plan --topology topologies/four-regions.toml --links topologies/four-regions-all.toml

Latencies and bandwidths come from the topology file's links, the rest from the experiment's \
                        [network].
Pairs of nodes without a link of their own are as the file of --links says; without one they are \
                        joined
by the way of least latency over known links. Candidates are ordered by the time of the run (as many
gradients as the experiment asks for), as many times longer as a round of their W, times the rule's
gamma where it has one, falls short of agreement between all nodes; how many rounds a target takes
is the data's to say: see compare.")]
pub struct Args {
    #[command(flatten)]
    select: Selection,
    /// Topologies to look at, on the same nodes [default: the families that fit]
    #[arg(long, value_name = "SPEC,...", value_delimiter = ',')]
    topologies: Vec<String>,
    /// A topology file on the same nodes that says what links between other pairs are like
    #[arg(long, value_name = "FILE")]
    links: Option<String>,
    /// Compressors to look at, where the rule compresses [default: identity and min-max of 8, 4 and
    /// 2 bits]
    #[arg(long, value_name = "NAME[:KEY=VALUE],...")]
    compressors: Option<String>,
    /// Gradients of a round to look at
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', default_values_t = [1, 4])]
    local_steps: Vec<u32>,
    /// Only the experiment itself, no candidates
    #[arg(long)]
    alone: bool,
    /// Leave out what the data says (L, sigma, zeta): it computes gradients on all rows
    #[arg(long)]
    no_data: bool,
    /// Print the plan as JSON on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// No warnings: only the plan and errors
    #[arg(long, short)]
    quiet: bool,
}

/// Candidates that cannot work are counted, and so many are named.
const REFUSED_SHOWN: usize = 3;
/// So many candidates are shown.
const SHOWN: usize = 20;

/// Predicts, and shows it.
pub fn run(args: &Args) -> Result<(), Exit> {
    let whole = args.select.whole(args.quiet, |_| ())?;
    if !args.no_data {
        Needs::plan(&whole).check(
            &whole.design,
            "measuring the data",
            "leave it out (--no-data), ",
        )?;
    }
    let design = &whole.design;
    let run = &design.experiment.run;
    let gradients = run.rounds.saturating_mul(u64::from(design.experiment.optimizer.local_steps));
    let own = Outlook::of(design, &whole.conditions, gradients)?;
    let central = central(args, &whole, gradients)?;
    let (candidates, refused) =
        if args.alone { Default::default() } else { candidates(args, &whole, gradients)? };
    let constants = if args.no_data { None } else { Some(Constants::measure(&whole)?) };
    if args.json {
        return Ok(print_json(&as_json(
            &whole,
            &own,
            &central,
            &candidates,
            &refused,
            constants.as_ref(),
        ))?);
    }
    let mut text = about(&whole, &own);
    text += &against(&own, &central);
    if !args.alone {
        text += &table(&whole, &candidates, &refused);
    }
    if let Some(constants) = &constants {
        text += &data(constants, &own);
    }
    Ok(print(&text)?)
}

/// The experiment with further settings.
fn experiment(args: &Args, more: &[String]) -> Result<Experiment, ConfigError> {
    args.select.read(more)
}

type Refused = (String, String);

/// C-SGD by a server and by a ring, on all pairs.
fn central(
    args: &Args,
    whole: &Whole,
    gradients: u64,
) -> Result<Vec<(&'static str, Outlook)>, Exit> {
    let nodes = whole.design.topology.nodes();
    if nodes < 2 {
        return Ok(Vec::new());
    }
    let conditions = everywhere(args, whole)?;
    let topology = Arc::new(Topology::parse(&format!("complete:{nodes}"), 1)?);
    let mut found = Vec::new();
    for (name, collective) in [("parameter server", "server"), ("ring all-reduce", "ring")] {
        let sets = [
            "compressor.kind=identity".into(),
            "rule.kind=c-sgd".into(),
            format!("rule.collective={collective}"),
        ];
        let mut experiment = experiment(args, &sets)?;
        experiment.topology.schedule = "static".into();
        let (features, outputs) = (whole.design.features, whole.design.outputs);
        let design = Design::new(experiment, Arc::clone(&topology), features, outputs)?;
        found.push((name, Outlook::of(&design, &conditions, gradients)?));
    }
    Ok(found)
}

/// The conditions between any two nodes: the experiment's own links, those of `--links`, and ways
/// over these for the rest.
fn everywhere(args: &Args, whole: &Whole) -> Result<Conditions, Exit> {
    let own = &whole.design.topology;
    let Some(file) = &args.links else { return Ok(outlook::all_pairs(own, &whole.conditions)) };
    let topology = Topology::parse(file, whole.design.experiment.run.seed)?;
    let names = |topology: &Topology| -> Vec<String> {
        (0..topology.nodes()).map(|node| topology.node(NodeId::from(node)).name.clone()).collect()
    };
    if names(&topology) != names(own) {
        let problem = format!(
            "its nodes are {}, the experiment's {}",
            names(&topology).join(", "),
            names(own).join(", ")
        );
        return Err(ConfigError::new("--links", format!("\"{file}\""), problem).into());
    }
    let mut network = whole.design.experiment.network.clone();
    // Gradients take what they take in the experiment, measured or not.
    (network.compute, network.compute_ms, network.compute_spread) = (Compute::None, None, None);
    (network.stragglers, network.straggler_factor) = (None, None);
    let mut conditions =
        links::conditions(&network, &topology, whole.conditions.seed, &mut || 0.0)?;
    conditions.compute = whole.conditions.compute;
    conditions.links.extend(whole.conditions.links.iter().map(|(pair, link)| (*pair, *link)));
    Ok(outlook::all_pairs(&topology, &conditions))
}

/// All candidates that can work, best first, and why the others cannot.
fn candidates(
    args: &Args,
    whole: &Whole,
    gradients: u64,
) -> Result<(Vec<Outlook>, Vec<Refused>), Exit> {
    let design = &whole.design;
    let nodes = design.topology.nodes();
    let everywhere = everywhere(args, whole)?;
    let mut topologies = vec![Arc::clone(&design.topology)];
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    let specs = if args.topologies.is_empty() {
        outlook::candidates(nodes)
    } else {
        args.topologies.clone()
    };
    for spec in specs {
        match Topology::parse(&spec, design.experiment.run.seed) {
            Ok(topology) if topology.nodes() != nodes => {
                let problem = format!("it has {} nodes, the experiment {nodes}", topology.nodes());
                return Err(ConfigError::new("--topologies", format!("\"{spec}\""), problem).into());
            }
            Ok(topology) if same_links(&topology, &design.topology) => {}
            Ok(topology) => topologies.push(Arc::new(topology)),
            Err(error) if args.topologies.is_empty() => refused.push((spec, error.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
    let compresses = gradvine::gossip::rule::find(design.rule_name())?.compresses;
    let list = args
        .compressors
        .as_deref()
        .unwrap_or("identity,min-max:bits=8,min-max:bits=4,min-max:bits=2");
    let mut compressors = vec![Vec::new()];
    if compresses || args.compressors.is_some() {
        compressors
            .extend(picks("--compressors", list)?.iter().map(|pick| pick.sets("compressor")));
    }
    for topology in &topologies {
        let conditions =
            if Arc::ptr_eq(topology, &design.topology) { &whole.conditions } else { &everywhere };
        for compressor in &compressors {
            for &steps in &args.local_steps {
                let mut sets = compressor.clone();
                sets.push(format!("optimizer.local_steps={steps}"));
                let one = experiment(args, &sets).and_then(|experiment| {
                    let mut conditions = conditions.clone();
                    // Measured or given for the experiment's own steps.
                    let share =
                        f64::from(steps) / f64::from(design.experiment.optimizer.local_steps);
                    conditions.compute.mean = (conditions.compute.mean as f64 * share) as u64;
                    let (features, outputs) = (design.features, design.outputs);
                    let design = Design::new(experiment, Arc::clone(topology), features, outputs)?;
                    Outlook::of(&design, &conditions, gradients)
                });
                match one {
                    Ok(one) => found.push(one),
                    Err(error) => refused.push((
                        format!("{} {}", topology.name(), sets.join(" ")),
                        error.to_string(),
                    )),
                }
            }
        }
    }
    found.sort_by(|a, b| a.cost_s().total_cmp(&b.cost_s()));
    found.dedup_by(|a, b| {
        (&a.topology, &a.compressor, a.local_steps) == (&b.topology, &b.compressor, b.local_steps)
    });
    Ok((found, refused))
}

fn same_links(a: &Topology, b: &Topology) -> bool {
    a.edges().eq(b.edges())
}

/// What this experiment would take.
fn about(whole: &Whole, own: &Outlook) -> String {
    let (design, round) = (&whole.design, &own.prediction);
    let mut text = format!(
        "{} with {} on {}: {} nodes, {} parameters, {} rounds\n\n",
        design.rule_name(),
        own.compressor,
        own.topology,
        design.topology.nodes(),
        design.parameters(),
        own.rounds
    );
    let mut line = |head: &str, words: String| {
        let _ = writeln!(text, "  {head:<13}{words}");
    };
    line(
        "a round",
        format!(
            "{}; a node computes {:.1} % of the time",
            duration(round.round_s),
            100.0 * round.computing
        ),
    );
    let both = |(mean, most): (f64, f64)| {
        let bytes = |x: f64| Bytes(x.round() as u64).to_string();
        if most > 1.001 * mean {
            format!("{} ({} at the busiest)", bytes(mean), bytes(most))
        } else {
            bytes(mean)
        }
    };
    line(
        "sent",
        format!(
            "{} of payload a node and round, {} with headers",
            both(round.payload),
            both(round.wire)
        ),
    );
    if let Some(link) = round.bottleneck() {
        line("bottleneck", narrow(whole, link));
    }
    line(
        "agreement",
        match own.agreement {
            Some(rounds) => format!(
                "W by itself shrinks disagreement 100-fold in {rounds} round{}, {} (rho {:.4})",
                if rounds == 1 { "" } else { "s" },
                duration(own.agreement_s()),
                own.rho
            ),
            None => "disagreement never shrinks: rho is 1".into(),
        },
    );
    line("the run", format!("{} rounds, {}", own.rounds, duration(own.run_s())));
    if whole.conditions.links.is_empty() && whole.conditions.rest.rate.is_infinite() {
        text += "\n  Links take no time here: name them in a topology file, or set network.preset \
                 (4g, ethernet, ...).\n";
    }
    text
}

/// A link in words.
fn narrow(whole: &Whole, link: &LinkLoad) -> String {
    let name = |node| whole.design.topology.node(node).name.clone();
    let frames = if link.frames > 1.001 {
        format!(", {:.1} frames a round", link.frames)
    } else {
        String::new()
    };
    format!(
        "{} -> {}: {} of latency and {} on the line{frames}",
        name(link.from),
        name(link.to),
        duration(link.alone_s - link.busy_s),
        duration(link.busy_s)
    )
}

/// Centralized and decentralized, N nodes, B bytes.
fn against(own: &Outlook, central: &[(&'static str, Outlook)]) -> String {
    if central.is_empty() {
        return String::new();
    }
    let mut text =
        "\nthe same gradients in one place (C-SGD, whole vectors, between any two nodes)\n\n"
            .to_string();
    for (name, outlook) in central {
        let order = if *name == "parameter server" {
            "O(N alpha + N B beta)"
        } else {
            "O(N alpha + B beta)"
        };
        let times = outlook.prediction.round_s / own.prediction.round_s;
        let times = if times.is_finite() {
            format!(", {times:.2} times this one's")
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "  {name:<18}{order:<23}{}{times}",
            duration(outlook.prediction.round_s)
        );
    }
    let _ = writeln!(
        text,
        "  {:<18}{:<23}{}",
        "this one",
        "O(alpha + B beta)",
        duration(own.prediction.round_s)
    );
    text
}

fn table(whole: &Whole, candidates: &[Outlook], refused: &[Refused]) -> String {
    let mut rows = vec![
        [
            "topology",
            "compressor",
            "steps",
            "a round",
            "sent/round",
            "rounds to agree",
            "run",
            "what it waits for",
        ]
        .map(String::from),
    ];
    rows.extend(candidates.iter().take(SHOWN).map(|one| {
        [
            one.topology.clone(),
            one.compressor.clone(),
            one.local_steps.to_string(),
            duration(one.prediction.round_s),
            Bytes(one.prediction.payload.0.round() as u64).to_string(),
            one.agreement.map_or("never".into(), |rounds| rounds.to_string()),
            duration(one.run_s()),
            reason(whole, &one.prediction),
        ]
    }));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = "\ncandidates on the same nodes, best first\n\n".to_string();
    for row in &rows {
        let cells: Vec<String> = (row.iter().enumerate())
            .map(|(column, cell)| match column {
                2..=6 => format!("{cell:>0$}", widths[column]),
                _ => format!("{cell:<0$}", widths[column]),
            })
            .collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    if candidates.len() > SHOWN {
        let _ = writeln!(text, "  and {} more", candidates.len() - SHOWN);
    }
    if !refused.is_empty() {
        let _ = writeln!(text, "\n  {} cannot work:", refused.len());
        for (what, why) in refused.iter().take(REFUSED_SHOWN) {
            let _ = writeln!(text, "    {what}: {why}");
        }
    }
    text
}

/// What a round is made of.
fn reason(whole: &Whole, round: &Prediction) -> String {
    if round.computing > 0.6 {
        return "gradients".into();
    }
    match round.bottleneck() {
        Some(link) if link.alone_s > 0.0 => {
            let name = |node| whole.design.topology.node(node).name.clone();
            let what = if link.busy_s > 0.5 * link.alone_s { "rate" } else { "latency" };
            format!("{what} of {} -> {}", name(link.from), name(link.to))
        }
        _ => "nothing".into(),
    }
}

/// What the theory's bounds need.
fn data(constants: &Constants, own: &Outlook) -> String {
    let mut text = "\nwhat the bounds need, at the initial model\n\n".to_string();
    let mut line = |head: &str, words: String| {
        let _ = writeln!(text, "  {head:<13}{words}");
    };
    line(
        "L",
        format!(
            "{:.4} (curvature of f; steps up to about 1/L are stable for exact gradients)",
            constants.smoothness
        ),
    );
    line(
        "sigma^2",
        format!("{:.4e} within a node: variance of a mini-batch gradient", constants.within),
    );
    line(
        "zeta^2",
        format!(
            "{:.4e} between nodes: how far their gradients are from the mean one",
            constants.between
        ),
    );
    line("|grad f|^2", format!("{:.4e}", constants.gradient));
    line("rho", format!("{:.6}", own.rho));
    if let (Some(least), Some(most)) =
        (constants.classes.iter().min(), constants.classes.iter().max())
    {
        let range = if least == most { least.to_string() } else { format!("{least} to {most}") };
        line("labels", format!("{range} of {} classes at each node", constants.all_classes));
    }
    text
}

fn as_json(
    whole: &Whole,
    own: &Outlook,
    central: &[(&'static str, Outlook)],
    candidates: &[Outlook],
    refused: &[Refused],
    constants: Option<&Constants>,
) -> Value {
    let name = |node| whole.design.topology.node(node).name.clone();
    let link = |link: &LinkLoad| {
        json!({
            "from": name(link.from),
            "to": name(link.to),
            "frames": link.frames,
            "payload": link.payload,
            "wire": link.wire,
            "busy_s": link.busy_s, "alone_s": link.alone_s,
        })
    };
    let both = |(mean, most): (f64, f64)| json!({ "mean": mean, "most": most });
    let one = |outlook: &Outlook| {
        json!({
            "topology": outlook.topology,
            "compressor": outlook.compressor,
            "local_steps": outlook.local_steps,
            "round_s": outlook.prediction.round_s,
            "rounds": outlook.rounds,
            "run_s": outlook.run_s(),
            "cost_s": Some(outlook.cost_s()).filter(|cost| cost.is_finite()),
            "mixing": outlook.mixing(),
            "relaxation": outlook.relaxation,
            "rho": outlook.rho,
            "mixing_time": outlook.agreement,
            "agreement_s": outlook.agreement.map(|_| outlook.agreement_s()),
            "payload": both(outlook.prediction.payload),
            "wire": both(outlook.prediction.wire),
            "computing": outlook.prediction.computing,
            "waits_for": reason(whole, &outlook.prediction),
        })
    };
    let central: Vec<Value> = (central.iter())
        .map(|(name, outlook)| json!({ "name": name, "plan": one(outlook) }))
        .collect();
    let refused: Vec<Value> =
        refused.iter().map(|(what, why)| json!({ "what": what, "why": why })).collect();
    json!({
        "rule": whole.design.rule_name(),
        "nodes": whole.design.topology.nodes(),
        "parameters": whole.design.parameters(),
        "plan": one(own),
        "links": own.prediction.links.iter().map(link).collect::<Vec<_>>(),
        "bottleneck": own.prediction.bottleneck().map(link),
        "centralized": central,
        "candidates": candidates.iter().map(one).collect::<Vec<_>>(),
        "refused": refused,
        "data": constants,
    })
}
