//! Makes the conditions of a simulation or prediction from `[network]` and the topology's links.

use crate::{
    config::ConfigError,
    experiment::{Compute, NetworkParams, RunParams, Uplink},
    links::{ComputeModel, Conditions, LinkModel, PRESETS, preset},
    mixing::Topology,
    units::NodeId,
};

const MS: f64 = 1e6;

/// Returns the properties of the network and its machines. `measured` returns the seconds of a
/// round's gradients; it is called if the experiment asks to measure them. Where relayed links are
/// allowed, a link of two nodes without addresses of their own has twice the latency, unless the
/// topology says it.
///
/// # Errors
/// If a value is out of its range or belongs to another kind; the message names `network.KEY`, the
/// value and what is accepted.
pub fn conditions(
    params: &NetworkParams,
    topology: &Topology,
    run: &RunParams,
    measured: &mut dyn FnMut() -> f64,
) -> Result<Conditions, ConfigError> {
    let rest = link(params)?;
    let mut links = std::collections::BTreeMap::new();
    for node in (0..topology.nodes()).map(NodeId::from) {
        for &other in topology.neighbours(node).iter().filter(|&&other| other > node) {
            let info = topology.link(node, other);
            let (ms, rate) = info.map_or((None, None), |it| (it.latency_ms, it.bandwidth_mbps));
            // The way to the relay and on to the other node.
            let relayed = run.relayed && needs_relay(topology, node, other);
            let latency = if relayed { 2 * rest.latency } else { rest.latency };
            if ms.is_none() && rate.is_none() && latency == rest.latency {
                continue;
            }
            let latency = ms.map_or(latency, |ms| (ms * MS) as u64);
            let rate = rate.map_or(rest.rate, |rate| rate * 1e6);
            links.insert((node, other), LinkModel { latency, rate, ..rest });
        }
    }
    Ok(Conditions {
        seed: run.seed,
        links,
        rest,
        shared_uplink: params.uplink == Uplink::Node,
        compute: compute(params, measured)?,
    })
}

/// Whether two nodes can reach each other only through a relay, unless hole punching succeeds:
/// neither has an address of its own.
pub fn needs_relay(topology: &Topology, one: NodeId, other: NodeId) -> bool {
    let is_relayed = |address: &String| address.contains("/p2p-circuit");
    let mut addresses = [one, other].into_iter().flat_map(|node| &topology.node(node).addresses);
    addresses.clone().next().is_some() && addresses.all(is_relayed)
}

fn link(params: &NetworkParams) -> Result<LinkModel, ConfigError> {
    let preset = preset(&params.preset).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        ConfigError::new(
            "network.preset",
            format!("\"{}\"", params.preset),
            format!("expected one of {}", names.join(", ")),
        )
        .with_accepted(names)
    })?;
    let mut link = preset.link;
    if let Some(ms) = within("latency_ms", params.latency_ms, 0.0, 1e7)? {
        link.latency = (ms * MS) as u64;
    }
    if let Some(rate) = within("bandwidth_mbps", params.bandwidth_mbps, 1e-3, 1e7)? {
        link.rate = rate * 1e6;
    }
    if let Some(ms) = within("jitter_ms", params.jitter_ms, 0.0, 1e7)? {
        link.jitter = (ms * MS) as u64;
    }
    if let Some(loss) = within("loss", params.loss, 0.0, 0.9)? {
        link.loss = loss;
    }
    if let Some(variation) = within("variation", params.variation, 0.0, 3.0)? {
        link.variation = variation;
    }
    if let Some(seconds) = within("variation_s", params.variation_s, 0.001, 1e6)? {
        link.variation_period = (seconds * 1e9) as u64;
    }
    Ok(link)
}

fn compute(
    params: &NetworkParams,
    measured: &mut dyn FnMut() -> f64,
) -> Result<ComputeModel, ConfigError> {
    let ms = within("compute_ms", params.compute_ms, 0.0, 1e9)?;
    let spread = within("compute_spread", params.compute_spread, 0.0, 3.0)?;
    let stragglers = within("stragglers", params.stragglers, 0.0, 1.0)?;
    let factor = within("straggler_factor", params.straggler_factor, 0.01, 1e6)?;
    let foreign = |key: &str, kinds: &str| {
        Err(ConfigError::at(
            format!("network.{key}"),
            format!("belongs to compute = {kinds}: leave it out, or use that"),
        ))
    };
    let mean = match (params.compute, ms) {
        (Compute::None | Compute::Measured, Some(_)) => {
            return foreign("compute_ms", "\"fixed\" or \"random\"");
        }
        (Compute::Fixed | Compute::Random, None) => {
            return Err(ConfigError::at(
                "network.compute_ms",
                "is missing: how many milliseconds do the gradients of a round take?",
            ));
        }
        (Compute::Fixed | Compute::Random, Some(ms)) => ms * MS,
        (Compute::Measured, None) => measured() * 1e9,
        (Compute::None, None) => 0.0,
    };
    if spread.is_some() && params.compute != Compute::Random {
        return foreign("compute_spread", "\"random\"");
    }
    if params.compute == Compute::None && (stragglers.is_some() || factor.is_some()) {
        return foreign(
            if stragglers.is_some() { "stragglers" } else { "straggler_factor" },
            "\"fixed\", \"measured\" or \"random\"",
        );
    }
    Ok(ComputeModel {
        mean: mean as u64,
        spread: if params.compute == Compute::Random { spread.unwrap_or(0.3) } else { 0.0 },
        stragglers: stragglers.unwrap_or(0.0),
        factor: factor.unwrap_or(4.0),
    })
}

/// A number in a range, if it is given.
fn within(
    key: &str,
    value: Option<f64>,
    least: f64,
    most: f64,
) -> Result<Option<f64>, ConfigError> {
    match value {
        Some(value) if !(least..=most).contains(&value) => Err(ConfigError::new(
            format!("network.{key}"),
            value,
            format!("expected a number from {least} to {most}"),
        )),
        _ => Ok(value),
    }
}
