//! Certificates and keys of federations, as Secrets: reads the observed state, lets [`trellis_kube::trust`] decide,
//! writes, and returns what pods need. Node keys are created here and registered at SuperLinks in [`enrol`].
//!
//! Runs in every reconcile before the objects are rendered. In steady state it calls nothing.

pub mod enrol;
mod keys;
mod secrets;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use serde_json::{Map, Value};
use trellis_diagnostic::Diagnostic;
use trellis_kube::federation::{Federation, KIND, TlsMode};
use trellis_kube::flower::Programs;
use trellis_kube::render::Trust;
use trellis_kube::status::{Condition, Failure};
use trellis_kube::trust::{self, Decision, Event, Seen};
use trellis_pki::UnixSeconds;

use self::enrol::Keys;
use self::secrets::{SecretStore, Written};
use crate::cache;
use crate::context::{Context, Findings};
use crate::events::EventDraft;

/// Attempts in one reconcile after write conflicts.
const ATTEMPTS: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what}")]
    Api { what: String, source: Box<kube::Error> },
    /// Another process writes the same Secret; the next reconcile reads it requeue_after.
    #[error("Secret {0} is written by another process at the same time")]
    Contended(String),
    #[error("there is a Secret {0} that does not belong to this federation: rename or delete it")]
    Foreign(String),
    #[error("a key for {0} cannot be created")]
    Key(String),
}

impl Error {
    fn reason(&self) -> &'static str {
        match self {
            Error::Api { .. } => "SecretsUnavailable",
            Error::Contended(_) => "SecretContended",
            Error::Foreign(_) => "ForeignSecret",
            Error::Key(_) => "KeyNotMade",
        }
    }

    /// The error with its source.
    fn words(&self) -> String {
        match self {
            Error::Api { source, .. } => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }
}

/// A federation with the state that the decision depends on.
pub struct Input<'a> {
    pub client: &'a Client,
    pub federation: &'a Federation,
    /// Sizes of pools that differ from the resource.
    pub sizes: &'a BTreeMap<String, i32>,
    pub now: UnixSeconds,
}

/// The Secrets of pods, and what is reported.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// `None` with TLS off, or if `condition` says why there are no certificates.
    pub trust: Option<Trust>,
    pub condition: Option<Condition>,
    /// TLS is required and not available, so no objects may be applied.
    pub is_blocked: bool,
    pub problems: Vec<Diagnostic>,
    /// `certificate`, `sites` of `.status`.
    pub fields: Map<String, Value>,
    pub events: Vec<Event>,
    /// Delay until the next preparation at the latest.
    pub requeue_after: Option<Duration>,
    /// Keys to register at the SuperLink.
    pub keys: Keys,
}

/// Input of the rendering.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    /// `None`: the operator knows no certificates of the federation.
    pub trust: Option<Trust>,
    /// Objects can be rendered. Otherwise the findings say why there are no certificates.
    pub is_complete: bool,
    pub findings: Findings,
    /// Keys to register at the SuperLink.
    pub keys: Keys,
}

/// Prepares the Secrets of a federation, from the cache if that suffices.
pub async fn prepare(
    context: &Context,
    federation: &Federation,
    seen: &cache::Seen,
    sizes: &BTreeMap<String, i32>,
) -> Prepared {
    let now = jiff::Timestamp::now().as_second();
    let input = Input { client: &context.client, federation, sizes, now };
    let outcome = match settled(&input, seen) {
        Some(outcome) => Ok(outcome),
        None => ensure(&input).await,
    };
    let mut findings = Findings::default();
    match outcome {
        Ok(outcome) => {
            for event in outcome.events {
                publish(context, federation, event);
            }
            findings.conditions.extend(outcome.condition);
            findings.failures.extend(outcome.problems.iter().map(Failure::of_problem));
            findings.fields = outcome.fields;
            findings.requeue_after = outcome.requeue_after;
            Prepared { trust: outcome.trust, is_complete: !outcome.is_blocked, findings, keys: outcome.keys }
        }
        Err(error) => {
            let message = error.words();
            findings.conditions.push(Condition::new(trust::READY, false, error.reason(), message.clone()));
            let permanent = matches!(error, Error::Foreign(_));
            let failure = Failure { about: None, reason: error.reason().to_owned(), message, permanent };
            findings.failures.push(failure);
            Prepared { findings, ..Prepared::default() }
        }
    }
}

fn publish(context: &Context, federation: &Federation, event: Event) {
    let news = EventDraft {
        namespace: federation.namespace.clone(),
        name: federation.name.clone(),
        uid: federation.uid.clone(),
        kind: KIND,
        is_warning: event.is_warning,
        reason: event.reason.to_owned(),
        note: event.message,
    };
    if !context.events.publish(news) {
        context.metrics.event_lost();
    }
}

/// The outcome if the cache shows that nothing must be written; `None`: the API server must be called.
fn settled(input: &Input<'_>, cache: &cache::Seen) -> Option<Outcome> {
    let federation = input.federation;
    let mut seen = secrets::observed_in(cache, federation);
    if !trust::nodes::abandoned(federation, &seen.secrets).is_empty() {
        return None;
    }
    if !concerns(federation) {
        return Some(Outcome::default());
    }
    let spec = &federation.spec;
    if trust::mode(federation) != TlsMode::Auto || spec.security.node_auth || !spec.sites.is_empty() {
        return None;
    }
    if seen.secrets.get(&trust::authority_name(federation)).is_none_or(trust::rotation::is_under_way) {
        return None;
    }
    seen.trellis = Programs::of(federation).superlink.is_trellis();
    let decision = trust::decide(federation, &seen, input.now);
    let is_settled = decision.secrets.is_empty() && decision.events.is_empty();
    is_settled.then(|| outcome(decision, input.now))
}

/// Reads, decides and writes until the Secrets are as desired.
pub async fn ensure(input: &Input<'_>) -> Result<Outcome, Error> {
    let secrets = SecretStore::new(input.client, input.federation);
    let mut contended = String::new();
    for _ in 0..ATTEMPTS {
        let mut seen = secrets.observe().await?;
        // A Secret without our labels was not listed.
        if !contended.is_empty() && !seen.secrets.contains_key(&contended) {
            let found = secrets.secret(&contended).await?;
            seen.secrets.extend(found.map(|secret| (contended.clone(), secret)));
        }
        seen.trellis = Programs::of(input.federation).superlink.is_trellis();
        match attempt(input, &secrets, seen).await? {
            Ok(prepared) => return Ok(prepared),
            Err(secret) => contended = secret,
        }
    }
    Err(Error::Contended(contended))
}

/// Whether a federation has Secrets of the operator. Most have none, and cost no request.
fn concerns(federation: &Federation) -> bool {
    let is_off = trust::mode(federation) == TlsMode::Off;
    !is_off || federation.spec.security.node_auth || !federation.spec.sites.is_empty()
}

/// Reads once, decides and writes. The inner error names a Secret that changed meanwhile.
async fn attempt(
    input: &Input<'_>,
    secrets: &SecretStore<'_>,
    mut seen: Seen,
) -> Result<Result<Outcome, String>, Error> {
    let federation = input.federation;
    let decision = trust::decide(federation, &seen, input.now);
    for desired in &decision.secrets {
        match secrets.write(desired, &mut seen).await? {
            Written::Done => {}
            Written::Contended => return Ok(Err(desired.name.clone())),
        }
    }
    for object in &decision.applied {
        secrets.apply(object).await?;
    }
    let mut prepared = outcome(decision, input.now);
    if federation.spec.security.node_auth && prepared.trust.is_none() {
        return Ok(Ok(prepared));
    }
    let live = secrets.live_sizes().await?;
    let desired = keys::pools(input, &live, &seen, &mut prepared.keys)?;
    let (of_sites, status) = keys::sites(input, &seen, &mut prepared.keys)?;
    if !status.is_empty() {
        prepared.fields.insert("sites".to_owned(), Value::Array(status));
    }
    keys::abandoned(federation, &seen, &mut prepared.keys);
    for desired in desired.iter().chain(&of_sites) {
        if let Written::Contended = secrets.write(desired, &mut seen).await? {
            return Ok(Err(desired.name.clone()));
        }
    }
    Ok(Ok(prepared))
}

fn outcome(decision: Decision, now: UnixSeconds) -> Outcome {
    let mut fields = Map::new();
    if let Some(certificate) = decision.certificate {
        fields.insert("certificate".to_owned(), certificate);
    }
    let seconds = |at: UnixSeconds| Duration::from_secs(u64::try_from(at - now).unwrap_or(0).max(1));
    Outcome {
        is_blocked: decision.trust.is_none() && decision.condition.is_some(),
        trust: decision.trust,
        condition: decision.condition,
        problems: decision.problems,
        fields,
        events: decision.events,
        requeue_after: decision.again_at.map(seconds),
        keys: Keys::default(),
    }
}
