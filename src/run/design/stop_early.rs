//! `run.stop_early`: what it accepts, and how the core takes it.

use crate::{
    config::ConfigError,
    experiment::{Keep, RunParams, StopParams},
    gossip::{
        Patience,
        plan::{self, Plan},
        rounds_to_end,
    },
    mixing::Topology,
};

/// Checks the values.
///
/// # Errors
/// If one is out of range.
pub(crate) fn check(run: &RunParams) -> Result<(), ConfigError> {
    let Some(StopParams { share, every, patience, keep: _ }) = &run.stop_early else {
        return Ok(());
    };
    if !(*share > 0.0 && *share < 1.0) {
        let problem = "expected a share above 0 and below 1";
        return Err(ConfigError::new("run.stop_early.share", share, problem));
    }
    for (key, value) in [("every", every), ("patience", patience)] {
        if !(1..=i64::MAX as u64).contains(value) {
            let problem = "expected a whole number from 1 to 9223372036854775807";
            return Err(ConfigError::new(format!("run.stop_early.{key}"), value, problem));
        }
    }
    Ok(())
}

/// Checks that all nodes share the rounds of the rule, and that its schedule lets them agree on an
/// end before that of the run.
///
/// # Errors
/// If it is asynchronous, or the schedule repeats too late.
pub(super) fn check_rule(
    run: &RunParams,
    plan: &dyn Plan,
    topology: &Topology,
) -> Result<(), ConfigError> {
    let Some(stop) = &run.stop_early else { return Ok(()) };
    if !plan::is_asynchronous(plan) {
        let (period, later) = (plan.period(), rounds_to_end(plan, topology));
        if period == 1 || stop.every.saturating_add(later) < run.rounds {
            return Ok(());
        }
        let problem = format!(
            "the topology's schedule repeats after {period} rounds, so that a run ends {later} \
             rounds after the evaluation that decides it, and this run has {}: choose a schedule \
             that repeats earlier, as base-2 and one-peer-exponential do, or leave the key out",
            run.rounds
        );
        return Err(ConfigError::at("run.stop_early", problem));
    }
    let problem = "the rule is asynchronous and has no round that all nodes share, after which \
                   they could end: choose a synchronous rule (`gradvine rules`), or leave the key \
                   out";
    Err(ConfigError::at("run.stop_early", problem))
}

/// Refuses the key where a program brings its own model.
///
/// # Errors
/// If it is there.
pub(super) fn refuse(run: &RunParams) -> Result<(), ConfigError> {
    if run.stop_early.is_none() {
        return Ok(());
    }
    let problem = "a program that brings its own model ends its run itself: leave the key out";
    Err(ConfigError::at("run.stop_early", problem))
}

/// As the core takes it.
pub(crate) fn patience(run: &RunParams) -> Option<Patience> {
    let stop = run.stop_early.as_ref()?;
    let keeps_best = stop.keep == Keep::Best;
    Some(Patience { every: stop.every, evaluations: stop.patience, keeps_best })
}
