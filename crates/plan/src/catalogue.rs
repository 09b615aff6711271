//! The registries of rules and compressors as text and as JSON, with prices if they are known.

use std::sync::Arc;

use gradvine::{
    compress::{COMPRESSORS, Entry},
    config::ConfigError,
    experiment::Experiment,
    gossip::{
        plan,
        rule::{Entry as Rule, RULES},
    },
    learn::Tensor,
    mixing::Topology,
    run::Design,
    units::NodeId,
};
use serde_json::{Value, json};

use crate::{Prices, compressor, compressor_json};

/// Update rules, and what each costs.
pub struct RuleList<'a> {
    rules: Vec<&'static Rule>,
    prices: Option<&'a Prices>,
}

impl RuleList<'_> {
    /// All rules, or the one of this name; `prices` adds what each costs.
    ///
    /// # Errors
    /// If there is no rule of this name.
    pub fn new<'a>(
        name: Option<&str>,
        prices: Option<&'a Prices>,
    ) -> Result<RuleList<'a>, ConfigError> {
        Ok(RuleList { rules: RULES.select(name)?, prices })
    }

    /// Each rule in some lines.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for rule in &self.rules {
            text += &format!("{}\n  {}\n", rule.name, rule.summary);
            let rows = [
                ("update", rule.update),
                ("keeps", rule.state),
                ("sends", rule.sends),
                ("needs", rule.conditions),
                ("failures", after_failures(rule.name)),
                ("paper", rule.paper),
            ];
            let costs = self.prices.map_or_else(Vec::new, |prices| prices.rule(rule));
            text += &table(&rows, &costs, rule.constants);
        }
        text
    }

    /// A JSON array of objects.
    pub fn to_json(&self) -> Value {
        let object = |rule: &&'static Rule| {
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
            if let Some(prices) = self.prices {
                object["priced"] = prices.rule_json(rule);
            }
            object
        };
        self.rules.iter().map(object).collect()
    }
}

/// Compressors, and what each makes of a vector.
pub struct CompressorList {
    compressors: Vec<&'static Entry>,
    parameters: Option<usize>,
}

impl CompressorList {
    /// All compressors, or the one of this name; `parameters` is the length of the vector.
    ///
    /// # Errors
    /// If there is no compressor of this name.
    pub fn new(
        name: Option<&str>,
        parameters: Option<usize>,
    ) -> Result<CompressorList, ConfigError> {
        Ok(CompressorList { compressors: COMPRESSORS.select(name)?, parameters })
    }

    /// Each compressor in some lines.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for entry in &self.compressors {
            text += &format!("{}\n  {}\n", entry.name, entry.summary);
            let rows = [("class", entry.class_words), ("paper", entry.paper)];
            let costs = self.parameters.map_or_else(Vec::new, |count| compressor(entry, count));
            text += &table(&rows, &costs, entry.constants);
        }
        text
    }

    /// A JSON array of objects.
    pub fn to_json(&self) -> Value {
        let object = |entry: &&'static Entry| {
            let mut object = json!({
                "name": entry.name,
                "summary": entry.summary,
                "paper": entry.paper,
                "class": entry.class_words,
                "constants": constants(entry.constants),
            });
            if let Some(count) = self.parameters {
                object["priced"] = compressor_json(entry, count);
            }
            object
        };
        self.compressors.iter().map(object).collect()
    }
}

/// What a run with this rule does after the restart of a node, and without an absent one: found by
/// trying it with four nodes.
fn after_failures(rule: &str) -> &'static str {
    let tensors = || vec![Tensor::new("x", &[8, 8])];
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
        (false, _) => "after a restart a run starts from the beginning; absent nodes are awaited",
        (true, Err(_)) => "after a restart a run continues; absent nodes are awaited",
        (true, Ok(_)) => {
            "after a restart a run continues, and without absent nodes if absence.policy says so"
        }
    }
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

fn constants(constants: &[(&str, &str)]) -> Value {
    constants.iter().map(|(name, meaning)| json!({ "name": name, "meaning": meaning })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_say_the_same_of_a_rule() {
        let prices = Prices::of(1000, "ring:8", "min-max:bits=4").unwrap();
        let list = RuleList::new(Some("dcd"), Some(&prices)).unwrap();
        let (text, value) = (list.text(), list.to_json());
        let vectors = &value[0]["priced"]["vectors"];
        for line in [format!("memory    {vectors} vectors"), "failures  after a restart".into()] {
            assert!(text.contains(&line), "{line}\n{text}");
        }
        assert_eq!((value.as_array().map(Vec::len), &value[0]["name"]), (Some(1), &json!("dcd")));
    }

    #[test]
    fn each_compressor_is_listed() {
        let all = CompressorList::new(None, Some(100)).unwrap().to_json();
        let text = CompressorList::new(None, None).unwrap().text();
        for entry in all.as_array().unwrap() {
            let name = entry["name"].as_str().unwrap();
            assert!(text.contains(&format!("{name}\n  ")), "{name}");
            assert!(!entry["priced"].is_null(), "{name}");
        }
        assert!(CompressorList::new(Some("foo"), None).is_err());
    }

    #[test]
    fn what_prices_are_for_is_one_topology_and_one_compressor() {
        for (topology, compressor, place) in
            [("rinG:8", "sign", "topology"), ("ring:8", "sign,top-k", "compressor")]
        {
            let error = Prices::of(10, topology, compressor).err().unwrap();
            assert!(error.place.contains(place), "{error}");
        }
    }
}
