//! JSON with the spelling of Python's `json.dumps`: a space after each comma and colon, and ASCII only.
//!
//! The spelling is part of an object's id, so it may not drift by a byte.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// The bytes that Python would write. Only for values that cannot fail: strings, numbers, lists and string-keyed maps.
pub(super) fn to_vec<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, Python)).expect("plain values are always valid JSON");
    out
}

struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        separate(out, first)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        separate(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    /// Quotes, backslashes and control characters never get here: serde_json spells those as Python does.
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, mut text: &str) -> io::Result<()> {
        while let Some(at) = text.find(|character: char| !(' '..='~').contains(&character)) {
            let (plain, rest) = text.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut characters = rest.chars();
            if let Some(character) = characters.next() {
                write_escaped(out, character)?;
            }
            text = characters.as_str();
        }
        out.write_all(text.as_bytes())
    }
}

fn separate<W: ?Sized + Write>(out: &mut W, first: bool) -> io::Result<()> {
    if first { Ok(()) } else { out.write_all(b", ") }
}

/// As UTF-16 code units, so that a character beyond the first 65,536 becomes a surrogate pair.
fn write_escaped<W: ?Sized + Write>(out: &mut W, character: char) -> io::Result<()> {
    for unit in character.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}")?;
    }
    Ok(())
}
