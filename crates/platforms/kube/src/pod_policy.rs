//! Limits what the author of a Federation may request for its pods. Without limits, write access to Federations is
//! access to the machines and to every service account of the namespace. Only the user's fields are checked, not what
//! the operator renders itself.

use serde_json::Value;

use crate::federation::Federation;
use trellis_diagnostic::Diagnostic;

/// Set by the operator's administrator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodPolicy {
    /// Allows host namespaces, host paths, privileged containers and every service account.
    pub allow_privileged: bool,
    /// Service accounts that pods may use, in addition to the namespace's `default` without its token.
    pub service_accounts: Vec<String>,
}

/// Allowed volume types: none of them gives access to the files of the machine. `nfs` is one of them, as in the Pod Security
/// profile `baseline`: without it, authors would need `allow_privileged` for their data. See docs/security.md.
const VOLUMES: [&str; 10] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "nfs",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// Capabilities of the Pod Security profile `baseline`.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const DEFAULT_ACCOUNT: &str = "default";

/// All fields of a Federation that the policy forbids.
pub fn violations(federation: &Federation, policy: &PodPolicy) -> Vec<Diagnostic> {
    if policy.allow_privileged {
        return Vec::new();
    }
    let mut check = Check { policy, problems: Vec::new() };
    let superlink = &federation.spec.superlink;
    check.workload("spec.superlink", superlink.pod_template.as_ref(), &superlink.volumes);
    for (index, pool) in federation.spec.supernodes.pools.iter().enumerate() {
        check.workload(&format!("spec.supernodes.pools[{index}]"), pool.pod_template.as_ref(), &pool.volumes);
    }
    check.problems
}

struct Check<'p> {
    policy: &'p PodPolicy,
    problems: Vec<Diagnostic>,
}

impl Check<'_> {
    fn forbid(&mut self, place: String, what: impl Into<String>) {
        let to_do = "leave it out, or ask the administrator of the operator to start it with --allow-privileged-pods";
        self.problems.push(Diagnostic::error(place, what, to_do));
    }

    fn workload(&mut self, place: &str, template: Option<&Value>, volumes: &[Value]) {
        let pod = template.map_or(&Value::Null, |template| &template["spec"]);
        let pod_place = format!("{place}.podTemplate.spec");
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            if pod[field] == true {
                self.forbid(format!("{pod_place}.{field}"), "pods may not use namespaces of the machine");
            }
        }
        self.security(&pod_place, &pod["securityContext"]);
        let has_account = self.account(&pod_place, pod);
        self.volumes(&format!("{place}.volumes"), volumes, has_account);
        self.volumes(&format!("{pod_place}.volumes"), list(&pod["volumes"]), has_account);
        for kind in ["initContainers", "containers", "ephemeralContainers"] {
            for (index, container) in list(&pod[kind]).iter().enumerate() {
                self.container(&format!("{pod_place}.{kind}[{index}]"), container);
            }
        }
    }

    /// Checks the service account. Returns whether the pod may use a token of it.
    fn account(&mut self, place: &str, pod: &Value) -> bool {
        // `serviceAccount` is the deprecated name, and applies if `serviceAccountName` is absent.
        let named =
            ["serviceAccountName", "serviceAccount"].map(|field| (field, pod[field].as_str().unwrap_or_default()));
        let is_listed = |name: &str| self.policy.service_accounts.iter().any(|listed| listed == name);
        let foreign: Vec<(&str, &str)> =
            named.into_iter().filter(|(_, name)| !["", DEFAULT_ACCOUNT].contains(name) && !is_listed(name)).collect();
        let account = named.into_iter().map(|(_, name)| name).find(|name| !name.is_empty()).unwrap_or(DEFAULT_ACCOUNT);
        let may_use_token = is_listed(account);
        for (field, name) in foreign {
            let to_do =
                "leave it out, or ask the administrator of the operator to allow it with --allow-service-account";
            self.problems.push(Diagnostic::error(
                format!("{place}.{field}"),
                format!("pods may not run as the service account {name}"),
                to_do,
            ));
        }
        if pod["automountServiceAccountToken"] == true && !may_use_token {
            self.forbid(
                format!("{place}.automountServiceAccountToken"),
                format!("pods may not have the token of the service account {account}"),
            );
        }
        may_use_token
    }

    fn volumes(&mut self, place: &str, volumes: &[Value], may_use_token: bool) {
        for (index, volume) in volumes.iter().enumerate() {
            let kinds = volume.as_object().into_iter().flat_map(|volume| volume.keys());
            for kind in kinds.filter(|kind| *kind != "name" && !volume[kind.as_str()].is_null()) {
                if !VOLUMES.contains(&kind.as_str()) {
                    self.forbid(
                        format!("{place}[{index}].{kind}"),
                        format!("volumes of the kind {kind} are not allowed"),
                    );
                }
            }
            let sources = list(&volume["projected"]["sources"]);
            if !may_use_token && sources.iter().any(|source| source["serviceAccountToken"].is_object()) {
                self.forbid(
                    format!("{place}[{index}].projected"),
                    "pods may not have a token of a service account that is not allowed",
                );
            }
        }
    }

    fn container(&mut self, place: &str, container: &Value) {
        let context = &container["securityContext"];
        let context_place = format!("{place}.securityContext");
        if context["privileged"] == true {
            self.forbid(format!("{context_place}.privileged"), "containers may not be privileged");
        }
        if context["procMount"].as_str().is_some_and(|mount| mount != "Default") {
            self.forbid(format!("{context_place}.procMount"), "/proc of the machine may not be unmasked");
        }
        for capability in list(&context["capabilities"]["add"]).iter().filter_map(Value::as_str) {
            let name = capability.strip_prefix("CAP_").unwrap_or(capability);
            if !CAPABILITIES.contains(&name) {
                self.forbid(
                    format!("{context_place}.capabilities.add"),
                    format!("containers may not have the capability {capability}"),
                );
            }
        }
        self.security(place, context);
        for (index, port) in list(&container["ports"]).iter().enumerate() {
            if port["hostPort"].as_i64().unwrap_or_default() != 0 {
                self.forbid(format!("{place}.ports[{index}].hostPort"), "pods may not use ports of the machine");
            }
        }
    }

    /// Checks the fields that pods and containers share.
    fn security(&mut self, place: &str, context: &Value) {
        for field in ["seccompProfile", "appArmorProfile"] {
            if context[field]["type"] == "Unconfined" {
                self.forbid(format!("{place}.{field}"), "programs may not run without the profile of the machine");
            }
        }
        if context["windowsOptions"]["hostProcess"] == true {
            self.forbid(format!("{place}.windowsOptions.hostProcess"), "pods may not run as processes of the machine");
        }
        if !list(&context["sysctls"]).is_empty() {
            self.forbid(format!("{place}.sysctls"), "pods may not change parameters of the kernel");
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn federation(pool: Value, superlink: Value) -> Federation {
        let mut spec = json!({
            "mode": "StatefulSet", "isolationMode": "subprocess", "superlink": superlink,
            "supernodes": {"image": "n", "pools": [pool]},
        });
        spec["superlink"]["image"] = "l".into();
        spec["supernodes"]["pools"][0]["name"] = "a".into();
        Federation::read(&json!({"metadata": {"name": "fl"}, "spec": spec})).expect("readable")
    }

    fn places(pod: Value) -> Vec<String> {
        let federation = federation(json!({"podTemplate": {"spec": pod}}), json!({}));
        let found = violations(&federation, &PodPolicy::default());
        let allowed = PodPolicy { allow_privileged: true, ..PodPolicy::default() };
        assert_eq!(violations(&federation, &allowed), []);
        let prefix = "spec.supernodes.pools[0].podTemplate.spec.";
        found.iter().map(|problem| problem.place.strip_prefix(prefix).expect("a place").to_owned()).collect()
    }

    #[test]
    fn what_leads_to_the_machine_or_to_other_accounts_is_forbidden() {
        for (pod, expected) in [
            (json!({"hostNetwork": true, "hostPID": true, "hostIPC": true}), vec!["hostNetwork", "hostPID", "hostIPC"]),
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), vec!["volumes[0].hostPath"]),
            (json!({"volumes": [{"name": "v", "flexVolume": {}}]}), vec!["volumes[0].flexVolume"]),
            (
                json!({"containers": [{"name": "supernode", "securityContext": {"privileged": true}}]}),
                vec!["containers[0].securityContext.privileged"],
            ),
            (
                json!({"initContainers": [{"securityContext": {"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}, "procMount": "Unmasked"}}]}),
                vec![
                    "initContainers[0].securityContext.procMount",
                    "initContainers[0].securityContext.capabilities.add",
                ],
            ),
            (json!({"containers": [{"ports": [{"hostPort": 22}]}]}), vec!["containers[0].ports[0].hostPort"]),
            (json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}), vec!["seccompProfile"]),
            (json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}), vec!["windowsOptions.hostProcess"]),
            (json!({"serviceAccountName": "admin"}), vec!["serviceAccountName"]),
            (json!({"serviceAccount": "admin"}), vec!["serviceAccount"]),
            (json!({"automountServiceAccountToken": true}), vec!["automountServiceAccountToken"]),
            (
                json!({"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
                vec!["volumes[0].projected"],
            ),
        ] {
            assert_eq!(places(pod.clone()), expected, "{pod}");
        }
        let on_top = federation(
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            json!({"podTemplate": {"spec": {"hostPID": true}}}),
        );
        let found: Vec<String> =
            violations(&on_top, &PodPolicy::default()).into_iter().map(|problem| problem.place).collect();
        assert_eq!(found, ["spec.superlink.podTemplate.spec.hostPID", "spec.supernodes.pools[0].volumes[0].hostPath"]);
    }

    #[test]
    fn ordinary_pods_and_listed_accounts_are_allowed() {
        let ordinary = json!({
            "hostNetwork": false,
            "serviceAccountName": "default",
            "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "secret": {"secretName": "s3"}},
                {"name": "c", "nfs": {"server": "s", "path": "/"}}, {"name": "d", "emptyDir": {}},
            ],
            "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "supernode", "ports": [{"containerPort": 1}],
                "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "k"}}}],
                "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}, "privileged": false},
            }],
        });
        assert_eq!(places(ordinary), Vec::<String>::new());
        let listed = PodPolicy { service_accounts: vec!["reader".to_owned()], ..PodPolicy::default() };
        let pod = json!({"serviceAccountName": "reader", "automountServiceAccountToken": true});
        let federation = federation(json!({"podTemplate": {"spec": pod}}), json!({}));
        assert_eq!(violations(&federation, &listed), []);
        assert_eq!(violations(&federation, &PodPolicy::default()).len(), 2);
    }
}
