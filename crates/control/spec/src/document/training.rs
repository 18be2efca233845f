//! The fields of training: settings of runs by their usual names, and any other key of the run config.

use std::collections::BTreeMap;

use crate::federation::{ConfigTemplate, Training};
use crate::kind::{config_values, flag, one_of, share, whole};
use crate::object::Object;
use crate::problem::Place;

const MAX_ROUNDS: u32 = 1_000_000;
/// As trainings know them; this crate must not know how they work.
pub const STRATEGIES: [&str; 15] = [
    "FedAvg",
    "FedAvgM",
    "FedProx",
    "FedAdagrad",
    "FedAdam",
    "FedYogi",
    "FedMedian",
    "FedTrimmedAvg",
    "Krum",
    "MultiKrum",
    "Bulyan",
    "QFedAvg",
    "FaultTolerantFedAvg",
    "FedXgbBagging",
    "FedXgbCyclic",
];

pub(crate) struct TrainingDraft {
    pub training: Training,
    /// Where each setting is.
    pub places: BTreeMap<String, Place>,
    pub partitions_at: Place,
}

pub(crate) fn read(object: &mut Object<'_>) -> TrainingDraft {
    let mut settings = Settings::default();
    let strategy = object.optional("strategy", one_of(&STRATEGIES), "How replies become the next model (`strategy`).");
    settings.put(object, "strategy", "strategy", strategy.map(|name| ConfigTemplate::Text(name.to_owned())));
    let rounds = object.optional("rounds", whole(1..=MAX_ROUNDS), "Rounds of a run (`num-server-rounds`).");
    settings.put(object, "rounds", "num-server-rounds", rounds.map(number));
    for (name, key, help) in [
        ("minAvailableNodes", "min-available-nodes", "A run waits for so many nodes (`min-available-nodes`)."),
        ("minTrainNodes", "min-train-nodes", "At least so many train in each round (`min-train-nodes`)."),
        ("minEvaluateNodes", "min-evaluate-nodes", "At least so many evaluate in each round (`min-evaluate-nodes`)."),
    ] {
        let count = object.optional(name, whole(1..=super::MAX_NODES), help);
        settings.put(object, name, key, count.map(number));
    }
    for (name, key, help) in [
        ("fractionTrain", "fraction-train", "Share of the nodes that train in each round (`fraction-train`)."),
        ("fractionEvaluate", "fraction-evaluate", "Share that evaluates in each round (`fraction-evaluate`)."),
    ] {
        let part = object.optional(name, share(), help);
        settings.put(object, name, key, part.map(ConfigTemplate::Float));
    }
    let kept = object.object("checkpoints", "Models that are kept during a run.", checkpoints);
    for (key, value) in kept {
        settings.put(object, "checkpoints", key, value);
    }
    let help = "Any keys of the run config, with their values. A run that sets them itself decides.";
    let others = object.any("runConfig", config_values(), help);
    settings.merge(object, others);
    let help = "Partitions that the data is divided into; as many as there are nodes where nothing is said.";
    let partitions = object.optional("partitions", whole(1..=super::MAX_NODES), help);
    let training = Training { defaults: settings.values, partitions };
    let places = settings.fields.into_iter().map(|(key, (_, place))| (key, place)).collect();
    TrainingDraft { training, places, partitions_at: object.at("partitions") }
}

fn number(count: u32) -> ConfigTemplate {
    ConfigTemplate::Int(count.into())
}

fn checkpoints(object: &mut Object<'_>) -> [(&'static str, Option<ConfigTemplate>); 3] {
    let enabled = object.optional("enabled", flag(), "Whether there are any (`checkpoint-enabled`).");
    let every = object.optional("every", whole(1..=MAX_ROUNDS), "After every so many rounds (`checkpoint-interval`).");
    let keep = object.optional("keep", whole(1..=MAX_ROUNDS), "So many of the last ones (`checkpoint-keep`).");
    [
        ("checkpoint-enabled", enabled.map(ConfigTemplate::Bool)),
        ("checkpoint-interval", every.map(number)),
        ("checkpoint-keep", keep.map(number)),
    ]
}

/// Keys and values of the run config, each said once.
#[derive(Default)]
struct Settings {
    values: BTreeMap<String, ConfigTemplate>,
    /// Key to the field that set it, and where that is.
    fields: BTreeMap<String, (&'static str, Place)>,
}

impl Settings {
    fn put(&mut self, object: &Object<'_>, field: &'static str, key: &'static str, value: Option<ConfigTemplate>) {
        if let Some(value) = value {
            self.values.insert(key.to_owned(), value);
            self.fields.insert(key.to_owned(), (field, object.at(field)));
        }
    }

    fn merge(&mut self, object: &Object<'_>, others: BTreeMap<String, ConfigTemplate>) {
        for (key, value) in others {
            if let Some((field, _)) = self.fields.get(&key) {
                object
                    .at("runConfig")
                    .refuse(format!("{key} is the same setting as {field}, which is given too"), "keep one of them");
            }
            self.fields.insert(key.clone(), ("runConfig", object.at("runConfig")));
            self.values.insert(key, value);
        }
    }
}
