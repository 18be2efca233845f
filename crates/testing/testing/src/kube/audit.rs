//! The writes to an API server: from its audit log, and from its counters.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

const CHANGING: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// Verbs in the counters; `APPLY` is a server-side apply.
const COUNTED: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];

/// An audited request and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub user: String,
    /// User agent: `kubectl/v1.35.4 …`.
    pub agent: String,
    /// `create`, `update`, `patch`, `delete`, `deletecollection`; for service accounts also `get`, `list`, `watch`.
    pub verb: String,
    /// `apps`; empty for the core group.
    pub group: String,
    /// `statefulsets`, `federations/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub status: u64,
}

pub(super) fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "verbs": CHANGING},
            // All requests of service accounts, so that tests can check which permissions a program uses.
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    })
}

impl Write {
    pub fn changes(&self) -> bool {
        CHANGING.contains(&self.verb.as_str())
    }
}

pub(super) fn read(log: &Path) -> Vec<Write> {
    let content = fs::read_to_string(log).unwrap_or_default();
    content.lines().filter_map(|line| parse(&serde_json::from_str(line).ok()?)).collect()
}

fn parse(event: &Value) -> Option<Write> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let resource = match object["subresource"].as_str() {
        Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
        None => text(&object["resource"]),
    };
    Some(Write {
        user: text(&event["user"]["username"]),
        agent: text(&event["userAgent"]),
        verb: event["verb"].as_str()?.to_owned(),
        group: text(&object["apiGroup"]),
        resource,
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        status: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
    })
}

pub(super) fn counted(metrics: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let (verb, resource) = (label(line, "verb"), label(line, "resource"));
        let count = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).unwrap_or_default();
        if COUNTED.contains(&verb) {
            let subresource = label(line, "subresource");
            let slash = if subresource.is_empty() { "" } else { "/" };
            *counts.entry(format!("{verb} {resource}{slash}{subresource}")).or_default() += count as u64;
        }
    }
    counts
}

/// The values of these labels contain no quotes.
fn label<'a>(line: &'a str, name: &str) -> &'a str {
    let mut parts = line.split(['{', ',']);
    let value = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix("=\""));
    value.and_then(|value| value.split('"').next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_by_verb_and_resource() {
        let metrics = "\
# TYPE apiserver_request_total counter
apiserver_request_total{code=\"200\",resource=\"statefulsets\",subresource=\"\",verb=\"APPLY\",version=\"v1\"} 3
apiserver_request_total{code=\"201\",resource=\"statefulsets\",subresource=\"\",verb=\"APPLY\",version=\"v1\"} 1.0e+02
apiserver_request_total{code=\"200\",resource=\"federations\",subresource=\"status\",verb=\"PATCH\",version=\"v1\"} 2
apiserver_request_total{code=\"200\",resource=\"pods\",subresource=\"\",verb=\"WATCH\",version=\"v1\"} 7
";
        let expected = [("APPLY statefulsets", 103), ("PATCH federations/status", 2)];
        assert_eq!(counted(metrics), expected.map(|(name, count)| (name.to_owned(), count)).into());
    }
}
