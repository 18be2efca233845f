//! Expands `$(NAME)` in commands, arguments, paths and variables, and resolves the sources of variables. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, Secret};

/// Objects that variables refer to. An error names a missing one.
pub(super) trait Cluster {
    fn secret(&self, namespace: &str, name: &str) -> Option<Secret>;
    fn config_map(&self, namespace: &str, name: &str) -> Option<ConfigMap>;
}

/// Unknown names stay; `$$` is a literal `$`.
pub(super) fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match known.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded + rest
}

/// Variables of a container. `pod` has its address already.
pub(super) fn variables(
    pod: &Pod,
    container: &Container,
    cluster: &dyn Cluster,
) -> Result<BTreeMap<String, String>, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut all = BTreeMap::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let mut add = |key: &str, value: String| all.insert(format!("{prefix}{key}"), value);
        if let Some(wanted) = &source.secret_ref {
            match cluster.secret(namespace, &wanted.name) {
                Some(secret) => {
                    secret.data.into_iter().flatten().for_each(|(key, value)| drop(add(&key, text(value.0))))
                }
                None if wanted.optional == Some(true) => {}
                None => return Err(format!("secret \"{}\" not found", wanted.name)),
            }
        }
        if let Some(wanted) = &source.config_map_ref {
            match cluster.config_map(namespace, &wanted.name) {
                Some(map) => map.data.into_iter().flatten().for_each(|(key, value)| drop(add(&key, value))),
                None if wanted.optional == Some(true) => {}
                None => return Err(format!("configmap \"{}\" not found", wanted.name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(variable, pod, container, cluster, &all)? {
            all.insert(variable.name.clone(), value);
        }
    }
    Ok(all)
}

fn value_of(
    variable: &EnvVar,
    pod: &Pod,
    container: &Container,
    cluster: &dyn Cluster,
    known: &BTreeMap<String, String>,
) -> Result<Option<String>, String> {
    match &variable.value_from {
        Some(source) => from_source(source, pod, container, cluster),
        None => Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), known))),
    }
}

fn from_source(
    source: &EnvVarSource,
    pod: &Pod,
    container: &Container,
    cluster: &dyn Cluster,
) -> Result<Option<String>, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(wanted) = &source.field_ref {
        return field(pod, wanted).map(Some);
    }
    if let Some(wanted) = &source.secret_key_ref {
        let secret = cluster.secret(namespace, &wanted.name);
        let value = secret.and_then(|secret| secret.data?.remove(&wanted.key)).map(|value| text(value.0));
        return found(value, wanted.optional, &format!("key {} of secret \"{}\" not found", wanted.key, wanted.name));
    }
    if let Some(wanted) = &source.config_map_key_ref {
        let value = cluster.config_map(namespace, &wanted.name).and_then(|map| map.data?.remove(&wanted.key));
        return found(
            value,
            wanted.optional,
            &format!("key {} of configmap \"{}\" not found", wanted.key, wanted.name),
        );
    }
    if let Some(wanted) = &source.resource_field_ref {
        let resources = container.resources.clone().unwrap_or_default();
        let (kind, name) = wanted.resource.split_once('.').unwrap_or_default();
        let amounts = if kind == "limits" { resources.limits } else { resources.requests };
        let amount = amounts.and_then(|mut amounts| amounts.remove(name)).map(|amount| amount.0);
        return Ok(Some(amount.unwrap_or_else(|| "0".to_owned())));
    }
    Err("a variable from a source that is not known here".to_owned())
}

fn found(value: Option<String>, optional: Option<bool>, missing: &str) -> Result<Option<String>, String> {
    if value.is_none() && optional != Some(true) { Err(missing.to_owned()) } else { Ok(value) }
}

/// A field of the downward API.
pub(super) fn field(pod: &Pod, wanted: &ObjectFieldSelector) -> Result<String, String> {
    let (metadata, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
    let path = wanted.field_path.as_str();
    let of_map = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default()
    };
    let value = match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" | "status.podIPs" => status.and_then(|status| status.pod_ip.clone()),
        "status.hostIP" | "status.hostIPs" => status.and_then(|status| status.host_ip.clone()),
        _ => {
            let key = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
            match (key("metadata.labels"), key("metadata.annotations")) {
                (Some(key), _) => Some(of_map(&metadata.labels, key)),
                (_, Some(key)) => Some(of_map(&metadata.annotations, key)),
                _ => return Err(format!("a field that is not known here: {path}")),
            }
        }
    };
    Ok(value.unwrap_or_default())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Here;

    impl Cluster for Here {
        fn secret(&self, namespace: &str, name: &str) -> Option<Secret> {
            let secret = json!({"data": {"token": "c2VjcmV0"}});
            (namespace == "ns" && name == "account").then(|| serde_json::from_value(secret).expect("a secret"))
        }

        fn config_map(&self, _: &str, name: &str) -> Option<ConfigMap> {
            (name == "settings").then(|| serde_json::from_value(json!({"data": {"LEVEL": "info"}})).expect("a map"))
        }
    }

    #[test]
    fn names_are_replaced_once_and_what_is_not_a_known_name_stays() {
        let known =
            BTreeMap::from([("A", "1"), ("B", "$(A)")].map(|(name, value)| (name.to_owned(), value.to_owned())));
        for (text, expected) in [
            ("$(A)-$(B)", "1-$(A)"),
            ("$(NONE) $A $ $", "$(NONE) $A $ $"),
            ("$$(A) $$$(A)", "$(A) $1"),
            ("$(A", "$(A"),
            ("", ""),
        ] {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }

    #[test]
    fn variables_come_from_all_their_sources_in_order() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "pool-3", "namespace": "ns", "labels": {"apps.kubernetes.io/pod-index": "3"}},
            "spec": {"nodeName": "node-1", "containers": []},
            "status": {"podIP": "10.0.0.3"},
        }))
        .expect("a pod");
        let reference = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let container: Container = serde_json::from_value(json!({
            "name": "one",
            "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "LOG_"}, {"secretRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "INDEX", "valueFrom": reference("metadata.labels['apps.kubernetes.io/pod-index']")},
                {"name": "NODE", "valueFrom": reference("spec.nodeName")},
                {"name": "IP", "valueFrom": reference("status.podIP")},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "account", "key": "token"}}},
                {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "account", "key": "none", "optional": true}}},
                {"name": "ALL", "value": "$(INDEX)@$(NODE) $(LATER) $(LOG_LEVEL)"},
                {"name": "LATER", "value": "x"},
            ],
        }))
        .expect("a container");
        let found = variables(&pod, &container, &Here).expect("variables");
        let expected = [
            ("ALL", "3@node-1 $(LATER) info"),
            ("INDEX", "3"),
            ("IP", "10.0.0.3"),
            ("LATER", "x"),
            ("LOG_LEVEL", "info"),
            ("NODE", "node-1"),
            ("TOKEN", "secret"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let missing =
            json!({"name": "one", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k"}}}]});
        let missing: Container = serde_json::from_value(missing).expect("a container");
        assert_eq!(variables(&pod, &missing, &Here), Err("key k of secret \"no\" not found".to_owned()));
    }
}
