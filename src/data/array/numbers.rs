//! An array of numbers in the bytes of an NPY or IDX file, read in place.

use std::fmt;

use half::f16;
use ndarray::Array2;

use crate::{
    config::ConfigError,
    data::{
        DataError,
        dataset::{Dataset, Target, Task},
        options::Options,
        table::{
            columns,
            kept::{self, Kept},
            labels,
        },
    },
};

/// The type of a stored number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberType {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
}

impl NumberType {
    pub(crate) fn bytes(self) -> usize {
        match self {
            NumberType::U8 | NumberType::I8 => 1,
            NumberType::U16 | NumberType::I16 | NumberType::F16 => 2,
            NumberType::U32 | NumberType::I32 | NumberType::F32 => 4,
            NumberType::U64 | NumberType::I64 | NumberType::F64 => 8,
        }
    }
}

impl fmt::Display for NumberType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format!("{self:?}").to_lowercase().fmt(f)
    }
}

/// The length of a file of numbers in this shape, which begin at `offset`; `None` if it cannot be
/// counted.
pub(crate) fn file_length(kind: NumberType, shape: &[usize], offset: usize) -> Option<usize> {
    let numbers =
        shape.iter().try_fold(kind.bytes(), |product, &extent| product.checked_mul(extent));
    numbers?.checked_add(offset)
}

/// An array with all its bytes.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    kind: NumberType,
    big_endian: bool,
    /// Whether the first index varies fastest; only for arrays with two dimensions.
    column_major: bool,
    rows: usize,
    columns: usize,
    /// Whether each row is a plain row, not an image or deeper.
    flat: bool,
    data: &'a [u8],
}

impl<'a> Numbers<'a> {
    /// An array of this shape in `data`, which starts at `offset` of its file.
    pub(crate) fn new(
        kind: NumberType,
        big_endian: bool,
        column_major: bool,
        shape: &[usize],
        data: &'a [u8],
        offset: usize,
    ) -> Result<Numbers<'a>, DataError> {
        let refuse = |problem: &str| {
            Err(DataError::Shape { shape: shape.to_vec(), problem: problem.into() })
        };
        let claimed = file_length(kind, shape, 0);
        if claimed != Some(data.len()) {
            let claimed = claimed
                .map_or("more bytes than can be counted".into(), |bytes| format!("{bytes} bytes"));
            let problem = format!(
                "{claimed} of {kind} expected after byte {offset}, {} found: cut short or \
                 damaged",
                data.len()
            );
            return refuse(&problem);
        }
        let Some((&rows, rest)) = shape.split_first() else {
            let problem = "a single number: at least one dimension, the rows, is needed".into();
            let (place, value) = ("shape".into(), Some("()".into()));
            return Err(DataError::Structure { place, value, problem });
        };
        if data.is_empty() {
            return refuse("there is no number: at least one row and column are needed");
        }
        if column_major && shape.len() > 2 {
            return refuse(
                "Fortran order is accepted of one or two dimensions: save numpy.ascontiguousarray \
                 of it",
            );
        }
        // No overflow: no extent is 0, and the product with the rows was counted.
        let columns = rest.iter().product();
        Ok(Numbers { kind, big_endian, column_major, rows, columns, flat: rest.len() <= 1, data })
    }

    /// Whether rows for prediction have only features.
    pub(crate) fn is_bare(&self, options: &Options) -> bool {
        options.bare && options.target.is_none() && options.inputs == Some(self.columns)
    }

    /// Uses the whole array as features; the targets are all 0.
    pub(crate) fn bare(&self, name: &str, options: &Options) -> Result<Dataset, DataError> {
        let target = labels::target(vec![0.0; self.rows], 1, options, None)?;
        let all: Vec<usize> = (0..self.columns).collect();
        self.dataset(name, (&all, options), target)
    }

    /// Features and targets in one array of two dimensions.
    pub(crate) fn table(&self, name: &str, options: &Options) -> Result<Dataset, DataError> {
        if self.is_bare(options) {
            return self.bare(name, options);
        }
        if !self.flat {
            let problem = "rows of images have no column of labels: name their file as \
                           data.labels_file, or put NAME-labels.npy beside NAME.npy";
            return Err(DataError::structure("labels", problem));
        }
        let targets =
            columns::targets(options.target.as_deref(), None, self.columns, options.task)?;
        let features: Vec<usize> =
            (0..self.columns).filter(|column| !targets.contains(column)).collect();
        let values: Vec<f64> = (0..self.rows)
            .flat_map(|row| targets.iter().map(move |&column| self.value(row, column)))
            .collect();
        let target = labels::target(values, targets.len(), options, Some(targets[0]))?;
        self.dataset(name, (&features, options), target)
    }

    /// Uses the whole array as features, with the targets from another array.
    pub(crate) fn with_targets(
        &self,
        name: &str,
        targets: &Numbers<'_>,
        file: &str,
        options: &Options,
    ) -> Result<Dataset, DataError> {
        if let Some(target) = &options.target {
            let problem = "either data.target, a column, or data.labels_file, not both";
            return Err(ConfigError::new("data.target", target, problem).into());
        }
        let count = |found, needed, problem| {
            Err(DataError::Count { place: "labels".into(), found, needed, problem }.within(file))
        };
        if targets.rows != self.rows {
            let problem = format!("{} rows, but {name} has {}", targets.rows, self.rows);
            return count(targets.rows, self.rows, problem);
        }
        if options.task == Task::Classification && targets.columns != 1 {
            let problem = format!("{} numbers per row, but one label is needed", targets.columns);
            return count(targets.columns, 1, problem);
        }
        let values: Vec<f64> = (0..self.rows)
            .flat_map(|row| (0..targets.columns).map(move |column| targets.value(row, column)))
            .collect();
        let target = labels::target(values, targets.columns, options, None);
        let target = target.map_err(|error| match error {
            DataError::Config(_) => error,
            _ => error.within(file),
        })?;
        let all: Vec<usize> = (0..self.columns).collect();
        self.dataset(name, (&all, options), target)
    }

    /// A dataset with these columns as features.
    fn dataset(
        &self,
        name: &str,
        (columns, options): (&[usize], &Options),
        target: Target,
    ) -> Result<Dataset, DataError> {
        let mut kept = vec![Kept::new(); columns.len()];
        let mut data = Dataset::new(name, self.features(columns, options, &mut kept)?, target)?;
        let columns = columns.iter().zip(&kept).map(|(at, kept)| (at.to_string(), false, kept));
        data.remarks.extend(kept::remark(columns).map(|remark| format!("{name}: {remark}")));
        Ok(data)
    }

    fn features(
        &self,
        columns: &[usize],
        options: &Options,
        kept: &mut [Kept],
    ) -> Result<Array2<f32>, DataError> {
        let found = columns.len();
        if let Some(needed) = options.inputs.filter(|&needed| needed != found) {
            let problem = format!("{found} features per row: {needed} are expected (model.inputs)");
            return Err(DataError::Count { place: "columns".into(), found, needed, problem });
        }
        let mut features = Vec::new();
        let count = self.rows * columns.len();
        if features.try_reserve_exact(count).is_err() {
            let problem = format!("{count} numbers do not fit into this machine's memory");
            return Err(DataError::Memory(ConfigError::at("size", problem)));
        }
        let is_rounded =
            self.kind.bytes() == 8 || matches!(self.kind, NumberType::I32 | NumberType::U32);
        for row in 0..self.rows {
            for (&column, kept) in columns.iter().zip(&mut *kept) {
                let value = self.value(row, column);
                let rounded = value as f32;
                if !rounded.is_finite() {
                    let problem = "a finite number within f32 is needed: up to about 3.4e38";
                    return Err(DataError::cell("row", row, Some(column), value, problem));
                }
                if is_rounded && kept::is_looked_at(row) {
                    kept.add(rounded, value);
                }
                features.push(rounded);
            }
        }
        Ok(Array2::from_shape_vec((self.rows, columns.len()), features)
            .expect("as many numbers as counted"))
    }

    fn value(&self, row: usize, column: usize) -> f64 {
        let index =
            if self.column_major { column * self.rows + row } else { row * self.columns + column };
        let size = self.kind.bytes();
        let mut word = [0u8; 8];
        let word = &mut word[..size];
        word.copy_from_slice(&self.data[index * size..][..size]);
        if self.big_endian {
            word.reverse();
        }
        decode(self.kind, word)
    }
}

/// Decodes the number in these little-endian bytes, whose length is that of its type.
fn decode(kind: NumberType, word: &[u8]) -> f64 {
    let mut wide = [0u8; 8];
    wide[..word.len()].copy_from_slice(word);
    let bits = u64::from_le_bytes(wide);
    match kind {
        NumberType::U8 | NumberType::U16 | NumberType::U32 | NumberType::U64 => bits as f64,
        NumberType::I8 => f64::from(bits as u8 as i8),
        NumberType::I16 => f64::from(bits as u16 as i16),
        NumberType::I32 => f64::from(bits as u32 as i32),
        NumberType::I64 => bits as i64 as f64,
        NumberType::F16 => f64::from(f16::from_bits(bits as u16)),
        NumberType::F32 => f64::from(f32::from_bits(bits as u32)),
        NumberType::F64 => f64::from_bits(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_kind() {
        let check = |kind: NumberType, bytes: &[u8], value: f64| {
            let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
            for (big_endian, bytes) in [(false, bytes), (true, &reversed)] {
                let array = Numbers::new(kind, big_endian, false, &[1], bytes, 0).unwrap();
                assert_eq!(array.value(0, 0), value, "{kind}");
            }
        };
        check(NumberType::U8, &[200], 200.0);
        check(NumberType::I8, &(-3i8).to_le_bytes(), -3.0);
        check(NumberType::U16, &60_000u16.to_le_bytes(), 60_000.0);
        check(NumberType::I16, &(-300i16).to_le_bytes(), -300.0);
        check(NumberType::U32, &u32::MAX.to_le_bytes(), f64::from(u32::MAX));
        check(NumberType::I32, &i32::MIN.to_le_bytes(), f64::from(i32::MIN));
        check(NumberType::U64, &u64::MAX.to_le_bytes(), u64::MAX as f64);
        check(NumberType::I64, &(-1i64).to_le_bytes(), -1.0);
        check(NumberType::F16, &f16::from_f32(-1.5).to_le_bytes(), -1.5);
        check(NumberType::F32, &0.1f32.to_le_bytes(), f64::from(0.1f32));
        check(NumberType::F64, &0.1f64.to_le_bytes(), 0.1);
    }

    #[test]
    fn a_shape_is_checked_before_its_data_is_read() {
        let problem = |shape: &[usize], data: &[u8]| {
            Numbers::new(NumberType::F32, false, false, shape, data, 10).unwrap_err().to_string()
        };
        assert!(
            problem(&[1 << 60, 64], &[0; 8])
                .contains("more bytes than can be counted of f32 expected after byte 10, 8 found")
        );
        assert!(
            problem(&[2, 2], &[0; 8]).contains("16 bytes of f32 expected after byte 10, 8 found")
        );
        assert!(problem(&[1], &[0; 8]).contains("4 bytes of f32 expected"));
        assert!(problem(&[1 << 60, 0], &[]).contains("there is no number"));
        assert!(problem(&[0], &[]).contains("there is no number"));
        assert!(problem(&[], &[0; 4]).contains("a single number"));
    }
}
