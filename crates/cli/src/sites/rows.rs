//! What a run wants of the rows of a site.

use gradvine::{
    config::ConfigError,
    experiment::Experiment,
    learn::Init,
    mixing::Topology,
    run::{NodeFile, Single},
    units::NodeId,
};
use gradvine_enrol::{Run, Site};

/// Checks that the rows of this site fit the experiment.
pub(super) fn check_rows(site: &Site, experiment: &str, data: &str) -> Result<(), ConfigError> {
    let file = NodeFile::load(&site.node())?;
    let file =
        NodeFile { data: Some(file.data.unwrap_or_else(|| data.into())), init: None, ..file };
    let experiment = Experiment::parse(experiment, &[])?;
    if let Some(Init::File(name)) = &experiment.model.init {
        let problem = "the other sites do not have this file: expected `zeros` or `seeded`";
        return Err(ConfigError::new("model.init", format!("\"{name}\""), problem));
    }
    let experiment = Experiment::parse(&experiment.to_toml(), &["model.init=seeded".into()])?;
    let two = Topology::parse("path:2", 0)?;
    Single::new(&file, experiment, two, NodeId(0)).map(drop)
}

/// What a run wants of the rows of a site.
pub(super) fn describe(run: &Run) -> Result<String, ConfigError> {
    let experiment = Experiment::parse(&run.experiment, &[])?;
    let members: Vec<&str> = run.members.iter().map(|member| member.name.as_str()).collect();
    let mut text = format!(
        "run {}: {} of {} sites ({})\n",
        run.name,
        members.len(),
        run.sites.max(members.len()),
        members.join(", ")
    );
    if let Some(target) = &experiment.data.target {
        text += &format!("it predicts: {target:?}\n").replace('"', "");
    }
    if let Some(classes) = &experiment.data.classes {
        text += &format!("classes: {}\n", classes.join(", "));
    }
    match &experiment.data.schema {
        Some(schema) => {
            text += "columns:\n";
            for column in &schema.columns {
                let entry = toml::Value::try_from(column)
                    .map_err(|error| ConfigError::at("data.schema", error.to_string()))?;
                text += &format!("  {entry}\n");
            }
        }
        None => text += "it has no schema: each site needs the same columns in the same order\n",
    }
    text += &format!("{}\n", what_others_see(&experiment));
    Ok(text)
}

/// What the other sites of a run see of this site's rows.
pub(super) fn what_others_see(experiment: &Experiment) -> String {
    let data = &experiment.data;
    let sums = match data.standardize && data.scale.is_none() {
        true => ", and the sum and the sum of squares of each column",
        false => "",
    };
    format!("all other sites will see the number of this site's rows{sums}, but no row")
}
