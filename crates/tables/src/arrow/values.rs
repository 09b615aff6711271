//! The values of a column as cells.

use std::ops::Range;

use arrow_array::{
    Array, ArrowPrimitiveType,
    cast::AsArray,
    downcast_integer_array,
    types::{
        Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Float16Type,
        Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
        TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, TimeUnit};
use gradvine::data::{Cell, excerpt};

use crate::typed::{Cells, SECONDS_A_DAY, Slot};

/// Checks that a type is read.
///
/// # Errors
/// Its name, if it is not.
pub(super) fn check(kind: &DataType) -> Result<(), String> {
    use DataType as T;
    let is_read = match kind {
        T::Null | T::Boolean | T::Utf8 | T::LargeUtf8 | T::Utf8View => true,
        T::Int8 | T::Int16 | T::Int32 | T::Int64 => true,
        T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => true,
        T::Float16 | T::Float32 | T::Float64 => true,
        T::Date32 | T::Date64 | T::Timestamp(..) => true,
        T::Decimal32(_, scale) | T::Decimal64(_, scale) | T::Decimal128(_, scale) => {
            (0..=DIGITS).contains(scale)
        }
        T::Dictionary(_, values) => !matches!(**values, T::Dictionary(..)) && check(values).is_ok(),
        _ => false,
    };
    match kind {
        _ if is_read => Ok(()),
        kind if kind.is_nested() => Err("a nested type".into()),
        kind => Err(excerpt(&kind.to_string())),
    }
}

/// The most digits of a decimal of 16 bytes.
const DIGITS: i8 = 38;

/// The values of a column in a part of the table.
pub(super) struct Values<'a> {
    array: &'a dyn Array,
    cells: Cells,
    text_bytes: usize,
}

impl<'a> Values<'a> {
    pub(super) fn new(array: &'a dyn Array) -> Values<'a> {
        Values { array, cells: Cells::default(), text_bytes: 0 }
    }

    /// Decodes these rows; returns how many bytes of text are in them.
    pub(super) fn decode(&mut self, rows: Range<usize>) -> Result<u64, String> {
        self.cells.clear();
        self.text_bytes = 0;
        self.fill(self.array, rows)?;
        Ok((self.text_bytes + self.cells.made_bytes()) as u64)
    }

    /// The cell of a row, from the first one that was decoded.
    pub(super) fn cell(&self, row: usize) -> Cell<'_> {
        self.cells.cell(row, |at| text(self.array, at))
    }

    fn fill(&mut self, array: &dyn Array, rows: Range<usize>) -> Result<(), String> {
        use DataType as T;
        match array.data_type() {
            T::Null => rows.for_each(|_| self.cells.push(Slot::Empty)),
            T::Boolean => {
                let values = array.as_boolean();
                for row in rows {
                    let is_none = values.is_null(row);
                    let slot = if is_none { Slot::Empty } else { Slot::Bool(values.value(row)) };
                    self.cells.push(slot);
                }
            }
            T::Utf8 | T::LargeUtf8 | T::Utf8View => {
                for row in rows {
                    let is_none = array.is_null(row);
                    self.cells.push(if is_none { Slot::Empty } else { Slot::Stored(row) });
                    self.text_bytes += if is_none { 0 } else { text(array, row).len() };
                }
            }
            T::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                for row in rows {
                    match key(dictionary.keys(), row)? {
                        Some(key) => self.fill(dictionary.values(), key..key + 1)?,
                        None => self.cells.push(Slot::Empty),
                    }
                }
            }
            _ => self.fill_numbers(array, rows)?,
        }
        Ok(())
    }

    fn fill_numbers(&mut self, array: &dyn Array, rows: Range<usize>) -> Result<(), String> {
        use DataType as T;
        let cells = &mut self.cells;
        match *array.data_type() {
            T::Int8 => whole::<Int8Type>(array, rows, cells),
            T::Int16 => whole::<Int16Type>(array, rows, cells),
            T::Int32 => whole::<Int32Type>(array, rows, cells),
            T::Int64 => whole::<Int64Type>(array, rows, cells),
            T::UInt8 => whole::<UInt8Type>(array, rows, cells),
            T::UInt16 => whole::<UInt16Type>(array, rows, cells),
            T::UInt32 => whole::<UInt32Type>(array, rows, cells),
            T::UInt64 => whole::<UInt64Type>(array, rows, cells),
            T::Float16 => {
                each::<Float16Type>(array, rows, cells, |_, value| Ok(Slot::Number(value.to_f64())))
            }
            T::Float32 => {
                each::<Float32Type>(array, rows, cells, |_, value| Ok(Slot::Number(value.into())))
            }
            T::Float64 => {
                each::<Float64Type>(array, rows, cells, |_, value| Ok(Slot::Number(value)))
            }
            T::Decimal32(_, scale) => decimal::<Decimal32Type>(array, rows, cells, scale),
            T::Decimal64(_, scale) => decimal::<Decimal64Type>(array, rows, cells, scale),
            T::Decimal128(_, scale) => decimal::<Decimal128Type>(array, rows, cells, scale),
            T::Date32 => {
                each::<Date32Type>(array, rows, cells, |cells, days| cells.date(days.into()))
            }
            T::Date64 => each::<Date64Type>(array, rows, cells, |cells, milliseconds| {
                cells.date(milliseconds.div_euclid(SECONDS_A_DAY * 1000))
            }),
            T::Timestamp(unit, ref zone) => {
                let utc = zone.is_some();
                match unit {
                    TimeUnit::Second => moment::<TimestampSecondType>(array, rows, cells, 1, utc),
                    TimeUnit::Millisecond => {
                        moment::<TimestampMillisecondType>(array, rows, cells, 1_000, utc)
                    }
                    TimeUnit::Microsecond => {
                        moment::<TimestampMicrosecondType>(array, rows, cells, 1_000_000, utc)
                    }
                    TimeUnit::Nanosecond => {
                        moment::<TimestampNanosecondType>(array, rows, cells, 1_000_000_000, utc)
                    }
                }
            }
            ref kind => Err(format!("values of the type {}", excerpt(&kind.to_string()))),
        }
    }
}

/// Makes a cell of each value.
fn each<T: ArrowPrimitiveType>(
    array: &dyn Array,
    rows: Range<usize>,
    cells: &mut Cells,
    slot: impl Fn(&mut Cells, T::Native) -> Result<Slot, String>,
) -> Result<(), String> {
    let values = array.as_primitive::<T>();
    for row in rows {
        let is_none = values.is_null(row);
        let slot = if is_none { Slot::Empty } else { slot(cells, values.value(row))? };
        cells.push(slot);
    }
    Ok(())
}

fn whole<T: ArrowPrimitiveType<Native: Into<i128>>>(
    array: &dyn Array,
    rows: Range<usize>,
    cells: &mut Cells,
) -> Result<(), String> {
    each::<T>(array, rows, cells, |cells, value| Ok(cells.whole(value.into())))
}

fn decimal<T: ArrowPrimitiveType<Native: Into<i128>>>(
    array: &dyn Array,
    rows: Range<usize>,
    cells: &mut Cells,
    scale: i8,
) -> Result<(), String> {
    let scale = usize::try_from(scale).map_err(|_| format!("a scale of {scale}"))?;
    each::<T>(array, rows, cells, |cells, value| Ok(cells.decimal(value.into(), scale)))
}

fn moment<T: ArrowPrimitiveType<Native = i64>>(
    array: &dyn Array,
    rows: Range<usize>,
    cells: &mut Cells,
    per_second: i64,
    utc: bool,
) -> Result<(), String> {
    each::<T>(array, rows, cells, |cells, value| cells.moment(value, per_second, utc))
}

/// The position of a row's value in its dictionary.
fn key(keys: &dyn Array, row: usize) -> Result<Option<usize>, String> {
    if keys.is_null(row) {
        return Ok(None);
    }
    let key: Option<usize> = downcast_integer_array!(
        keys => keys.value(row).to_usize(),
        _ => None
    );
    key.map(Some).ok_or_else(|| "a value that is not in its dictionary".into())
}

/// The text at a position of a column of texts, or of its dictionary.
fn text(array: &dyn Array, at: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(at).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(at).as_bytes(),
        DataType::Utf8View => array.as_string_view().value(at).as_bytes(),
        DataType::Dictionary(..) => text(array.as_any_dictionary().values(), at),
        _ => b"",
    }
}
