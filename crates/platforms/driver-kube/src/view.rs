//! What a look shows of a federation at a site, by part. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use trellis_plan::ResourceId;
use trellis_spec::Name;

use crate::names;
use crate::record::Record;

/// As the API server has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    pub workloads: BTreeMap<ResourceId, Value>,
    pub pods: BTreeMap<ResourceId, Vec<Value>>,
    /// Of the coordinator.
    pub service: Option<Value>,
    /// What went wrong with a workload or a pod, by its name; only of those that need telling.
    pub warnings: BTreeMap<String, String>,
}

impl View {
    pub fn new(
        federation: &Name,
        site: &Name,
        workloads: Vec<Value>,
        pods: Vec<Value>,
        service: Option<Value>,
    ) -> View {
        let id = |object: &Value| {
            let label = object["metadata"]["labels"][names::PART].as_str()?;
            names::part(federation, site, label)
        };
        let mut view = View { service, ..View::default() };
        for workload in workloads {
            if let Some(id) = id(&workload) {
                view.workloads.insert(id, workload);
            }
        }
        for pod in pods {
            if let Some(id) = id(&pod) {
                view.pods.entry(id).or_default().push(pod);
            }
        }
        view
    }
}

/// `None`: it is not ours.
pub fn record(workload: &Value) -> Option<Result<Record, String>> {
    workload["metadata"]["annotations"][names::RECORD].as_str().map(Record::read)
}

pub fn is_stopping(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Of the newest generation and instance of its part.
pub fn is_of(pod: &Value, record: &Record) -> bool {
    let wanted = [(names::GENERATION, record.generation().to_string()), (names::INSTANCE, record.instance.to_string())];
    wanted.iter().all(|(mark, value)| pod["metadata"]["annotations"][mark] == value.as_str())
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}
