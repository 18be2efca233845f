//! The safetensors format: the length of a header, the header in JSON, the elements of all arrays behind one another.
//!
//! Written by hand because files are hashed while they are written, keep our order, and never need the model twice in
//! memory. Arrays lie in the order of the model, those with larger elements first, as readers that map the file need it; where
//! that is another order, the model's own is in the metadata.

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

/// No array can have this name.
pub const METADATA: &str = "__metadata__";
/// Names of the arrays in their order, as JSON.
const ORDER: &str = "order";
/// Loaders ask for whom a file was written. What they want to hear is that names and shapes are those of PyTorch.
const FORMAT: (&str, &str) = ("format", "pt");
/// The largest header that readers of the format accept.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The elements begin at a multiple of this.
const ALIGNMENT: usize = 8;

/// An array to be written.
pub struct Tensor<'a> {
    pub name: Cow<'a, str>,
    pub dtype: Dtype,
    pub shape: &'a [usize],
    pub data: &'a [u8],
}

/// What a file holds.
pub struct Content {
    /// In the order of the model.
    pub tensors: Vec<(Slot, Bytes)>,
    pub metadata: BTreeMap<String, String>,
}

pub fn write(out: &mut dyn Write, tensors: &[Tensor<'_>], told: &[(&str, String)]) -> io::Result<()> {
    let mut placed: Vec<&Tensor<'_>> = tensors.iter().collect();
    placed.sort_by_key(|tensor| std::cmp::Reverse(tensor.dtype.bytes()));
    let mut metadata = BTreeMap::from([(FORMAT.0, FORMAT.1.to_owned())]);
    metadata.extend(told.iter().map(|(key, value)| (*key, value.clone())));
    if placed.iter().zip(tensors).any(|(placed, tensor)| placed.name != tensor.name) {
        let order: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_ref()).collect();
        metadata.insert(ORDER, serde_json::to_string(&order)?);
    }
    let mut header = serde_json::to_vec(&Header { metadata: &metadata, placed: &placed })?;
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    if header.len() as u64 > MAX_HEADER_BYTES {
        return Err(io::Error::other("the names and shapes of its arrays are more than 100 MB"));
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
        let mut at = 0;
        for tensor in self.placed {
            let data_offsets = (at, at + tensor.data.len());
            at = data_offsets.1;
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

/// Reads a whole file; the arrays are parts of it, not copies.
pub fn read(file: &Bytes) -> Result<Content, String> {
    let (header, data) = split(file)?;
    let Found { metadata, infos } = serde_json::from_slice(&header)
        .map_err(|error| format!("its header is not that of a safetensors file: {error}"))?;
    let mut found = Vec::with_capacity(infos.len());
    for (name, info) in infos {
        found.push((info.data_offsets, slot(name, info)?));
    }
    // Where arrays of no length share a place, the header tells who was first.
    found.sort_by_key(|(offsets, _)| *offsets);
    let mut tensors = Vec::with_capacity(found.len());
    let mut at = 0;
    for ((from, to), slot) in found {
        if from != at || to > data.len() {
            return Err(format!("the elements of {:?} do not lie where the array before it ends", slot.name));
        }
        let elements = data.slice(from..to);
        if slot.dtype == Dtype::Bool && elements.iter().any(|byte| *byte > 1) {
            return Err(format!("the array {:?} of truth values holds something else", slot.name));
        }
        tensors.push((slot, elements));
        at = to;
    }
    if at != data.len() {
        return Err(format!("{} bytes at its end belong to no array", data.len() - at));
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
        return Err("it does not begin like a safetensors file, or is cut off".to_owned());
    }
    let end = 8 + length as usize;
    Ok((file.slice(8..end), file.slice(end..)))
}

fn slot(name: String, info: Info<'_>) -> Result<Slot, String> {
    let dtype = Dtype::ALL.iter().copied().find(|dtype| name_of(*dtype) == info.dtype).ok_or_else(|| {
        let known: Vec<&str> = Dtype::ALL.iter().map(|dtype| name_of(*dtype)).collect();
        format!("the array {name:?} has elements of the type {}; known are {}", info.dtype, known.join(", "))
    })?;
    let shape = info.shape.into_owned();
    if shape.len() > MAX_ARRAY_DIMENSIONS {
        return Err(format!("the array {name:?} has more than {MAX_ARRAY_DIMENSIONS} dimensions"));
    }
    // A zero does not excuse the rest: a product in another order would overflow.
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
        serde_json::from_str(order).map_err(|error| format!("its order of arrays is unreadable: {error}"))?;
    let places: BTreeMap<&str, usize> = names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    if places.len() != tensors.len() || tensors.iter().any(|(slot, _)| !places.contains_key(slot.name.as_str())) {
        return Err("its order of arrays names others than it has".to_owned());
    }
    tensors.sort_by_key(|(slot, _)| places[slot.name.as_str()]);
    Ok(())
}

/// A header as it is found, in the order of its text.
struct Found {
    metadata: BTreeMap<String, String>,
    infos: Vec<(String, Info<'static>)>,
}

impl<'de> Deserialize<'de> for Found {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FoundVisitor)
    }
}

struct FoundVisitor;

impl<'de> Visitor<'de> for FoundVisitor {
    type Value = Found;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("arrays by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut found = Found { metadata: BTreeMap::new(), infos: Vec::new() };
        let mut names = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("{name:?} is there twice")));
            }
            match name.as_str() {
                METADATA => found.metadata = map.next_value()?,
                _ => found.infos.push((name, map.next_value()?)),
            }
        }
        Ok(found)
    }
}
