//! Permissions of the operator, each with its reason. The roles of the manifests, the kustomization and the chart come
//! from this table. A test runs the operator with these permissions only, and finds unused ones.

use serde_json::{Value, json};

/// Scope of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// All namespaces whose federations are watched.
    Federations,
    /// The namespace of the operator.
    Own,
    /// Cluster-scoped kinds. An operator for some namespaces does not have these permissions and works without.
    Cluster,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    pub group: &'static str,
    pub resource: &'static str,
    pub verbs: &'static [&'static str],
    pub reach: Reach,
    pub why: &'static str,
}

const fn may(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    reach: Reach,
    why: &'static str,
) -> Permission {
    Permission { group, resource, verbs, reach, why }
}

const FLOWER: &str = crate::federation::GROUP;
/// Managed objects are watched, read before creation in case of a name conflict, applied with patches and deleted.
/// Applying a missing object needs `create` too.
const KEEP: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
const SEE: &[&str] = &["get", "list", "watch"];

pub const PERMISSIONS: &[Permission] = &[
    may(FLOWER, "federations", SEE, Reach::Federations, "what users want"),
    may(FLOWER, "federations/status", &["patch"], Reach::Federations, "how it is"),
    may(
        FLOWER,
        "federations/finalizers",
        &["update"],
        Reach::Federations,
        "own objects that block the owner's deletion",
    ),
    may(
        FLOWER,
        "federationruns",
        &["get", "list", "watch", "patch", "delete"],
        Reach::Federations,
        "runs, their finalizer, their end of life",
    ),
    may(FLOWER, "federationruns/status", &["patch"], Reach::Federations, "how a run is"),
    may("apps", "statefulsets", KEEP, Reach::Federations, "SuperLinks and pools"),
    may("apps", "daemonsets", KEEP, Reach::Federations, "pools of mode DaemonSet"),
    may("apps", "deployments", &["list", "delete"], Reach::Federations, "a SuperLink that an old operator left"),
    may("", "services", KEEP, Reach::Federations, "the names of SuperLinks and nodes"),
    may(
        "",
        "secrets",
        &["get", "list", "watch", "create", "update", "delete"],
        Reach::Federations,
        "certificates, keys, tokens",
    ),
    may(
        "",
        "pods",
        &["list", "delete"],
        Reach::Federations,
        "why pods do not start; those that keep a new revision out",
    ),
    may("", "events", &["list"], Reach::Federations, "why a controller makes no pod"),
    may("", "configmaps", &["get"], Reach::Federations, "apps that runs name"),
    may("policy", "poddisruptionbudgets", KEEP, Reach::Federations, "what a drain of machines may take"),
    may("networking.k8s.io", "networkpolicies", KEEP, Reach::Federations, "who reaches a SuperLink"),
    may(
        "cert-manager.io",
        "certificates",
        &["list", "watch", "create", "patch", "delete"],
        Reach::Federations,
        "TLS by cert-manager",
    ),
    may("monitoring.coreos.com", "podmonitors", KEEP, Reach::Federations, "metrics of pods"),
    may("events.k8s.io", "events", &["create", "patch"], Reach::Federations, "what happened"),
    may("coordination.k8s.io", "leases", &["get", "create", "update"], Reach::Own, "one operator at a time"),
    may("storage.k8s.io", "storageclasses", &["list", "watch"], Reach::Cluster, "whether a claim would be served"),
];

/// Permissions of users of federations, not of the operator.
pub const PEOPLE: [(&str, &[&str]); 3] = [
    ("admin", &["*"]),
    ("editor", &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]),
    ("viewer", SEE),
];

/// Rules of a role for all permissions of a scope.
pub fn rules(reaches: &[Reach]) -> Vec<Value> {
    let mut rules: Vec<(&str, Vec<&str>, &[&str])> = Vec::new();
    for each in PERMISSIONS.iter().filter(|each| reaches.contains(&each.reach)) {
        match rules.iter_mut().find(|(group, _, verbs)| *group == each.group && *verbs == each.verbs) {
            Some((_, resources, _)) => resources.push(each.resource),
            None => rules.push((each.group, vec![each.resource], each.verbs)),
        }
    }
    let rule = |(group, resources, verbs)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    rules.into_iter().map(rule).collect()
}

/// Rules of a role for users.
pub fn people_rules(verbs: &[&str]) -> Vec<Value> {
    vec![
        json!({"apiGroups": [FLOWER], "resources": ["federations", "federations/scale", "federationruns"], "verbs": verbs}),
        json!({"apiGroups": [FLOWER], "resources": ["federations/status", "federationruns/status"], "verbs": ["get"]}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_twice_and_nothing_by_a_star() {
        for (index, each) in PERMISSIONS.iter().enumerate() {
            let same = |other: &Permission| other.group == each.group && other.resource == each.resource;
            assert!(!PERMISSIONS[..index].iter().any(same), "{} is there twice", each.resource);
            assert!(!each.verbs.contains(&"*") && each.resource != "*" && each.group != "*", "{each:?}");
            assert!(!each.why.is_empty());
        }
    }

    #[test]
    fn every_permission_is_in_the_rules_of_its_reach_and_in_no_other() {
        for reach in [Reach::Federations, Reach::Own, Reach::Cluster] {
            let rules = rules(&[reach]);
            for each in PERMISSIONS {
                let covers = |rule: &Value| {
                    rule["apiGroups"] == json!([each.group])
                        && rule["resources"].as_array().unwrap().contains(&json!(each.resource))
                        && rule["verbs"] == json!(each.verbs)
                };
                assert_eq!(
                    rules.iter().filter(|rule| covers(rule)).count(),
                    usize::from(each.reach == reach),
                    "{each:?}"
                );
            }
        }
    }
}
