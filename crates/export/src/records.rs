//! TFRecord: how TensorBoard's event files hold their messages.
//!
//! ```text
//! length of the message: u64   checksum of these 8 bytes: u32   message   its checksum: u32
//! ```
//!
//! Numbers are little-endian. A checksum is a masked CRC-32C
//! (<https://www.tensorflow.org/tutorials/load_data/tfrecord>, "TFRecords format details").

/// Appends a message.
pub(crate) fn append(file: &mut Vec<u8>, message: &[u8]) {
    let length = (message.len() as u64).to_le_bytes();
    for part in [&length[..], message] {
        file.extend_from_slice(part);
        file.extend_from_slice(&checksum(part).to_le_bytes());
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_masked_crcs_of_castagnoli() {
        // The CRCs of RFC 3720, B.4: 8a9136aa, 62a8ab43, 46dd794e, 113fdb5c; masked by other means.
        let vectors: [(Vec<u8>, u32); 4] = [
            (vec![0; 32], 0x0fd7_fffa),
            (vec![0xff; 32], 0xf909_b029),
            ((0..32).collect(), 0x951f_7892),
            ((0..32).rev().collect(), 0x593b_0d57),
        ];
        for (bytes, masked) in vectors {
            assert_eq!(checksum(&bytes), masked, "{bytes:?}");
        }
    }

    #[test]
    fn a_message_has_its_length_and_two_checksums() {
        let mut file = Vec::new();
        append(&mut file, &[7; 24]);
        // The first bytes of every event file that TensorFlow writes: 24 bytes follow.
        assert_eq!(file[..12], [24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(file[12..36], [7; 24]);
        assert_eq!(file[36..], checksum(&[7; 24]).to_le_bytes());
        append(&mut file, &[]);
        assert_eq!(file.len(), 40 + 16);
    }
}
