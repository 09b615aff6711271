//! Which columns of a table are read: by name, by position, or all.

use super::{columns, rows::Heading};
use crate::{
    config::ConfigError,
    data::{
        DataError,
        dataset::Columns,
        excerpt::{excerpt, list},
        options::Options,
    },
};

/// The positions of the columns to read.
#[derive(Default)]
pub(crate) struct Chosen {
    pub features: Vec<usize>,
    /// None of them if rows have no targets.
    pub targets: Vec<usize>,
    pub identifier: Option<usize>,
}

/// What the first file has decided for all.
pub(crate) struct FirstFile {
    pub columns: usize,
    pub names: Option<Columns>,
    pub classes: Option<Vec<String>>,
}

impl Chosen {
    /// Checks that each of the columns is the only one of its name: otherwise the name, by which
    /// other files are read, would mean another column than here.
    pub(super) fn check_names(&self, heading: &Heading) -> Result<(), DataError> {
        let Some(names) = &heading.names else { return Ok(()) };
        let chosen = || self.features.iter().chain(&self.targets).chain(&self.identifier);
        let mut is_chosen = vec![false; names.len()];
        chosen().for_each(|&column| is_chosen[column] = true);
        columns::check_unique(names, |column| is_chosen[column])
    }
}

/// The position of the column that identifies rows.
pub(crate) fn identifier(
    options: &Options,
    heading: &Heading,
) -> Result<Option<usize>, ConfigError> {
    let find = |wanted: &String| {
        columns::position(wanted, heading.names.as_deref(), heading.columns, "data.identifier")
    };
    options.identifier.as_ref().map(find).transpose()
}

/// The names of the features, if they are given.
pub(crate) fn wanted(options: &Options) -> Option<Vec<String>> {
    match &options.schema {
        Some(schema) => Some(schema.names()),
        None => Some(options.columns.as_ref()?.features.clone()),
    }
}

/// Chooses the columns by name or by position. Rows for prediction have no targets, unless the last
/// column is only taken for the target: its cells then show whether the columns are others.
pub(crate) fn choose(heading: &Heading, options: &Options) -> Result<Chosen, ConfigError> {
    let mut chosen = choose_with_targets(heading, options)?;
    let by_name = heading.names.is_some() && wanted(options).is_some();
    if options.bare && (options.target.is_some() || by_name) {
        chosen.targets.clear();
    }
    Ok(chosen)
}

fn choose_with_targets(heading: &Heading, options: &Options) -> Result<Chosen, ConfigError> {
    let (header, columns) = (heading.names.as_deref(), heading.columns);
    let identifier = identifier(options, heading)?;
    let target = options.target.as_deref();
    let by_target = |target| columns::targets(target, header, columns, options.task);
    let key = if options.schema.is_some() { "data.schema" } else { "data.columns" };
    let wanted = match (wanted(options), header) {
        (Some(wanted), Some(header)) => Some((wanted, header)),
        (Some(wanted), None) if !options.by_position || options.schema.is_some() => {
            let problem = "the first line does not name the columns";
            return Err(ConfigError::new(key, list(&wanted), problem));
        }
        _ => None,
    };
    let Some((wanted, header)) = wanted else {
        let others = columns - usize::from(identifier.is_some());
        let targets = if options.bare && target.is_none() && options.inputs == Some(others) {
            Vec::new()
        } else if target.is_none() && identifier == Some(others) {
            // The last column but one is the target.
            columns::targets(None, header.map(|names| &names[..others]), others, options.task)?
        } else {
            by_target(target)?
        };
        let is_feature = |column: &usize| !targets.contains(column) && identifier != Some(*column);
        let features = (0..columns).filter(is_feature).collect();
        return Ok(Chosen { features, targets, identifier });
    };
    let named = options.columns.as_ref().map_or(&[][..], |columns| &columns.targets);
    let targets = match target {
        Some(_) => by_target(target)?,
        None if options.bare && !named.iter().all(|name| header.contains(name)) => Vec::new(),
        None if named.is_empty() => {
            let problem = format!("is missing: {key} names the features, and this key the target");
            return Err(ConfigError::at("data.target", problem));
        }
        None => columns::named(named, header)?,
    };
    let in_key = |error: ConfigError| error.renamed(&[("data.columns", key)]);
    let features = columns::named(&wanted, header).map_err(in_key)?;
    if let Some(both) = features.iter().find(|column| targets.contains(column)) {
        let problem = "is the target, and is also named as a feature";
        return Err(ConfigError::new(key, excerpt(&header[*both]), problem));
    }
    Ok(Chosen { features, targets, identifier })
}

/// The columns to read of a file that follows another one.
pub(crate) fn same_columns(
    first: &FirstFile,
    chosen: &Chosen,
    heading: &Heading,
) -> Result<Chosen, DataError> {
    let refuse = |problem: &str| Err(DataError::structure("columns", problem));
    let (found, needed) = (heading.columns, first.columns);
    if found != needed {
        let problem = format!("{found}, but the first file has {needed}");
        return Err(DataError::Count { place: "columns".into(), found, needed, problem });
    }
    if heading.classes != first.classes {
        return refuse("the first line names other classes than that of the first file");
    }
    match (&first.names, &heading.names) {
        (None, None) => {
            let (features, targets) = (chosen.features.clone(), chosen.targets.clone());
            Ok(Chosen { features, targets, identifier: None })
        }
        (None, Some(_)) => refuse("have names, but those of the first file have none"),
        (Some(_), None) => refuse("have no names, but those of the first file have"),
        (Some(first), Some(names)) => {
            let find = |wanted: &[String]| match wanted {
                [] => Ok(Vec::new()),
                wanted => columns::named(wanted, names).map_err(|error| DataError::Structure {
                    place: "columns".into(),
                    value: error.value.map(String::from),
                    problem: error.problem,
                }),
            };
            let (features, targets) = (find(&first.features)?, find(&first.targets)?);
            Ok(Chosen { features, targets, identifier: None })
        }
    }
}
