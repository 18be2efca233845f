//! GPUs of a pool.

use serde_json::{Value, json};

use crate::scene::{container, names, pod, pool, rendered};

/// R10, R11, R12
#[test]
fn gpus_are_asked_for_by_name_and_number() {
    for (gpu, resource, count) in [
        (json!({"enabled": true, "vendor": "nvidia", "count": 2}), "nvidia.com/gpu", "2"),
        (json!({"enabled": true, "vendor": "amd"}), "amd.com/gpu", "1"),
        (json!({"enabled": true, "resourceName": "example.com/gpu", "count": 4}), "example.com/gpu", "4"),
        (json!({"enabled": true}), "nvidia.com/gpu", "1"),
    ] {
        let pool_fields = json!({"gpu": gpu, "supernodeResources": {"limits": {"memory": "1Gi"}}});
        let rendered = rendered("DaemonSet", "subprocess", &json!({"pool": pool_fields}));
        let resources = &container(pool(&rendered, "DaemonSet"), "supernode")["resources"];
        let mut limits = json!({"memory": "1Gi"});
        limits[resource] = count.into();
        let mut requests = json!({});
        requests[resource] = count.into();
        assert_eq!(*resources, json!({"limits": limits, "requests": requests}));
    }
}

/// R13, R14
#[test]
fn with_a_superexec_the_gpus_are_its_own() {
    for (mode, count) in [("StatefulSet", 2), ("DaemonSet", 4)] {
        let gpu = json!({"enabled": true, "vendor": "nvidia", "count": count});
        let rendered = rendered(mode, "process", &json!({"pool": {"gpu": gpu}}));
        let nodes = pool(&rendered, mode);
        assert_eq!(container(nodes, "supernode")["resources"], Value::Null);
        let expected = json!({"nvidia.com/gpu": count.to_string()});
        let resources = &container(nodes, "superexec-clientapp")["resources"];
        assert_eq!(*resources, json!({"limits": expected, "requests": expected}));
    }
}

/// R15
#[test]
fn all_gpus_of_nvidia_come_by_the_runtime_class() {
    let gpu = json!({"vendor": "nvidia", "mountAll": true});
    let rendered = rendered("DaemonSet", "process", &json!({"pool": {"gpu": gpu}}));
    let nodes = pool(&rendered, "DaemonSet");
    assert_eq!(pod(nodes)["runtimeClassName"], "nvidia");
    for name in ["supernode", "superexec-clientapp"] {
        assert_eq!(container(nodes, name)["env"], json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]));
        assert_eq!(container(nodes, name)["resources"], Value::Null);
    }
}

/// R16, O11: devices are mounted; nothing is privileged, and no variable is set that ROCm does not know.
#[test]
fn all_gpus_of_amd_are_mounted_without_privileges() {
    let gpu = json!({"vendor": "amd", "mountAll": true});
    let rendered = rendered("DaemonSet", "process", &json!({"pool": {"gpu": gpu}}));
    let nodes = pool(&rendered, "DaemonSet");
    assert_eq!(
        pod(nodes)["volumes"],
        json!([
            {"name": "dev-kfd", "hostPath": {"path": "/dev/kfd", "type": "CharDevice"}},
            {"name": "dev-dri", "hostPath": {"path": "/dev/dri", "type": "Directory"}},
        ])
    );
    for name in ["supernode", "superexec-clientapp"] {
        assert_eq!(names(&container(nodes, name)["volumeMounts"], "mountPath"), ["/dev/kfd", "/dev/dri"]);
        assert_eq!(container(nodes, name)["env"], Value::Null);
        assert_eq!(container(nodes, name)["securityContext"]["privileged"], Value::Null);
        assert_eq!(container(nodes, name)["securityContext"]["allowPrivilegeEscalation"], false);
    }
    assert!(rendered.notes[0].what.contains("not privileged"), "{:?}", rendered.notes);
}

/// A privileged container is rendered only on request.
#[test]
fn privileges_are_given_to_who_asks() {
    let template = json!({"spec": {"containers": [{"name": "supernode", "securityContext": {"privileged": true}}]}});
    let fields = json!({"pool": {"gpu": {"vendor": "amd", "mountAll": true}, "podTemplate": template}});
    let rendered = rendered("DaemonSet", "subprocess", &fields);
    let context = &container(pool(&rendered, "DaemonSet"), "supernode")["securityContext"];
    assert_eq!(*context, json!({"privileged": true, "capabilities": {"drop": ["ALL"]}}));
}

/// A4
#[test]
fn gpus_that_are_switched_off_are_not_mounted() {
    for vendor in ["nvidia", "amd"] {
        let gpu = json!({"enabled": false, "vendor": vendor, "mountAll": true});
        let rendered = rendered("DaemonSet", "subprocess", &json!({"pool": {"gpu": gpu}}));
        let nodes = pool(&rendered, "DaemonSet");
        assert_eq!(pod(nodes)["runtimeClassName"], Value::Null);
        assert_eq!(pod(nodes)["volumes"], Value::Null);
        assert_eq!(container(nodes, "supernode")["env"], Value::Null);
        assert_eq!(rendered.notes[0].place, "spec.supernodes.pools[0].gpu.mountAll");
    }
}

#[test]
fn a_claim_takes_the_place_of_an_extended_resource() {
    let gpu = json!({"enabled": true, "resourceClaimTemplate": "slice"});
    let rendered = rendered("StatefulSet", "process", &json!({"pool": {"gpu": gpu}}));
    let nodes = pool(&rendered, "StatefulSet");
    assert_eq!(pod(nodes)["resourceClaims"], json!([{"name": "gpu", "resourceClaimTemplateName": "slice"}]));
    assert_eq!(container(nodes, "superexec-clientapp")["resources"], json!({"claims": [{"name": "gpu"}]}));
    assert_eq!(container(nodes, "supernode")["resources"], Value::Null);
}
