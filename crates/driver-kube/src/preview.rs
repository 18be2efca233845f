//! What would be sent, as YAML, for `trellis plan --templates`. Nothing is asked, and nothing secret is in it: objects only name
//! their Secrets.

use serde_json::Value;
use trellis_plan::{Desired, Order, Rendering, Spec};
use trellis_spec::{KubeSite, Name, Persistence};

use crate::dress::dress;
use crate::names;
use crate::record::Record;
use crate::sight::inside;
use crate::wish::Place;

/// Stands for what is known only when it is sent.
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
            let all = dressed.others.into_iter().chain([without_record(dressed.workload)]);
            all.map(|object| format!("---\n{}", yaml(&object, 0))).collect()
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

/// Block style; text is quoted as JSON has it wherever YAML could take it for something else.
fn yaml(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| field(&indent, key, value, depth)).collect(),
        Value::Array(items) => items.iter().map(|item| entry(&indent, item, depth)).collect(),
        scalar => format!("{indent}{}\n", plain(scalar)),
    }
}

fn field(indent: &str, key: &str, value: &Value, depth: usize) -> String {
    let key = plain(&Value::String(key.to_owned()));
    match value {
        Value::Object(fields) if !fields.is_empty() => format!("{indent}{key}:\n{}", yaml(value, depth + 1)),
        Value::Array(items) if !items.is_empty() => format!("{indent}{key}:\n{}", yaml(value, depth)),
        value => format!("{indent}{key}: {}\n", plain(value)),
    }
}

fn entry(indent: &str, item: &Value, depth: usize) -> String {
    match item {
        Value::Object(_) | Value::Array(_)
            if item != &Value::Array(Vec::new()) && item != &Value::Object(Default::default()) =>
        {
            let inner = yaml(item, depth + 1);
            format!("{indent}- {}", inner.trim_start())
        }
        item => format!("{indent}- {}\n", plain(item)),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        value => value.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    begins && text.chars().all(letters) && !words.contains(&text.to_ascii_lowercase().as_str())
}
