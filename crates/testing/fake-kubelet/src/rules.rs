//! Behaviour of pods that are not run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Running and ready at once. The default.
    Ready,
    /// Running, and ready after this time.
    ReadyAfter(Duration),
    /// Running, never ready.
    NeverReady,
    /// Not started, for this reason: `ImagePullBackOff`.
    Waits(String),
    /// Ends at once.
    Ends { exit_code: i32 },
}

/// Selects pods. Empty fields match all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pods {
    namespace: Option<String>,
    name: Option<String>,
    image: Option<String>,
    labels: BTreeMap<String, String>,
}

impl Pods {
    pub fn all() -> Pods {
        Pods::default()
    }

    pub fn of_namespace(namespace: &str) -> Pods {
        Pods { namespace: Some(namespace.to_owned()), ..Pods::default() }
    }

    pub fn named(mut self, name: &str) -> Pods {
        self.name = Some(name.to_owned());
        self
    }

    pub fn with_label(mut self, key: &str, value: &str) -> Pods {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Selects pods with a container of this image.
    pub fn with_image(mut self, image: &str) -> Pods {
        self.image = Some(image.to_owned());
        self
    }

    fn contain(&self, pod: &Pod) -> bool {
        let metadata = &pod.metadata;
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let has = |(key, value): (&String, &String)| {
            metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value)
        };
        let runs = |image: &String| {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            containers.into_iter().any(|container| container.image.as_ref() == Some(image))
        };
        self.image.as_ref().is_none_or(runs)
            && is(&self.namespace, &metadata.namespace)
            && is(&self.name, &metadata.name)
            && self.labels.iter().all(has)
    }
}

/// Rules of a test, and a signal that they changed.
pub(crate) struct Rules {
    rules: Mutex<Vec<(Pods, Behaviour)>>,
    changed: watch::Sender<()>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { rules: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Rules {
    pub fn add(&self, pods: Pods, behaviour: Behaviour) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.retain(|(known, _)| *known != pods);
        rules.push((pods, behaviour));
        drop(rules);
        self.changed.send_replace(());
    }

    pub fn behaviour_of(&self, pod: &Pod) -> Behaviour {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = rules.iter().rev().find(|(pods, _)| pods.contain(pod));
        rule.map_or(Behaviour::Ready, |(_, behaviour)| behaviour.clone())
    }

    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_latest_rule_that_fits_counts() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "a-0", "namespace": "one", "labels": {"pool": "a"}},
        }))
        .expect("a pod");
        let rules = Rules::default();
        assert_eq!(rules.behaviour_of(&pod), Behaviour::Ready);
        rules.add(Pods::of_namespace("one").with_label("pool", "a"), Behaviour::NeverReady);
        rules.add(Pods::of_namespace("two"), Behaviour::Ready);
        rules.add(Pods::all().with_label("pool", "b"), Behaviour::Ready);
        assert_eq!(rules.behaviour_of(&pod), Behaviour::NeverReady);
        rules.add(Pods::all().named("a-0"), Behaviour::Ends { exit_code: 1 });
        assert_eq!(rules.behaviour_of(&pod), Behaviour::Ends { exit_code: 1 });
        rules.add(Pods::of_namespace("one").with_label("pool", "a"), Behaviour::Ready);
        assert_eq!(rules.behaviour_of(&pod), Behaviour::Ready);
    }
}
