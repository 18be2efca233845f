//! Decides about the Secrets of a federation with certificates: which must exist, whether they are valid, when they are
//! renewed, and what is reported. The time and the observed state are arguments.
//!
//! ```text
//! <fed>-authority       keys of the federation's own authority: read by the operator only
//! <fed>-superlink-tls   tls.crt, tls.key, ca.crt: for the SuperLink
//! <fed>-trust           ca.crt: for nodes, runs and other clients
//! <fed>-admin           token of the account `admin`: for a SuperLink of Trellis, and the operator
//! <fed>-node-keys-POOL  the keys of the nodes of a pool, by the names of their pods
//! <fed>-join-SITE       for nodes of a site outside of the cluster
//! ```
//! Each Secret is written as a whole, the bundle before the certificate: after an interruption the written Secrets
//! work, and the next reconcile continues.

mod auto;
pub mod given;
pub mod names;
pub mod nodes;
pub mod rotation;
pub mod secret;
pub mod sites;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use trellis_diagnostic::{Diagnostic, joined};
use trellis_pki::{Certificate, UnixSeconds, date};

pub use self::names::{Names, ObservedService};
pub use self::rotation::Rollout;
pub use self::secret::{DesiredSecret, ObservedSecret};
use crate::federation::{Federation, TlsMode};
use crate::object::{Identity, Object, Owner};
use crate::render::Trust;
use crate::status::Condition;

pub const READY: &str = "CertificatesReady";
/// Annotation of a federation: a new value starts a rotation of its authority.
pub const ROTATE: &str = "trellis.dev/rotate";
/// Annotations of the bundle: revision of the last valid certificate and of the bundle.
pub const REVISION: &str = "trellis.dev/revision";
pub const BUNDLE_REVISION: &str = "trellis.dev/bundle-revision";
/// Length of a revision.
const REVISION_CHARS: usize = 16;
const TOKEN_BYTES: usize = 32;

/// Observed state.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Secrets of the federation, and the one that `spec.security.tls.secretName` names, by name.
    pub secrets: BTreeMap<String, ObservedSecret>,
    pub service: Option<ObservedService>,
    /// Mode `certManager`: whether cert-manager is installed, and the live `Certificate`.
    pub cert_manager: CertManager,
    /// State of the workloads during a rotation.
    pub rollout: Rollout,
    /// The SuperLink reloads certificates and has accounts: it is one of Trellis.
    pub trellis: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub enum CertManager {
    #[default]
    NotInstalled,
    Installed(Option<Value>),
}

/// Effects in this order, and the report. If `trust` is present, pods may be created; they wait for Secrets that do not
/// exist yet.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// Secrets to write, in this order. With a resource version: replaces the observed one.
    pub secrets: Vec<DesiredSecret>,
    /// Objects of other kinds, to apply.
    pub applied: Vec<Object>,
    pub trust: Option<Trust>,
    pub condition: Option<Condition>,
    /// `.status.certificate`
    pub certificate: Option<Value>,
    pub events: Vec<Event>,
    pub problems: Vec<Diagnostic>,
    /// Time of the next decision at the latest.
    pub again_at: Option<UnixSeconds>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Event {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Event {
        Event { is_warning: false, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Event {
        Event { is_warning: true, ..Event::normal(reason, message) }
    }
}

/// Names of the Secrets of a federation.
pub fn authority_name(federation: &Federation) -> String {
    format!("{}-authority", federation.name)
}

pub fn server_name(federation: &Federation) -> String {
    format!("{}-superlink-tls", federation.name)
}

/// Of mode `certManager`: cert-manager writes it.
pub fn issued_name(federation: &Federation) -> String {
    format!("{}-superlink-issued", federation.name)
}

pub fn bundle_name(federation: &Federation) -> String {
    format!("{}-trust", federation.name)
}

pub fn admin_name(federation: &Federation) -> String {
    format!("{}-admin", federation.name)
}

/// Source of the certificates.
pub fn mode(federation: &Federation) -> TlsMode {
    let spec = &federation.spec;
    let given = spec.superlink.extra_args.iter().any(|argument| argument.starts_with("--ssl-"));
    match spec.security.tls.mode {
        Some(mode) => mode,
        None if spec.insecure == Some(false) && !given => TlsMode::Auto,
        None => TlsMode::Off,
    }
}

/// The Secret of another owner that the federation depends on.
pub fn watched_secret(federation: &Federation) -> Option<String> {
    match mode(federation) {
        TlsMode::Secret => federation.spec.security.tls.secret_name.clone(),
        TlsMode::CertManager => Some(issued_name(federation)),
        TlsMode::Off | TlsMode::Auto => None,
    }
}

/// Kinds of objects that are managed here, so that others do not delete them as leftovers.
pub fn kinds(federation: &Federation) -> &'static [&'static str] {
    match mode(federation) {
        TlsMode::CertManager => &["Secret", given::CERTIFICATE_KIND],
        TlsMode::Off | TlsMode::Auto | TlsMode::Secret => &["Secret"],
    }
}

/// Secrets with keys that remain after TLS was turned off. The operator keeps them: if TLS was turned off by mistake,
/// deleting them would invalidate every copy of the bundle.
pub fn unused(federation: &Federation, live: &BTreeMap<Identity, Object>, owner: Owner<'_>) -> Option<Diagnostic> {
    if mode(federation) != TlsMode::Off {
        return None;
    }
    let names = [authority_name(federation), server_name(federation), bundle_name(federation)];
    let of = |name: &String| Identity { api_version: "v1".to_owned(), kind: "Secret".to_owned(), name: name.clone() };
    let is_there = |name: &String| live.get(&of(name)).is_some_and(|secret| secret.is_of(owner));
    let left: Vec<String> = names.into_iter().filter(is_there).collect();
    (!left.is_empty()).then(|| {
        Diagnostic::warning(
            "spec.security.tls".to_owned(),
            format!("TLS is off, and Secrets with keys of the time before are still there: {}", left.join(", ")),
            format!("if TLS stays off, delete them: kubectl delete secret {}", left.join(" ")),
        )
    })
}

/// Problems of the resource that concern certificates.
pub fn problems(federation: &Federation) -> Vec<Diagnostic> {
    let security = &federation.spec.security;
    let problem = |place: &str, what: &str, to_do: &str| {
        Diagnostic::error(format!("spec.security.{place}"), what.to_owned(), to_do.to_owned())
    };
    let mut problems = Names::of(federation, None).1;
    match mode(federation) {
        TlsMode::Secret if security.tls.secret_name.as_deref().is_none_or(str::is_empty) => {
            let to_do = "name a Secret with tls.crt, tls.key and ca.crt, or use mode auto";
            problems.push(problem("tls.secretName", "mode secret needs the name of a Secret", to_do));
        }
        TlsMode::CertManager if security.tls.issuer_ref.as_ref().is_none_or(|issuer| !issuer["name"].is_string()) => {
            let to_do = "give name and kind of an Issuer or a ClusterIssuer, or use mode auto";
            problems.push(problem("tls.issuerRef", "mode certManager needs an issuer", to_do));
        }
        TlsMode::Off if security.node_auth => {
            let to_do = "set insecure: false (or security.tls.mode), or nodeAuth: false";
            problems.push(problem("nodeAuth", "nodes authenticate over TLS only, and it is off", to_do));
        }
        _ => {}
    }
    problems.extend(nodes::problems(federation));
    problems
}

pub fn decide(federation: &Federation, seen: &Seen, now: UnixSeconds) -> Decision {
    let mode = mode(federation);
    let problems = problems(federation);
    if !problems.is_empty() {
        let condition = Condition::new(READY, false, "InvalidSpec", joined(&problems, "; "));
        return Decision { condition: Some(condition), problems, ..Decision::default() };
    }
    let mut decision = match mode {
        TlsMode::Off => return Decision::default(),
        TlsMode::Auto => auto::decide(federation, seen, now),
        TlsMode::Secret | TlsMode::CertManager => given::decide(federation, seen, now),
    };
    admin(federation, seen, &mut decision);
    if let Some(trust) = &mut decision.trust {
        trust.node_keys = nodes::secrets(federation);
    }
    decision
}

/// Adds the Secret with the token of the first administrator of a Trellis SuperLink. An existing token is kept.
pub fn admin(federation: &Federation, seen: &Seen, decision: &mut Decision) {
    let Some(trust) = decision.trust.as_mut().filter(|_| seen.trellis) else { return };
    let name = admin_name(federation);
    trust.admin_secret = Some(name.clone());
    let present = seen.secrets.get(&name);
    if present.is_some_and(|secret| secret.entries.contains_key(secret::TOKEN)) {
        return;
    }
    let mut bytes = [0; TOKEN_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    let token = URL_SAFE_NO_PAD.encode(bytes);
    decision.secrets.push(DesiredSecret::new(name, [(secret::TOKEN, token)]));
}

/// The problem with a Secret of this name that another owner created.
fn foreign(federation: &Federation, seen: &Seen, name: &str) -> Option<String> {
    let present = seen.secrets.get(name)?;
    (present.owner.as_deref() != Some(federation.uid.as_str())).then(|| {
        format!(
            "there is a Secret {name} that does not belong to this federation: rename or delete it, or use it by \
             security.tls.mode secret"
        )
    })
}

/// Short form of a fingerprint, for annotations.
fn revision(leaf: &Certificate) -> String {
    leaf.fingerprint.replace(':', "").to_lowercase().chars().take(REVISION_CHARS).collect()
}

/// `.status.certificate`
fn certificate_status(
    secret: &str,
    leaf: &Certificate,
    authority: Option<&Certificate>,
    renewed_at: Option<UnixSeconds>,
) -> Value {
    let mut certificate_status = json!({"secretName": secret, "notAfter": date(leaf.not_after)});
    if let Some(authority) = authority {
        certificate_status["authorityNotAfter"] = json!(date(authority.not_after));
    }
    if let Some(at) = renewed_at {
        certificate_status["renewAfter"] = json!(date(at));
    }
    certificate_status
}
