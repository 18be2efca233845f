//! The header of an object: `<kind> <child ids, comma separated> <body length>`, ended by a NUL byte.
//!
//! The parser is strict: it refuses everything that no official encoder writes (signs, leading zeros, upper-case ids,
//! repeated children), so that a header has exactly one spelling.

use std::fmt;
use std::io::Write as _;
use std::str::FromStr;

use trellis_core::id::ObjectId;

use super::error::{Malformed, ObjectError};

/// Maximum length of a header with its NUL: about 129,000 children.
pub const MAX_HEADER_BYTES: usize = 8 * 1024 * 1024;

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 64;
/// Maximum length of an unknown kind in an error.
const SHOWN_KIND_CHARS: usize = 32;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    ArrayChunk,
    Array,
    ArrayRecord,
    ConfigRecord,
    MetricRecord,
    RecordDict,
    Message,
}

impl ObjectKind {
    pub const ALL: [Self; 7] = [
        Self::ArrayChunk,
        Self::Array,
        Self::ArrayRecord,
        Self::ConfigRecord,
        Self::MetricRecord,
        Self::RecordDict,
        Self::Message,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ArrayChunk => "ArrayChunk",
            Self::Array => "Array",
            Self::ArrayRecord => "ArrayRecord",
            Self::ConfigRecord => "ConfigRecord",
            Self::MetricRecord => "MetricRecord",
            Self::RecordDict => "RecordDict",
            Self::Message => "Message",
        }
    }
}

impl FromStr for ObjectKind {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| Malformed::UnknownKind(text.chars().take(SHOWN_KIND_CHARS).collect()))
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The header of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub kind: ObjectKind,
    /// Distinct children in the order of their first mention in the body.
    pub children: Vec<ObjectId>,
    pub body_bytes: u64,
}

impl Header {
    /// Parses the bytes before the NUL.
    pub fn parse(header: &[u8]) -> Result<Self, ObjectError> {
        Ok(Self::read(header)?)
    }

    pub(super) fn read(header: &[u8]) -> Result<Self, Malformed> {
        if header.len() >= MAX_HEADER_BYTES {
            return Err(Malformed::HeaderTooLong);
        }
        let text = str::from_utf8(header).map_err(|_| Malformed::HeaderForm)?;
        let mut fields = text.split(' ');
        let (Some(kind), Some(children), Some(body_bytes), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(Malformed::HeaderForm);
        };
        Ok(Self { kind: kind.parse()?, children: parse_children(children)?, body_bytes: parse_length(body_bytes)? })
    }

    /// Encodes the bytes before the NUL.
    pub fn encode(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(encoded_len(self.children.len()));
        write(&mut header, self.kind, &self.children, self.body_bytes);
        header.pop();
        header
    }

    /// Parses the header from the first bytes of an object. Returns the header and its length with the NUL, or `None`
    /// if the NUL is missing so far.
    pub fn split(prefix: &[u8]) -> Result<Option<(Self, usize)>, ObjectError> {
        let searched = &prefix[..prefix.len().min(MAX_HEADER_BYTES)];
        match searched.iter().position(|&byte| byte == 0) {
            Some(nul) => Ok(Some((Self::read(&prefix[..nul])?, nul + 1))),
            None if prefix.len() < MAX_HEADER_BYTES => Ok(None),
            None => Err(Malformed::HeaderTooLong.into()),
        }
    }

    pub(super) fn check_body_len(&self, received: u64) -> Result<(), Malformed> {
        let announced = self.body_bytes;
        match received {
            _ if received > announced => Err(Malformed::BodyTooLong { announced }),
            _ if received < announced => Err(Malformed::BodyTooShort { announced, received }),
            _ => Ok(()),
        }
    }
}

/// Upper bound of the length of a header: the longest kind, two spaces, the longest length and the NUL.
pub(super) fn encoded_len(children: usize) -> usize {
    12 + 2 + children * (ID_DIGITS + 1) + 20 + 1
}

/// Appends a header and its NUL.
pub(super) fn write(out: &mut Vec<u8>, kind: ObjectKind, children: &[ObjectId], body_bytes: u64) {
    out.extend_from_slice(kind.as_str().as_bytes());
    out.push(b' ');
    for (index, child) in children.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write!(out, "{child}").expect("a Vec takes all bytes");
    }
    write!(out, " {body_bytes}\0").expect("a Vec takes all bytes");
}

fn parse_children(text: &str) -> Result<Vec<ObjectId>, Malformed> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut children = Vec::with_capacity(text.len() / (ID_DIGITS + 1) + 1);
    for (index, id) in text.split(',').enumerate() {
        children.push(id.parse().map_err(|_| Malformed::ChildId { index })?);
    }
    refuse_repeated(&children)?;
    Ok(children)
}

fn refuse_repeated(children: &[ObjectId]) -> Result<(), Malformed> {
    let mut sorted = children.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Malformed::RepeatedChild(pair[0])),
        None => Ok(()),
    }
}

fn parse_length(text: &str) -> Result<u64, Malformed> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if !plain {
        return Err(Malformed::BodyLength);
    }
    text.parse().map_err(|_| Malformed::BodyLength)
}
