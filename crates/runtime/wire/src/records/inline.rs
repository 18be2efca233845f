//! Records as one protobuf message: the format of the state in a Context.

use super::{Array, Arrays, Record, Records};
use crate::object::{ConfigRecord, Entries, MetricRecord, RepeatedName};
use crate::proto;
use crate::proto::record_dict::item::Value;

/// Why records cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InlineError {
    #[error("{0:?} has no value")]
    NoValue(String),
    #[error(transparent)]
    RepeatedName(#[from] RepeatedName),
    #[error("the array {0:?} has a length below zero, or above 2147483647, in its shape")]
    Shape(String),
}

macro_rules! value_records {
    ($($record:ident, $items:ident, $value:ident, $read:ident, $write:ident;)+) => {$(
        fn $read(record: proto::$record) -> Result<$record, InlineError> {
            let values = record.items.into_iter().map(|item| match item.value.and_then(|value| value.value) {
                Some(value) => Ok((item.key, value)),
                None => Err(InlineError::NoValue(item.key)),
            });
            Ok($record(Entries::new(values.collect::<Result<_, InlineError>>()?)?))
        }

        fn $write(record: &$record) -> proto::$record {
            let item = |(name, value): &(String, _)| proto::$items::Item {
                key: name.clone(),
                value: Some(proto::$value { value: Some(Clone::clone(value)) }),
            };
            proto::$record { items: record.0.iter().map(item).collect() }
        }
    )+};
}
value_records! {
    ConfigRecord, config_record, ConfigRecordValue, read_config, write_config;
    MetricRecord, metric_record, MetricRecordValue, read_metrics, write_metrics;
}

pub fn from_inline(dict: proto::RecordDict) -> Result<Records, InlineError> {
    let record = |item: proto::record_dict::Item| {
        let record = match item.value {
            Some(Value::ArrayRecord(arrays)) => Record::Arrays(read_arrays(arrays)?),
            Some(Value::MetricRecord(metrics)) => Record::Metrics(read_metrics(metrics)?),
            Some(Value::ConfigRecord(config)) => Record::Config(read_config(config)?),
            None => return Err(InlineError::NoValue(item.key)),
        };
        Ok((item.key, record))
    };
    Ok(Entries::new(dict.items.into_iter().map(record).collect::<Result<_, InlineError>>()?)?)
}

pub fn to_inline(records: &Records) -> Result<proto::RecordDict, InlineError> {
    let item = |(name, record): &(String, Record)| {
        let value = match record {
            Record::Arrays(arrays) => Value::ArrayRecord(write_arrays(arrays)?),
            Record::Metrics(metrics) => Value::MetricRecord(write_metrics(metrics)),
            Record::Config(config) => Value::ConfigRecord(write_config(config)),
        };
        Ok(proto::record_dict::Item { key: name.clone(), value: Some(value) })
    };
    Ok(proto::RecordDict { items: records.iter().map(item).collect::<Result<_, InlineError>>()? })
}

fn read_arrays(record: proto::ArrayRecord) -> Result<Arrays, InlineError> {
    let array = |item: proto::array_record::Item| {
        let Some(proto::Array { dtype, shape, stype, data }) = item.value else {
            return Err(InlineError::NoValue(item.key));
        };
        let shape: Result<Vec<u64>, _> = shape.into_iter().map(u64::try_from).collect();
        let shape = shape.map_err(|_| InlineError::Shape(item.key.clone()))?;
        Ok((item.key, Array { dtype, shape, stype, data }))
    };
    Ok(Entries::new(record.items.into_iter().map(array).collect::<Result<_, InlineError>>()?)?)
}

fn write_arrays(arrays: &Arrays) -> Result<proto::ArrayRecord, InlineError> {
    let item = |(name, array): &(String, Array)| {
        let shape: Result<Vec<i32>, _> = array.shape.iter().map(|&length| i32::try_from(length)).collect();
        let value = proto::Array {
            dtype: array.dtype.clone(),
            shape: shape.map_err(|_| InlineError::Shape(name.clone()))?,
            stype: array.stype.clone(),
            data: array.data.clone(),
        };
        Ok(proto::array_record::Item { key: name.clone(), value: Some(value) })
    };
    Ok(proto::ArrayRecord { items: arrays.iter().map(item).collect::<Result<_, InlineError>>()? })
}
