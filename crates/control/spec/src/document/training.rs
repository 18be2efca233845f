//! The fields of training: settings of runs with names of their own, and any other key of the run config.

use std::collections::BTreeMap;

use crate::federation::{ConfigTemplate, Training};
use crate::kind::{config_values, flag, one_of, share, whole};
use crate::object::Object;
use crate::problem::Place;

const MAX_ROUNDS: u32 = 1_000_000;
/// The names that the training crates use. This crate must not depend on them.
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
    /// The place of each setting.
    pub places: BTreeMap<String, Place>,
    pub partitions_at: Place,
}

pub(crate) fn read(object: &mut Object<'_>) -> TrainingDraft {
    let mut settings = Settings::default();
    let strategy =
        object.optional("strategy", one_of(&STRATEGIES), "Aggregation of replies to the next model (`strategy`).");
    settings.put(object, "strategy", "strategy", strategy.map(|name| ConfigTemplate::Text(name.to_owned())));
    let rounds = object.optional("rounds", whole(1..=MAX_ROUNDS), "Rounds of a run (`num-server-rounds`).");
    settings.put(object, "rounds", "num-server-rounds", rounds.map(number));
    for (name, key, help) in [
        ("minAvailableNodes", "min-available-nodes", "Nodes that a run waits for (`min-available-nodes`)."),
        ("minTrainNodes", "min-train-nodes", "Minimum of nodes that train in each round (`min-train-nodes`)."),
        (
            "minEvaluateNodes",
            "min-evaluate-nodes",
            "Minimum of nodes that evaluate in each round (`min-evaluate-nodes`).",
        ),
    ] {
        let count = object.optional(name, whole(1..=super::MAX_NODES), help);
        settings.put(object, name, key, count.map(number));
    }
    for (name, key, help) in [
        ("fractionTrain", "fraction-train", "Share of the nodes that train in each round (`fraction-train`)."),
        (
            "fractionEvaluate",
            "fraction-evaluate",
            "Share of the nodes that evaluate in each round (`fraction-evaluate`).",
        ),
    ] {
        let part = object.optional(name, share(), help);
        settings.put(object, name, key, part.map(ConfigTemplate::Float));
    }
    let kept = object.object("checkpoints", "Checkpoints of the model during a run.", checkpoints);
    for (key, value) in kept {
        settings.put(object, "checkpoints", key, value);
    }
    let help = "Other keys of the run config. Settings of a run take precedence.";
    let others = object.any("runConfig", config_values(), help);
    settings.merge(object, others);
    let help = "Number of partitions of the data; the number of nodes by default.";
    let partitions = object.optional("partitions", whole(1..=super::MAX_NODES), help);
    let training = Training { defaults: settings.values, partitions };
    let places = settings.fields.into_iter().map(|(key, (_, place))| (key, place)).collect();
    TrainingDraft { training, places, partitions_at: object.at("partitions") }
}

fn number(count: u32) -> ConfigTemplate {
    ConfigTemplate::Int(count.into())
}

fn checkpoints(object: &mut Object<'_>) -> [(&'static str, Option<ConfigTemplate>); 3] {
    let enabled = object.optional("enabled", flag(), "Whether checkpoints are saved (`checkpoint-enabled`).");
    let every =
        object.optional("every", whole(1..=MAX_ROUNDS), "Rounds between two checkpoints (`checkpoint-interval`).");
    let keep = object.optional(
        "keep",
        whole(1..=MAX_ROUNDS),
        "How many of the last checkpoints are kept (`checkpoint-keep`).",
    );
    [
        ("checkpoint-enabled", enabled.map(ConfigTemplate::Bool)),
        ("checkpoint-interval", every.map(number)),
        ("checkpoint-keep", keep.map(number)),
    ]
}

/// Keys and values of the run config, each set once.
#[derive(Default)]
struct Settings {
    values: BTreeMap<String, ConfigTemplate>,
    /// By key: the field that set it, and its place.
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
                    .refuse(format!("{key} is the same setting as {field}, which is set too"), "keep one of them");
            }
            self.fields.insert(key.clone(), ("runConfig", object.at("runConfig")));
            self.values.insert(key, value);
        }
    }
}
