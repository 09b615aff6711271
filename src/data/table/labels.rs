//! Labels and other targets, the same for every format.

use ndarray::Array2;

use super::{
    cell::Cell,
    classes::{Classes, MAX_CLASSES},
};
use crate::{
    config::ConfigError,
    data::{
        DataError,
        dataset::{Target, Task},
        options::Options,
    },
};

/// The class that a number is: it must be whole, from 0, and below `classes` if that is known, else
/// below the number of the file's `names`.
///
/// # Errors
/// What is accepted.
pub(crate) fn label(
    value: f64,
    names: Option<usize>,
    classes: Option<usize>,
) -> Result<u32, String> {
    let bound = classes.or(names).unwrap_or(MAX_CLASSES);
    // NaN fails every comparison, so it ends here too.
    if value >= 0.0 && value < bound as f64 && value.fract() == 0.0 {
        return Ok(value as u32);
    }
    Err(match (classes, names) {
        (Some(classes), _) => format!(
            "a label is a whole number from 0 to {} ({classes} classes)",
            classes.saturating_sub(1)
        ),
        (None, Some(_)) => {
            format!("a label is a whole number from 0 to {} (the named classes)", bound - 1)
        }
        (None, None) => format!("a label is a whole number 0, 1, 2, ..., below {MAX_CLASSES}"),
    })
}

/// Checks the number of classes that a model has.
pub(crate) fn check_count(classes: Option<usize>) -> Result<(), ConfigError> {
    match classes.filter(|&classes| classes == 0 || classes > MAX_CLASSES) {
        Some(classes) => {
            let problem = format!("from 1 to {MAX_CLASSES} classes are accepted");
            Err(ConfigError::new("data.class_count", classes, problem))
        }
        None => Ok(()),
    }
}

/// Labels with the names of their classes: those of the file, then numbers.
pub(crate) fn name_classes(
    labels: Vec<u32>,
    names: Option<Vec<String>>,
    classes: Option<usize>,
) -> Result<Target, ConfigError> {
    check_count(classes)?;
    let mut names = names.unwrap_or_default();
    let largest = labels.iter().copied().max().unwrap_or(0);
    let count = classes.unwrap_or_else(|| names.len().max(largest as usize + 1));
    if names.len() > count {
        let problem = format!("the file names {} classes", names.len());
        return Err(ConfigError::new("data.class_count", count, problem));
    }
    names.extend((names.len()..count).map(|class| class.to_string()));
    Ok(Target::Classes { labels, names })
}

/// Targets from the numbers of an array, `width` per row, which are those of `column`, if they are
/// in one.
pub(crate) fn target(
    values: Vec<f64>,
    width: usize,
    options: &Options,
    column: Option<usize>,
) -> Result<Target, DataError> {
    let wrong = |row, value, problem| DataError::cell("row", row, column, value, problem);
    if options.task == Task::Classification {
        let classes = options.class_names.as_deref().map(Classes::new);
        check_count(options.classes)?;
        let class = |(row, &value): (usize, &f64)| {
            let class = match &classes {
                Some(classes) => {
                    classes.numbered(value).ok_or_else(|| classes.problem(Cell::Number(value)))
                }
                None => label(value, None, options.classes),
            };
            class.map_err(|problem| wrong(row, value, problem))
        };
        let labels = values.iter().enumerate().map(class).collect::<Result<_, _>>()?;
        return Ok(name_classes(labels, options.class_names.clone(), options.classes)?);
    }
    let mut numbers = Vec::with_capacity(values.len());
    for (index, &value) in values.iter().enumerate() {
        let number = value as f32;
        if !number.is_finite() {
            let problem = "a finite number within f32 is needed";
            return Err(wrong(index / width, value, problem.into()));
        }
        numbers.push(number);
    }
    let shape = (values.len() / width, width);
    Ok(Target::Values(Array2::from_shape_vec(shape, numbers).expect("rows were read whole")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_whole_numbers_in_range() {
        let header = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        let problem = |value: f64, classes| {
            let options = Options { classes, ..Options::default() };
            let error = target(vec![0.0, value], 1, &options, None).unwrap_err();
            assert!(matches!(error, DataError::Cell { row: Some(1), column: None, .. }), "{error}");
            error.to_string()
        };
        assert_eq!(
            problem(1.5, None),
            "row 1 = 1.5: a label is a whole number 0, 1, 2, ..., below 65536"
        );
        assert_eq!(
            problem(3.0, Some(3)),
            "row 1 = 3: a label is a whole number from 0 to 2 (3 classes)"
        );
        for value in [-1.0, f64::NAN, f64::INFINITY, 65_536.0] {
            problem(value, None);
        }
        let names = |count| name_classes(vec![1, 0], Some(header(&["no", "yes"])), count);
        assert!(names(Some(1)).is_err());
        let Target::Classes { labels, names } = names(Some(3)).unwrap() else { panic!() };
        let expected: Vec<String> = header(&["no", "yes", "2"]);
        assert_eq!((labels, names), (vec![1, 0], expected));
    }
}
