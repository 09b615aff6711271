//! The format of the MNIST files (LeCun): two zero bytes, the number type, the number of
//! dimensions, their extents, the numbers; big-endian.

use super::numbers::{NumberType, Numbers, file_length};
use crate::data::{
    DataError,
    format::{ArrayFormat, Content, Format},
};

pub(crate) const FORMAT: Format = Format {
    name: "idx",
    file: "an IDX file",
    endings: &[".idx", "-ubyte"],
    magics: &[&[0, 0]],
    content: Content::Array(ArrayFormat { read, length, labels_apart: true }),
};

/// Reads the header; the numbers are read in place.
fn read(bytes: &[u8]) -> Result<Numbers<'_>, DataError> {
    let (kind, shape, data) = header(bytes)?;
    Numbers::new(kind, true, false, &shape, data, bytes.len() - data.len())
}

/// The file's length by its header; `None` if it cannot be counted.
pub(crate) fn length(bytes: &[u8]) -> Result<Option<usize>, DataError> {
    let (kind, shape, data) = header(bytes)?;
    Ok(file_length(kind, &shape, bytes.len() - data.len()))
}

/// The type of the numbers, their extents, and the bytes after the header.
fn header(bytes: &[u8]) -> Result<(NumberType, Vec<usize>, &[u8]), DataError> {
    let Some((&[0, 0, kind, dimensions], rest)) = bytes.split_first_chunk::<4>() else {
        let problem = "not an IDX file: it starts with two zero bytes, a number type and a number \
                       of dimensions";
        return Err(DataError::format("byte 0", problem));
    };
    let kind = match kind {
        0x08 => NumberType::U8,
        0x09 => NumberType::I8,
        0x0B => NumberType::I16,
        0x0C => NumberType::I32,
        0x0D => NumberType::F32,
        0x0E => NumberType::F64,
        _ => {
            let problem =
                "accepted: 0x08 (u8), 0x09 (i8), 0x0b (i16), 0x0c (i32), 0x0d (f32), 0x0e (f64)";
            let (place, value) = ("byte 2, number type".into(), Some(format!("{kind:#04x}")));
            return Err(DataError::Format { place, value, problem: problem.into() });
        }
    };
    let Some((extents, data)) = rest.split_at_checked(4 * usize::from(dimensions)) else {
        let problem =
            format!("the header is cut short: the extents of {dimensions} dimensions are needed");
        return Err(DataError::format("byte 4", problem));
    };
    let shape: Vec<usize> = extents
        .as_chunks::<4>()
        .0
        .iter()
        .map(|extent| u32::from_be_bytes(*extent) as usize)
        .collect();
    Ok((kind, shape, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_headers_are_refused_with_their_place() {
        let whole = [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 5, 6];
        assert!(read(&whole).is_ok());
        let place = |bytes: &[u8]| match read(bytes).unwrap_err() {
            DataError::Format { place, .. } => place,
            error => panic!("{error}"),
        };
        assert_eq!(place(b"1,2,3"), "byte 0");
        assert_eq!(place(&[0, 0, 7, 1, 0, 0, 0, 1, 0]), "byte 2, number type");
        assert_eq!(place(&whole[..11]), "byte 4");
        let error = read(&whole[..13]).unwrap_err();
        let DataError::Shape { shape, .. } = &error else { panic!("{error}") };
        assert_eq!(shape[..], [1, 2]);
    }
}
