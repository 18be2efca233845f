//! Digests and their text: SHA-256 where the content may come from an attacker, FNV-1a for short suffixes of names, and
//! hexadecimal text. Pure.

use aws_lc_rs::digest;

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// As hexadecimal text.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

/// SHA-256 of content that arrives in pieces.
#[derive(Clone)]
pub struct Sha256(digest::Context);

impl Default for Sha256 {
    fn default() -> Sha256 {
        Sha256(digest::Context::new(&digest::SHA256))
    }
}

impl Sha256 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> [u8; 32] {
        self.0.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

/// Fast and stable across releases, but collisions are easy to make.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// Two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |number: u8| char::from(DIGITS[usize::from(number)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The reverse of [`hex`]; `None` for any other text, so that each value has one text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |letter: u8| match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    };
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standards() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let mut pieces = Sha256::default();
        pieces.update(b"a");
        pieces.update(b"bc");
        assert_eq!(pieces.finish(), sha256(b"abc"));
        assert_eq!((fnv1a(b""), fnv1a(b"a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
    }

    #[test]
    fn hexadecimal_text_is_read_back_and_other_text_refused() {
        assert_eq!(hex(&[0, 0x1f, 0xa0, 0xff]), "001fa0ff");
        assert_eq!(unhex("001fa0ff"), Some(vec![0, 0x1f, 0xa0, 0xff]));
        assert_eq!(unhex(""), Some(Vec::new()));
        for wrong in ["0", "0g", "0F", "+1", "é", "001"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
