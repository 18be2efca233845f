//! Records of plain values: ConfigRecord and MetricRecord.
//!
//! The conversions choose the same wire types as Python, because the type is part of the id: an integer is signed
//! unless it is too large, and an empty list has the first list type of its record.

use bytes::Bytes;
use prost::Message as _;

use super::array::refuse_children;
use super::entries::Entries;
use super::error::{Malformed, ObjectError};
use super::header::ObjectKind;
use super::{decode_kind, encode};
use crate::proto::{self, BoolList, BytesList, DoubleList, SintList, StringList, UintList};

pub type ConfigValue = proto::config_record_value::Value;
pub type MetricValue = proto::metric_record_value::Value;

/// Settings: scalars, strings, bytes and lists of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConfigRecord(pub Entries<ConfigValue>);

/// Measurements: numbers and lists of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricRecord(pub Entries<MetricValue>);

macro_rules! value_record {
    ($record:ident, $items:ident, $value:ident) => {
        impl $record {
            pub fn encode(&self) -> Bytes {
                let item = |(name, value): &(String, _)| proto::$items::Item {
                    key: name.clone(),
                    value: Some(proto::$value { value: Some(Clone::clone(value)) }),
                };
                let body = proto::$record { items: self.0.iter().map(item).collect() };
                encode(ObjectKind::$record, &[], &body.encode_to_vec())
            }

            /// Decodes a record. Byte strings are slices of the object.
            pub fn decode(object: &Bytes) -> Result<Self, ObjectError> {
                let kind = ObjectKind::$record;
                let (children, body) = decode_kind(object, kind)?;
                refuse_children(kind, &children)?;
                let record = proto::$record::decode(body).map_err(|why| Malformed::body(kind, why))?;
                let mut entries = Vec::with_capacity(record.items.len());
                for item in record.items {
                    match item.value.and_then(|value| value.value) {
                        Some(value) => entries.push((item.key, value)),
                        None => return Err(Malformed::body(kind, format_args!("{:?} has no value", item.key))),
                    }
                }
                Entries::new(entries).map(Self).map_err(|why| Malformed::body(kind, why))
            }
        }
    };
}
value_record!(ConfigRecord, config_record, ConfigRecordValue);
value_record!(MetricRecord, metric_record, MetricRecordValue);

macro_rules! scalars {
    ($value:ident: $($from:ty => $variant:ident),+) => {$(
        impl From<$from> for $value {
            fn from(scalar: $from) -> Self {
                Self::$variant(scalar)
            }
        }
    )+};
}
scalars!(ConfigValue: f64 => Double, i64 => Sint64, bool => Bool, String => String, Bytes => Bytes);
scalars!(MetricValue: f64 => Double, i64 => Sint64);

macro_rules! lists {
    ($value:ident, empty $empty:ident: $($from:ty => $variant:ident),+) => {$(
        impl From<Vec<$from>> for $value {
            fn from(vals: Vec<$from>) -> Self {
                if vals.is_empty() { Self::$empty($empty::default()) } else { Self::$variant($variant { vals }) }
            }
        }
    )+};
}
lists!(ConfigValue, empty BoolList:
    f64 => DoubleList, i64 => SintList, bool => BoolList, String => StringList, Bytes => BytesList);
lists!(MetricValue, empty DoubleList: f64 => DoubleList, i64 => SintList);

macro_rules! unsigned {
    ($value:ident) => {
        impl From<u64> for $value {
            fn from(number: u64) -> Self {
                i64::try_from(number).map_or(Self::Uint64(number), Self::Sint64)
            }
        }

        impl From<Vec<u64>> for $value {
            fn from(vals: Vec<u64>) -> Self {
                match vals.iter().map(|&number| i64::try_from(number)).collect::<Result<Vec<i64>, _>>() {
                    Ok(signed) => signed.into(),
                    Err(_) => Self::UintList(UintList { vals }),
                }
            }
        }
    };
}
unsigned!(ConfigValue);
unsigned!(MetricValue);
