//! Certificates that others make: modes `secret` (somebody wrote it) and `certManager` (asked for here, made there). They are
//! checked before anybody is told to use them, and what is wrong is told with what to do.

use std::path::PathBuf;

use serde_json::{Value, json};
use trellis_digest::sha256_hex;
use trellis_pki::check::{Contents, examine};
use trellis_pki::{Checked, Endpoint, Files, Problem, UnixSeconds, pem};

use super::secret::{self, BUNDLE, CERTIFICATE, KEY, SecretSeen, SecretWanted};
use super::{
    BUNDLE_REVISION, CertManager, Decision, Event, Names, READY, REVISION, REVISION_CHARS, Seen, bundle_name, foreign,
    issued_name, mode, revision, told,
};
use crate::federation::{Federation, TlsMode};
use crate::object::{Object, difference};
use crate::render::Trust;
use crate::status::Condition;

pub const CERTIFICATE_API: &str = "cert-manager.io/v1";
pub const CERTIFICATE_KIND: &str = "Certificate";
/// It may expire or be exchanged, and a Secret of somebody else is not watched: looked at this often.
const LOOK_S: i64 = 60;

pub fn decide(federation: &Federation, seen: &Seen, now: UnixSeconds) -> Decision {
    let is_asked_for = mode(federation) == TlsMode::CertManager;
    let name = match is_asked_for {
        true => issued_name(federation),
        false => federation.spec.security.tls.secret_name.clone().unwrap_or_default(),
    };
    let mut decision = Decision { again_at: Some(now + LOOK_S), ..Decision::default() };
    let mut trust =
        Trust { server_secret: name.clone(), authority_secret: bundle_name(federation), ..Trust::default() };
    // What was good last is kept, so that a bad exchange makes no program start again that would not come back.
    if let Some(bundle) = seen.secrets.get(&bundle_name(federation)) {
        let noted = |annotation: &str| bundle.annotations.get(annotation).cloned().unwrap_or_default();
        (trust.revision, trust.bundle_revision) = (noted(REVISION), noted(BUNDLE_REVISION));
    }
    let mut endpoints = Names::asked_of_given(federation);
    if is_asked_for {
        let (names, _) = Names::of(federation, seen.service.as_ref());
        endpoints = names.needed.clone();
        if let Err(condition) = order(federation, seen, &names, &name, &mut decision) {
            decision.condition = Some(condition);
            decision.trust = Some(trust);
            return decision;
        }
    }
    decision.condition = Some(match seen.secrets.get(&name) {
        None => missing(&name, is_asked_for),
        Some(present) => match check(present, &endpoints, now) {
            Ok(checked) => take(federation, seen, &checked, &mut trust, &mut decision),
            Err(problems) => {
                let message = format!("Secret {name} cannot be used: {}", words(&problems));
                decision.events.push(Event::warning("CertificateUnusable", message.clone()));
                Condition::new(READY, false, "CertificateUnusable", message)
            }
        },
    });
    decision.trust = Some(trust);
    decision
}

/// Asks cert-manager for a certificate.
fn order(
    federation: &Federation,
    seen: &Seen,
    names: &Names,
    secret: &str,
    decision: &mut Decision,
) -> Result<(), Condition> {
    let CertManager::Installed(present) = &seen.cert_manager else {
        let message = "the cluster does not know cert-manager.io/v1 Certificates: install cert-manager, or set \
                       security.tls.mode to auto";
        decision.events.push(Event::warning("CertManagerMissing", message));
        return Err(Condition::new(READY, false, "CertManagerMissing", message));
    };
    let wanted = certificate(federation, names, secret);
    if present.as_ref().is_none_or(|present| difference(&wanted.0["spec"], &present["spec"]).is_some()) {
        decision.applied.push(wanted);
    }
    Ok(())
}

/// The `Certificate` of a SuperLink.
pub fn certificate(federation: &Federation, names: &Names, secret: &str) -> Object {
    let (mut dns, mut ips) = (Vec::new(), Vec::new());
    for endpoint in names.all() {
        match endpoint {
            Endpoint::Name(name) => dns.push(name),
            Endpoint::Ip(ip) => ips.push(ip.to_string()),
        }
    }
    Object(json!({
        "apiVersion": CERTIFICATE_API,
        "kind": CERTIFICATE_KIND,
        "metadata": {
            "name": federation.superlink_name(),
            "namespace": federation.namespace,
            "labels": secret::labels(federation),
            "ownerReferences": [secret::owner(federation)],
        },
        "spec": {
            "secretName": secret,
            "secretTemplate": {"labels": secret::labels(federation)},
            "dnsNames": dns,
            "ipAddresses": ips,
            "issuerRef": federation.spec.security.tls.issuer_ref.clone().unwrap_or(Value::Null),
            "usages": ["digital signature", "server auth"],
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        },
    }))
}

fn missing(name: &str, is_asked_for: bool) -> Condition {
    match is_asked_for {
        true => {
            let message = format!(
                "cert-manager has not written Secret {name} yet: kubectl describe certificate says what it waits for"
            );
            Condition::new(READY, false, "WaitingForCertificate", message)
        }
        false => {
            let message = format!("there is no Secret {name}: make one with {CERTIFICATE}, {KEY} and {BUNDLE}");
            Condition::new(READY, false, "SecretMissing", message)
        }
    }
}

/// What is wrong with a Secret, all of it; or what can be served with.
pub fn check(secret: &SecretSeen, endpoints: &[Endpoint], now: UnixSeconds) -> Result<Checked, Vec<Problem>> {
    let lacking = [CERTIFICATE, KEY, BUNDLE].into_iter().filter(|name| secret.text(name).is_none_or(str::is_empty));
    let lacking: Vec<Problem> = lacking
        .map(|name| Problem::error(name, "it has no such entry", format!("add {name} to the Secret, in PEM")))
        .collect();
    if !lacking.is_empty() {
        return Err(lacking);
    }
    let text = |name: &str| secret.text(name).unwrap_or_default();
    let file = |name: &str| PathBuf::from(name);
    let places = Files { certificate: file(CERTIFICATE), key: file(KEY), ca: file(BUNDLE) };
    examine(&Contents::from_text(places, text(CERTIFICATE), text(KEY), text(BUNDLE)), endpoints, now)
}

/// A good one: nodes are given what it rests on, and nothing else of it.
fn take(
    federation: &Federation,
    seen: &Seen,
    checked: &Checked,
    trust: &mut Trust,
    decision: &mut Decision,
) -> Condition {
    let name = bundle_name(federation);
    if let Some(message) = foreign(federation, seen, &name) {
        decision.events.push(Event::warning("ForeignSecret", message.clone()));
        return Condition::new(READY, false, "ForeignSecret", message);
    }
    let bundle = pem::encode_certificates(&checked.ca);
    trust.revision = revision(&checked.leaf);
    trust.bundle_revision = short_hash(&bundle);
    let wanted = SecretWanted::new(name, [(BUNDLE, bundle)])
        .annotated(REVISION, &trust.revision)
        .annotated(BUNDLE_REVISION, &trust.bundle_revision);
    if !seen.secrets.get(&wanted.name).is_some_and(|present| wanted.is(present)) {
        decision.secrets.push(wanted);
    }
    decision.certificate = Some(told(&trust.server_secret, &checked.leaf, None, None));
    let mut message =
        format!("the SuperLink's certificate is good until {}", trellis_pki::date(checked.leaf.not_after));
    if !checked.warnings.is_empty() {
        message = format!("{message}; {}", words(&checked.warnings));
        decision.events.push(Event::warning("CertificateWarning", words(&checked.warnings)));
    }
    Condition::new(READY, true, "Checked", message)
}

fn words(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}

fn short_hash(text: &str) -> String {
    sha256_hex(text.as_bytes())[..REVISION_CHARS].to_owned()
}
