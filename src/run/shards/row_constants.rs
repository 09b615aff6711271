//! What the nodes of a run have agreed on before round 0, and what is conspicuous in it.

use std::sync::Arc;

use super::{
    merged::{Merged, merge},
    opening::{Opening, Sums},
};
use crate::{
    config::ConfigError,
    data::{Columns, Preprocessing, Scale, Schema, excerpt},
    gossip::tree::Setup,
    run::{Design, Shared},
    units::NodeId,
};

/// A node's contribution: its own record, of these sums.
pub(crate) fn setup(record: Vec<u8>, sums: Sums) -> Setup {
    let own = sums.clone();
    let check = move |merged: &[u8]| Merged::from_bytes(merged, &own).map(drop);
    let merge = move |records: &[&[u8]]| merge(records, &sums);
    Setup::new(record, Arc::new(merge)).with_check(Arc::new(check))
}

/// What a run knows of all its rows: the constants that its nodes have agreed on before round 0.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RowConstants {
    /// What is done with rows before the model sees them.
    pub preprocessing: Arc<Preprocessing>,
    /// What is conspicuous about the rows of some node or of all.
    pub warnings: Vec<String>,
    /// The number of all rows.
    pub(crate) rows: u64,
}

impl RowConstants {
    /// The constants from the merged record of all nodes; the scale may be that of the experiment.
    /// `columns` are the names of the features and of the predicted numbers, if they are known.
    ///
    /// # Errors
    /// If the experiment's scale has another number of features, or a feature has no value at any
    /// node.
    pub(crate) fn new(
        design: &Design,
        merged: Merged,
        columns: Option<&Columns>,
    ) -> Result<RowConstants, ConfigError> {
        let data = &design.experiment.data;
        let sums = design.sums();
        let schema = data.schema.as_ref().map(Schema::features);
        let features = schema.or_else(|| Some(columns?.features.clone())).unwrap_or_default();
        if let Some(at) = merged.fills.iter().position(|fill| fill.is_nan()) {
            let name = features.get(sums.gaps[at].0).map_or("", String::as_str);
            let problem = "no row of any node has a value: leave the column out, or set missing \
                           to a number";
            return Err(ConfigError::at(format!("data.schema[{name}]"), problem));
        }
        let name = |column: usize| {
            let targets = columns.map(|columns| &columns.targets[..]).unwrap_or_default();
            let (names, kind, at) = match column.checked_sub(design.features) {
                None => (&features[..], "feature", column),
                Some(target) => (targets, "target", target),
            };
            names.get(at).map_or(format!("{kind} {at}"), |name| format!("column {}", excerpt(name)))
        };
        let nodes = design.topology.nodes();
        let mut warnings = Vec::new();
        for far in merged.far.iter().filter(|far| far.node.index() < nodes) {
            let site = &design.topology.node(far.node).name;
            warnings.push(format!(
                "node {site}: the values of {} are around {}, at the other nodes around {}: is it \
                 another unit, or a wrong cell?",
                name(far.column),
                short(far.size),
                short(far.usual)
            ));
        }
        let scales = [(&merged.scale, 0), (&merged.targets, design.features)];
        for (scale, first) in scales {
            warnings.extend(scale.iter().filter_map(|scale| coarse(scale, &|at| name(first + at))));
        }
        let scale = data.scale.clone().or(merged.scale);
        if let Some(scale) = &scale {
            scale.check("data.scale", design.features)?;
        }
        let targets = match (&data.target_scale, merged.targets) {
            (None, Some(merged)) => Some(design.table_model()?.target_scale(merged)),
            (given, _) => given.clone(),
        };
        let preprocessing = Arc::new(Preprocessing { fills: merged.fills, scale, targets });
        Ok(RowConstants { preprocessing, warnings, rows: merged.rows })
    }

    /// Writes the warnings to the log.
    pub(crate) fn warn(&self) {
        self.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// The constants of a run over these shards, in node order.
    ///
    /// # Errors
    /// As [`RowConstants::new`].
    pub(crate) fn over(
        design: &Design,
        shards: &[Arc<Shared>],
    ) -> Result<RowConstants, ConfigError> {
        let sums = design.sums();
        let opening = |(node, shard): (usize, &Arc<Shared>)| {
            Opening::of(NodeId::from(node), shard.raw(), &sums)
        };
        let openings = shards.iter().enumerate().map(opening).collect();
        RowConstants::new(design, Merged::of(openings, &sums), shards[0].raw().columns.as_ref())
    }
}

/// The most columns that one warning names.
const NAMED: usize = 5;

/// Warns of columns whose numbers, as `f32`, have few different values.
fn coarse(scale: &Scale, name: &dyn Fn(usize) -> String) -> Option<String> {
    let steps = |at: &usize| scale.step(*at) > scale.deviation[*at] / 20.0;
    let coarse: Vec<usize> = (0..scale.mean.len()).filter(steps).collect();
    let first = *coarse.first()?;
    let mut names: Vec<String> = coarse.iter().take(NAMED).map(|at| name(*at)).collect();
    if coarse.len() > NAMED {
        names.push(format!("{} more", coarse.len() - NAMED));
    }
    Some(format!(
        "{}: features have 24 binary digits, so that numbers around {} are rounded to steps of \
         {}, and their deviation is only {}: subtract a constant from them in the files",
        names.join(", "),
        short(scale.mean[first]),
        short(scale.step(first)),
        short(scale.deviation[first])
    ))
}

/// A number in few digits.
fn short(number: f64) -> String {
    if (1e-3..1e7).contains(&number.abs()) {
        let text = format!("{number:.4}");
        return text.trim_end_matches('0').trim_end_matches('.').to_string();
    }
    format!("{number:.3e}")
}
