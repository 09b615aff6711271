//! Columns by name or position, the same for every format.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

use super::spelling::shown;
use crate::{
    config::ConfigError,
    data::{
        DataError,
        dataset::Task,
        excerpt::{excerpt, list},
    },
};

/// The positions of the target columns among `columns`, in the order of `wanted`.
///
/// `wanted` is a comma-separated list of names or positions (from 0; negative ones from the end).
/// Without it: the last column; or, for regression, the trailing columns of a header named `y0`,
/// `y1`, ....
pub(crate) fn targets(
    wanted: Option<&str>,
    header: Option<&[String]>,
    columns: usize,
    task: Task,
) -> Result<Vec<usize>, ConfigError> {
    let named = |wanted: &&str| header.and_then(|names| names.iter().position(|n| n == wanted));
    // A name may have a comma itself.
    let whole = wanted.filter(|wanted| wanted.contains(','));
    let whole = whole.and_then(|wanted| named(&wanted).map(|at| (wanted, at)));
    if let Some((wanted, at)) = whole
        && wanted.split(',').all(|one| named(&one.trim()).is_some())
    {
        let problem = format!(
            "is the name of column {at}, and a list of other columns: rename one of them, or give \
             positions"
        );
        return Err(ConfigError::new("data.target", format!("\"{}\"", excerpt(wanted)), problem));
    }
    let positions = match wanted {
        Some(_) if whole.is_some() => whole.into_iter().map(|(_, at)| at).collect(),
        Some(wanted) => wanted
            .split(',')
            .map(|one| position(one.trim(), header, columns, "data.target"))
            .collect::<Result<Vec<usize>, _>>()?,
        None if task == Task::Regression => {
            let named = header.map_or(0, trailing_values).clamp(1, columns.max(1));
            (columns.saturating_sub(named)..columns).collect()
        }
        None => (columns.saturating_sub(1)..columns).collect(),
    };
    let problem = if task == Task::Classification && positions.len() != 1 {
        "classification has one column of labels".into()
    } else if (1..positions.len()).any(|i| positions[..i].contains(&positions[i])) {
        "a column is named twice".into()
    } else if positions.len() >= columns {
        format!("of {columns} columns none is left for the features: at least 1 is needed")
    } else {
        return Ok(positions);
    };
    Err(ConfigError::new("data.target", wanted.unwrap_or("the last column"), problem))
}

/// The positions of columns with these names.
pub(crate) fn named(wanted: &[String], header: &[String]) -> Result<Vec<usize>, ConfigError> {
    let refuse = |name: &str, problem: String| {
        Err(ConfigError::new("data.columns", format!("\"{}\"", excerpt(name)), problem))
    };
    if wanted.is_empty() {
        return Err(ConfigError::new("data.columns", "[]", "at least one name is needed"));
    }
    let mut positions = Vec::with_capacity(wanted.len());
    for name in wanted {
        let mut found = (0..header.len()).filter(|&column| header[column] == *name);
        let Some(position) = found.next() else {
            return refuse(name, format!("no such column: the file has {}", list(header)));
        };
        if let Some(second) = found.next() {
            return refuse(name, format!("columns {position} and {second} have this name"));
        }
        if positions.contains(&position) {
            return refuse(name, "is named twice".into());
        }
        positions.push(position);
    }
    Ok(positions)
}

/// Whether all names are positions: those of the columns of a file whose first line has no names.
pub(crate) fn are_positions(names: &[String]) -> bool {
    let is_position = |name: &String| name.parse::<usize>().is_ok_and(|at| at.to_string() == *name);
    names.iter().all(is_position)
}

/// The names of columns without other names: their positions.
pub(crate) fn positions(columns: usize) -> Vec<String> {
    (0..columns).map(|column| column.to_string()).collect()
}

/// Checks that no two columns have the same name, of which one matters: also not one letter as one
/// character and as two (the composed and the decomposed form of Unicode).
pub(crate) fn check_unique(
    names: &[String],
    matters: impl Fn(usize) -> bool,
) -> Result<(), DataError> {
    let mut seen = HashMap::new();
    for (column, name) in names.iter().enumerate() {
        let form: String = name.nfc().collect();
        let Some(first) = seen.insert(form, column) else { continue };
        if matters(first) || matters(column) {
            let forms = match names[first] == *name {
                true => "",
                false => ", in two forms of Unicode",
            };
            let problem =
                format!("columns {first} and {column} have this name{forms}: rename one of them");
            let value = Some(format!("\"{}\"", shown(name)));
            return Err(DataError::Structure { place: "columns".into(), value, problem });
        }
    }
    Ok(())
}

/// The position of a column by its name or its position, which `key` gives.
pub(crate) fn position(
    wanted: &str,
    header: Option<&[String]>,
    columns: usize,
    key: &str,
) -> Result<usize, ConfigError> {
    let named = header.and_then(|names| names.iter().position(|name| name == wanted));
    let found = match wanted.parse::<i64>() {
        Ok(index) if index >= 0 => usize::try_from(index).ok().filter(|&index| index < columns),
        Ok(index) => {
            usize::try_from(index.unsigned_abs()).ok().and_then(|back| columns.checked_sub(back))
        }
        Err(_) => None,
    };
    if let (Some(name), Some(position)) = (named, found)
        && name != position
    {
        let problem = format!(
            "column {name} has this name, and it is the position of another column: {} or {} is \
             accepted, a position from the end",
            name as i64 - columns as i64,
            position as i64 - columns as i64
        );
        return Err(ConfigError::new(key, wanted, problem));
    }
    named.or(found).ok_or_else(|| {
        let names = match header {
            Some(names) => format!("one of {}, or ", list(names)),
            None => "there is no header with names; ".into(),
        };
        let last = columns.saturating_sub(1);
        let range = format!("a position from 0 to {last}, or from -{columns} to -1");
        let problem = format!("no such column: {names}{range} is accepted");
        ConfigError::new(key, excerpt(wanted), problem)
    })
}

/// The number of columns at the end of a header with the names y0, y1, ... in this order.
fn trailing_values(header: &[String]) -> usize {
    match header.iter().position(|name| name == "y0") {
        Some(start)
            if header[start..].iter().enumerate().all(|(i, name)| *name == format!("y{i}")) =>
        {
            header.len() - start
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    #[test]
    fn a_name_may_have_a_comma() {
        let find = |names: &[&str], wanted| {
            targets(Some(wanted), Some(&header(names)), names.len(), Task::Regression)
        };
        assert_eq!(find(&["x", "h,w"], "h,w").unwrap(), [1]);
        assert_eq!(find(&["x", "h", "w"], "h,w").unwrap(), [1, 2]);
        let error = find(&["x", "h", "w", "h,w"], "h,w").unwrap_err().to_string();
        assert!(error.contains("the name of column 3, and a list of other columns"), "{error}");
    }

    #[test]
    fn columns_are_found_by_name_or_position() {
        let names = header(&["a", "b", "7", "c"]);
        let find = |wanted| targets(Some(wanted), Some(&names), 4, Task::Classification);
        for (wanted, column) in [("b", 1), ("0", 0), ("-1", 3), ("-4", 0), ("7", 2), (" c ", 3)] {
            assert_eq!(find(wanted).unwrap(), [column], "{wanted}");
        }
        for wanted in ["d", "4", "-5", "", "99999999999999999999", "a,b"] {
            assert!(find(wanted).is_err(), "{wanted}");
        }
        assert_eq!(
            find("radius").unwrap_err().to_string(),
            "data.target = radius: no such column: one of a, b, 7, c, or a position from 0 to 3, \
             or from -4 to -1 is accepted"
        );
    }

    #[test]
    fn regression_takes_several_columns() {
        let names = header(&["x", "y0", "y1"]);
        let find = |wanted, names: Option<&[String]>| targets(wanted, names, 3, Task::Regression);
        assert_eq!(find(None, Some(&names)).unwrap(), [1, 2]);
        assert_eq!(find(None, None).unwrap(), [2]);
        assert_eq!(find(Some("y1,x"), Some(&names)).unwrap(), [2, 0]);
        assert!(find(Some("y1,-1"), Some(&names)).unwrap_err().to_string().contains("twice"));
        assert!(
            find(Some("0,1,2"), Some(&names)).unwrap_err().to_string().contains("none is left")
        );
        assert!(targets(None, None, 1, Task::Classification).is_err());
        assert!(targets(None, None, 0, Task::Regression).is_err());
    }
}
