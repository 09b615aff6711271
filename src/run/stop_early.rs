//! `run.stop_early`: what it accepts, and how the core takes it.

use crate::{
    config::ConfigError,
    experiment::{RunParams, StopParams},
    gossip::{
        Patience,
        plan::{self, Plan},
    },
};

/// Checks the values.
///
/// # Errors
/// If one is out of range.
pub(super) fn check(run: &RunParams) -> Result<(), ConfigError> {
    let Some(StopParams { share, every, patience }) = &run.stop_early else { return Ok(()) };
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

/// Checks that all nodes share the rounds of the rule.
///
/// # Errors
/// If it is asynchronous.
pub(super) fn check_rule(run: &RunParams, plan: &dyn Plan) -> Result<(), ConfigError> {
    if run.stop_early.is_none() || !plan::is_asynchronous(plan) {
        return Ok(());
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
pub(super) fn patience(run: &RunParams) -> Option<Patience> {
    let stop = run.stop_early.as_ref()?;
    Some(Patience { every: stop.every, evaluations: stop.patience })
}
