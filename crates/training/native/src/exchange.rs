//! The record names that Flower's strategies use for models and metrics, and the conversion of models.

use trellis_wire::object::{Entries, MetricRecord};
use trellis_wire::records::{Arrays, Records, Tensor};

use crate::app::AppError;
use crate::network::{Network, Parameter};

pub const ARRAYS: &str = "arrays";
pub const CONFIG: &str = "config";
pub const METRICS: &str = "metrics";
pub const NUM_EXAMPLES: &str = "num-examples";
pub const SERVER_ROUND: &str = "server-round";

/// The parameters of a received model, with the sender's names.
#[derive(Debug, PartialEq)]
pub struct Received {
    pub names: Vec<String>,
    pub parameters: Vec<f32>,
}

/// Extracts the parameters of the network from an instruction: by name, or by position if the names are 0, 1, 2 ..., which
/// Flower derives from a Python list.
pub fn receive(network: &Network, records: &Records) -> Result<Received, AppError> {
    let expected = network.parameters();
    let arrays = records.arrays(ARRAYS).ok_or_else(|| {
        let present: Vec<&str> = records.names().collect();
        AppError::failed(format!(
            "the message has no ArrayRecord {ARRAYS:?} with a model (its records: {}); expected: {}",
            if present.is_empty() { "none".to_owned() } else { present.join(", ") },
            described(&expected)
        ))
    })?;
    let wrong = |what: &str| {
        let reason = format!("{what}; expected: {}; received: {}", described(&expected), described_arrays(arrays));
        AppError::failed(reason)
    };
    let numbered = arrays.names().enumerate().all(|(index, name)| name == index.to_string());
    let mut received = Received {
        names: expected.iter().map(|parameter| parameter.name.to_owned()).collect(),
        parameters: Vec::with_capacity(network.parameter_count()),
    };
    if numbered {
        received.names = (0..expected.len()).map(|index| index.to_string()).collect();
    }
    if arrays.len() != expected.len() {
        return Err(wrong(&format!("the model has {} arrays where {} were expected", arrays.len(), expected.len())));
    }
    for (name, parameter) in received.names.iter().zip(&expected) {
        let array = arrays.get(name).ok_or_else(|| wrong(&format!("the array {name:?} is missing")))?;
        let tensor = array.tensor().map_err(|error| wrong(&format!("the array {name:?} cannot be read: {error}")))?;
        if tensor.shape() != parameter.shape {
            return Err(wrong(&format!("the array {name:?} has the wrong shape")));
        }
        let values = tensor.values().to_f32().ok_or_else(|| wrong(&format!("the array {name:?} is not of floats")))?;
        if !values.iter().all(|value| value.is_finite()) {
            return Err(AppError::failed(format!("the array {name:?} contains non-finite values")));
        }
        received.parameters.extend_from_slice(&values);
    }
    Ok(received)
}

/// Converts parameters to float32 arrays with these names.
pub fn send(network: &Network, names: &[String], parameters: &[f32]) -> Arrays {
    let mut arrays = Arrays::default();
    for (name, parameter) in names.iter().zip(network.parameters()) {
        let values = parameters[parameter.range.clone()].to_vec();
        arrays.insert(name.as_str(), Tensor::new(parameter.shape, values).expect("a parameter fills its shape"));
    }
    arrays
}

/// A record of the measurements in this order, and the number of examples, by which strategies weight them.
pub fn metrics(measured: &[(&str, f64)], num_examples: usize) -> MetricRecord {
    let mut metrics = Entries::default();
    for (name, value) in measured {
        metrics.insert(*name, *value);
    }
    metrics.insert(NUM_EXAMPLES, num_examples as u64);
    MetricRecord(metrics)
}

fn described(parameters: &[Parameter]) -> String {
    let each: Vec<String> =
        parameters.iter().map(|parameter| format!("{} float32 {:?}", parameter.name, parameter.shape)).collect();
    each.join(", ")
}

fn described_arrays(arrays: &Arrays) -> String {
    /// Longer lists are truncated: the reason of an error must stay readable.
    const SHOWN: usize = 12;
    let mut each: Vec<String> =
        arrays.iter().take(SHOWN).map(|(name, array)| format!("{name} {} {:?}", array.dtype, array.shape)).collect();
    match arrays.len() {
        0 => each.push("nothing".to_owned()),
        all if all > SHOWN => each.push(format!("and {} more", all - SHOWN)),
        _ => {}
    }
    each.join(", ")
}
