//! What would be sent, as YAML, for `trellis plan --templates`. Nothing is asked, and nothing secret is in it: objects only name
//! their Secrets.

use serde_json::Value;
use trellis_kube::yaml::documents;
use trellis_plan::{Desired, Order, Rendering, Spec};
use trellis_spec::{KubeSite, Name, Persistence};

use crate::dress::dress;
use crate::names;
use crate::record::Record;
use crate::sight::inside;
use crate::wish::Place;

/// Of the Service, unless the document says otherwise.
const USUAL_FLEET_PORT: u16 = 9092;

pub fn preview(kube: &KubeSite, federation: &Name, _site: &Name, wanted: &[Desired]) -> Vec<Rendering> {
    let port = wanted.iter().find_map(|desired| match &desired.spec {
        Spec::Coordinator(spec) => Some(spec.endpoints.fleet.map_or(USUAL_FLEET_PORT, |port| port.get())),
        Spec::Node(_) => None,
    });
    let here = port.map(|port| format!("{}:{port}", inside(&names::coordinator(federation), kube)));
    wanted.iter().map(|desired| rendering(kube, desired, here.as_deref())).collect()
}

fn rendering(kube: &KubeSite, desired: &Desired, coordinator: Option<&str>) -> Rendering {
    let (claim, given) = match &desired.spec {
        Spec::Coordinator(spec) => (matches!(spec.persistence, Persistence::Disk { .. }), None),
        Spec::Node(spec) => (false, Some(spec.coordinator.as_str())),
    };
    let coordinator = given.map(|given| coordinator.unwrap_or(given).to_owned());
    let record = Record::new(desired.clone(), Order::default(), claim, 0);
    let place = Place { site: kube, claim, coordinator, revision: String::new() };
    let text = match dress(&record, &place) {
        Err(problems) => problems.iter().map(|problem| format!("# {problem}\n")).collect(),
        Ok(dressed) => {
            let all: Vec<Value> = dressed.others.into_iter().chain([without_record(dressed.workload)]).collect();
            documents(&all)
        }
    };
    Rendering { title: format!("Objects of {}", desired.id.part.name()), text }
}

/// The driver's own notes are of no use to readers.
fn without_record(mut workload: Value) -> Value {
    if let Some(annotations) = workload["metadata"]["annotations"].as_object_mut() {
        annotations.remove(names::RECORD);
    }
    workload
}
