//! Settings of runs, by the keys of their run config.

use std::collections::BTreeMap;

use super::superlink::has_defaults;
use super::{Reader, value};
use crate::settings::{Checkpoints, Common, Training};

/// Below the SuperLink's state directory, where the SuperLink looks for checkpoints.
const CHECKPOINTS: &str = "models";

/// Variable, key of the run config, and strategies that support it.
const OF_STRATEGIES: [(&str, &str, &[&str]); 5] = [
    ("FL_PROXIMAL_MU", "proximal-mu", &["FedProx"]),
    ("FL_SERVER_LR", "server-lr", &["FedAdam", "FedAdagrad", "FedYogi", "FedAvgM"]),
    ("FL_CLIENT_LR", "client-lr", &["FedAdam", "FedAdagrad", "FedYogi", "QFedAvg"]),
    ("FL_NUM_MALICIOUS", "num-malicious", &["Krum", "MultiKrum", "Bulyan"]),
    ("FL_TRIM_BETA", "trim-beta", &["FedTrimmedAvg"]),
];
/// The default applies to all strategies that support the variable, except those with another default in Flower.
const OTHER_DEFAULTS: [(&str, &str); 2] = [("FL_SERVER_LR", "FedYogi"), ("FL_SERVER_LR", "FedAvgM")];

pub fn read(reader: &mut Reader, common: &Common, has_use_case: bool) -> Training {
    let mut draft = Draft::default();
    let strategy = reader.choice("FL_STRATEGY");
    draft.put(reader, "FL_STRATEGY", "strategy", toml::Value::String(strategy.to_owned()));
    let available = reader.count("FL_MIN_AVAILABLE_CLIENTS");
    for (name, key) in [
        ("FL_NUM_ROUNDS", "num-server-rounds"),
        ("FL_MIN_FIT_CLIENTS", "min-train-nodes"),
        ("FL_MIN_EVALUATE_CLIENTS", "min-evaluate-nodes"),
        ("FL_MIN_AVAILABLE_CLIENTS", "min-available-nodes"),
    ] {
        let count = reader.count(name);
        draft.put(reader, name, key, toml::Value::Integer(count.into()));
        if key.starts_with("min-") && count > available {
            let what = format!("each round waits for {count} nodes, but starts when {available} are connected");
            reader.warn(name, what, format!("set FL_MIN_AVAILABLE_CLIENTS={count} too"));
        }
    }
    of_strategies(reader, strategy, &mut draft);
    enough_honest_nodes(reader, strategy, available);
    let checkpoints = checkpoints(reader, &mut draft);
    if !has_defaults(common) && !has_use_case {
        for name in &draft.variables {
            let what = "Flower's SuperLink does not support defaults of runs, so it is ignored";
            reader.warn(name, what, "set FL_USE_CASE, or FL_RUNTIME=trellis, or pass it to each run");
        }
    }
    Training { config: draft.config, said: draft.said, min_available: available, checkpoints }
}

#[derive(Default)]
struct Draft {
    config: BTreeMap<String, toml::Value>,
    said: Vec<String>,
    variables: Vec<&'static str>,
}

impl Draft {
    fn put(&mut self, reader: &Reader, name: &'static str, key: &str, value: toml::Value) {
        self.config.insert(key.to_owned(), value);
        if reader.is_set(name) {
            self.said.push(key.to_owned());
            self.variables.push(name);
        }
    }
}

/// A parameter that the strategy ignores is validated too, with a warning.
fn of_strategies(reader: &mut Reader, strategy: &str, draft: &mut Draft) {
    for (name, key, strategies) in OF_STRATEGIES {
        let value = match name {
            "FL_NUM_MALICIOUS" => toml::Value::Integer(reader.count(name).into()),
            _ => toml::Value::Float(reader.number(name)),
        };
        let known = strategies.contains(&strategy);
        let said = reader.is_set(name);
        if said && !known {
            let what = format!("{strategy} does not support it");
            reader.warn(name, what, format!("leave it out, or set FL_STRATEGY to {}", strategies.join(" or ")));
        }
        if said || known && !OTHER_DEFAULTS.contains(&(name, strategy)) {
            draft.put(reader, name, key, value);
        }
    }
    let no_pull = draft.config.get("proximal-mu") == Some(&toml::Value::Float(0.0));
    if strategy == "FedProx" && no_pull {
        reader.warn("FL_PROXIMAL_MU", "FedProx with 0 is FedAvg", "set more than 0, or set FL_STRATEGY=FedAvg");
    }
}

fn enough_honest_nodes(reader: &mut Reader, strategy: &str, available: u32) {
    let malicious = u64::from(reader.count_quietly("FL_NUM_MALICIOUS"));
    let needed = match strategy {
        "Krum" | "MultiKrum" => 2 * malicious + 3,
        "Bulyan" => 4 * malicious + 3,
        _ => return,
    };
    if u64::from(available) < needed {
        let name = if reader.is_set("FL_NUM_MALICIOUS") { "FL_NUM_MALICIOUS" } else { "FL_STRATEGY" };
        let what = format!(
            "{strategy} needs {needed} nodes if {malicious} may be malicious, but a round starts with {available}"
        );
        reader.reject(name, what, format!("set FL_MIN_AVAILABLE_CLIENTS={needed} or more"));
    }
}

fn checkpoints(reader: &mut Reader, draft: &mut Draft) -> Option<Checkpoints> {
    let enabled = reader.switch("FL_CHECKPOINT_ENABLED");
    let every_rounds = reader.count("FL_CHECKPOINT_INTERVAL");
    let directory = reader.take("FL_CHECKPOINT_PATH", value::absolute_path);
    draft.put(reader, "FL_CHECKPOINT_ENABLED", "checkpoint-enabled", toml::Value::Boolean(enabled));
    if !enabled {
        for name in ["FL_CHECKPOINT_INTERVAL", "FL_CHECKPOINT_PATH"] {
            if reader.is_set(name) {
                reader.warn(name, "checkpoints are disabled, so it is ignored", "set FL_CHECKPOINT_ENABLED=YES");
            }
        }
        return None;
    }
    draft.put(reader, "FL_CHECKPOINT_INTERVAL", "checkpoint-interval", toml::Value::Integer(every_rounds.into()));
    Some(Checkpoints { every_rounds, directory: directory.unwrap_or_else(|| CHECKPOINTS.to_owned()) })
}
