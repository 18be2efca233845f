//! Certificates of other issuers: modes `secret` (a user writes it) and `certManager` (requested here, issued there).
//! They are checked before programs use them.

use std::path::PathBuf;

use serde_json::{Value, json};
use trellis_diagnostic::{Diagnostic, joined};
use trellis_digest::sha256_hex;
use trellis_pki::check::{Contents, examine};
use trellis_pki::{Checked, Endpoint, Files, UnixSeconds, pem};

use super::secret::{self, BUNDLE, CERTIFICATE, DesiredSecret, KEY, ObservedSecret};
use super::{
    BUNDLE_REVISION, CertManager, Decision, Event, Names, READY, REVISION, REVISION_CHARS, Seen, bundle_name,
    certificate_status, foreign, issued_name, mode, revision,
};
use crate::federation::{Federation, TlsMode};
use crate::object::{Object, difference};
use crate::render::Trust;
use crate::status::Condition;

pub const CERTIFICATE_API: &str = "cert-manager.io/v1";
pub const CERTIFICATE_KIND: &str = "Certificate";
/// Interval of checks: certificates expire, and Secrets of other owners are not watched.
const RECHECK_INTERVAL_S: i64 = 60;

pub fn decide(federation: &Federation, seen: &Seen, now: UnixSeconds) -> Decision {
    let is_asked_for = mode(federation) == TlsMode::CertManager;
    let name = match is_asked_for {
        true => issued_name(federation),
        false => federation.spec.security.tls.secret_name.clone().unwrap_or_default(),
    };
    let mut decision = Decision { again_at: Some(now + RECHECK_INTERVAL_S), ..Decision::default() };
    let mut trust =
        Trust { server_secret: name.clone(), authority_secret: bundle_name(federation), ..Trust::default() };
    // The last valid revision is kept, so that an invalid certificate does not restart programs that would then fail.
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
                let message = format!("Secret {name} cannot be used: {}", joined(&problems, "; "));
                decision.events.push(Event::warning("CertificateUnusable", message.clone()));
                Condition::new(READY, false, "CertificateUnusable", message)
            }
        },
    });
    decision.trust = Some(trust);
    decision
}

/// Requests a certificate from cert-manager.
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
    let desired = certificate(federation, names, secret);
    if present.as_ref().is_none_or(|present| difference(&desired.0["spec"], &present["spec"]).is_some()) {
        decision.applied.push(desired);
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
                "cert-manager has not written Secret {name} yet: kubectl describe certificate shows the reason"
            );
            Condition::new(READY, false, "WaitingForCertificate", message)
        }
        false => {
            let message = format!("Secret {name} does not exist: create it with {CERTIFICATE}, {KEY} and {BUNDLE}");
            Condition::new(READY, false, "SecretMissing", message)
        }
    }
}

/// All problems of a Secret, or its checked certificate.
pub fn check(secret: &ObservedSecret, endpoints: &[Endpoint], now: UnixSeconds) -> Result<Checked, Vec<Diagnostic>> {
    let lacking = [CERTIFICATE, KEY, BUNDLE].into_iter().filter(|name| secret.text(name).is_none_or(str::is_empty));
    let lacking: Vec<Diagnostic> = lacking
        .map(|name| Diagnostic::error(name, "the entry is missing", format!("add {name} to the Secret, in PEM")))
        .collect();
    if !lacking.is_empty() {
        return Err(lacking);
    }
    let text = |name: &str| secret.text(name).unwrap_or_default();
    let file = |name: &str| PathBuf::from(name);
    let places = Files { certificate: file(CERTIFICATE), key: file(KEY), ca: file(BUNDLE) };
    examine(&Contents::from_text(places, text(CERTIFICATE), text(KEY), text(BUNDLE)), endpoints, now)
}

/// Uses a valid certificate: nodes get its authorities only.
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
    let desired = DesiredSecret::new(name, [(BUNDLE, bundle)])
        .annotated(REVISION, &trust.revision)
        .annotated(BUNDLE_REVISION, &trust.bundle_revision);
    if !seen.secrets.get(&desired.name).is_some_and(|present| desired.is(present)) {
        decision.secrets.push(desired);
    }
    decision.certificate = Some(certificate_status(&trust.server_secret, &checked.leaf, None, None));
    let mut message =
        format!("the SuperLink's certificate is good until {}", trellis_pki::date(checked.leaf.not_after));
    if !checked.warnings.is_empty() {
        message = format!("{message}; {}", joined(&checked.warnings, "; "));
        decision.events.push(Event::warning("CertificateWarning", joined(&checked.warnings, "; ")));
    }
    Condition::new(READY, true, "Checked", message)
}

fn short_hash(text: &str) -> String {
    sha256_hex(text.as_bytes())[..REVISION_CHARS].to_owned()
}
