//! The chart with a real Helm: every value has an effect and gives objects that a real API server accepts (P1, P3, P5);
//! definitions and federations outlive it (P2).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use trellis_testing::kube::ControlPlane;

use crate::documents::{by_identity, read};
use crate::tools::{TRELLIS, chart, golden, helm, kubectl, plane, said, trellis};
use trellis_testing::stand_in;

/// Without a cluster Helm assumes an old one.
const KUBERNETES: &str = "1.35.0";
const RELEASE: &str = "trellis-operator";
const NAMESPACE: &str = "trellis-system";

/// Another value for each value of the chart, and its visible effect. Values with Kubernetes types count as one.
const OTHER: &[(&str, &str, &[&str])] = &[
    ("nameOverride", r#""other""#, &[]),
    ("fullnameOverride", r#""other""#, &[]),
    ("commonLabels", r#"{"team": "blue"}"#, &[]),
    ("manager.replicas", "2", &[]),
    ("manager.image.repository", r#""example.org/operator""#, &[]),
    ("manager.image.tag", r#""9.9.9""#, &[]),
    ("manager.image.digest", r#""sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef""#, &[]),
    ("manager.image.pullPolicy", r#""Always""#, &[]),
    ("manager.args", r#"["--resync-seconds=300"]"#, &[]),
    ("manager.env", r#"[{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]"#, &[]),
    ("manager.imagePullSecrets", r#"[{"name": "pull"}]"#, &[]),
    ("manager.workers", "7", &[]),
    ("manager.logLevel", r#""debug""#, &[]),
    ("manager.logFormat", r#""text""#, &[]),
    ("manager.podLabels", r#"{"zone": "a"}"#, &[]),
    ("manager.podAnnotations", r#"{"example.org/note": "x"}"#, &[]),
    ("manager.podSecurityContext", r#"{"fsGroup": 1000}"#, &[]),
    ("manager.securityContext", r#"{"runAsUser": 1000}"#, &[]),
    ("manager.resources", r#"{"limits": {"memory": "256Mi"}}"#, &[]),
    (
        "manager.affinity",
        r#"{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]}}}"#,
        &[],
    ),
    ("manager.nodeSelector", r#"{"kubernetes.io/os": "linux"}"#, &[]),
    ("manager.tolerations", r#"[{"key": "infra", "operator": "Exists"}]"#, &[]),
    (
        "manager.topologySpreadConstraints",
        r#"[{"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}]"#,
        &[],
    ),
    ("manager.priorityClassName", r#""system-cluster-critical""#, &[]),
    ("manager.terminationGracePeriodSeconds", "33", &[]),
    ("manager.extraVolumes", r#"[{"name": "extra", "emptyDir": {}}]"#, &[]),
    (
        "manager.extraVolumeMounts",
        r#"[{"name": "extra", "mountPath": "/extra"}]"#,
        &[r#"manager.extraVolumes=[{"name": "extra", "emptyDir": {}}]"#],
    ),
    ("leaderElection.enable", "false", &[]),
    ("watchNamespaces", r#"["default", "kube-public"]"#, &[]),
    ("podPolicy.allowPrivileged", "true", &[]),
    ("podPolicy.serviceAccounts", r#"["reader"]"#, &[]),
    ("serviceAccount.create", "false", &[]),
    ("serviceAccount.name", r#""somebody""#, &[]),
    ("serviceAccount.annotations", r#"{"example.org/role": "x"}"#, &[]),
    ("rbac.create", "false", &[]),
    ("rbacHelpers.enable", "true", &[]),
    ("rbacHelpers.aggregate", "true", &["rbacHelpers.enable=true"]),
    ("crd.enable", "false", &[]),
    ("crd.keep", "false", &[]),
    ("metrics.enable", "false", &[]),
    ("metrics.port", "9090", &[]),
    ("prometheus.enable", "true", &[]),
    ("prometheus.interval", r#""5s""#, &["prometheus.enable=true"]),
    ("prometheus.labels", r#"{"release": "prometheus"}"#, &["prometheus.enable=true"]),
    ("networkPolicy.enable", "true", &[]),
    ("networkPolicy.from", r#"[{"podSelector": {}}]"#, &["networkPolicy.enable=true"]),
    ("podDisruptionBudget.enable", "false", &["manager.replicas=2"]),
    ("podDisruptionBudget.maxUnavailable", "2", &["manager.replicas=2"]),
];

struct Helm(PathBuf);

impl Helm {
    fn call(&self, arguments: &[&str], kubeconfig: Option<&Path>) -> Output {
        let mut command = Command::new(&self.0);
        command.args(arguments).stdin(Stdio::null()).env_remove("KUBECONFIG");
        if let Some(kubeconfig) = kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command.output().expect("helm")
    }

    fn good(&self, arguments: &[&str], kubeconfig: Option<&Path>) -> String {
        let output = self.call(arguments, kubeconfig);
        assert!(output.status.success(), "helm {}\n{}", arguments.join(" "), said(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    fn template(&self, sets: &[&str]) -> Output {
        self.template_for(NAMESPACE, sets)
    }

    fn template_for(&self, namespace: &str, sets: &[&str]) -> Output {
        let place = chart();
        let mut arguments = vec!["template", RELEASE, place.to_str().expect("text")];
        arguments.extend(["--namespace", namespace, "--kube-version", KUBERNETES]);
        arguments.extend(sets.iter().flat_map(|set| ["--set-json", *set]));
        self.call(&arguments, None)
    }

    fn objects(&self, sets: &[&str]) -> BTreeMap<String, Value> {
        self.objects_for(NAMESPACE, sets)
    }

    fn objects_for(&self, namespace: &str, sets: &[&str]) -> BTreeMap<String, Value> {
        let output = self.template_for(namespace, sets);
        assert!(output.status.success(), "{sets:?}: {}", said(&output));
        by_identity(read(&String::from_utf8(output.stdout).expect("text")))
    }

    fn refusal(&self, sets: &[&str]) -> String {
        let output = self.template(sets);
        assert!(!output.status.success(), "{sets:?} was taken");
        said(&output)
    }

    /// With a cluster, in the namespace of the operator.
    fn at(&self, plane: &ControlPlane, line: &str) -> String {
        let place = chart();
        let words =
            line.split_whitespace().map(|word| if word == "CHART" { place.to_str().expect("text") } else { word });
        let words: Vec<&str> = words.chain(["--namespace", NAMESPACE]).collect();
        self.good(&words, Some(&plane.kubeconfig()))
    }
}

fn deployment(objects: &BTreeMap<String, Value>) -> &Value {
    &objects[&format!("Deployment {NAMESPACE}/{RELEASE}")]
}

fn container(objects: &BTreeMap<String, Value>) -> &Value {
    &deployment(objects)["spec"]["template"]["spec"]["containers"][0]
}

fn without_definitions(objects: &BTreeMap<String, Value>) -> String {
    let kept: Vec<&Value> = objects.values().filter(|object| object["kind"] != "CustomResourceDefinition").collect();
    trellis_spec::yaml::documents(kept)
}

/// The dotted names of all values; empty ones and those in [`OTHER`] count as one.
fn values(value: &Value, path: &str, found: &mut Vec<String>) {
    match value.as_object() {
        Some(fields) if !fields.is_empty() && !OTHER.iter().any(|(name, ..)| *name == path) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                values(value, &path, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn helm_has_nothing_to_say_against_it() {
    let Some(helm) = helm().map(Helm) else { return };
    helm.good(&["lint", "--strict", "--kube-version", KUBERNETES, chart().to_str().expect("text")], None);
}

#[test]
fn what_it_makes_is_as_it_was() {
    let Some(helm) = helm().map(Helm) else { return };
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/chart");
    golden(&goldens.join("usual.yaml"), &without_definitions(&helm.objects(&[])));
    let some = |(path, ..): &&(&str, &str, &[&str])| {
        // These take others away.
        !["serviceAccount.create", "rbac.create", "metrics.enable", "podDisruptionBudget.enable"].contains(path)
            && *path != "leaderElection.enable"
    };
    let everything: Vec<String> = OTHER.iter().filter(some).map(|(path, value, _)| format!("{path}={value}")).collect();
    let everything: Vec<&str> = everything.iter().map(String::as_str).collect();
    let name = format!("Deployment {NAMESPACE}/other");
    let objects = helm.objects(&everything);
    assert!(objects.contains_key(&name), "{:?}", objects.keys());
    golden(&goldens.join("everything.yaml"), &without_definitions(&objects));
}

/// P1, P3
#[test]
fn every_value_has_an_effect() {
    let Some(helm) = helm().map(Helm) else { return };
    let file = fs::read_to_string(chart().join("values.yaml")).expect("values.yaml");
    let mut known = Vec::new();
    values(&read(&file)[0], "", &mut known);
    let mut tried: Vec<&str> = OTHER.iter().map(|(path, ..)| *path).collect();
    tried.sort_unstable();
    known.sort_unstable();
    assert_eq!(known, tried, "values of the chart, and those that are tried here");
    for (path, value, needs) in OTHER {
        let changed: Vec<String> =
            needs.iter().map(|need| (*need).to_owned()).chain([format!("{path}={value}")]).collect();
        let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
        assert!(helm.objects(needs) != helm.objects(&changed), "{path} has no effect");
    }
}

#[test]
fn the_schema_knows_the_values_and_no_others() {
    let Some(helm) = helm().map(Helm) else { return };
    for (set, why) in [
        ("certManager.enable=true", "certManager"),
        ("manager.replica=2", "replica"),
        (r#"manager.replicas="two""#, "/manager/replicas"),
        ("metrics.port=8081", "/metrics/port"),
        (r#"watchNamespaces=["Blue"]"#, "/watchNamespaces/0"),
        (r#"manager.image.digest="latest""#, "/manager/image/digest"),
    ] {
        let refusal = helm.refusal(&[set]);
        assert!(refusal.contains(why), "{set}: {refusal}");
    }
}

#[test]
fn what_cannot_work_is_refused() {
    let Some(helm) = helm().map(Helm) else { return };
    let refusal = helm.refusal(&["manager.replicas=2", "leaderElection.enable=false"]);
    assert!(refusal.contains("would work against each other"), "{refusal}");
    let refusal = helm.refusal(&["prometheus.enable=true", "metrics.enable=false"]);
    assert!(refusal.contains("needs metrics.enable"), "{refusal}");
}

/// As in `manager.args` of the chart that ours replaces.
#[test]
fn a_flag_that_is_given_already_is_not_given_twice() {
    let Some(helm) = helm().map(Helm) else { return };
    let args = container(&helm.objects(&[r#"manager.args=["--leader-elect"]"#]))["args"].clone();
    let count = args.as_array().expect("args").iter().filter(|arg| **arg == "--leader-elect").count();
    assert_eq!(count, 1, "{args}");
}

#[test]
fn the_program_knows_every_argument() {
    let Some(helm) = helm().map(Helm) else { return };
    for sets in [
        &[][..],
        &[
            r#"watchNamespaces=["a","b"]"#,
            "manager.workers=3",
            "podPolicy.allowPrivileged=true",
            r#"podPolicy.serviceAccounts=["r"]"#,
        ][..],
        &["metrics.enable=false"][..],
    ] {
        let args = container(&helm.objects(sets))["args"].clone();
        let args: Vec<&str> = args.as_array().expect("args").iter().filter_map(Value::as_str).collect();
        let known =
            Command::new(TRELLIS).args(["operator", "run"]).args(&args).arg("--help").output().expect("trellis");
        assert!(known.status.success(), "{args:?}: {}", said(&known));
    }
}

/// The sources differ only in labels, and in content that one of them cannot have.
#[test]
fn it_makes_what_the_manifests_have() {
    let Some(helm) = helm().map(Helm) else { return };
    for (sets, flags) in [
        (&[][..], &[][..]),
        (&[r#"watchNamespaces=["blue"]"#][..], &["--watch-namespace", "blue"][..]),
        (&["rbacHelpers.enable=true", "networkPolicy.enable=true"][..], &["--user-roles", "--network-policy"][..]),
        (
            &["podPolicy.allowPrivileged=true", r#"podPolicy.serviceAccounts=["reader"]"#][..],
            &["--allow-privileged-pods", "--allow-service-account", "reader"][..],
        ),
    ] {
        let mut charted = helm.objects(sets);
        let mut printed = by_identity(read(&trellis(&[&["operator", "manifests"], flags].concat())));
        // Optional in Helm.
        printed.remove(&format!("Namespace -/{NAMESPACE}"));
        assert_eq!(charted.keys().collect::<Vec<_>>(), printed.keys().collect::<Vec<_>>(), "{sets:?}");
        for object in charted.values_mut().chain(printed.values_mut()) {
            plain(object);
        }
        for (identity, object) in charted {
            if identity.starts_with("CustomResourceDefinition") {
                assert!(object == printed[&identity], "{identity} differs");
            }
            assert_eq!(object, printed[&identity], "{identity}");
        }
    }
}

/// Without the labels of a release.
fn plain(object: &mut Value) {
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.remove("labels");
    metadata.remove("annotations");
    match object["kind"].as_str() {
        Some("Deployment") => {
            object["spec"]["selector"] = json!(null);
            object["spec"]["template"]["metadata"] = json!(null);
            let pod = &mut object["spec"]["template"]["spec"];
            pod["topologySpreadConstraints"][0]["labelSelector"] = json!(null);
            let container = &mut pod["containers"][0];
            container.as_object_mut().expect("a container").remove("imagePullPolicy");
            let args = container["args"].as_array_mut().expect("args");
            args.retain(|arg| !arg.as_str().is_some_and(|arg| arg.starts_with("--log-")));
        }
        Some("Service") => object["spec"]["selector"] = json!(null),
        Some("NetworkPolicy") => object["spec"]["podSelector"] = json!(null),
        _ => {}
    }
}

#[test]
fn the_api_server_takes_it_with_every_value() {
    let (Some(helm), Some(plane)) = (helm().map(Helm), plane()) else { return };
    kubectl(
        plane,
        &["apply", "-f", "-"],
        &stand_in("monitoring.coreos.com", "servicemonitors", "ServiceMonitor").to_string(),
    );
    plane.until_defined();
    let namespace = plane.namespace("chart");
    for (path, value, needs) in OTHER {
        let changed: Vec<String> =
            needs.iter().map(|need| (*need).to_owned()).chain([format!("{path}={value}")]).collect();
        let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
        let objects = without_definitions(&helm.objects_for(&namespace, &changed));
        kubectl(plane, &["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"], &objects);
    }
}

/// P2, on a control plane of its own: definitions belong to the whole cluster.
#[test]
fn definitions_and_federations_outlive_a_release() {
    use trellis_testing::kube::Parts;
    let Some(helm) = helm().map(Helm) else { return };
    let Some(plane) = ControlPlane::start(Parts::WithControllers) else { return };
    helm.at(&plane, "install trellis-operator CHART --create-namespace");
    plane.until_defined();
    kubectl(&plane, &["apply", "-f", "-"], FEDERATION);
    helm.at(&plane, "upgrade trellis-operator CHART --set manager.replicas=2 --set rbacHelpers.enable=true");
    let replicas = kubectl(&plane, &["get", "deploy", "-n", NAMESPACE, RELEASE, "-o", "jsonpath={.spec.replicas}"], "");
    assert_eq!(replicas, "2");
    helm.at(&plane, "uninstall trellis-operator --wait");
    let left = kubectl(&plane, &["get", "deploy,sa,role,rolebinding,svc", "-n", NAMESPACE, "-o", "name"], "");
    assert_eq!(left.trim(), "serviceaccount/default");
    assert!(kubectl(&plane, &["get", "federations", "-n", "default", "-o", "name"], "").contains("demo"));
    // A new installation adopts them; with the flag, the uninstallation deletes them.
    helm.at(&plane, "install trellis-operator CHART --set crd.keep=false");
    assert!(kubectl(&plane, &["get", "federations", "-n", "default", "-o", "name"], "").contains("demo"));
    helm.at(&plane, "uninstall trellis-operator --wait");
    let definitions = kubectl(&plane, &["get", "crd", "-o", "name"], "");
    assert!(!definitions.contains("flwr.exalsius.ai"), "{definitions}");
}

const FEDERATION: &str = "\
apiVersion: flwr.exalsius.ai/v1
kind: Federation
metadata: {name: demo, namespace: default}
spec:
  mode: StatefulSet
  isolationMode: subprocess
  superlink: {image: 'flwr/superlink:1.25.0'}
  supernodes:
    image: flwr/supernode:1.25.0
    pools: [{name: a, replicas: 1}]
";
