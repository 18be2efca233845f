//! JSON as Python's `json.dumps` writes it: a space after each comma and colon, and ASCII only.
//!
//! An object's id depends on every byte of it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Serialises a value as Python does. Only for infallible values: strings, numbers, lists and maps with string keys.
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

    /// Gets no quotes, backslashes and control characters: serde_json writes those as Python does.
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

/// Writes UTF-16 code units: a character above U+FFFF becomes a surrogate pair.
fn write_escaped<W: ?Sized + Write>(out: &mut W, character: char) -> io::Result<()> {
    for unit in character.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}")?;
    }
    Ok(())
}
