//! The run of a use case: its command line, its settings, and when to start it. Pure.

use std::path::Path;

use super::Calls;
use crate::readiness::Observed;
use crate::settings::{SuperLinkSettings, Training, UseCase};

/// Keys of the run config: ours, and the one of Flower apps. Our trainings accept both.
const FLOWER_NAMES: [(&str, &str); 3] = [
    ("min-train-nodes", "min-fit-clients"),
    ("min-evaluate-nodes", "min-evaluate-clients"),
    ("min-available-nodes", "min-available-clients"),
];

/// Values that the user set, by the keys of apps. The app has its own defaults for the rest.
pub fn said(training: &Training) -> impl Iterator<Item = (&str, &toml::Value)> {
    let said = training.config.iter().filter(|(key, _)| training.said.contains(key));
    said.map(|(key, value)| {
        let known = FLOWER_NAMES.iter().find(|(ours, _)| ours == key).map(|(_, theirs)| *theirs);
        (known.unwrap_or(key), value)
    })
}

/// Whether the run is due: enough nodes are connected, and there is no other run.
pub fn is_due(link: &SuperLinkSettings, seen: &Observed) -> bool {
    let enough = seen.nodes.is_some_and(|nodes| nodes >= link.training.min_available);
    link.use_case.is_some() && seen.serving && enough && seen.runs == Some(0)
}

/// Arguments of our program that start the run without waiting for it.
pub fn words(use_case: UseCase, training: &Training, calls: &Calls, trust: Option<&Path>) -> Vec<String> {
    let mut words = vec!["app".to_owned(), "run".to_owned(), use_case.name().to_owned(), "--detach".to_owned()];
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    flag("--superlink", calls.address.to_string());
    if let Some(token) = &calls.token {
        flag("--token-file", token.display().to_string());
    }
    if let Some(trust) = trust {
        flag("--root-certificates", trust.display().to_string());
    }
    for (key, value) in said(training) {
        let value = match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        flag("--set", format!("{key}={value}"));
    }
    if trust.is_none() {
        words.push("--insecure".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn settings_of_the_user_are_passed_to_the_run() {
        let config = BTreeMap::from([
            ("strategy".to_owned(), toml::Value::from("FedProx")),
            ("min-train-nodes".to_owned(), toml::Value::from(3)),
            ("num-server-rounds".to_owned(), toml::Value::from(9)),
        ]);
        let said = vec!["strategy".to_owned(), "min-train-nodes".to_owned()];
        let training = Training { config, said, min_available: 2, checkpoints: None };
        let address = "127.0.0.1:8000".parse().expect("an address");
        let calls = Calls { address, http: true, token: Some(PathBuf::from("/t")) };
        let words = words(UseCase::AnomalyDetection, &training, &calls, Some(Path::new("/ca")));
        assert_eq!(
            words.join(" "),
            "app run anomaly-detection --detach --superlink 127.0.0.1:8000 --token-file /t --root-certificates /ca \
             --set min-fit-clients=3 --set strategy=FedProx"
        );
    }
}
