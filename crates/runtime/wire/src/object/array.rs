//! Arrays and their chunks. The format of the data (`stype`) is not interpreted.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use trellis_core::id::ObjectId;

use super::error::{Malformed, ObjectError};
use super::header::ObjectKind;
use super::{decode_kind, encode, json, object_id};

/// Size of all chunks except the last one.
pub const MAX_CHUNK_BYTES: usize = 5 * 1024 * 1024;
/// Maximum number of chunks of an array: 5 TiB of data.
pub const MAX_ARRAY_CHUNKS: usize = 1024 * 1024;
/// Limit of numpy.
pub const MAX_ARRAY_DIMENSIONS: usize = 64;

/// A piece of array data. Arrays with equal pieces share the chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayChunk {
    pub data: Bytes,
}

impl ArrayChunk {
    pub fn encode(&self) -> Bytes {
        encode(ObjectKind::ArrayChunk, &[], &self.data)
    }

    /// Decodes a chunk. The data is a slice of the object.
    pub fn decode(object: &Bytes) -> Result<Self, ObjectError> {
        let (children, data) = decode_kind(object, ObjectKind::ArrayChunk)?;
        refuse_children(ObjectKind::ArrayChunk, &children)?;
        Ok(Self { data })
    }
}

/// The metadata of an array and the list of its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    pub dtype: String,
    pub shape: Vec<u64>,
    pub stype: String,
    /// In data order; equal pieces are the same chunk.
    pub chunks: Vec<ObjectId>,
}

/// The fields in the order in which Python writes them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    dtype: String,
    shape: Vec<u64>,
    stype: String,
    /// Indexes into the children in the header.
    arraychunk_ids: Vec<u32>,
}

impl Array {
    /// Splits data into chunks. Returns the array and its distinct chunk objects.
    pub fn from_data(dtype: &str, shape: &[u64], stype: &str, data: &[u8]) -> (Self, Vec<(ObjectId, Bytes)>) {
        let mut seen = HashSet::new();
        let mut objects = Vec::new();
        let mut chunks = Vec::with_capacity(data.len().div_ceil(MAX_CHUNK_BYTES));
        for piece in data.chunks(MAX_CHUNK_BYTES) {
            let object = encode(ObjectKind::ArrayChunk, &[], piece);
            let id = object_id(&object);
            chunks.push(id);
            if seen.insert(id) {
                objects.push((id, object));
            }
        }
        let array = Self { dtype: dtype.to_owned(), shape: shape.to_vec(), stype: stype.to_owned(), chunks };
        (array, objects)
    }

    pub fn encode(&self) -> Bytes {
        let mut children = Vec::new();
        let mut positions: HashMap<ObjectId, u32> = HashMap::new();
        let mut arraychunk_ids = Vec::with_capacity(self.chunks.len());
        for &chunk in &self.chunks {
            let position = *positions.entry(chunk).or_insert_with(|| {
                children.push(chunk);
                children.len() as u32 - 1
            });
            arraychunk_ids.push(position);
        }
        let Self { dtype, shape, stype, .. } = self.clone();
        encode(ObjectKind::Array, &children, &json::to_vec(&Body { dtype, shape, stype, arraychunk_ids }))
    }

    pub fn decode(object: &Bytes) -> Result<Self, ObjectError> {
        let wrong = |reason: &str| Malformed::body(ObjectKind::Array, reason);
        let (children, body) = decode_kind(object, ObjectKind::Array)?;
        let Body { dtype, shape, stype, arraychunk_ids } = parse_body(&body)?;
        if shape.len() > MAX_ARRAY_DIMENSIONS {
            return Err(wrong("too many dimensions"));
        }
        if arraychunk_ids.len() > MAX_ARRAY_CHUNKS {
            return Err(wrong("too many chunks"));
        }
        let mut used = vec![false; children.len()];
        let mut chunks = Vec::with_capacity(arraychunk_ids.len());
        for position in arraychunk_ids {
            let position = position as usize;
            chunks.push(*children.get(position).ok_or_else(|| wrong("a chunk is not among the children"))?);
            used[position] = true;
        }
        if used.contains(&false) {
            return Err(wrong("a child is not among the chunks"));
        }
        Ok(Self { dtype, shape, stype, chunks })
    }
}

fn parse_body(body: &[u8]) -> Result<Body, ObjectError> {
    // serde would also accept a list of the values, which Python does not.
    if body.first() != Some(&b'{') {
        return Err(Malformed::body(ObjectKind::Array, "not a JSON object"));
    }
    serde_json::from_slice(body).map_err(|why| Malformed::body(ObjectKind::Array, why))
}

pub(super) fn refuse_children(kind: ObjectKind, children: &[ObjectId]) -> Result<(), ObjectError> {
    if children.is_empty() { Ok(()) } else { Err(Malformed::body(kind, "it must not have children")) }
}
