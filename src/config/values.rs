//! Reads a TOML table as a struct, and keeps what serde says about an error: its kind, the unknown
//! name, the accepted names. TOML's own reader keeps the words only.

use std::fmt;

use serde::{
    Deserializer,
    de::{
        Error as _, Expected, IntoDeserializer, Unexpected, Visitor,
        value::{Error as Words, MapAccessDeserializer, MapDeserializer, SeqDeserializer},
    },
};

use super::fault::Fault;

/// Why a table cannot be read as a struct.
#[derive(Debug)]
pub(super) struct ReadError {
    pub message: String,
    pub fault: Fault,
    /// The unknown key or variant.
    pub unknown: Option<String>,
    /// The known keys or variants.
    pub accepted: &'static [&'static str],
}

impl ReadError {
    fn unknown(words: &Words, name: &str, accepted: &'static [&'static str]) -> ReadError {
        ReadError { unknown: Some(name.into()), accepted, ..ReadError::custom(words) }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReadError {}

impl serde::de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> ReadError {
        let message = message.to_string();
        ReadError { message, fault: Fault::Value, unknown: None, accepted: &[] }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> ReadError {
        let words = Words::invalid_type(found, expected);
        ReadError { fault: Fault::Type, ..ReadError::custom(words) }
    }

    fn unknown_variant(name: &str, accepted: &'static [&'static str]) -> ReadError {
        ReadError::unknown(&Words::unknown_variant(name, accepted), name, accepted)
    }

    fn unknown_field(name: &str, accepted: &'static [&'static str]) -> ReadError {
        ReadError::unknown(&Words::unknown_field(name, accepted), name, accepted)
    }

    fn missing_field(name: &'static str) -> ReadError {
        ReadError { fault: Fault::Missing, ..ReadError::custom(Words::missing_field(name)) }
    }
}

/// A TOML value, read as TOML's own reader does.
pub(super) struct Values(toml::Value);

impl From<toml::Table> for Values {
    fn from(table: toml::Table) -> Values {
        Values(toml::Value::Table(table))
    }
}

impl IntoDeserializer<'_, ReadError> for Values {
    type Deserializer = Values;

    fn into_deserializer(self) -> Values {
        self
    }
}

impl Values {
    fn unexpected(&self) -> Unexpected<'_> {
        match &self.0 {
            toml::Value::Boolean(value) => Unexpected::Bool(*value),
            toml::Value::Integer(value) => Unexpected::Signed(*value),
            toml::Value::Float(value) => Unexpected::Float(*value),
            toml::Value::String(value) => Unexpected::Str(value),
            toml::Value::Datetime(_) => Unexpected::Other("date or time"),
            toml::Value::Array(_) => Unexpected::Seq,
            toml::Value::Table(_) => Unexpected::Map,
        }
    }

    fn refuse<T>(&self, expected: &dyn Expected) -> Result<T, ReadError> {
        Err(ReadError::invalid_type(self.unexpected(), expected))
    }

    fn read_scalar<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            toml::Value::Boolean(value) => visitor.visit_bool(value),
            toml::Value::Integer(value) => visitor.visit_i64(value),
            toml::Value::Float(value) => visitor.visit_f64(value),
            toml::Value::String(value) => visitor.visit_string(value),
            toml::Value::Datetime(value) => visitor.visit_string(value.to_string()),
            toml::Value::Array(_) | toml::Value::Table(_) => self.refuse(&visitor),
        }
    }

    fn read_array<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let toml::Value::Array(values) = self.0 else { return self.refuse(&visitor) };
        let len = values.len();
        let mut values = SeqDeserializer::new(values.into_iter().map(Values));
        let read = visitor.visit_seq(&mut values)?;
        let long = |_: ReadError| ReadError::invalid_length(len, &"fewer elements in array");
        values.end().map_err(long).map(|()| read)
    }

    fn read_table<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let toml::Value::Table(table) = self.0 else { return self.refuse(&visitor) };
        let len = table.len();
        let pairs = table.into_iter().map(|(key, value)| (key, Values(value)));
        let mut pairs = MapDeserializer::new(pairs);
        let read = visitor.visit_map(&mut pairs)?;
        let long = |_: ReadError| ReadError::invalid_length(len, &"fewer elements in map");
        pairs.end().map_err(long).map(|()| read)
    }
}

/// Each kind of value has its own code, so that the code of all kinds is not compiled for each.
macro_rules! read_as {
    ($($read:ident: $($name:ident($($argument:ident: $type:ty),*)),+;)+) => {$($(
        fn $name<V: Visitor<'de>>(
            self,
            $($argument: $type,)*
            visitor: V,
        ) -> Result<V::Value, ReadError> {
            self.$read(visitor)
        }
    )+)+};
}

impl<'de> Deserializer<'de> for Values {
    type Error = ReadError;

    read_as! {
        read_table:
            deserialize_map(),
            deserialize_struct(_name: &'static str, _fields: &'static [&'static str]);
        read_array:
            deserialize_seq(),
            deserialize_tuple(_len: usize),
            deserialize_tuple_struct(_name: &'static str, _len: usize);
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            toml::Value::Array(_) => self.read_array(visitor),
            toml::Value::Table(_) => self.read_table(visitor),
            _ => self.read_scalar(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            toml::Value::String(variant) => visitor.visit_enum(variant.into_deserializer()),
            toml::Value::Table(table) if table.len() == 1 => {
                let pairs = table.into_iter().map(|(key, value)| (key, Values(value)));
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(pairs)))
            }
            toml::Value::Table(table) if table.is_empty() => {
                Err(ReadError::custom("wanted exactly 1 element, found 0 elements"))
            }
            toml::Value::Table(_) => {
                Err(ReadError::custom("wanted exactly 1 element, more than 1 element"))
            }
            _ => Err(ReadError::invalid_type(Unexpected::UnitVariant, &"string only")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    read_as! {
        read_scalar:
            deserialize_bool(), deserialize_char(), deserialize_str(), deserialize_string(),
            deserialize_u8(), deserialize_u16(), deserialize_u32(), deserialize_u64(),
            deserialize_i8(), deserialize_i16(), deserialize_i32(), deserialize_i64(),
            deserialize_f32(), deserialize_f64(), deserialize_identifier(),
            deserialize_bytes(), deserialize_byte_buf(), deserialize_unit(),
            deserialize_unit_struct(_name: &'static str);
        deserialize_any:
            deserialize_ignored_any();
    }
}
