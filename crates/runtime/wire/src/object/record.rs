//! Records of references: ArrayRecord (named arrays) and RecordDict (named records).

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trellis_core::id::ObjectId;

use super::entries::Entries;
use super::error::{Malformed, ObjectError};
use super::header::ObjectKind;
use super::{decode_kind, encode, json};

/// Object ids of named arrays: a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ArrayRecord(pub Entries<ObjectId>);

impl ArrayRecord {
    pub fn encode(&self) -> Bytes {
        encode_names(ObjectKind::ArrayRecord, &self.0)
    }

    pub fn decode(object: &Bytes) -> Result<Self, ObjectError> {
        decode_names(ObjectKind::ArrayRecord, object).map(Self)
    }
}

/// Object ids of named records: the content of a message.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordDict(pub Entries<ObjectId>);

impl RecordDict {
    pub fn encode(&self) -> Bytes {
        encode_names(ObjectKind::RecordDict, &self.0)
    }

    pub fn decode(object: &Bytes) -> Result<Self, ObjectError> {
        decode_names(ObjectKind::RecordDict, object).map(Self)
    }
}

fn encode_names(kind: ObjectKind, names: &Entries<ObjectId>) -> Bytes {
    let mut seen = HashSet::with_capacity(names.len());
    let children: Vec<_> = names.iter().map(|(_, id)| *id).filter(|id| seen.insert(*id)).collect();
    encode(kind, &children, &json::to_vec(&Written(names)))
}

fn decode_names(kind: ObjectKind, object: &Bytes) -> Result<Entries<ObjectId>, ObjectError> {
    let (children, body) = decode_kind(object, kind)?;
    let Read(names) = serde_json::from_slice(&body).map_err(|why| Malformed::body(kind, why))?;
    let names = Entries::new(names).map_err(|why| Malformed::body(kind, why))?;
    let named: HashSet<_> = names.iter().map(|(_, id)| *id).collect();
    // The children in the header are distinct, so equal sizes and one inclusion make the sets equal.
    if named.len() != children.len() || !children.iter().all(|child| named.contains(child)) {
        return Err(Malformed::body(kind, "the ids named are not the children"));
    }
    Ok(names)
}

struct Written<'a>(&'a Entries<ObjectId>);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, id) in self.0 {
            map.serialize_entry(name, &id.to_string())?;
        }
        map.end()
    }
}

struct Read(Vec<(String, ObjectId)>);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of names to object ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read, A::Error> {
        let mut names = Vec::new();
        while let Some((name, id)) = map.next_entry::<String, String>()? {
            names.push((name, id.parse().map_err(serde::de::Error::custom)?));
        }
        Ok(Read(names))
    }
}
