//! The safetensors format: the length of the header, the header as JSON, and the elements of all arrays.
//!
//! Implemented here because we hash files while they are written, preserve the order of the arrays, and never hold the model
//! twice in memory. Arrays with larger elements come first, which aligns them for readers that map the file. If this changes
//! the order, the metadata lists the original order.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};

use bytes::Bytes;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trellis_strategy::Slot;
use trellis_wire::object::MAX_ARRAY_DIMENSIONS;
use trellis_wire::records::Dtype;

/// Reserved by the format: no array can have this name.
pub const METADATA: &str = "__metadata__";
/// The array names in the order of the model, as JSON.
const ORDER: &str = "order";
/// Loaders check the framework of a file. Names and shapes are those of PyTorch.
const FORMAT: (&str, &str) = ("format", "pt");
/// The largest header that other readers of the format accept.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Alignment of the first element.
const ALIGNMENT: usize = 8;

/// An array to be written.
pub struct Tensor<'a> {
    pub name: Cow<'a, str>,
    pub dtype: Dtype,
    pub shape: &'a [usize],
    pub data: &'a [u8],
}

/// The content of a file.
pub struct Content {
    /// In the order of the model.
    pub tensors: Vec<(Slot, Bytes)>,
    pub metadata: BTreeMap<String, String>,
}

pub fn write(out: &mut dyn Write, tensors: &[Tensor<'_>], extra: &[(&str, String)]) -> io::Result<()> {
    let mut placed: Vec<&Tensor<'_>> = tensors.iter().collect();
    placed.sort_by_key(|tensor| std::cmp::Reverse(tensor.dtype.bytes()));
    let mut metadata = BTreeMap::from([(FORMAT.0, FORMAT.1.to_owned())]);
    metadata.extend(extra.iter().map(|(key, value)| (*key, value.clone())));
    if placed.iter().zip(tensors).any(|(placed, tensor)| placed.name != tensor.name) {
        let order: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_ref()).collect();
        metadata.insert(ORDER, serde_json::to_string(&order)?);
    }
    let mut header = serde_json::to_vec(&Header { metadata: &metadata, placed: &placed })?;
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    if header.len() as u64 > MAX_HEADER_BYTES {
        return Err(io::Error::other("the names and shapes of the arrays exceed 100 MB"));
    }
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    placed.iter().try_for_each(|tensor| out.write_all(tensor.data))
}

struct Header<'a> {
    metadata: &'a BTreeMap<&'a str, String>,
    placed: &'a [&'a Tensor<'a>],
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.placed.len() + 1))?;
        map.serialize_entry(METADATA, self.metadata)?;
        let mut start = 0;
        for tensor in self.placed {
            let data_offsets = (start, start + tensor.data.len());
            start = data_offsets.1;
            let dtype = name_of(tensor.dtype).into();
            map.serialize_entry(&tensor.name, &Info { dtype, shape: tensor.shape.into(), data_offsets })?;
        }
        map.end()
    }
}

#[derive(Serialize, Deserialize)]
struct Info<'a> {
    dtype: Cow<'a, str>,
    shape: Cow<'a, [usize]>,
    data_offsets: (usize, usize),
}

const fn name_of(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "BOOL",
        Dtype::I8 => "I8",
        Dtype::I16 => "I16",
        Dtype::I32 => "I32",
        Dtype::I64 => "I64",
        Dtype::U8 => "U8",
        Dtype::U16 => "U16",
        Dtype::U32 => "U32",
        Dtype::U64 => "U64",
        Dtype::F16 => "F16",
        Dtype::Bf16 => "BF16",
        Dtype::F32 => "F32",
        Dtype::F64 => "F64",
    }
}

/// Reads a file. The arrays share its memory.
pub fn read(file: &Bytes) -> Result<Content, String> {
    let (header, data) = split(file)?;
    let Parsed { metadata, infos } =
        serde_json::from_slice(&header).map_err(|error| format!("its header is not a safetensors header: {error}"))?;
    let mut found = Vec::with_capacity(infos.len());
    for (name, info) in infos {
        found.push((info.data_offsets, slot(name, info)?));
    }
    // Empty arrays share an offset; the stable sort preserves their order in the header.
    found.sort_by_key(|(offsets, _)| *offsets);
    let mut tensors = Vec::with_capacity(found.len());
    let mut expected = 0;
    for ((from, to), slot) in found {
        if from != expected || to > data.len() {
            return Err(format!("the elements of {:?} do not begin where the previous array ends", slot.name));
        }
        let elements = data.slice(from..to);
        if slot.dtype == Dtype::Bool && elements.iter().any(|byte| *byte > 1) {
            return Err(format!("the boolean array {:?} contains a value other than 0 and 1", slot.name));
        }
        tensors.push((slot, elements));
        expected = to;
    }
    if expected != data.len() {
        return Err(format!("its last {} bytes belong to no array", data.len() - expected));
    }
    if let Some(order) = metadata.get(ORDER) {
        reorder(&mut tensors, order)?;
    }
    Ok(Content { tensors, metadata })
}

fn split(file: &Bytes) -> Result<(Bytes, Bytes), String> {
    let length = file.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    let length = length.ok_or("it is shorter than the header of a safetensors file")?;
    if length > MAX_HEADER_BYTES || length > (file.len() - 8) as u64 {
        return Err("it does not begin like a safetensors file, or it is truncated".to_owned());
    }
    let end = 8 + length as usize;
    Ok((file.slice(8..end), file.slice(end..)))
}

fn slot(name: String, info: Info<'_>) -> Result<Slot, String> {
    let dtype = Dtype::ALL.iter().copied().find(|dtype| name_of(*dtype) == info.dtype).ok_or_else(|| {
        let known: Vec<&str> = Dtype::ALL.iter().map(|dtype| name_of(*dtype)).collect();
        format!("the array {name:?} has elements of the unknown type {}; known types: {}", info.dtype, known.join(", "))
    })?;
    let shape = info.shape.into_owned();
    if shape.len() > MAX_ARRAY_DIMENSIONS {
        return Err(format!("the array {name:?} has more than {MAX_ARRAY_DIMENSIONS} dimensions"));
    }
    // Zeros are skipped: the product of the other lengths must not overflow either.
    let lengths = shape.iter().filter(|length| **length != 0);
    let fits = lengths.copied().try_fold(dtype.bytes(), usize::checked_mul).is_some();
    let slot = Slot { name, dtype, shape };
    let (from, to) = info.data_offsets;
    match fits && to.checked_sub(from) == Some(slot.bytes()) {
        true => Ok(slot),
        false => Err(format!("the shape {:?} of the array {:?} does not fit its data", slot.shape, slot.name)),
    }
}

fn reorder(tensors: &mut [(Slot, Bytes)], order: &str) -> Result<(), String> {
    let names: Vec<String> =
        serde_json::from_str(order).map_err(|error| format!("its order of arrays is invalid: {error}"))?;
    let places: BTreeMap<&str, usize> = names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    if places.len() != tensors.len() || tensors.iter().any(|(slot, _)| !places.contains_key(slot.name.as_str())) {
        return Err("its order of arrays does not match its arrays".to_owned());
    }
    tensors.sort_by_key(|(slot, _)| places[slot.name.as_str()]);
    Ok(())
}

/// A parsed header, in the order of its text.
struct Parsed {
    metadata: BTreeMap<String, String>,
    infos: Vec<(String, Info<'static>)>,
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ParsedVisitor)
    }
}

struct ParsedVisitor;

impl<'de> Visitor<'de> for ParsedVisitor {
    type Value = Parsed;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("arrays by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut found = Parsed { metadata: BTreeMap::new(), infos: Vec::new() };
        let mut names = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("{name:?} occurs twice")));
            }
            match name.as_str() {
                METADATA => found.metadata = map.next_value()?,
                _ => found.infos.push((name, map.next_value()?)),
            }
        }
        Ok(found)
    }
}
