//! Where a run finds what its files name.

use crate::{
    compress::{self, COMPRESSORS},
    data::Datasets,
    gossip::rule::{self, RULES},
    mixing::{
        family::{self, Families},
        schedule::{self, Recipes},
    },
    registry::Registry,
};

/// The registries in which a run finds the names of its files: by default those of the process,
/// such as [`RULES`]. A program that shares its process with another one takes registries of its
/// own:
///
/// ```
/// use gradvine::{experiment::Registries, gossip::rule::RULES, prelude::*};
///
/// let own = Registries::separate();
/// let choco = *RULES.find("choco").expect("a rule of this crate");
/// own.rules.register(gradvine::gossip::rule::Entry { name: "house-rule", ..choco })?;
///
/// let experiment = Experiment::default_with(&["rule.kind=house-rule".into()])?;
/// assert!(Whole::new(experiment.clone()).is_err());
/// assert!(Whole::new(experiment.with_registries(own)).is_ok());
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Registries {
    /// The values of `rule.kind`.
    pub rules: &'static Registry<rule::Entry>,
    /// The values of `compressor.kind`.
    pub compressors: &'static Registry<compress::Entry>,
    /// The families of topologies.
    pub families: Families,
    /// The values of `topology.schedule`.
    pub schedules: Recipes,
    /// The names that `data.source` may have besides paths.
    pub datasets: Datasets,
}

impl Default for Registries {
    fn default() -> Registries {
        Registries {
            rules: &RULES,
            compressors: &COMPRESSORS,
            families: &family::REGISTRY,
            schedules: &schedule::REGISTRY,
            datasets: Datasets::default(),
        }
    }
}

impl Registries {
    /// Registries with this crate's entries only. They live as long as the process.
    pub fn separate() -> Registries {
        Registries {
            rules: RULES.separate(),
            compressors: COMPRESSORS.separate(),
            families: family::REGISTRY.separate(),
            schedules: schedule::REGISTRY.separate(),
            datasets: Datasets(Datasets::default().0.separate()),
        }
    }
}
