//! Calls about tokens.

use std::sync::Arc;

use http::StatusCode;
use trellis_api::{Detail, IssuedToken, NewToken, Role, Token};
use trellis_clock::now_ms;
use trellis_digest::sha256;
use trellis_registry::TokenEntry;

use super::Api;
use super::audit::{Event, record};
use super::call::{Answer, Call, empty, json, ok};
use super::fault::{Fault, Kind, detail};
use super::secret;

/// Letters of a token's name at most.
const LONGEST_NAME: usize = 100;
/// A hundred years: whoever wants more wants one that does not expire.
const LONGEST_TTL_S: f64 = 100.0 * 365.0 * 86_400.0;

pub async fn list(api: Arc<Api>, _call: Call) -> Answer {
    let entries = api.platform.registry().tokens().await?;
    ok(&entries.into_iter().filter_map(told).collect::<Vec<Token>>())
}

pub async fn issue(api: Arc<Api>, call: Call) -> Answer {
    let new: NewToken = call.json()?;
    let problems = problems_of(&new);
    if !problems.is_empty() {
        return Err(Fault::new(Kind::INVALID, "The token cannot be issued.").with(problems));
    }
    let (token, now_ms) = (secret::fresh(), now_ms());
    let kept = trellis_registry::NewToken {
        name: new.name,
        role: new.role.name().to_owned(),
        sha256: sha256(token.as_bytes()),
        expires_ms: new.ttl_s.map(|seconds| now_ms + (seconds * 1000.0).ceil() as u64),
    };
    let entry = api.platform.registry().issue_token(&kept, now_ms).await?;
    let subject = format!("{} of {}", entry.id, entry.name);
    record(&api, Event::TokenIssued, &call.caller.name, &subject, &entry.role).await;
    let about = told(entry).ok_or_else(|| Fault::new(Kind::BROKEN, "The registry kept a role that is none."))?;
    json(StatusCode::CREATED, &IssuedToken { token, about })
}

pub async fn revoke(api: Arc<Api>, call: Call) -> Answer {
    let id = call.part("id");
    if !api.access.revoke(id).await? {
        let told = format!("There is no token {id:?}. GET /api/v1/tokens lists those there are.");
        return Err(Fault::new(Kind::NOT_FOUND, told));
    }
    record(&api, Event::TokenRevoked, &call.caller.name, id, "").await;
    empty(StatusCode::NO_CONTENT)
}

fn problems_of(new: &NewToken) -> Vec<Detail> {
    let mut problems = Vec::new();
    if new.name.is_empty() || new.name.chars().count() > LONGEST_NAME || new.name.chars().any(char::is_control) {
        let advice = format!("say whose it is or what for, in 1 to {LONGEST_NAME} letters without control characters");
        problems.push(detail("name", "it cannot be used", advice));
    }
    if new.ttl_s.is_some_and(|seconds| !(1.0..=LONGEST_TTL_S).contains(&seconds)) {
        let advice = format!("give 1 to {LONGEST_TTL_S} seconds, or nothing: then it counts until it is revoked");
        problems.push(detail("ttl_s", "it cannot be used", advice));
    }
    problems
}

pub fn told(entry: TokenEntry) -> Option<Token> {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    Some(Token {
        id: entry.id,
        name: entry.name,
        role: Role::from_name(&entry.role)?,
        created_at: seconds(entry.created_ms),
        expires_at: entry.expires_ms.map(seconds),
    })
}
