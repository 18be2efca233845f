//! Certificates and keys of federations, as Secrets: reads what there is, has it decided ([`trellis_kube::trust`]), writes, and
//! says what pods are given. Nodes' keys are made here, and made known to SuperLinks in [`enrol`].
//!
//! Called in every pass before the objects are rendered. In steady state it asks for nothing and writes nothing.

pub mod enrol;
mod kept;
mod keys;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use serde_json::{Map, Value};
use trellis_kube::federation::{Federation, KIND, TlsMode};
use trellis_kube::flower::Programs;
use trellis_kube::render::{Problem, Trust};
use trellis_kube::status::{Condition, Trouble};
use trellis_kube::trust::{self, Decision, Event, Seen};
use trellis_pki::UnixSeconds;

use self::enrol::Keys;
use self::kept::{Kept, Written};
use crate::cache;
use crate::context::{Context, Findings};
use crate::events::News;

/// Somebody else wrote in between: it is read and decided again so often in one pass.
const ATTEMPTS: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what}")]
    Api { what: String, source: Box<kube::Error> },
    /// Somebody else writes the same Secret at the same time; the next pass sees what they wrote.
    #[error("Secret {0} is changed by somebody else at the same time")]
    Contended(String),
    #[error("there is a Secret {0} that does not belong to this federation: rename or delete it")]
    Foreign(String),
    #[error("a key for {0} cannot be made")]
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

    /// With what is behind it.
    fn words(&self) -> String {
        match self {
            Error::Api { source, .. } => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }
}

/// What is known of a federation beside its resource.
pub struct Asked<'a> {
    pub client: &'a Client,
    pub federation: &'a Federation,
    /// Pools whose size is not what the resource says.
    pub sizes: &'a BTreeMap<String, i32>,
    pub now: UnixSeconds,
}

/// What pods are given, and what is told.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// `None` with TLS off, or where `condition` says why pods cannot be made as asked.
    pub trust: Option<Trust>,
    pub condition: Option<Condition>,
    /// TLS is asked for, and nothing may be made without it.
    pub is_blocked: bool,
    pub problems: Vec<Problem>,
    /// `certificate`, `sites` of `.status`.
    pub fields: Map<String, Value>,
    pub events: Vec<Event>,
    /// When to prepare again, if nothing happens before.
    pub again: Option<Duration>,
    /// To be made known to the SuperLink, when it can be reached.
    pub keys: Keys,
}

/// What a pass needs to know before it makes objects.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    /// `None`: the federation is not served with certificates that the operator knows.
    pub trust: Option<Trust>,
    /// Objects can be made. Otherwise there are no certificates yet, and the findings say why.
    pub is_complete: bool,
    pub findings: Findings,
    /// To be made known to the SuperLink.
    pub keys: Keys,
}

/// In a pass of the operator: with what its cache has, where that is enough.
pub async fn prepare(
    context: &Context,
    federation: &Federation,
    seen: &cache::Seen,
    sizes: &BTreeMap<String, i32>,
) -> Prepared {
    let now = jiff::Timestamp::now().as_second();
    let asked = Asked { client: &context.client, federation, sizes, now };
    let outcome = match settled(&asked, seen) {
        Some(outcome) => Ok(outcome),
        None => bring_about(&asked).await,
    };
    let mut findings = Findings::default();
    match outcome {
        Ok(outcome) => {
            for event in outcome.events {
                tell(context, federation, event);
            }
            findings.conditions.extend(outcome.condition);
            findings.troubles.extend(outcome.problems.iter().map(Trouble::of_problem));
            findings.fields = outcome.fields;
            findings.again = outcome.again;
            Prepared { trust: outcome.trust, is_complete: !outcome.is_blocked, findings, keys: outcome.keys }
        }
        Err(error) => {
            let message = error.words();
            findings.conditions.push(Condition::new(trust::READY, false, error.reason(), message.clone()));
            let lasting = matches!(error, Error::Foreign(_));
            let trouble = Trouble { about: None, reason: error.reason().to_owned(), message, lasting };
            findings.troubles.push(trouble);
            Prepared { findings, ..Prepared::default() }
        }
    }
}

fn tell(context: &Context, federation: &Federation, event: Event) {
    let news = News {
        namespace: federation.namespace.clone(),
        name: federation.name.clone(),
        uid: federation.uid.clone(),
        kind: KIND,
        is_warning: event.is_warning,
        reason: event.reason.to_owned(),
        note: event.message,
    };
    if !context.events.tell(news) {
        context.metrics.event_lost();
    }
}

/// What is so already, by the cache alone: nothing is asked and nothing written. `None`: the API server must be asked.
fn settled(asked: &Asked<'_>, cache: &cache::Seen) -> Option<Outcome> {
    let federation = asked.federation;
    let mut seen = kept::seen_in(cache, federation);
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
    let decision = trust::decide(federation, &seen, asked.now);
    let is_settled = decision.secrets.is_empty() && decision.events.is_empty();
    is_settled.then(|| told(decision, asked.now))
}

/// Reads, decides, and writes until it is so.
pub async fn bring_about(asked: &Asked<'_>) -> Result<Outcome, Error> {
    let kept = Kept::new(asked.client, asked.federation);
    let mut contended = String::new();
    for _ in 0..ATTEMPTS {
        let mut seen = kept.look().await?;
        // One without our labels is not among those that were listed.
        if !contended.is_empty() && !seen.secrets.contains_key(&contended) {
            let found = kept.secret(&contended).await?;
            seen.secrets.extend(found.map(|secret| (contended.clone(), secret)));
        }
        seen.trellis = Programs::of(asked.federation).superlink.is_trellis();
        match attempt(asked, &kept, seen).await? {
            Ok(prepared) => return Ok(prepared),
            Err(secret) => contended = secret,
        }
    }
    Err(Error::Contended(contended))
}

/// Whether a federation has anything to do with Secrets of ours. Most have not, and cost no request.
fn concerns(federation: &Federation) -> bool {
    let is_off = trust::mode(federation) == TlsMode::Off;
    !is_off || federation.spec.security.node_auth || !federation.spec.sites.is_empty()
}

/// One reading, one decision, its writes. The inner error is the Secret that somebody else wrote in between.
async fn attempt(asked: &Asked<'_>, kept: &Kept<'_>, mut seen: Seen) -> Result<Result<Outcome, String>, Error> {
    let federation = asked.federation;
    let decision = trust::decide(federation, &seen, asked.now);
    for wanted in &decision.secrets {
        match kept.write(wanted, &mut seen).await? {
            Written::Done => {}
            Written::Contended => return Ok(Err(wanted.name.clone())),
        }
    }
    for object in &decision.applied {
        kept.apply(object).await?;
    }
    let mut prepared = told(decision, asked.now);
    if federation.spec.security.node_auth && prepared.trust.is_none() {
        return Ok(Ok(prepared));
    }
    let live = kept.live_sizes().await?;
    let wanted = keys::pools(asked, &live, &seen, &mut prepared.keys)?;
    let (of_sites, status) = keys::sites(asked, &seen, &mut prepared.keys)?;
    if !status.is_empty() {
        prepared.fields.insert("sites".to_owned(), Value::Array(status));
    }
    keys::abandoned(federation, &seen, &mut prepared.keys);
    for wanted in wanted.iter().chain(&of_sites) {
        if let Written::Contended = kept.write(wanted, &mut seen).await? {
            return Ok(Err(wanted.name.clone()));
        }
    }
    Ok(Ok(prepared))
}

fn told(decision: Decision, now: UnixSeconds) -> Outcome {
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
        again: decision.again_at.map(seconds),
        keys: Keys::default(),
    }
}
