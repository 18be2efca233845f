//! What a checkpoint says of itself: `manifest.json`. Names and forms here are a contract with files that exist.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Of manifests that this version writes, and the newest that it reads.
pub const MANIFEST_FORMAT: u32 = 1;

/// Values by name, as loss and accuracy. One that is no number (a loss that diverged) is kept as such.
pub type Metrics = BTreeMap<String, f64>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Set when it is saved.
    pub format: u32,
    pub run_id: String,
    /// The last round that the model has seen; 0: the first model, before any.
    pub round: u64,
    pub rounds_planned: u64,
    /// Whether the run ended with this round.
    #[serde(rename = "final")]
    pub is_final: bool,
    pub strategy: String,
    /// Of sampling and noise.
    pub seed: u64,
    /// The settings of the run as they took effect.
    pub run_config: BTreeMap<String, Value>,
    /// Of this round.
    pub metrics: Measured,
    /// Of all rounds until this one, those before a resume too.
    pub history: Vec<Measured>,
    /// What a strategy remembers in single numbers. To be looked at: they are read from the state's file, to the last bit.
    #[serde(with = "numbers")]
    pub state_numbers: BTreeMap<String, f64>,
    pub app: App,
    pub resumed_from: Option<Origin>,
    /// Seconds since 1970.
    pub saved_at: f64,
    /// The Trellis that wrote it; set when it is saved.
    pub trellis_version: String,
    /// By name, what must be found in them; set when it is saved.
    pub files: BTreeMap<String, FileFacts>,
}

impl Manifest {
    /// What a run that goes on from here was resumed from.
    pub fn as_origin(&self) -> Origin {
        let before = self.resumed_from.clone().map(Box::new);
        Origin { run: self.run_id.clone(), round: self.round, before }
    }

    /// The checkpoints that led to this one, the nearest first.
    pub fn lineage(&self) -> Vec<&Origin> {
        std::iter::successors(self.resumed_from.as_ref(), |origin| origin.before.as_deref()).collect()
    }

    /// Of the model alone.
    pub fn model_bytes(&self) -> u64 {
        self.files.get(crate::store::MODEL_FILE).map_or(0, |facts| facts.bytes)
    }

    /// Of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|facts| facts.bytes).sum()
    }
}

/// The metrics of a round, aggregated over its nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub round: u64,
    #[serde(with = "numbers")]
    pub train: Metrics,
    #[serde(with = "numbers")]
    pub evaluate: Metrics,
}

/// The app whose clients trained the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    pub fab_id: String,
    pub fab_version: String,
    pub fab_hash: String,
}

/// A checkpoint that a run was resumed from, and what led to that one: known also when they are long removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub run: String,
    pub round: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Origin>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

/// Numbers in JSON, which has no words for those that are not finite: they are texts, as Python and JavaScript spell them.
mod numbers {
    use super::*;
    use serde::{Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(numbers: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(numbers.iter().map(|(name, number)| {
            let value = match number {
                finite if finite.is_finite() => Value::from(*finite),
                nan if nan.is_nan() => Value::from("NaN"),
                infinite => Value::from(if *infinite > 0.0 { "Infinity" } else { "-Infinity" }),
            };
            (name, value)
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
        let values = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let number = |(name, value): (String, Value)| {
            let number = match &value {
                Value::String(text) => match text.as_str() {
                    "NaN" => Some(f64::NAN),
                    "Infinity" => Some(f64::INFINITY),
                    "-Infinity" => Some(f64::NEG_INFINITY),
                    _ => None,
                },
                other => other.as_f64(),
            };
            number.map(|number| (name, number)).ok_or_else(|| D::Error::custom(format!("{value} is not a number")))
        };
        values.into_iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_come_back_to_the_last_bit() {
        let numbers =
            [0.1 + 0.2, f64::MIN_POSITIVE, 5e-324, f64::MAX, -0.0, 1e23, 9.988e-7, f64::INFINITY, -f64::INFINITY];
        let train = numbers.iter().enumerate().map(|(index, number)| (index.to_string(), *number)).collect();
        let evaluate = Metrics::from([("loss".to_owned(), f64::NAN)]);
        let measured = Measured { round: 3, train, evaluate };
        let text = serde_json::to_string(&measured).unwrap();
        let back: Measured = serde_json::from_str(&text).unwrap();
        let bits = |metrics: &Metrics| metrics.values().map(|number| number.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back.train), bits(&measured.train), "{text}");
        assert!(back.evaluate["loss"].is_nan(), "{text}");
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        let bad = r#"{"round": 1, "train": {"loss": "low"}, "evaluate": {}}"#;
        let error = serde_json::from_str::<Measured>(bad).unwrap_err().to_string();
        assert!(error.contains("\"low\" is not a number"), "{error}");
    }

    #[test]
    fn the_lineage_goes_back_to_the_first_run() {
        let first = Manifest { run_id: "1".to_owned(), round: 5, ..Manifest::default() };
        let second =
            Manifest { run_id: "2".to_owned(), round: 9, resumed_from: Some(first.as_origin()), ..Manifest::default() };
        let third = Manifest { resumed_from: Some(second.as_origin()), ..Manifest::default() };
        let lineage: Vec<(&str, u64)> =
            third.lineage().iter().map(|origin| (origin.run.as_str(), origin.round)).collect();
        assert_eq!(lineage, [("2", 9), ("1", 5)]);
        assert!(first.lineage().is_empty());
    }
}
