//! The message formats of ClientApps: the record names of models, configurations and metrics. Apps of the Message API use the
//! names of Flower's strategies; apps with a `client_fn` have fixed names.
//!
//! The content of records is not interpreted here.

use trellis_strategy::metrics::scalar;
use trellis_wire::object::{ArrayRecord, ConfigRecord, ConfigValue, MetricRecord, Object};

pub const SERVER_ROUND: &str = "server-round";

/// The task of a node in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Train,
    Evaluate,
}

impl Act {
    /// Flower's message type.
    pub const fn name(self) -> &'static str {
        match self {
            Act::Train => "train",
            Act::Evaluate => "evaluate",
        }
    }
}

/// The two message formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFormat {
    /// That of the Message API.
    Records,
    /// That of apps with a `client_fn`: FitIns, EvaluateRes and so on.
    Legacy,
}

impl MessageFormat {
    /// The record names of the model and of the configuration in an instruction.
    pub const fn names(self, act: Act) -> (&'static str, &'static str) {
        match (self, act) {
            (MessageFormat::Records, _) => ("arrays", "config"),
            (MessageFormat::Legacy, Act::Train) => ("fitins.parameters", "fitins.config"),
            (MessageFormat::Legacy, Act::Evaluate) => ("evaluateins.parameters", "evaluateins.config"),
        }
    }
}

/// The query for an initial model: its message type, and the record name of its configuration.
pub const fn question(message_format: MessageFormat) -> (&'static str, &'static str) {
    match message_format {
        MessageFormat::Records => ("query.init", "config"),
        MessageFormat::Legacy => ("get_parameters", "getparametersins.config"),
    }
}

/// The used records of a reply.
#[derive(Debug, Default)]
pub struct Parts {
    pub arrays: Option<ArrayRecord>,
    /// Includes the weight of the reply.
    pub metrics: MetricRecord,
}

/// Extracts the used records of a reply; the error names what is missing.
pub fn parts(
    message_format: MessageFormat,
    records: Vec<(String, Object)>,
    weighted_by: &str,
) -> Result<Parts, String> {
    let (mut arrays, mut metrics, mut configs) = (Vec::new(), Vec::new(), Vec::new());
    for (name, record) in records {
        match record {
            Object::ArrayRecord(record) => arrays.push(record),
            Object::MetricRecord(record) => metrics.push(record),
            Object::ConfigRecord(record) => configs.push((name, record)),
            other => return Err(format!("its {name:?} is a {} instead of a record", other.kind())),
        }
    }
    if arrays.len() > 1 {
        return Err(format!("it has {} ArrayRecords; expected one, with the model", arrays.len()));
    }
    let metrics = match message_format {
        MessageFormat::Records => single(metrics)?,
        MessageFormat::Legacy => legacy_metrics(metrics, &configs, weighted_by)?,
    };
    Ok(Parts { arrays: arrays.pop(), metrics })
}

/// The weight of a reply.
pub fn weight(metrics: &MetricRecord, weighted_by: &str) -> Result<f64, String> {
    match scalar(metrics, weighted_by) {
        Some(weight) if weight.is_finite() && weight >= 0.0 => Ok(weight),
        Some(weight) => Err(format!("its {weighted_by} is {weight}; a non-negative number is required")),
        None => Err(format!("its metrics have no single number {weighted_by:?}")),
    }
}

fn single(mut metrics: Vec<MetricRecord>) -> Result<MetricRecord, String> {
    match metrics.len() {
        0 | 1 => Ok(metrics.pop().unwrap_or_default()),
        more => Err(format!("it has {more} MetricRecords; expected one")),
    }
}

fn legacy_metrics(
    records: Vec<MetricRecord>,
    configs: &[(String, ConfigRecord)],
    weighted_by: &str,
) -> Result<MetricRecord, String> {
    let find = |end: &str| configs.iter().find(|(name, _)| name.ends_with(end)).map(|(_, record)| record);
    if let Some(status) = find(".status") {
        check_status(status)?;
    }
    let mut metrics = MetricRecord::default();
    for (name, value) in find(".metrics").into_iter().flat_map(|record| &record.0) {
        match value {
            ConfigValue::Double(number) => metrics.0.insert(name.as_str(), *number),
            ConfigValue::Sint64(number) => metrics.0.insert(name.as_str(), *number),
            ConfigValue::Uint64(number) => metrics.0.insert(name.as_str(), *number),
            _ => {}
        }
    }
    for (name, value) in records.into_iter().flat_map(|record| record.0) {
        let name = if name == "num_examples" { weighted_by.to_owned() } else { name };
        metrics.0.insert(name, value);
    }
    Ok(metrics)
}

/// Code 0 is success; any other comes with a reason.
fn check_status(status: &ConfigRecord) -> Result<(), String> {
    let is_good = matches!(status.0.get("code"), None | Some(ConfigValue::Sint64(0) | ConfigValue::Uint64(0)));
    match status.0.get("message") {
        _ if is_good => Ok(()),
        Some(ConfigValue::String(reason)) => Err(format!("the client reports: {reason}")),
        _ => Err("the client reports a failure".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use trellis_wire::object::Entries;

    use super::*;

    fn metrics(entries: Entries<trellis_wire::object::MetricValue>) -> Object {
        Object::MetricRecord(MetricRecord(entries))
    }

    fn config(entries: Entries<ConfigValue>) -> Object {
        Object::ConfigRecord(ConfigRecord(entries))
    }

    #[test]
    fn a_reply_of_the_message_api() {
        let record = || metrics(Entries::default().with("loss", 0.5).with("num-examples", 7i64));
        let arrays = || Object::ArrayRecord(ArrayRecord::default());
        let read = |records: Vec<Object>| {
            let named = records.into_iter().enumerate().map(|(index, record)| (index.to_string(), record));
            parts(MessageFormat::Records, named.collect(), "num-examples")
        };
        let good = read(vec![arrays(), record()]).unwrap();
        assert!(good.arrays.is_some());
        assert_eq!(weight(&good.metrics, "num-examples"), Ok(7.0));
        assert_eq!(weight(&good.metrics, "n").unwrap_err(), "its metrics have no single number \"n\"");
        assert_eq!(read(vec![arrays(), arrays()]).unwrap_err(), "it has 2 ArrayRecords; expected one, with the model");
        assert_eq!(read(vec![record(), record()]).unwrap_err(), "it has 2 MetricRecords; expected one");
        assert!(read(vec![]).unwrap().arrays.is_none());
    }

    #[test]
    fn a_reply_of_an_app_with_a_client_fn() {
        let read = |code: i64| {
            let status = config(Entries::default().with("code", code).with("message", "no such model".to_owned()));
            let user_metrics = config(Entries::default().with("accuracy", 0.75).with("name", "x".to_owned()));
            let records = vec![
                ("evaluateres.loss", metrics(Entries::default().with("loss", 0.5))),
                ("evaluateres.num_examples", metrics(Entries::default().with("num_examples", 9i64))),
                ("evaluateres.metrics", user_metrics),
                ("evaluateres.status", status),
            ];
            let records = records.into_iter().map(|(name, record)| (name.to_owned(), record)).collect();
            parts(MessageFormat::Legacy, records, "num-examples")
        };
        let good = read(0).unwrap().metrics;
        assert_eq!(weight(&good, "num-examples"), Ok(9.0));
        assert_eq!((scalar(&good, "loss"), scalar(&good, "accuracy")), (Some(0.5), Some(0.75)));
        assert_eq!(read(3).unwrap_err(), "the client reports: no such model");
    }
}
