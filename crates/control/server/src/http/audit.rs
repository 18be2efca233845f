//! The audit log: who got in, who did not, and who changed the rights of others. Entries are in the registry and in the server's log.

use std::sync::Arc;
use std::time::Instant;

use trellis_api::AuditEntry;
use trellis_clock::now_ms;
use trellis_front::Rate;
use trellis_registry::AuditRecord;

use super::Api;
use super::call::{Answer, Call, ok};

const USUAL_ENTRIES: u64 = 50;
/// Entries about refusals, of all callers together: at once, and then one in this time. Each is a write to the disk.
const REFUSALS: u32 = 200;
const REFUSAL_INTERVAL_S: f64 = 1.0;

/// Limits the entries that unknown callers can cause.
pub struct Refusals {
    rate: Rate<()>,
    since: Instant,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals { rate: Rate::new(REFUSALS, REFUSAL_INTERVAL_S, 1), since: Instant::now() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    SignedIn,
    SignInRefused,
    /// The provider refused to confirm a session.
    SessionEnded,
    SignedOut,
    /// A call with a token that does not count.
    CallRefused,
    TokenIssued,
    TokenRevoked,
    LoginApproved,
}

impl Event {
    pub fn name(self) -> &'static str {
        match self {
            Event::SignedIn => "signed-in",
            Event::SignInRefused => "sign-in-refused",
            Event::SessionEnded => "session-ended",
            Event::SignedOut => "signed-out",
            Event::CallRefused => "call-refused",
            Event::TokenIssued => "token-issued",
            Event::TokenRevoked => "token-revoked",
            Event::LoginApproved => "login-approved",
        }
    }
}

/// Writes an entry. `subject`: whom or what it is about.
pub async fn record(api: &Api, event: Event, actor: &str, subject: &str, detail: &str) {
    tracing::info!(event = event.name(), actor, subject, detail, "audit");
    let refused = matches!(event, Event::SignInRefused | Event::CallRefused);
    let mut detail = detail.to_owned();
    if refused {
        match api.refusals.rate.admit((), api.refusals.since.elapsed().as_secs_f64()) {
            Some(0) => {}
            // At the start, because a long detail is truncated.
            Some(unwritten) => detail = format!("{unwritten} more not written; {detail}"),
            None => return,
        }
    }
    let (event, actor, subject) = (event.name().to_owned(), actor.to_owned(), subject.to_owned());
    let record = AuditRecord { seq: 0, at_ms: now_ms(), refused, event, actor, subject, detail };
    if let Err(error) = api.platform.registry().audit(record).await {
        tracing::error!("an audit entry could not be written: {error}");
    }
}

pub async fn list(api: Arc<Api>, call: Call) -> Answer {
    let limit = call.query.number("limit").unwrap_or(USUAL_ENTRIES);
    let records = api.platform.registry().audited(call.query.number("after"), limit).await?;
    let told = |record: AuditRecord| AuditEntry {
        seq: record.seq,
        at: record.at_ms as f64 / 1000.0,
        event: record.event,
        actor: record.actor,
        subject: record.subject,
        detail: record.detail,
    };
    ok(&records.into_iter().map(told).collect::<Vec<_>>())
}
