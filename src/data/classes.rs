//! Labels by the names of their classes.

use std::collections::HashMap;

use super::{
    columns::{MAX_CLASSES, list},
    dataset::Task,
    load::Options,
};
use crate::config::ConfigError;

/// Whether classes have names other than their positions 0, 1, ....
pub fn are_named(classes: &[String]) -> bool {
    classes.iter().enumerate().any(|(class, name)| *name != class.to_string())
}

/// The classes of a run, found by name.
pub(super) struct Classes {
    by_name: HashMap<String, u32>,
    names: Vec<String>,
    /// The numbers that names are; empty if no name is a number.
    numbers: Vec<(f64, u32)>,
}

impl Classes {
    pub fn new(names: &[String]) -> Classes {
        let number = |(class, name): (usize, &String)| Some((name.parse().ok()?, class as u32));
        Classes {
            by_name: names.iter().cloned().zip(0..).collect(),
            names: names.to_vec(),
            numbers: names.iter().enumerate().filter_map(number).collect(),
        }
    }

    /// The class with this name.
    pub fn find(&self, label: &[u8]) -> Option<u32> {
        let text = std::str::from_utf8(label).ok()?;
        match self.by_name.get(text) {
            Some(class) => Some(*class),
            None => self.numbered(text.parse().ok()?),
        }
    }

    /// The class whose name is this number; if no name is a number, the class at this position.
    pub fn numbered(&self, value: f64) -> Option<u32> {
        if self.numbers.is_empty() {
            let is_position =
                value >= 0.0 && value < self.names.len() as f64 && value.fract() == 0.0;
            return is_position.then_some(value as u32);
        }
        self.numbers.iter().find(|(number, _)| *number == value).map(|(_, class)| *class)
    }

    /// Says that a label is of none of the classes.
    pub fn problem(&self) -> String {
        format!("no class has this name: {} are accepted (data.classes)", list(&self.names))
    }
}

/// Classes in the order in which labels name them first.
#[derive(Default)]
pub(super) struct Found {
    by_name: HashMap<String, u32>,
}

impl Found {
    /// The number of a class; a new one if its name is new. `None` if it is not UTF-8.
    pub fn number(&mut self, label: &[u8]) -> Option<u32> {
        let text = std::str::from_utf8(label).ok()?;
        if let Some(class) = self.by_name.get(text) {
            return Some(*class);
        }
        let class = self.by_name.len() as u32;
        self.by_name.insert(text.to_string(), class);
        Some(class)
    }

    /// The names sorted, and the position of each number of [`Found::number`] among them.
    pub fn sorted(self) -> (Vec<String>, Vec<u32>) {
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
pub(super) fn check(options: &Options) -> Result<(), ConfigError> {
    let Some(names) = &options.class_names else { return Ok(()) };
    let refuse = |problem: String| Err(ConfigError::new("data.classes", list(names), problem));
    if options.task != Task::Classification {
        return refuse("the model predicts numbers: leave the key out".into());
    }
    if names.is_empty() || names.len() > MAX_CLASSES {
        return refuse(format!("from 1 to {MAX_CLASSES} names are accepted"));
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return refuse(format!("\"{}\" is named twice", pair[0]));
    }
    match options.classes {
        Some(outputs) if outputs != names.len() => {
            refuse(format!("{} names, but model.outputs is {outputs}", names.len()))
        }
        _ => Ok(()),
    }
}
