//! What a column holds, from the types that a file states.

use parquet::{
    basic::{ConvertedType, LogicalType, TimeUnit, Type},
    schema::types::ColumnDescriptor,
};

/// What the values of a column mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A boolean, a signed whole number, or a number with 32 or 64 bits and a fraction.
    Plain,
    /// A whole number from 0.
    Unsigned,
    /// A number of 16 bits with a fraction.
    Half,
    /// UTF-8.
    Text,
    /// Days since 1970-01-01.
    Date,
    /// Parts of a second since 1970-01-01T00:00:00.
    Timestamp { per_second: i64, utc: bool },
    /// A whole number divided by a power of 10.
    Decimal(usize),
}

/// The most digits of a decimal of 16 bytes.
const DIGITS: i32 = 38;

impl Kind {
    /// What a column holds.
    ///
    /// # Errors
    /// The name of its type, if it is not read.
    pub(super) fn of(column: &ColumnDescriptor) -> Result<Kind, String> {
        use LogicalType as L;
        let (logical, converted) = (column.logical_type_ref(), column.converted_type());
        let kind = match (column.physical_type(), logical) {
            (Type::INT96, None) => Some(Kind::Plain),
            (Type::INT32, Some(L::Date)) => Some(Kind::Date),
            (Type::INT64, Some(L::Timestamp(stamp))) => {
                let per_second = match stamp.unit {
                    TimeUnit::MILLIS => 1_000,
                    TimeUnit::MICROS => 1_000_000,
                    TimeUnit::NANOS => 1_000_000_000,
                };
                Some(Kind::Timestamp { per_second, utc: stamp.is_adjusted_to_u_t_c })
            }
            (Type::INT32 | Type::INT64, Some(L::Integer(integer))) => {
                Some(if integer.is_signed { Kind::Plain } else { Kind::Unsigned })
            }
            (Type::FIXED_LEN_BYTE_ARRAY, Some(L::Float16)) if column.type_length() == 2 => {
                Some(Kind::Half)
            }
            (Type::BYTE_ARRAY, Some(L::String | L::Enum | L::Json)) => Some(Kind::Text),
            (kind, Some(L::Decimal(_))) => decimal(kind, column),
            // A column of nulls only.
            (Type::BOOLEAN | Type::INT32 | Type::INT64 | Type::BYTE_ARRAY, Some(L::Unknown)) => {
                Some(Kind::Text)
            }
            (_, Some(_)) => None,
            (kind, None) => converted_kind(kind, converted, column),
        };
        kind.ok_or_else(|| name(column))
    }
}

/// By the older way to state a type.
fn converted_kind(kind: Type, converted: ConvertedType, column: &ColumnDescriptor) -> Option<Kind> {
    use ConvertedType as C;
    let timestamp = |per_second| Some(Kind::Timestamp { per_second, utc: true });
    match (kind, converted) {
        (Type::BOOLEAN | Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE, C::NONE) => {
            Some(Kind::Plain)
        }
        (Type::INT32, C::INT_8 | C::INT_16 | C::INT_32) | (Type::INT64, C::INT_64) => {
            Some(Kind::Plain)
        }
        (Type::INT32, C::UINT_8 | C::UINT_16 | C::UINT_32) | (Type::INT64, C::UINT_64) => {
            Some(Kind::Unsigned)
        }
        (Type::INT32, C::DATE) => Some(Kind::Date),
        (Type::INT64, C::TIMESTAMP_MILLIS) => timestamp(1_000),
        (Type::INT64, C::TIMESTAMP_MICROS) => timestamp(1_000_000),
        (Type::BYTE_ARRAY, C::UTF8 | C::ENUM | C::JSON) => Some(Kind::Text),
        (kind, C::DECIMAL) => decimal(kind, column),
        _ => None,
    }
}

fn decimal(kind: Type, column: &ColumnDescriptor) -> Option<Kind> {
    let fits = match kind {
        Type::INT32 | Type::INT64 => true,
        Type::BYTE_ARRAY => column.type_precision() <= DIGITS,
        Type::FIXED_LEN_BYTE_ARRAY => (1..=16).contains(&column.type_length()),
        _ => false,
    };
    let scale = column.type_scale();
    (fits && (0..=DIGITS).contains(&scale)).then_some(Kind::Decimal(scale as usize))
}

/// The type of a column, for messages.
fn name(column: &ColumnDescriptor) -> String {
    let physical = column.physical_type();
    match column.logical_type_ref() {
        Some(logical) => format!("{physical} ({logical:?})"),
        None if column.converted_type() != ConvertedType::NONE => {
            format!("{physical} ({})", column.converted_type())
        }
        None if physical == Type::BYTE_ARRAY => "BYTE_ARRAY (binary)".into(),
        None => physical.to_string(),
    }
}

/// The least number of bytes of a value, as it is in a dictionary.
pub(super) fn least_bytes(kind: Type, length: i32) -> Option<u64> {
    match kind {
        Type::BOOLEAN => None,
        Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => Some(4),
        Type::INT64 | Type::DOUBLE => Some(8),
        Type::INT96 => Some(12),
        Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(length).ok().filter(|&length| length > 0),
    }
}
