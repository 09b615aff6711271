//! Designs with the model and the rows of another one.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use super::resolved::{Design, Known};
use crate::{config::ConfigError, experiment::Experiment, mixing::Topology};

/// Makes designs that differ from one in their links, rule, compressor or steps. Random numbers are
/// drawn once: those of the initial model, and those that measure each compressor.
pub struct Variants<'a> {
    design: &'a Design,
    /// Nominal deltas of compressors for the same model, by their tables.
    deltas: RefCell<BTreeMap<String, f64>>,
}

impl<'a> Variants<'a> {
    /// Variants of this design.
    pub fn new(design: &'a Design) -> Variants<'a> {
        Variants { design, deltas: RefCell::default() }
    }

    /// [`Design::new`] for rows of the same sizes.
    ///
    /// # Errors
    /// If a value is out of range or a combination cannot work.
    pub fn design(
        &self,
        experiment: Experiment,
        topology: Arc<Topology>,
    ) -> Result<Design, ConfigError> {
        let &Design { features, outputs, .. } = self.design;
        let compressor = experiment.compressor.to_string();
        let nominal_delta = self.deltas.borrow().get(&compressor).copied();
        let known = Known { other: Some(self.design), nominal_delta };
        let design = Design::with_known(experiment, topology, (features, outputs), known)?;
        if Arc::ptr_eq(&design.initial, &self.design.initial) {
            self.deltas.borrow_mut().insert(compressor, design.nominal_delta);
        }
        Ok(design)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::topology;

    #[test]
    fn a_variant_is_the_design_of_its_experiment() {
        let experiment = |sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
            Experiment::default_with(&sets).unwrap()
        };
        let new = |experiment: Experiment| {
            let topology = Arc::new(topology(&experiment).unwrap());
            let design = Design::new(experiment.clone(), Arc::clone(&topology), 64, 10).unwrap();
            (design, experiment, topology)
        };
        let (design, ..) = new(experiment(&[]));
        let variants = Variants::new(&design);
        for (sets, is_shared) in [
            (&["compressor.bits=2"][..], true),
            (&["compressor.bits=2", "topology.file=complete:8"], true),
            (&["compressor.kind=identity", "optimizer.local_steps=4"], true),
            (&["run.seed=9"], false),
            (&["model.hidden=[16]"], false),
        ] {
            let (expected, experiment, topology) = new(experiment(sets));
            let found = variants.design(experiment, topology).unwrap();
            assert_eq!(found.experiment.to_toml(), expected.experiment.to_toml(), "{sets:?}");
            assert_eq!(found.nominal_delta, expected.nominal_delta, "{sets:?}");
            assert_eq!(found.initial, expected.initial, "{sets:?}");
            assert_eq!(Arc::ptr_eq(&found.initial, &design.initial), is_shared, "{sets:?}");
        }
        assert_eq!(variants.deltas.borrow().len(), 2);
    }
}
