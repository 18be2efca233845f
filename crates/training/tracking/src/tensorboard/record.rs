//! TFRecord framing: length, its checksum, the message, its checksum. Checksums are CRC-32C, masked because TensorFlow may
//! compute one over data that already has one. Pure.

use prost::Message;

/// Of the Castagnoli polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const TABLE: [u32; 256] = table();
const MASK_DELTA: u32 = 0xa282_ead8;

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (if crc & 1 == 1 { POLYNOMIAL } else { 0 });
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(MASK_DELTA).to_le_bytes()
}

/// A message as a record of a file.
pub fn framed(message: &impl Message) -> Vec<u8> {
    let data = message.encode_to_vec();
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), &data, &masked(&data)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, expected) in [
            (&[0_u8; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), expected);
        }
    }
}
