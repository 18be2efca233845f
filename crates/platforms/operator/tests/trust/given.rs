//! Certificates of users: a Secret, and cert-manager.

use std::collections::BTreeMap;

use serde_json::json;
use trellis_pki::span::Span;
use trellis_pki::{Endpoint, Keyring, Wish};

use crate::cluster::{Ward, condition, now, spec};

type Entries = BTreeMap<String, Vec<u8>>;

fn made(names: &[&str]) -> Entries {
    let keyring = Keyring::new("hospital", Span::years(1), now()).expect("an authority");
    let endpoints: Vec<Endpoint> = names.iter().map(|name| Endpoint::parse(name).expect("a name")).collect();
    let wish = Wish { endpoints: &endpoints, name: None, validity: Span::days(30) };
    let delivery = keyring.issue(wish, now()).expect("a leaf");
    let texts = [("tls.crt", delivery.chain), ("tls.key", delivery.key), ("ca.crt", delivery.trust)];
    texts.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect()
}

#[tokio::test]
async fn a_secret_is_checked_and_its_changes_are_noticed() {
    let tls = json!({"tls": {"mode": "secret", "secretName": "brought"}});
    let Some(ward) = Ward::new("given", spec(|spec| spec["security"] = tls)).await else { return };
    let outcome = ward.pass(now()).await;
    assert_eq!(condition(&outcome).1, "SecretMissing");
    assert!(outcome.requeue_after.is_some_and(|again| again.as_secs() <= 60), "it is checked again soon");

    let mut wrong = made(&["ward-superlink"]);
    wrong.insert("tls.key".to_owned(), made(&["ward-superlink"])["tls.key"].clone());
    ward.put_secret("brought", &wrong).await;
    let (ready, _, message) = condition(&ward.pass(now()).await);
    assert!(!ready && message.contains("the key does not belong to the certificate"), "{message}");
    assert!(ward.secret("ward-trust").await.is_none());

    ward.put_secret("brought", &made(&["link.example.org"])).await;
    let (ready, _, message) = condition(&ward.pass(now()).await);
    assert!(!ready && message.contains("it does not cover ward-superlink"), "{message}");

    let good = made(&["ward-superlink"]);
    ward.put_secret("brought", &good).await;
    let first = ward.pass(now()).await;
    assert_eq!(condition(&first).1, "Checked");
    assert_eq!(ward.text("ward-trust", "ca.crt").await.into_bytes(), good["ca.crt"]);
    let trust = first.trust.expect("trust");
    assert_eq!(trust.server_secret, "brought");

    let next = made(&["ward-superlink"]);
    ward.put_secret("brought", &next).await;
    let second = ward.pass(now()).await.trust.expect("trust");
    assert_ne!(second.revision, trust.revision);
    assert_eq!(ward.text("ward-trust", "ca.crt").await.into_bytes(), next["ca.crt"]);
}

#[tokio::test]
async fn cert_manager_may_be_missing_pending_or_ready() {
    let issuer = json!({"name": "ca", "kind": "Issuer"});
    let tls = json!({"tls": {"mode": "certManager", "issuerRef": issuer}});
    let Some(ward) = Ward::new("cert-manager", spec(|spec| spec["security"] = tls)).await else { return };
    let (ready, reason, message) = condition(&ward.pass(now()).await);
    assert!(!ready && reason == "CertManagerMissing" && message.contains("install cert-manager"), "{message}");

    ward.apply(&trellis_testing::stand_in("cert-manager.io", "certificates", "Certificate"));
    ward.plane.until_defined();
    assert_eq!(condition(&ward.pass(now()).await).1, "WaitingForCertificate");
    let path = format!("/apis/cert-manager.io/v1/namespaces/{}/certificates/ward-superlink", ward.namespace);
    let asked: serde_json::Value = serde_json::from_str(&ward.plane.get(&path)).expect("JSON");
    assert_eq!(asked["spec"]["issuerRef"], issuer);
    assert_eq!(asked["metadata"]["ownerReferences"][0]["kind"], "Federation");
    let version = asked["metadata"]["resourceVersion"].clone();

    // As cert-manager does.
    let names: Vec<&str> = ["dnsNames", "ipAddresses"]
        .iter()
        .flat_map(|field| asked["spec"][field].as_array().expect("a list"))
        .map(|name| name.as_str().expect("a name"))
        .collect();
    ward.put_secret(asked["spec"]["secretName"].as_str().expect("a name"), &made(&names)).await;
    let outcome = ward.pass(now()).await;
    assert_eq!(condition(&outcome).1, "Checked");
    assert_eq!(outcome.trust.expect("trust").server_secret, "ward-superlink-issued");
    let requeue_after: serde_json::Value = serde_json::from_str(&ward.plane.get(&path)).expect("JSON");
    assert_eq!(requeue_after["metadata"]["resourceVersion"], version, "it is requested once");
}
