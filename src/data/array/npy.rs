//! NumPy's array format, versions 1 to 3 (NEP 1): a header that is a Python dictionary, then the
//! numbers.

use super::numbers::{NumberType, Numbers, file_length};
use crate::data::{
    DataError,
    file::inflate::HEADER_ENDS,
    format::{ArrayFormat, Content, Format},
};

/// The first bytes of every NPY file.
const MAGIC: &[u8] = b"\x93NUMPY";

/// NumPy itself pads headers to 128 bytes; this is room for any real one.
const MAX_HEADER: usize = 65_536;
/// NumPy's own limit.
const MAX_DIMENSIONS: usize = 32;

const _: () = assert!(MAGIC.len() + 6 + MAX_HEADER <= HEADER_ENDS);

pub(crate) const FORMAT: Format = Format {
    name: "npy",
    file: "an NPY file",
    endings: &[".npy"],
    magics: &[MAGIC],
    content: Content::Array(ArrayFormat { read, length, labels_apart: false }),
};

/// Reads the header; the numbers are read in place.
pub(crate) fn read(bytes: &[u8]) -> Result<Numbers<'_>, DataError> {
    let (Header { kind, big_endian, column_major, shape }, data) = header(bytes)?;
    Numbers::new(kind, big_endian, column_major, &shape, data, bytes.len() - data.len())
}

/// The file's length by its header; `None` if it cannot be counted.
pub(crate) fn length(bytes: &[u8]) -> Result<Option<usize>, DataError> {
    let (header, data) = header(bytes)?;
    Ok(file_length(header.kind, &header.shape, bytes.len() - data.len()))
}

/// The header and the bytes after it.
fn header(bytes: &[u8]) -> Result<(Header, &[u8]), DataError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(DataError::format("byte 0", "not an NPY file: it starts with \\x93NUMPY"));
    };
    let cut = || DataError::format(format!("byte {}", bytes.len()), "the header is cut short");
    let (&[major, _minor], rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _ => {
            return Err(wrong("byte 6, version", &major, "versions 1, 2 and 3 are accepted"));
        }
    };
    if length > MAX_HEADER {
        return Err(DataError::too_large("header length", length as u64, MAX_HEADER as u64));
    }
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header)
        .map_err(|error| DataError::format("header", error.to_string()))?;
    Ok((Header::parse(header)?, data))
}

struct Header {
    kind: NumberType,
    big_endian: bool,
    column_major: bool,
    shape: Vec<usize>,
}

impl Header {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, in any order.
    fn parse(text: &str) -> Result<Header, DataError> {
        let malformed = || {
            let problem = "a dictionary with 'descr', 'fortran_order' and 'shape' is needed";
            wrong("header", &excerpt(text), problem)
        };
        let mut rest = text
            .trim()
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'))
            .ok_or_else(malformed)?
            .trim();
        let (mut kind, mut order, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = quoted(rest).ok_or_else(malformed)?;
            let value = after.trim_start().strip_prefix(':').ok_or_else(malformed)?.trim_start();
            let after = match key {
                "descr" => {
                    let Some((descr, after)) = quoted(value) else {
                        let problem = "records are not accepted: one number type is needed";
                        return Err(wrong("header, 'descr'", &excerpt(value), problem));
                    };
                    kind = Some(number_type(descr)?);
                    after
                }
                "fortran_order" => {
                    let (value, after) =
                        value.split_at(value.find([',', ' ']).unwrap_or(value.len()));
                    order = Some(match value {
                        "True" => true,
                        "False" => false,
                        _ => return Err(malformed()),
                    });
                    after
                }
                "shape" => {
                    let (inside, after) = value
                        .strip_prefix('(')
                        .and_then(|value| value.split_once(')'))
                        .ok_or_else(malformed)?;
                    shape = Some(extents(inside).ok_or_else(malformed)?);
                    after
                }
                _ => return Err(malformed()),
            };
            let after = after.trim_start();
            rest = after.strip_prefix(',').unwrap_or(after).trim_start();
        }
        let ((kind, big_endian), column_major, shape) = (
            kind.ok_or_else(malformed)?,
            order.ok_or_else(malformed)?,
            shape.ok_or_else(malformed)?,
        );
        Ok(Header { kind, big_endian, column_major, shape })
    }
}

/// A quoted word at the start, and the text after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|&quote| quote == '\'' || quote == '"')?;
    text[1..].split_once(quote)
}

fn extents(inside: &str) -> Option<Vec<usize>> {
    let inside = inside.trim();
    let inside = inside.strip_suffix(',').unwrap_or(inside);
    if inside.is_empty() {
        return Some(Vec::new());
    }
    if inside.matches(',').count() >= MAX_DIMENSIONS {
        return None;
    }
    inside.split(',').map(|extent| extent.trim().trim_end_matches('L').parse().ok()).collect()
}

fn number_type(descr: &str) -> Result<(NumberType, bool), DataError> {
    let (order, kind) = match descr.chars().next() {
        Some(order @ ('<' | '>' | '=' | '|')) => (order, &descr[1..]),
        _ => ('<', descr),
    };
    let kind = match kind {
        "u1" => NumberType::U8,
        "u2" => NumberType::U16,
        "u4" => NumberType::U32,
        "u8" => NumberType::U64,
        "i1" => NumberType::I8,
        "i2" => NumberType::I16,
        "i4" => NumberType::I32,
        "i8" => NumberType::I64,
        "f2" => NumberType::F16,
        "f4" => NumberType::F32,
        "f8" => NumberType::F64,
        _ => {
            let problem = "integers (i1 i2 i4 i8, u1 u2 u4 u8) and floats (f2 f4 f8) are accepted";
            return Err(wrong("header, 'descr'", &excerpt(descr), problem));
        }
    };
    Ok((kind, order == '>'))
}

fn excerpt(text: &str) -> String {
    crate::data::excerpt::excerpt(text.trim())
}

/// The error of a value of the header.
fn wrong(place: &str, value: &dyn ToString, problem: &str) -> DataError {
    let value = Some(value.to_string());
    DataError::Format { place: place.into(), value, problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{options::Options, parse};

    /// A file as NumPy writes it: the header padded with spaces to a multiple of 64, ended by a
    /// line feed.
    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC, &[1, 0]].concat();
        let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
        bytes.extend((padded as u16).to_le_bytes());
        bytes.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
        bytes.extend(data);
        bytes
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn a_table_with_its_labels_in_the_last_column() {
        for (order, values) in [("False", [0.5, 1.0, -2.0, 0.0]), ("True", [0.5, -2.0, 1.0, 0.0])] {
            let header = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': (2, 2), }}");
            let data =
                parse("a.npy", &npy(&header, &floats(&values)), None, &Options::default()).unwrap();
            assert_eq!(data.features, ndarray::array![[0.5], [-2.0]]);
            assert_eq!(data.labels().unwrap(), [1, 0]);
        }
    }

    #[test]
    fn wrong_headers_are_refused_with_their_place() {
        let ok = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
        let data = floats(&[1.0, 0.0]);
        let whole = npy(ok, &data);
        for cut in 1..whole.len() {
            assert!(read(&whole[..cut]).is_err());
        }
        let place = |header: &str| match read(&npy(header, &data)).unwrap_err() {
            DataError::Format { place, .. } => place,
            error => panic!("{header}: {error}"),
        };
        for descr in ["'<c8'", "[('a', '<f4')]"] {
            assert_eq!(place(&ok.replace("'<f4'", descr)), "header, 'descr'");
        }
        for header in ["{}", "{'descr'", &ok.replace("'shape'", "'size'"), &ok.replace("2", "9e9")]
        {
            assert_eq!(place(header), "header");
        }
        for (text, shape) in [("()", &[][..]), ("(1152921504606846976, 64)", &[1 << 60, 64])] {
            let error = read(&npy(&ok.replace("(1, 2)", text), &data)).unwrap_err();
            let DataError::Shape { shape: found, .. } = &error else { panic!("{error}") };
            assert_eq!(found, shape);
        }
        let mut version = whole.clone();
        version[6] = 9;
        assert!(read(&version).unwrap_err().to_string().contains("version = 9"));
    }
}
