//! A rule held against the optimizer that makes its updates.

use super::{Entry, list::of};
use crate::{config::ConfigError, registry::Registry};

/// What the optimizer does that makes a rule's updates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) momentum: f64,
    pub(crate) step: f64,
    /// Whether a coordinate's step is relative to its gradients, as of AdamW.
    pub(crate) adaptive: bool,
}

/// The largest usual step of an adaptive optimizer.
const ADAPTIVE_STEP: f64 = 0.03;

/// Checks a rule against the optimizer that makes its updates: refuses what cannot work, and warns
/// of unsuitable values. `rule` is a resolved `[rule]` table.
///
/// # Errors
/// If both the rule and the optimizer have momentum, unless `allow_unstable`.
pub(crate) fn advise(
    rules: &Registry<Entry>,
    rule: &toml::Table,
    steps: &Steps,
    allow_unstable: bool,
) -> Result<Vec<String>, ConfigError> {
    let Steps { momentum, step, adaptive } = *steps;
    let kind = rule.get("kind").and_then(toml::Value::as_str).unwrap_or_default();
    let mut warnings = Vec::new();
    let own = rule.get("momentum").and_then(toml::Value::as_float).unwrap_or(0.0);
    let Some(entry) = of(rules, rule) else { return Ok(warnings) };
    if momentum > 0.0 && own > 0.0 && entry.own_momentum {
        let times = 1.0 / ((1.0 - own) * (1.0 - momentum));
        let problem = format!(
            "{kind} has a momentum of its own, {own}: with both each gradient counts {times:.0} \
             times, and the run diverges; set \
             optimizer.momentum = 0, or rule.momentum = 0, or run.allow_unstable = true to watch \
             it fail"
        );
        if !allow_unstable {
            return Err(ConfigError::new("optimizer.momentum", momentum, problem));
        }
        warnings.push(format!("optimizer.momentum = {momentum}: {problem}"));
    }
    if let Some((_, advice)) = entry.step_advice.filter(|(most, _)| step > *most) {
        warnings.push(format!(
            "optimizer.step = {step}: {kind} moves every number by the step in every round, \
             however small its gradient is; {advice}"
        ));
    }
    if adaptive && step > ADAPTIVE_STEP {
        warnings.push(format!(
            "optimizer.step = {step}: adamw moves every number by about the step in every local \
             step, however small its gradient is; 0.001 is usual"
        ));
    }
    if adaptive && (entry.needs_gradients || entry.own_momentum) {
        warnings.push(format!(
            "optimizer.kind = \"adamw\": {kind} takes updates for gradients, which those of adamw \
             are not: its theory does not hold; use kind = \"sgd\", or a rule that moves models \
             (d-psgd, choco, diloco, noloco)"
        ));
    }
    Ok(warnings)
}
