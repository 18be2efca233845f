//! The content of a message in memory: named records of arrays, metrics or settings. Encoding produces the same bytes
//! and ids as the official package.

mod array;
mod deflate;
mod float16;
mod inflate;
mod inline;
mod npy;
mod outgoing;
mod tensor;

pub use array::{Array, NUMPY};
pub use deflate::{Deflated, deflate};
pub use float16::{Bf16, F16};
pub use inflate::{Fetch, FetchError, InflateError, MAX_INFLATED_BYTES, inflate};
pub use inline::{InlineError, from_inline, to_inline};
pub use npy::{NpyError, NpyHead, header as npy_header};
pub use outgoing::{Outgoing, error_reply, message, reply, reply_metadata};
pub use tensor::{Dtype, ShapeMismatch, Tensor, Values};

use crate::object::{ConfigRecord, Entries, MetricRecord};

/// Named arrays: a model.
pub type Arrays = Entries<Array>;

/// The content of a message: records by name, in insertion order.
pub type Records = Entries<Record>;

#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    Arrays(Arrays),
    Metrics(MetricRecord),
    Config(ConfigRecord),
}

impl Records {
    /// Returns the arrays of that name, or `None` if the name is missing or belongs to another kind of record.
    pub fn arrays(&self, name: &str) -> Option<&Arrays> {
        match self.get(name)? {
            Record::Arrays(arrays) => Some(arrays),
            _ => None,
        }
    }

    pub fn metrics(&self, name: &str) -> Option<&MetricRecord> {
        match self.get(name)? {
            Record::Metrics(metrics) => Some(metrics),
            _ => None,
        }
    }

    pub fn config(&self, name: &str) -> Option<&ConfigRecord> {
        match self.get(name)? {
            Record::Config(config) => Some(config),
            _ => None,
        }
    }
}

impl From<Arrays> for Record {
    fn from(arrays: Arrays) -> Self {
        Self::Arrays(arrays)
    }
}

impl From<MetricRecord> for Record {
    fn from(metrics: MetricRecord) -> Self {
        Self::Metrics(metrics)
    }
}

impl From<ConfigRecord> for Record {
    fn from(config: ConfigRecord) -> Self {
        Self::Config(config)
    }
}
