//! Certificates of the federation's own authority.

use std::time::Duration;

use serde_json::json;
use trellis_kube::trust::rotation::PROPAGATION_S;
use trellis_pki::{Certificate, pem};

use crate::cluster::{Ward, condition, events, now, spec};

const DAY: i64 = 86_400;

async fn leaf(ward: &Ward) -> Certificate {
    let chain = ward.text("ward-superlink-tls", "tls.crt").await;
    Certificate::read(&pem::certificates(chain.as_bytes()).expect("PEM")[0]).expect("a certificate")
}

async fn authorities(ward: &Ward) -> Vec<String> {
    let bundle = ward.text("ward-trust", "ca.crt").await;
    let all = pem::certificates(bundle.as_bytes()).expect("PEM");
    all.iter().map(|one| Certificate::read(one).expect("a certificate").subject).collect()
}

#[tokio::test]
async fn secrets_appear_and_survive_operators() {
    let Some(ward) = Ward::new("own", spec(|_| {})).await else { return };
    let start = now();
    let first = ward.pass(start).await;
    assert_eq!(ward.names().await, ["ward-admin", "ward-authority", "ward-superlink-tls", "ward-trust"]);
    assert_eq!(condition(&first).1, "Issued");
    assert_eq!(first.fields["certificate"]["secretName"], "ward-superlink-tls");
    let secret = ward.secrets().get("ward-superlink-tls").await.expect("there");
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    let owner = &secret.metadata.owner_references.expect("an owner")[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("Federation", Some(true)));

    // Another operator, later: nothing is written.
    let written = ward.writes();
    let second = ward.pass(start + DAY).await;
    assert_eq!((ward.writes(), second.trust), (written, first.trust.clone()));

    // Deleted or damaged Secrets are created again, by the same authority.
    let before = leaf(&ward).await;
    ward.secrets().delete("ward-trust", &Default::default()).await.expect("gone");
    ward.secrets().delete("ward-superlink-tls", &Default::default()).await.expect("gone");
    ward.pass(start).await;
    let after = leaf(&ward).await;
    assert_eq!(before.issuer, after.issuer);
    assert_ne!(before.fingerprint, after.fingerprint);
}

#[tokio::test]
async fn a_certificate_is_renewed_and_follows_the_service() {
    let Some(ward) = Ward::new("renewal", spec(|_| {})).await else { return };
    let start = now();
    ward.pass(start).await;
    let first = leaf(&ward).await;
    assert!(ward.pass(start + 19 * DAY).await.events.is_empty());
    assert_eq!(events(&ward.pass(start + 21 * DAY).await), ["CertificateIssued"]);
    let second = leaf(&ward).await;
    assert!(second.not_after > first.not_after + 20 * DAY && second.issuer == first.issuer);

    ward.apply(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "ward-superlink", "namespace": ward.namespace},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "fleet", "port": 9092}]},
    }));
    ward.pass(start + 21 * DAY).await;
    let service = ward.plane.get(&format!("/api/v1/namespaces/{}/services/ward-superlink", ward.namespace));
    let service: serde_json::Value = serde_json::from_str(&service).expect("JSON");
    let address = service["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    assert!(leaf(&ward).await.names.contains(&address));
    ward.set_status("service", "ward-superlink", json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}})).await;
    ward.pass(start + 21 * DAY).await;
    assert!(leaf(&ward).await.names.contains(&"203.0.113.9".to_owned()));
    assert!(ward.pass(start + 21 * DAY).await.events.is_empty());
}

#[tokio::test]
async fn an_authority_is_rotated_with_both_trusted_in_between() {
    let Some(ward) = Ward::new("rotation", spec(|_| {})).await else { return };
    let start = now();
    ward.pass(start).await;
    let old = authorities(&ward).await;
    ward.patch(&json!({"metadata": {"annotations": {"trellis.dev/rotate": "2026-11"}}}));
    assert_eq!(events(&ward.pass(start).await), ["AuthorityRotationBegun"]);
    let both = authorities(&ward).await;
    assert_eq!((both.len(), &both[0]), (2, &old[0]));
    assert!(ward.pass(start + PROPAGATION_S - 1).await.events.is_empty(), "nodes have their time");

    // A pool that has not rolled out holds it up.
    let labels = json!({"app.kubernetes.io/instance": "ward", "app.kubernetes.io/name": "supernode", "flower.flwr.ai/pool": "cpu"});
    ward.apply(&json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "ward-supernode-cpu", "namespace": ward.namespace, "labels": labels},
        "spec": {
            "replicas": 2, "serviceName": "x", "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "supernode", "image": "x"}]}},
        },
    }));
    let later = start + PROPAGATION_S + 1;
    assert!(ward.pass(later).await.events.is_empty(), "not all nodes are there");
    let settled = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2});
    ward.set_status("statefulset", "ward-supernode-cpu", settled).await;
    assert_eq!(events(&ward.pass(later).await), ["AuthoritySwitched", "CertificateIssued"]);
    assert_eq!(authorities(&ward).await.len(), 2);
    assert_eq!(leaf(&ward).await.issuer, both[1]);
    assert_eq!(events(&ward.pass(later + PROPAGATION_S + 1).await), ["AuthorityRotated"]);
    assert_eq!(authorities(&ward).await, [both[1].clone()]);
    assert!(ward.pass(later + PROPAGATION_S + 2).await.events.is_empty());
}

/// Whatever an operator was doing when it was killed, the next one ends with Secrets that fit together, and they stay so.
#[tokio::test]
async fn killed_in_the_middle() {
    let Some(ward) = Ward::new("killed", spec(|_| {})).await else { return };
    let start = now();
    for round in 0..12_u64 {
        ward.patch(&json!({"metadata": {"annotations": {"trellis.dev/rotate": round.to_string()}}}));
        let at = start + i64::try_from(round).expect("small") * 2 * PROPAGATION_S;
        let _ = tokio::time::timeout(Duration::from_millis(3 + 2 * round), ward.try_pass(at)).await;
        // A wish of the round before may have to end first.
        let mut passes = 0;
        while !events(&ward.pass(at).await).is_empty() {
            passes += 1;
            assert!(passes < 4, "it does not come to rest");
        }
        let (leaf, trusted) = (leaf(&ward).await, authorities(&ward).await);
        assert!(trusted.contains(&leaf.issuer), "{} is not trusted", leaf.issuer);
        assert_eq!(ward.text("ward-trust", "ca.crt").await, ward.text("ward-superlink-tls", "ca.crt").await);
        let written = ward.writes();
        ward.pass(at).await;
        assert_eq!(ward.writes(), written, "it is at rest");
    }
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() {
    let Some(ward) = Ward::new("foreign", spec(|_| {})).await else { return };
    ward.put_secret("ward-superlink-tls", &[("mine".to_owned(), b"mine".to_vec())].into()).await;
    let outcome = ward.pass(now()).await;
    let (ready, reason, message) = condition(&outcome);
    assert!(!ready && reason == "ForeignSecret" && message.contains("ward-superlink-tls"), "{message}");
    assert!(outcome.is_blocked);
    assert_eq!(ward.text("ward-superlink-tls", "mine").await, "mine");
}
