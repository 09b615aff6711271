//! What a run will take on given links, and what else could be done on the same nodes.
//!
//! | file | does |
//! |---|---|
//! | `lib` | [`Plan`]: the prediction of an experiment, of central training, and of candidates |
//! | `choice` | [`Choice`]: which rule to choose on these links, for these rows, and why |
//! | `text` | a plan as text and as JSON |
//! | `price` | [`Prices`]: what rules keep and send, what compressors leave |
//! | `catalogue` | [`RuleList`], [`CompressorList`]: the registries, with prices |
#![forbid(unsafe_code)]

mod catalogue;
mod choice;
mod price;
mod text;

use std::{collections::BTreeSet, sync::Arc};

use gradvine::{
    config::ConfigError,
    experiment::{Compute, Experiment, Pick, picks},
    gossip::rule,
    links::{self, Conditions, LinkModel},
    mixing::Topology,
    run::{Constants, Design, Outlook, Variants, Whole, outlook},
    units::NodeId,
};

pub use catalogue::{CompressorList, RuleList};
pub use choice::Choice;
pub use price::{Prices, compressor, compressor_json};

/// What to look at beside the experiment itself.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Topologies on the same nodes; if empty, the families that fit.
    pub topologies: Vec<String>,
    /// A topology file on the same nodes that describes links between other pairs.
    pub links: Option<String>,
    /// Rules, as [`picks`] reads them; `None`: the experiment's.
    pub rules: Option<String>,
    /// Compressors, as [`picks`] reads them; `None`: identity and min-max of 8, 4 and 2 bits, if
    /// the rule compresses.
    pub compressors: Option<String>,
    /// Numbers of gradients a round, each tried with every candidate.
    pub local_steps: Vec<u32>,
    /// Whether to look at the experiment only and at no candidate.
    pub alone: bool,
    /// Whether to measure the constants of the data: it computes gradients on all rows.
    pub measures_data: bool,
}

/// A candidate that cannot work, and why.
pub type Refused = (String, String);

/// What an experiment costs, and what candidates in its place would cost.
pub struct Plan<'a> {
    /// The experiment as it was resolved.
    pub whole: &'a Whole,
    /// What the experiment itself costs.
    pub own: Outlook,
    /// The same gradients in one place: by a parameter server and by a ring.
    pub central: Vec<(&'static str, Outlook)>,
    /// The share of time in gradients with a faster line, and which one in words.
    pub faster: Option<(String, f64)>,
    /// All candidates that can work, best first.
    pub candidates: Vec<Outlook>,
    /// The candidates that cannot work, with the reason.
    pub refused: Vec<Refused>,
    /// What the bounds of the theory need.
    pub constants: Option<Constants>,
    /// The rule that it would choose.
    pub choice: Option<Choice>,
}

#[derive(Clone, Copy)]
struct Search<'a> {
    whole: &'a Whole,
    variants: &'a Variants<'a>,
    request: &'a Request,
    read: &'a dyn Fn(&[String]) -> Result<Experiment, ConfigError>,
}

impl Plan<'_> {
    /// Predicts. `read` reads the experiment again with further settings, each `key=value`.
    ///
    /// # Errors
    /// If the request names something that does not exist or does not fit the experiment's nodes.
    pub fn of<'a>(
        whole: &'a Whole,
        request: &Request,
        read: &dyn Fn(&[String]) -> Result<Experiment, ConfigError>,
    ) -> Result<Plan<'a>, ConfigError> {
        let experiment = &whole.design.experiment;
        let steps = u64::from(experiment.optimizer.local_steps);
        let gradients = experiment.run.rounds.saturating_mul(steps);
        let variants = &Variants::new(&whole.design);
        let search = Search { whole, variants, request, read };
        let own = Outlook::of(&whole.design, &whole.conditions, gradients)?;
        let central = central(&search, gradients)?;
        let (candidates, refused) =
            if request.alone { Default::default() } else { candidates(&search, gradients)? };
        let faster = if request.alone { None } else { faster_line(whole, &own, gradients)? };
        let constants = request.measures_data.then(|| Constants::measure(whole)).transpose()?;
        let choice =
            if request.alone { None } else { Choice::of(&search, gradients, constants.as_ref())? };
        Ok(Plan { whole, own, central, faster, candidates, refused, constants, choice })
    }
}

/// The experiment with lines of twice the rate where a round waits longest, and wherever the lines
/// are the same. `None` if no line there has a rate.
fn faster_line(
    whole: &Whole,
    own: &Outlook,
    gradients: u64,
) -> Result<Option<(String, f64)>, ConfigError> {
    let Some(link) = own.prediction.bottleneck() else { return Ok(None) };
    let mut conditions = whole.conditions.clone();
    let slow = *conditions.link(link.from, link.to);
    if !slow.rate.is_finite() {
        return Ok(None);
    }
    let mut same = 0;
    for (a, b) in whole.design.topology.edges() {
        if *conditions.link(a, b) == slow {
            let fast = LinkModel { rate: 2.0 * slow.rate, ..slow };
            conditions.links.insert((a.min(b), a.max(b)), fast);
            same += 1;
        }
    }
    let name = |node| &whole.design.topology.node(node).name;
    let words = match same {
        1 => format!("a line of twice the rate between {} and {}", name(link.from), name(link.to)),
        _ => format!("{same} lines of twice the rate"),
    };
    let outlook = Outlook::of(&whole.design, &conditions, gradients)?;
    Ok(Some((words, outlook.prediction.computing)))
}

/// C-SGD by a server and by a ring, on all pairs.
fn central(
    search: &Search<'_>,
    gradients: u64,
) -> Result<Vec<(&'static str, Outlook)>, ConfigError> {
    let whole = search.whole;
    let nodes = whole.design.topology.nodes();
    if nodes < 2 {
        return Ok(Vec::new());
    }
    let conditions = everywhere(search)?;
    let topology = Arc::new(Topology::parse(&format!("complete:{nodes}"), 1)?);
    let mut found = Vec::new();
    for (name, collective) in [("parameter server", "server"), ("ring all-reduce", "ring")] {
        let sets = [
            "compressor.kind=identity".into(),
            "rule.kind=c-sgd".into(),
            format!("rule.collective={collective}"),
        ];
        let mut experiment = (search.read)(&sets)?;
        experiment.topology.schedule = "static".into();
        let design = search.variants.design(experiment, Arc::clone(&topology))?;
        found.push((name, Outlook::of(&design, &conditions, gradients)?));
    }
    Ok(found)
}

/// The conditions between any two nodes: the experiment's own links, those of `--links`, and ways
/// over these for the rest.
fn everywhere(search: &Search<'_>) -> Result<Conditions, ConfigError> {
    let &Search { whole, request, .. } = search;
    let own = &whole.design.topology;
    let Some(file) = &request.links else { return Ok(outlook::all_pairs(own, &whole.conditions)) };
    let topology = Topology::parse(file, whole.design.experiment.run.seed)
        .map_err(|error| error.of_spec("--links", file))?;
    let names = |topology: &Topology| -> Vec<String> {
        (0..topology.nodes()).map(|node| topology.node(NodeId::from(node)).name.clone()).collect()
    };
    if names(&topology) != names(own) {
        let problem = format!(
            "its nodes are {}, the experiment's {}",
            names(&topology).join(", "),
            names(own).join(", ")
        );
        return Err(ConfigError::new("--links", format!("\"{file}\""), problem));
    }
    let mut network = whole.design.experiment.network.clone();
    // Gradients take what they take in the experiment, measured or not.
    (network.compute, network.compute_ms, network.compute_spread) = (Compute::None, None, None);
    (network.stragglers, network.straggler_factor) = (None, None);
    let mut conditions =
        links::conditions(&network, &topology, &whole.design.experiment.run, &mut || 0.0)?;
    conditions.compute = whole.conditions.compute;
    conditions.links.extend(whole.conditions.links.iter().map(|(pair, link)| (*pair, *link)));
    Ok(outlook::all_pairs(&topology, &conditions))
}

/// All candidates that can work, best first, and why the others cannot.
fn candidates(
    search: &Search<'_>,
    gradients: u64,
) -> Result<(Vec<Outlook>, Vec<Refused>), ConfigError> {
    let &Search { whole, request, .. } = search;
    let design = &whole.design;
    let nodes = design.topology.nodes();
    let everywhere = everywhere(search)?;
    let mut topologies = vec![Arc::clone(&design.topology)];
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    let specs = if request.topologies.is_empty() {
        outlook::candidates(nodes)
    } else {
        request.topologies.clone()
    };
    for spec in specs {
        match Topology::parse(&spec, design.experiment.run.seed) {
            Ok(topology) if topology.nodes() != nodes => {
                let problem = format!("it has {} nodes, the experiment {nodes}", topology.nodes());
                return Err(ConfigError::new("--topologies", format!("\"{spec}\""), problem));
            }
            Ok(topology) if same_links(&topology, &design.topology) => {}
            Ok(topology) => topologies.push(Arc::new(topology)),
            Err(error) if request.topologies.is_empty() => refused.push((spec, error.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
    let rules = rules(request, design)?;
    for topology in &topologies {
        let conditions =
            if Arc::ptr_eq(topology, &design.topology) { &whole.conditions } else { &everywhere };
        for (rule, compressors) in &rules {
            for (compressor, &steps) in
                compressors.iter().flat_map(|one| request.local_steps.iter().map(move |n| (one, n)))
            {
                let mut sets = rule.clone();
                sets.extend_from_slice(compressor);
                sets.push(format!("optimizer.local_steps={steps}"));
                let one = (search.read)(&sets).and_then(|experiment| {
                    let mut conditions = conditions.clone();
                    // Measured or given for the experiment's own steps.
                    let share =
                        f64::from(steps) / f64::from(design.experiment.optimizer.local_steps);
                    conditions.compute.mean = (conditions.compute.mean as f64 * share) as u64;
                    let design = search.variants.design(experiment, Arc::clone(topology))?;
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
    let name = |one: &Outlook| {
        let links = (one.topology.clone(), one.compressor.clone());
        (one.rule.clone(), one.relaxation.to_bits(), links, one.local_steps)
    };
    let mut seen = BTreeSet::new();
    found.retain(|one| seen.insert(name(one)));
    Ok((found, refused))
}

/// Settings of candidates, each `key=value`.
type Sets = Vec<String>;

/// The settings of each rule, with those of the compressors that it is tried with.
fn rules(request: &Request, design: &Design) -> Result<Vec<(Sets, Vec<Sets>)>, ConfigError> {
    let list = request
        .compressors
        .as_deref()
        .unwrap_or("identity,min-max:bits=8,min-max:bits=4,min-max:bits=2");
    let compressors = picks("--compressors", list)?;
    let all = |own: Option<Sets>| -> Vec<Sets> {
        own.into_iter().chain(compressors.iter().map(|pick| pick.sets("compressor"))).collect()
    };
    let Some(rules) = &request.rules else {
        let compresses = rule::find(design.rule_name())?.compresses;
        let tried = if compresses || request.compressors.is_some() {
            all(Some(Vec::new()))
        } else {
            vec![Vec::new()]
        };
        return Ok(vec![(Vec::new(), tried)]);
    };
    let identity = || vec!["compressor.kind=identity".to_string()];
    let one = |pick: &Pick| {
        let entry = rule::find(&pick.kind).map_err(|error| error.with_place("--rules"))?;
        let tried = if entry.compresses { all(None) } else { vec![identity()] };
        Ok((pick.sets("rule"), tried))
    };
    picks("--rules", rules)?.iter().map(one).collect()
}

fn same_links(a: &Topology, b: &Topology) -> bool {
    a.edges().eq(b.edges())
}
