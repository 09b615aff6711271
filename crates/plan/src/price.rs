//! What a rule keeps and sends, and what a compressor leaves, at a given dimension: read off the
//! plan and the formats that a run would use.

use std::sync::Arc;

use gradvine::{
    compress::{self, Built, Class, Size},
    config::ConfigError,
    experiment::picks,
    gossip::{
        plan::{self, Meeting},
        rule::{self, Entry, Prepared, Setting},
    },
    mixing::{Schedule, Topology},
    units::{Bytes, NodeId, Round},
};
use serde_json::{Value, json};

/// Rounds over which meetings that change are averaged.
const ROUNDS: u64 = 64;
/// The longest model that a node is made with to count its vectors.
const LONGEST: usize = 1 << 20;

/// For what the catalogue is priced.
pub struct Prices {
    /// d, the length of the model.
    pub parameters: usize,
    /// The links over which rules are priced.
    pub topology: Arc<Topology>,
    /// The compressor of rules that compress.
    pub compressor: Built,
    /// The compressor of rules that do not compress.
    pub identity: Built,
}

/// Builds one compressor from its name and constants.
fn build(name: &str) -> Result<Built, ConfigError> {
    let found = picks("--compressor", name)?;
    let [pick] = found.as_slice() else {
        let problem = "expected one compressor";
        return Err(ConfigError::new("--compressor", format!("\"{name}\""), problem));
    };
    let named = |error: ConfigError| ConfigError::at("--compressor", error.to_string());
    compress::build(&pick.table("compressor").map_err(named)?).map_err(named)
}

struct Cost {
    vectors: usize,
    /// Mean over nodes, and the busiest node's; each a mean over rounds.
    messages: (f64, f64),
    payload: (f64, f64),
    exact: bool,
    resolved: toml::Table,
    warnings: Vec<String>,
}

impl Prices {
    /// Prices for models of this many numbers on a topology (a file or a spec), with a compressor
    /// as [`picks`] reads it for the rules that compress.
    ///
    /// # Errors
    /// If the topology or the compressor is wrong; `place` is then `--topology` or `--compressor`.
    pub fn of(parameters: usize, topology: &str, compressor: &str) -> Result<Prices, ConfigError> {
        let read = Topology::parse(topology, 1).map_err(ConfigError::from);
        let read = read.map_err(|error| match error.file {
            Some(_) => error,
            None => error.with_place("--topology").with_value(format!("\"{topology}\"")),
        });
        Ok(Prices {
            parameters,
            topology: Arc::new(read?),
            compressor: build(compressor)?,
            identity: build("identity")?,
        })
    }

    /// Lines for a rule: `(name, words)`.
    pub fn rule(&self, entry: &Entry) -> Vec<(&'static str, String)> {
        let cost = match self.cost(entry) {
            Ok(cost) => cost,
            Err(error) => return vec![("refused", error.to_string())],
        };
        let built = self.built(entry);
        let about = if cost.exact { "" } else { "at most " };
        let both = |(mean, most): (f64, f64), show: &dyn Fn(f64) -> String| {
            if most > mean * 1.000_001 {
                format!("{}, {} at the busiest", show(mean), show(most))
            } else {
                show(mean)
            }
        };
        let number = |x: f64| if x.fract() == 0.0 { format!("{x:.0}") } else { format!("{x:.2}") };
        let bytes = |x: f64| Bytes(x.round() as u64).to_string();
        let mut lines = vec![
            (
                "memory",
                format!(
                    "{} vectors, {}",
                    cost.vectors,
                    bytes(4.0 * (cost.vectors * self.parameters) as f64)
                ),
            ),
            ("messages", format!("{} a node and round", both(cost.messages, &number))),
            (
                "payload",
                format!(
                    "{about}{} a node and round with {}",
                    both(cost.payload, &bytes),
                    built.compressor.name()
                ),
            ),
            ("resolved", constants(&cost.resolved)),
        ];
        lines.extend(cost.warnings.into_iter().map(|warning| ("warning", warning)));
        lines
    }

    /// What [`Prices::rule`] says, as an object of numbers.
    pub fn rule_json(&self, entry: &Entry) -> Value {
        match self.cost(entry) {
            Err(error) => json!({ "refused": error.to_string() }),
            Ok(cost) => json!({
                "vectors": cost.vectors,
                "compressor": self.built(entry).resolved,
                "messages": { "mean": cost.messages.0, "most": cost.messages.1 },
                "payload": { "mean": cost.payload.0, "most": cost.payload.1, "exact": cost.exact },
                "resolved": cost.resolved,
                "warnings": cost.warnings,
            }),
        }
    }

    fn built(&self, entry: &Entry) -> &Built {
        if entry.compresses { &self.compressor } else { &self.identity }
    }

    fn cost(&self, entry: &Entry) -> Result<Cost, ConfigError> {
        let prepared = self.prepared(entry, self.parameters)?;
        let (messages, payload, exact) = self.traffic(&prepared);
        let most = |sums: &[f64]| sums.iter().copied().fold(0.0, f64::max);
        let mean = |sums: &[f64]| sums.iter().sum::<f64>() / sums.len() as f64;
        Ok(Cost {
            vectors: self.vectors(entry, &prepared),
            messages: (mean(&messages), most(&messages)),
            payload: (mean(&payload), most(&payload)),
            exact,
            resolved: prepared.resolved,
            warnings: prepared.warnings,
        })
    }

    fn prepared(&self, entry: &Entry, parameters: usize) -> Result<Prepared, ConfigError> {
        let built = self.built(entry);
        let setting = Setting {
            topology: &self.topology,
            schedule: &Arc::new(Schedule::fixed(&self.topology)),
            compressor: &built.compressor,
            nominal_delta: compress::nominal_delta(&*built.compressor, parameters),
            parameters,
            shapes: &[(parameters, 1)],
            seed: 1,
            allow_unstable: false,
        };
        rule::prepare(&toml::Table::from_iter([("kind".to_string(), entry.name.into())]), &setting)
    }

    /// The most vectors that any node keeps; counted on a shorter model where d is large.
    fn vectors(&self, entry: &Entry, prepared: &Prepared) -> usize {
        let nodes = (0..self.topology.nodes()).map(NodeId::from);
        // Who has most neighbours has most copies; the hub of a star may keep more than others by
        // its role.
        let busiest = nodes.clone().max_by_key(|id| self.topology.neighbours(*id).len());
        let count = |prepared: &Prepared, length: usize| {
            let of = |id: NodeId| {
                let mut rule = (prepared.spawn)(id, &vec![0.0; length]);
                2 + rule::count_numbers(&mut *rule).div_ceil(length.max(1))
            };
            busiest.into_iter().chain([NodeId(0)]).map(of).max().unwrap_or(0)
        };
        if self.parameters <= LONGEST {
            return count(prepared, self.parameters);
        }
        self.prepared(entry, LONGEST).map_or(0, |shorter| count(&shorter, LONGEST))
    }

    /// Messages and payload bytes that each node sends, a round; and whether every size is exact.
    fn traffic(&self, prepared: &Prepared) -> (Vec<f64>, Vec<f64>, bool) {
        let plan = &*prepared.plan;
        let nodes = self.topology.nodes();
        let (mut messages, mut payload, mut exact) = (vec![0.0; nodes], vec![0.0; nodes], true);
        let calls = plan::flights(plan).into_iter().any(|flight| plan.calls(flight));
        let rounds = if calls { ROUNDS } else { plan.period().clamp(1, ROUNDS) };
        let mut meeting = Meeting::default();
        for at in (0..rounds).flat_map(|round| plan::places(plan, Round(round))) {
            for node in (0..nodes).map(NodeId::from) {
                meeting.clear();
                plan.meet(node, &at, &mut meeting);
                // Who is called answers: in the second exchange of a call the one that is waited
                // for sends.
                let answers = plan.calls(at.flight) && at.exchange == 1;
                let senders: Vec<NodeId> =
                    if answers { meeting.wait.clone() } else { vec![node; meeting.send.len()] };
                for from in senders {
                    let size = plan.format(&at, from).size();
                    exact &= matches!(size, Size::Exact(_));
                    messages[from.index()] += 1.0 / rounds as f64;
                    payload[from.index()] += size.limit() as f64 / rounds as f64;
                }
            }
        }
        (messages, payload, exact)
    }
}

/// Lines for a compressor at this dimension.
pub fn compressor(entry: &compress::Entry, parameters: usize) -> Vec<(&'static str, String)> {
    let built = match default_of(entry) {
        Ok(built) => built,
        Err(error) => return vec![("refused", error.to_string())],
    };
    let (size, about) = match built.compressor.size(parameters) {
        Size::Exact(bytes) => (bytes, ""),
        Size::AtMost(bytes) => (bytes, "at most "),
    };
    let ratio = 4.0 * parameters as f64 / size.max(1) as f64;
    let bound = match built.compressor.class(parameters) {
        Class::Unbiased { alpha } => format!("unbiased, alpha <= {alpha:.4}"),
        Class::Contraction { delta } => format!("contraction, delta >= {delta:.3e}"),
    };
    vec![
        (
            "payload",
            format!("{about}{}, {ratio:.2} times less than 4 bytes a number", Bytes(size as u64)),
        ),
        (
            "nominal",
            format!(
                "delta {:.4} on Gaussian vectors",
                compress::nominal_delta(&*built.compressor, parameters)
            ),
        ),
        ("bound", bound),
        ("resolved", constants(&built.resolved)),
    ]
}

/// What [`compressor`] says, as an object of numbers.
pub fn compressor_json(entry: &compress::Entry, parameters: usize) -> Value {
    let built = match default_of(entry) {
        Ok(built) => built,
        Err(error) => return json!({ "refused": error.to_string() }),
    };
    let size = built.compressor.size(parameters);
    let (class, constant) = match built.compressor.class(parameters) {
        Class::Unbiased { alpha } => ("unbiased", json!({ "alpha": alpha })),
        Class::Contraction { delta } => ("contraction", json!({ "delta": delta })),
    };
    json!({
        "payload": size.limit(),
        "exact": matches!(size, Size::Exact(_)),
        "class": class,
        "worst_case": constant,
        "nominal_delta": compress::nominal_delta(&*built.compressor, parameters),
        "resolved": built.resolved,
    })
}

fn default_of(entry: &compress::Entry) -> Result<Built, ConfigError> {
    compress::build(&toml::Table::from_iter([("kind".to_string(), entry.name.into())]))
}

fn constants(table: &toml::Table) -> String {
    let all: Vec<String> = table
        .iter()
        .filter(|(key, _)| *key != "kind")
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    if all.is_empty() { "no constants".into() } else { all.join(", ") }
}
