//! The files of a table: whether two have the same rows.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

/// The number of rows of each file, and a sum over them in which their order does not matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts(Vec<(usize, u64)>);

/// Two files with the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// Their positions among the files.
    pub files: (usize, usize),
    pub rows: usize,
}

impl Parts {
    /// Begins a file.
    pub(crate) fn begin(&mut self) {
        self.0.push((0, 0));
    }

    /// Adds a row to the file that was begun last, and returns its hash.
    pub(crate) fn add(&mut self, row: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        if let Some((rows, sum)) = self.0.last_mut() {
            *rows += 1;
            *sum = sum.wrapping_add(hasher.finish());
        }
        hasher.finish()
    }

    /// The first file that has the rows of an earlier one.
    pub(crate) fn copy(&self) -> Option<Copy> {
        let mut known = HashMap::new();
        self.0.iter().enumerate().find_map(|(at, &(rows, sum))| {
            let earlier = known.insert((rows, sum), at).filter(|_| rows > 0)?;
            Some(Copy { files: (earlier, at), rows })
        })
    }
}
