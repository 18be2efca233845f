//! Ids: runs and nodes have random 64-bit numbers, objects have the SHA-256 of their bytes.

use std::fmt;
use std::str::FromStr;

/// The id of a run: random, never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub u64);

/// The id of a node. 0 is invalid; 1 is the SuperLink itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The id of the SuperLink and of ServerApps as sender and receiver.
    pub const SUPERLINK: NodeId = NodeId(1);
}

macro_rules! number_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}
number_id!(RunId);
number_id!(NodeId);

/// The id of an object: the SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId([u8; 32]);

/// The id of a message: the id of its Message object.
pub type MessageId = ObjectId;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid object ID: expected 64 lower-case hexadecimal digits")]
pub struct InvalidObjectId;

impl ObjectId {
    pub const fn new(sha256: [u8; 32]) -> Self {
        Self(sha256)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for ObjectId {
    type Err = InvalidObjectId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.as_bytes();
        if hex.len() != 64 {
            return Err(InvalidObjectId);
        }
        let mut id = [0u8; 32];
        for (byte, pair) in id.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(id))
    }
}

fn nibble(digit: u8) -> Result<u8, InvalidObjectId> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidObjectId),
    }
}

impl TryFrom<&[u8]> for ObjectId {
    type Error = InvalidObjectId;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self).map_err(|_| InvalidObjectId)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0u8; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(str::from_utf8(&hex).expect("hex digits are ASCII"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_ids_round_trip_and_other_texts_are_refused() {
        let text = "0123456789abcdef".repeat(4);
        assert_eq!(text.parse::<ObjectId>().unwrap().to_string(), text);
        for bad in ["", "0", &text[1..], &text.to_uppercase(), &format!("{text}0"), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(bad.parse::<ObjectId>(), Err(InvalidObjectId), "{bad:?}");
        }
    }
}
