//! Labels by the names of their classes.

use std::collections::HashMap;

use super::{
    cell::Cell,
    meaning::{digits, plain},
    spelling::{alike, either, perhaps},
};
use crate::{
    config::ConfigError,
    data::{dataset::Task, excerpt::list, options::Options},
};

/// The maximum number of classes of a file: a larger label is refused as a mistake, such as a
/// target column that holds measurements.
pub const MAX_CLASSES: usize = 65_536;

/// Whether classes have names other than their positions 0, 1, ....
pub fn are_named(classes: &[String]) -> bool {
    classes.iter().enumerate().any(|(class, name)| *name != class.to_string())
}

/// The classes of a run, found by name.
pub(crate) struct Classes {
    /// By their [`plain`] text.
    by_name: HashMap<Vec<u8>, u32>,
    names: Vec<String>,
    /// Whether a name is a number: labels are then no positions.
    has_numbers: bool,
}

impl Classes {
    pub(crate) fn new(names: &[String]) -> Classes {
        Classes {
            by_name: names.iter().map(|name| plain(name.as_bytes()).to_vec()).zip(0..).collect(),
            names: names.to_vec(),
            has_numbers: names.iter().any(|name| name.parse::<f64>().is_ok()),
        }
    }

    /// The class with this name; if no name is a number, also the class at this position.
    pub(crate) fn find(&self, label: &[u8]) -> Option<u32> {
        let label = plain(label);
        if let Some(class) = self.by_name.get(label) {
            return Some(*class);
        }
        let position = std::str::from_utf8(label).ok()?.parse::<usize>().ok()?;
        (!self.has_numbers && position < self.names.len()).then_some(position as u32)
    }

    /// The class of a number.
    pub(crate) fn numbered(&self, value: f64) -> Option<u32> {
        self.find(digits(value).as_bytes())
    }

    /// Says that a label is of none of the classes.
    pub(crate) fn problem(&self, label: Cell<'_>) -> String {
        let perhaps = perhaps(&self.names, label);
        format!(
            "no class has this name: {} are accepted (data.classes){perhaps}",
            list(&self.names)
        )
    }
}

/// Classes in the order in which labels name them first.
#[derive(Default)]
pub(crate) struct Found {
    by_name: HashMap<String, u32>,
}

impl Found {
    /// The number of a class; a new one if its name is new. `None` if it is not UTF-8.
    pub(crate) fn number(&mut self, label: &[u8]) -> Option<u32> {
        let text = std::str::from_utf8(label).ok()?;
        if let Some(class) = self.by_name.get(text) {
            return Some(*class);
        }
        let class = self.by_name.len() as u32;
        self.by_name.insert(text.to_string(), class);
        Some(class)
    }

    /// The names sorted, and the position of each number of [`Found::number`] among them.
    pub(crate) fn sorted(self) -> (Vec<String>, Vec<u32>) {
        let mut names: Vec<(String, u32)> = self.by_name.into_iter().collect();
        names.sort();
        let mut positions = vec![0; names.len()];
        for (position, (_, number)) in names.iter().enumerate() {
            positions[*number as usize] = position as u32;
        }
        (names.into_iter().map(|(name, _)| name).collect(), positions)
    }
}

/// Checks the names of classes, if a user has given them.
pub(crate) fn check(options: &Options) -> Result<(), ConfigError> {
    let Some(names) = &options.class_names else { return Ok(()) };
    let refuse = |problem: String| Err(ConfigError::new("data.classes", list(names), problem));
    if options.task != Task::Classification {
        return refuse("the model predicts numbers: leave the key out".into());
    }
    if names.is_empty() || names.len() > MAX_CLASSES {
        return refuse(format!("from 1 to {MAX_CLASSES} names are accepted"));
    }
    if let Some((name, other)) = alike(names) {
        return refuse(format!("{} is named twice", either(name, other)));
    }
    match options.classes {
        Some(outputs) if outputs != names.len() => {
            refuse(format!("{} names, but model.outputs is {outputs}", names.len()))
        }
        _ => Ok(()),
    }
}
