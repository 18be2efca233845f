//! FederationRun: refused resources, defaults, and columns.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, causes};
use crate::resources::{run, with_spec};

#[tokio::test]
async fn a_run_is_completed_and_shown() {
    let Some(cluster) = Cluster::of("runs").await else { return };
    let config = json!({ "text": "a", "number": 0.5, "whole": 3, "truth": true });
    let sent = with_spec(run(), &json!({ "config": config, "schedule": "0 3 * * mon" }));
    let made = cluster.created(&sent).await.expect("accepted");
    let spec = &made["spec"];
    assert_eq!(
        (&spec["concurrency"], &spec["retries"], &spec["suspend"]),
        (&json!("Forbid"), &json!(0), &json!(false))
    );
    assert_eq!(spec["config"], config, "nothing is pruned");

    let told = json!({ "status": { "state": "Running", "progress": "2/10", "result": { "train.loss": 0.25 }, "message": "" } });
    let api = cluster.api(&sent);
    let told = api.patch_status("first", &PatchParams::default(), &Patch::Merge(&told)).await.expect("taken");
    assert_eq!(told.data["status"]["result"]["train.loss"], 0.25);
    let shown = cluster.kubectl(&["get", "fedrun"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "FEDERATION", "STATE", "ROUND", "AGE"]);
    assert_eq!(lines[1][..4], ["first", "ward", "Running", "2/10"]);
}

#[tokio::test]
async fn what_no_run_can_be_is_refused() {
    let Some(cluster) = Cluster::of("bad-runs").await else { return };
    let app = "exactly one of native, catalogue and configMap must be set";
    for (name, change, field, message) in [
        ("no federation", json!({ "federation": null }), "spec.federation", "Required value"),
        ("no app", json!({ "app": null }), "spec.app", "Required value"),
        ("an app of no kind", json!({ "app": { "native": null } }), "spec.app", app),
        ("an app of two kinds", json!({ "app": { "catalogue": "a" } }), "spec.app", app),
        ("no rounds", json!({ "rounds": 0 }), "spec.rounds", "should be greater than or equal to 1"),
        ("four fields", json!({ "schedule": "0 3 * *   " }), "spec.schedule", "should match '^\\S+( +\\S+){4}$'"),
        ("many tries", json!({ "retries": 101 }), "spec.retries", "should be less than or equal to 100"),
        ("no wait", json!({ "backoffSeconds": 0 }), "spec.backoffSeconds", "should be greater than or equal to 1"),
        (
            "another way",
            json!({ "concurrency": "Replace" }),
            "spec.concurrency",
            "supported values: \"Forbid\", \"Allow\"",
        ),
        (
            "an end of what has none",
            json!({ "schedule": "0 3 * * *", "ttlSecondsAfterFinished": 5 }),
            "spec",
            "spec.ttlSecondsAfterFinished cannot be with schedule, which never ends",
        ),
    ] {
        let refused = cluster.tried(&with_spec(run(), &change)).await.expect_err(name);
        assert_eq!(refused.len(), 1, "{name}: {refused:?}");
        assert_eq!(refused[0].field, field, "{name}");
        assert!(refused[0].message.ends_with(message), "{name}: {}", refused[0].message);
    }
}

#[tokio::test]
async fn a_run_stays_with_its_federation() {
    let Some(cluster) = Cluster::of("moves").await else { return };
    cluster.created(&run()).await.expect("accepted");
    let change = |spec: Value| json!({ "spec": spec });
    let api = cluster.api(&run());
    let moved = change(json!({ "federation": "other" }));
    let refused = api.patch("first", &PatchParams::default(), &Patch::Merge(&moved)).await.expect_err("refused");
    let refused = causes(&refused);
    assert_eq!(refused[0].field, "spec.federation");
    assert!(
        refused[0].message.ends_with("spec.federation cannot be changed: make another FederationRun"),
        "{refused:?}"
    );
    let suspended = change(json!({ "suspend": true }));
    api.patch("first", &PatchParams::default(), &Patch::Merge(&suspended)).await.expect("accepted");
}
