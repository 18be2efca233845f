//! Certificates and keys of federations, as Secrets: reads what there is, has it decided ([`trellis_kube::trust`]), writes, and
//! says what pods are given. Nodes' keys are made here, and made known to SuperLinks in [`enrol`].
//!
//! Called in every pass before the objects are rendered. In steady state it reads, and writes nothing.

pub mod enrol;
mod kept;
mod keys;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use serde_json::{Map, Value};
use trellis_kube::federation::Federation;
use trellis_kube::flower::Programs;
use trellis_kube::render::{Problem, Trust};
use trellis_kube::status::Condition;
use trellis_kube::trust::{self, Decision, Event, Seen};
use trellis_pki::UnixSeconds;

use self::enrol::Keys;
use self::kept::{Kept, Written};

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
pub struct Prepared {
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

pub async fn prepare(asked: &Asked<'_>) -> Result<Prepared, Error> {
    let kept = Kept::new(asked.client, asked.federation);
    if !concerns(asked.federation) {
        return Ok(Prepared::default());
    }
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
    let is_off = trust::mode(federation) == trellis_kube::federation::TlsMode::Off;
    !is_off || federation.spec.security.node_auth || !federation.spec.sites.is_empty()
}

/// One reading, one decision, its writes. The inner error is the Secret that somebody else wrote in between.
async fn attempt(asked: &Asked<'_>, kept: &Kept<'_>, mut seen: Seen) -> Result<Result<Prepared, String>, Error> {
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

fn told(decision: Decision, now: UnixSeconds) -> Prepared {
    let mut fields = Map::new();
    if let Some(certificate) = decision.certificate {
        fields.insert("certificate".to_owned(), certificate);
    }
    let seconds = |at: UnixSeconds| Duration::from_secs(u64::try_from(at - now).unwrap_or(0).max(1));
    Prepared {
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
