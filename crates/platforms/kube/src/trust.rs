//! Certificates of a federation, as Secrets: which there should be, whether those that are there are good, when they are made
//! anew, and what is told about them. The time is an argument, and what is seen is data; who reads and writes is elsewhere.
//!
//! ```text
//! <fed>-authority       keys of the federation's own authority: for the operator alone
//! <fed>-superlink-tls   tls.crt, tls.key, ca.crt: for the SuperLink
//! <fed>-trust           ca.crt: for nodes, runs, and whoever else calls
//! <fed>-admin           token of the account `admin`: for a SuperLink of Trellis, and the operator
//! <fed>-node-keys-POOL  the keys of the nodes of a pool, by the names of their pods
//! <fed>-join-SITE       all that nodes of a site outside of the cluster need
//! ```
//! Each is written whole, the bundle before the certificate: whoever dies in between left something that works, and the next
//! pass goes on from what is there.

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
use trellis_pki::{Certificate, UnixSeconds, date};

pub use self::names::{Names, ServiceSeen};
pub use self::rotation::Rollout;
pub use self::secret::{SecretSeen, SecretWanted};
use crate::federation::{Federation, TlsMode};
use crate::object::{Identity, Object, Owner};
use crate::render::{Problem, Trust};
use crate::status::Condition;

pub const READY: &str = "CertificatesReady";
/// On a federation: a new value starts a rotation of its authority.
pub const ROTATE: &str = "trellis.dev/rotate";
/// On the bundle: of the last certificate that was good.
pub const REVISION: &str = "trellis.dev/revision";
pub const BUNDLE_REVISION: &str = "trellis.dev/bundle-revision";
/// Of a revision: enough to tell two certificates apart.
const REVISION_CHARS: usize = 16;
const TOKEN_BYTES: usize = 32;

/// What is known when the Secrets of a federation are decided about.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Those of the federation, and the one that `spec.security.tls.secretName` names, by name.
    pub secrets: BTreeMap<String, SecretSeen>,
    pub service: Option<ServiceSeen>,
    /// Mode `certManager`: whether the cluster knows its resources, and the `Certificate` that is there.
    pub cert_manager: CertManager,
    /// Who has what, while an authority is rotated.
    pub rollout: Rollout,
    /// The SuperLink takes new certificates while it runs, and has accounts: it is one of Trellis.
    pub trellis: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub enum CertManager {
    #[default]
    NotInstalled,
    Installed(Option<Value>),
}

/// What is to be done, in this order, and what is told. Where `trust` is there, pods may be made with it: those whose Secrets are
/// not there yet wait for them.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// Written in this order. With a resource version: in place of what was seen.
    pub secrets: Vec<SecretWanted>,
    /// Of another kind: applied.
    pub applied: Vec<Object>,
    pub trust: Option<Trust>,
    pub condition: Option<Condition>,
    /// `.status.certificate`
    pub certificate: Option<Value>,
    pub events: Vec<Event>,
    pub problems: Vec<Problem>,
    /// When to decide again, if nothing changes before.
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

/// The names of a federation's Secrets.
pub fn authority_name(federation: &Federation) -> String {
    format!("{}-authority", federation.name)
}

pub fn server_name(federation: &Federation) -> String {
    format!("{}-superlink-tls", federation.name)
}

/// Of mode `certManager`, which writes it itself.
pub fn issued_name(federation: &Federation) -> String {
    format!("{}-superlink-issued", federation.name)
}

pub fn bundle_name(federation: &Federation) -> String {
    format!("{}-trust", federation.name)
}

pub fn admin_name(federation: &Federation) -> String {
    format!("{}-admin", federation.name)
}

/// Where the certificates of a federation come from.
pub fn mode(federation: &Federation) -> TlsMode {
    let spec = &federation.spec;
    let given = spec.superlink.extra_args.iter().any(|argument| argument.starts_with("--ssl-"));
    match spec.security.tls.mode {
        Some(mode) => mode,
        None if spec.insecure == Some(false) && !given => TlsMode::Auto,
        None => TlsMode::Off,
    }
}

/// The Secret of somebody else that a federation depends on.
pub fn watched_secret(federation: &Federation) -> Option<String> {
    match mode(federation) {
        TlsMode::Secret => federation.spec.security.tls.secret_name.clone(),
        TlsMode::CertManager => Some(issued_name(federation)),
        TlsMode::Off | TlsMode::Auto => None,
    }
}

/// Kinds of objects that are looked after here: nobody else takes them for left over.
pub fn kinds(federation: &Federation) -> &'static [&'static str] {
    match mode(federation) {
        TlsMode::CertManager => &["Secret", given::CERTIFICATE_KIND],
        TlsMode::Off | TlsMode::Auto | TlsMode::Secret => &["Secret"],
    }
}

/// Secrets with keys that remain after TLS was turned off. The operator keeps them: if TLS was turned off by mistake,
/// deleting them would invalidate every copy of the bundle.
pub fn unused(federation: &Federation, live: &BTreeMap<Identity, Object>, owner: Owner<'_>) -> Option<Problem> {
    if mode(federation) != TlsMode::Off {
        return None;
    }
    let names = [authority_name(federation), server_name(federation), bundle_name(federation)];
    let of = |name: &String| Identity { api_version: "v1".to_owned(), kind: "Secret".to_owned(), name: name.clone() };
    let is_there = |name: &String| live.get(&of(name)).is_some_and(|secret| secret.is_of(owner));
    let left: Vec<String> = names.into_iter().filter(is_there).collect();
    (!left.is_empty()).then(|| Problem {
        place: "spec.security.tls".to_owned(),
        what: format!("TLS is off, and Secrets with keys of the time before are still there: {}", left.join(", ")),
        to_do: format!("if TLS stays off, delete them: kubectl delete secret {}", left.join(" ")),
    })
}

/// What is wrong with the resource, as far as certificates go.
pub fn problems(federation: &Federation) -> Vec<Problem> {
    let security = &federation.spec.security;
    let problem = |place: &str, what: &str, to_do: &str| Problem {
        place: format!("spec.security.{place}"),
        what: what.to_owned(),
        to_do: to_do.to_owned(),
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
            problems.push(problem("nodeAuth", "nodes prove who they are over TLS only, and it is off", to_do));
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
        let words: Vec<String> =
            problems.iter().map(|one| format!("{}: {} (to do: {})", one.place, one.what, one.to_do)).collect();
        let condition = Condition::new(READY, false, "InvalidSpec", words.join("; "));
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

/// The token that the operator calls a SuperLink of Trellis with. Drawn once; whoever writes another one there is heeded.
fn admin(federation: &Federation, seen: &Seen, decision: &mut Decision) {
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
    decision.secrets.push(SecretWanted::new(name, [(secret::TOKEN, token)]));
}

/// A Secret of this name that somebody else made is not ours to write.
fn foreign(federation: &Federation, seen: &Seen, name: &str) -> Option<String> {
    let present = seen.secrets.get(name)?;
    (present.owner.as_deref() != Some(federation.uid.as_str())).then(|| {
        format!(
            "there is a Secret {name} that does not belong to this federation: rename or delete it, or use it by \
             security.tls.mode secret"
        )
    })
}

/// The short name of a certificate in annotations.
fn revision(leaf: &Certificate) -> String {
    leaf.fingerprint.replace(':', "").to_lowercase().chars().take(REVISION_CHARS).collect()
}

/// `.status.certificate`
fn told(secret: &str, leaf: &Certificate, authority: Option<&Certificate>, renewed_at: Option<UnixSeconds>) -> Value {
    let mut told = json!({"secretName": secret, "notAfter": date(leaf.not_after)});
    if let Some(authority) = authority {
        told["authorityNotAfter"] = json!(date(authority.not_after));
    }
    if let Some(at) = renewed_at {
        told["renewAfter"] = json!(date(at));
    }
    told
}
