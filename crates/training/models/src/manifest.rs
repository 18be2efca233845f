//! The manifest of a checkpoint, `manifest.json`. Existing files depend on its field names and formats.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format that this version writes, and the newest that it reads.
pub const MANIFEST_FORMAT: u32 = 1;

/// Values by name, such as loss and accuracy. Non-finite values (a diverged loss) are preserved.
pub type Metrics = BTreeMap<String, f64>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Set by the store.
    pub format: u32,
    pub run_id: String,
    /// The last round that changed the model; 0 for the initial model.
    pub round: u64,
    pub rounds_planned: u64,
    /// Whether the run ended with this round.
    #[serde(rename = "final")]
    pub is_final: bool,
    pub strategy: String,
    /// The seed of sampling and noise.
    pub seed: u64,
    /// The effective settings of the run.
    pub run_config: BTreeMap<String, Value>,
    /// The metrics of this round.
    pub metrics: Measured,
    /// The metrics of all rounds up to this one, including those before a resume.
    pub history: Vec<Measured>,
    /// The numbers of the strategy's state, for people. Loading reads the exact values from the state file.
    #[serde(with = "numbers")]
    pub state_numbers: BTreeMap<String, f64>,
    pub app: App,
    pub resumed_from: Option<Origin>,
    /// Seconds since 1970.
    pub saved_at: f64,
    /// The version of Trellis that wrote it; set by the store.
    pub trellis_version: String,
    /// Size and digest of each file by name; set by the store.
    pub files: BTreeMap<String, FileFacts>,
}

impl Manifest {
    /// The origin of a run that resumes from this checkpoint.
    pub fn as_origin(&self) -> Origin {
        let before = self.resumed_from.clone().map(Box::new);
        Origin { run: self.run_id.clone(), round: self.round, before }
    }

    /// The checkpoints that led to this one, nearest first.
    pub fn lineage(&self) -> Vec<&Origin> {
        std::iter::successors(self.resumed_from.as_ref(), |origin| origin.before.as_deref()).collect()
    }

    /// The size of the model file.
    pub fn model_bytes(&self) -> u64 {
        self.files.get(crate::store::MODEL_FILE).map_or(0, |facts| facts.bytes)
    }

    /// The size of all files.
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

/// The app that trained the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    pub fab_id: String,
    pub fab_version: String,
    pub fab_hash: String,
}

/// A checkpoint that a run was resumed from, and that one's own origin. It survives the removal of those checkpoints.
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
    pub sha256: String,
}

/// Numbers in JSON, which cannot express non-finite values: these are strings, spelled as in Python and JavaScript.
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
    fn text_is_not_a_metric() {
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
