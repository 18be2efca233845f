//! The objects of a federation at a site, by part. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use trellis_plan::ResourceId;
use trellis_spec::Name;

use crate::names;
use crate::record::Record;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    pub workloads: BTreeMap<ResourceId, Value>,
    pub pods: BTreeMap<ResourceId, Vec<Value>>,
    /// The Service of the coordinator.
    pub service: Option<Value>,
    /// Last warning about a workload or a pod, by the name of the object.
    pub warnings: BTreeMap<String, String>,
}

impl Snapshot {
    pub fn new(
        federation: &Name,
        site: &Name,
        workloads: Vec<Value>,
        pods: Vec<Value>,
        service: Option<Value>,
    ) -> Snapshot {
        let id = |object: &Value| {
            let label = object["metadata"]["labels"][names::PART].as_str()?;
            names::part(federation, site, label)
        };
        let mut snapshot = Snapshot { service, ..Snapshot::default() };
        for workload in workloads {
            if let Some(id) = id(&workload) {
                snapshot.workloads.insert(id, workload);
            }
        }
        for pod in pods {
            if let Some(id) = id(&pod) {
                snapshot.pods.entry(id).or_default().push(pod);
            }
        }
        snapshot
    }
}

/// `None`: the driver did not create the workload.
pub fn record(workload: &Value) -> Option<Result<Record, String>> {
    workload["metadata"]["annotations"][names::RECORD].as_str().map(Record::read)
}

pub fn is_stopping(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether the pod has the current generation and instance of its part.
pub fn is_current(pod: &Value, record: &Record) -> bool {
    let expected =
        [(names::GENERATION, record.generation().to_string()), (names::INSTANCE, record.instance.to_string())];
    expected.iter().all(|(mark, value)| pod["metadata"]["annotations"][mark] == value.as_str())
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}
