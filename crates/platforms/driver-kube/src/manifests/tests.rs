//! A federation has the same objects whether it comes through the REST API or as a resource with kubectl: the objects of this
//! driver and those that the operator applies are compared field by field. Differences are listed.

use trellis_flower::{Image, Release};
use trellis_kube::federation::Federation;
use trellis_kube::render::{Durability, Ground, Trust, render};
use trellis_plan::{Desired, Order, Spec};
use trellis_spec::{ConfigValue, Exposure, Runtime, Tls};

use super::*;
use crate::testing;

/// The objects that the operator applies for a resource with one node in each pool.
fn by_operator(spec: Value) -> Vec<Value> {
    let resource = json!({"metadata": {"name": "f", "namespace": "federations"}, "spec": spec});
    let federation = Federation::read(&resource).expect("a resource");
    let is_tls = federation.spec.insecure == Some(false);
    let is_trellis = trellis_kube::flower::Programs::of(&federation).superlink.is_trellis();
    let trust = Trust {
        server_secret: trellis_kube::trust::server_name(&federation),
        authority_secret: trellis_kube::trust::bundle_name(&federation),
        admin_secret: is_trellis.then(|| trellis_kube::trust::admin_name(&federation)),
        ..Trust::default()
    };
    let ground = Ground { durability: Durability::Claim, trust: is_tls.then_some(trust), ..Ground::default() };
    let rendered = render(&federation, &ground);
    assert_eq!(rendered.problems, []);
    rendered.objects.into_iter().map(|Object(object)| normalized(object)).collect()
}

/// The objects that the driver applies for the parts of a plan.
fn by_driver(parts: &[Desired]) -> Vec<Value> {
    let site = trellis_spec::KubeSite { exposure: Exposure::LoadBalancer, ..testing::site() };
    let of_part = |desired: &Desired| {
        let record = Record::new(desired.clone(), Order::default(), true, 0);
        let coordinator = Some("f-superlink.federations.svc:9092".to_owned());
        let context = Context { site: &site, claim: true, coordinator, trust: None };
        let Manifests { workload, others } = manifests(&record, &context).expect("manifests");
        others.into_iter().chain([workload]).map(normalized)
    };
    parts.iter().flat_map(of_part).collect()
}

/// Without the marks of either side: owners, and the labels and annotations by which the driver finds its objects.
fn normalized(mut object: Value) -> Value {
    fields(&mut object["metadata"]).remove("ownerReferences");
    let is_mark = |key: &str| {
        [names::FEDERATION, names::SITE, names::PART, names::RECORD, names::GENERATION, names::INSTANCE].contains(&key)
    };
    let strip = |metadata: &mut Value| {
        for field in ["labels", "annotations"] {
            let Some(marks) = metadata.get_mut(field).and_then(Value::as_object_mut) else { continue };
            marks.retain(|key, _| !is_mark(key));
            if marks.is_empty() {
                fields(metadata).remove(field);
            }
        }
    };
    strip(&mut object["metadata"]);
    if object["spec"]["template"].is_object() {
        strip(&mut object["spec"]["template"]["metadata"]);
    }
    object
}

fn find<'o>(objects: &'o [Value], kind: &str, name: &str) -> &'o Value {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name} is missing"))
}

/// What differs between a node of a plan and the only node of a pool of a resource.
fn as_node_of_the_plan(object: &Value) -> Value {
    let text = object.to_string();
    // The ports `fleet` and `http` lead to the same container port where a release has one port for both.
    let address = "--superlink=f-superlink.federations.svc:9092";
    let text = text.replace("--superlink=f-superlink:9092", address).replace("--superlink=f-superlink:8000", address);
    // A node keeps its name if it moves to another site.
    let text = text.replace("--name=$(POD_NAME)", "--name=cpu-0");
    // A node may be in another cluster than its coordinator.
    serde_json::from_str(&text.replace("\"f-trust\"", "\"f-supernode-cpu-0-secret\"")).expect("JSON")
}

fn coordinator(runtime: Runtime, tls: Tls) -> Desired {
    let mut spec = testing::coordinator();
    spec.program = (runtime == Runtime::Trellis).then(|| "1.0.0".to_owned());
    spec.runtime = runtime;
    spec.tls = tls;
    spec.endpoints.advertise.clear();
    Desired::new(testing::id("f/lab/coordinator"), Spec::Coordinator(spec))
}

fn node(runtime: Runtime, tls: Tls) -> Desired {
    let mut spec = testing::node();
    spec.program = (runtime == Runtime::Trellis).then(|| "1.0.0".to_owned());
    spec.runtime = runtime;
    spec.tls = tls;
    spec.node_config.insert("site".to_owned(), ConfigValue::Text("a \"b\" $(C)".to_owned()));
    Desired::new(testing::id("f/lab/node/cpu-0"), Spec::Node(spec))
}

fn resource(runtime: &str, version: Option<&str>, images: [&str; 2], insecure: bool) -> Value {
    json!({
        "mode": "StatefulSet", "isolationMode": "subprocess", "insecure": insecure,
        "runtime": runtime, "version": version,
        "superlink": {"image": images[0], "service": {"type": "LoadBalancer"}},
        "supernodes": {"image": images[1], "pools": [{
            "name": "cpu-0", "replicas": 1, "images": {},
            "supernodeResources": {
                "requests": {"cpu": "500m", "memory": "1073741824"},
                "limits": {"cpu": "500m", "memory": "1073741824"},
            },
            "nodeConfig": {"partition-id": "0", "site": "a \"b\" $(C)"},
        }]},
        "persistence": {"enabled": true, "whenDeleted": "Delete"},
        "monitoring": {"jsonLogs": true},
    })
}

#[test]
fn both_ways_into_a_cluster_give_the_same_objects() {
    let flower = || Runtime::Flower(Release::NEWEST);
    let official = ["superlink", "supernode"].map(|role| Image::published(role, Release::NEWEST));
    let official = [official[0].as_str(), official[1].as_str()];
    let ours = ["trellis-superlink:1.0.0", "trellis-supernode:1.0.0"];
    let version = Release::NEWEST.to_string();
    for (runtime, word, version, images, tls) in [
        (Runtime::Trellis, "trellis", None, ours, Tls::Auto),
        (Runtime::Trellis, "trellis", None, ours, Tls::Off),
        (flower(), "flower", Some(version.as_str()), official, Tls::Auto),
        (flower(), "flower", Some(version.as_str()), official, Tls::Off),
    ] {
        let operator = by_operator(resource(word, version, images, tls == Tls::Off));
        let driver = by_driver(&[coordinator(runtime.clone(), tls.clone()), node(runtime, tls)]);
        for kind in ["Service", "StatefulSet"] {
            let mut expected = find(&operator, kind, "f-superlink").clone();
            if kind == "StatefulSet" {
                // The operator deletes pods that block an update, the driver need not.
                expected["spec"]["podManagementPolicy"] = json!("Parallel");
            }
            assert_eq!(*find(&driver, kind, "f-superlink"), expected, "{word}");
            let expected = as_node_of_the_plan(find(&operator, kind, "f-supernode-cpu-0"));
            assert_eq!(*find(&driver, kind, "f-supernode-cpu-0"), expected, "{word}");
        }
        let only_operator: Vec<&str> = operator
            .iter()
            .filter(|object| !driver.iter().any(|other| other["kind"] == object["kind"]))
            .filter_map(|object| object["kind"].as_str())
            .collect();
        assert_eq!(only_operator, ["PodDisruptionBudget"], "the account of a site may not write budgets");
    }
}
