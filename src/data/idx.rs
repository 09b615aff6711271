//! The format of the MNIST files (LeCun): two zero bytes, the number type, the number of
//! dimensions, their extents, the numbers; big-endian.

use super::array::{Kind, Numbers};
use crate::config::ConfigError;

/// Reads the header; the numbers are read in place.
pub(super) fn read(bytes: &[u8]) -> Result<Numbers<'_>, ConfigError> {
    let (kind, shape, data) = header(bytes)?;
    Numbers::new(kind, true, false, &shape, data, bytes.len() - data.len())
}

/// The file's length by its header; `None` if it cannot be counted.
pub(super) fn length(bytes: &[u8]) -> Result<Option<usize>, ConfigError> {
    let (kind, shape, data) = header(bytes)?;
    let numbers =
        shape.iter().try_fold(kind.bytes(), |product, &extent| product.checked_mul(extent));
    Ok(numbers.and_then(|numbers| numbers.checked_add(bytes.len() - data.len())))
}

/// The type of the numbers, their extents, and the bytes after the header.
fn header(bytes: &[u8]) -> Result<(Kind, Vec<usize>, &[u8]), ConfigError> {
    let Some((&[0, 0, kind, dimensions], rest)) = bytes.split_first_chunk::<4>() else {
        return Err(ConfigError::at(
            "byte 0",
            "not an IDX file: it starts with two zero bytes, a number type and a number of \
             dimensions",
        ));
    };
    let kind = match kind {
        0x08 => Kind::U8,
        0x09 => Kind::I8,
        0x0B => Kind::I16,
        0x0C => Kind::I32,
        0x0D => Kind::F32,
        0x0E => Kind::F64,
        _ => {
            let problem =
                "accepted: 0x08 (u8), 0x09 (i8), 0x0b (i16), 0x0c (i32), 0x0d (f32), 0x0e (f64)";
            return Err(ConfigError::new("byte 2, number type", format!("{kind:#04x}"), problem));
        }
    };
    let Some((extents, data)) = rest.split_at_checked(4 * usize::from(dimensions)) else {
        let problem = format!(
            "the header is cut short: the extents of {dimensions} dimensions are needed here"
        );
        return Err(ConfigError::at("byte 4", problem));
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
    use super::super::load::{Options, parse};

    fn idx(kind: u8, shape: &[u32], data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, kind, shape.len() as u8];
        bytes.extend(shape.iter().flat_map(|extent| extent.to_be_bytes()));
        bytes.extend(data);
        bytes
    }

    #[test]
    fn every_fault_names_the_accepted_values() {
        let labels = idx(8, &[2], &[3, 0]);
        let problem = |bytes: &[u8]| {
            parse("a.idx", bytes, Some(("l.idx", &labels)), &Options::default())
                .unwrap_err()
                .to_string()
        };
        let whole = idx(8, &[2, 1, 2], &[0, 255, 7, 8]);
        for cut in 0..whole.len() {
            problem(&whole[..cut]);
        }
        assert!(problem(&whole[..17]).contains("4 bytes of u8 expected after byte 16, 1 found"));
        assert!(problem(&idx(8, &[u32::MAX; 8], &[0])).contains("more bytes than can be counted"));
        assert!(problem(&idx(7, &[1], &[0])).contains("number type = 0x07: accepted: 0x08 (u8)"));
        assert!(
            problem(&idx(8, &[3, 1], &[0; 3])).contains("l.idx: labels: 2 rows, but a.idx has 3")
        );
        assert!(problem(b"1,2,3,4").contains("not an IDX file"));
        let error = parse("a.idx", &whole, None, &Options::default()).unwrap_err().to_string();
        assert!(error.contains("needs a file of labels"), "{error}");
    }
}
