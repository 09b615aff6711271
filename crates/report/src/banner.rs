//! What a run is, before it starts.

use gradvine::{experiment::SplitKind, run::Whole};

/// Two lines that describe the run before it starts.
pub fn banner(whole: &Whole, simulated: bool) -> String {
    let design = &whole.design;
    let data = &design.experiment.data;
    let rows: usize = whole.shards.iter().map(|shard| shard.raw().rows()).sum();
    let test = whole.tests.rows();
    let from = match &data.sources {
        Some(sources) => format!("{} sources, one for each node", sources.len()),
        None => format!("{} split {}", data.source, name_of(data.split)),
    };
    let how = match simulated {
        false => "libp2p hosts on loopback, encrypted",
        true => "nodes on a virtual network",
    };
    format!(
        "{} x {how}: {} with {} on {}\n{} rows of {from}, {test} for testing; {} parameters, {} \
         rounds",
        design.topology.nodes(),
        design.rule_name(),
        design.compressor.name(),
        design.topology.name(),
        rows,
        design.parameters(),
        design.experiment.run.rounds
    )
}

/// The name of a split, as in experiments.
fn name_of(split: SplitKind) -> String {
    let value = serde_json::to_value(split).ok();
    value.and_then(|value| value.as_str().map(String::from)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use gradvine::experiment::Experiment;

    use super::*;

    #[test]
    fn a_run_is_described_in_two_lines() {
        let sets = ["topology.file=ring:3", "run.rounds=7", "rule.kind=dcd"].map(String::from);
        let whole = Whole::new(Experiment::default_with(&sets).unwrap()).unwrap();
        let banner = banner(&whole, true);
        let lines: Vec<&str> = banner.lines().collect();
        assert_eq!(lines[0], "3 x nodes on a virtual network: dcd with min-max on ring-3");
        assert!(lines[1].contains(" rows of digits split ") && lines[1].ends_with(" 7 rounds"));
    }
}
