//! Sessions: a token of ours for an identity. The provider confirms each again and again with its refresh token, which stays in
//! memory. A provider that does not answer leaves a session as it is until it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use trellis_api::{IssuedToken, Role};
use trellis_clock::now_ms;
use trellis_digest::sha256;
use trellis_oidc::{Identity, Rejected, Tokens};
use trellis_registry::NewToken;

use super::provider::SignOnError;
use super::{SignOn, admitted};
use crate::http::access::token_id;
use crate::http::audit::{Event, record};
use crate::http::fault::{Fault, Kind};
use crate::http::{Api, secret, tokens};

/// A session outlives its last confirmation by this many intervals, so that a provider can fail for a while.
const MISSED_CONFIRMATIONS: u32 = 4;

/// Issues a token, and keeps the provider's word about it up to date.
pub async fn begin(api: &Arc<Api>, on: &Arc<SignOn>, identity: Identity, given: Tokens) -> Result<IssuedToken, Fault> {
    let (token, now_ms) = (secret::fresh(), now_ms());
    let hash = sha256(token.as_bytes());
    let session = Session { identity, hash, ends: Instant::now() + on.settings.session };
    let new = NewToken {
        name: session.identity.name.clone(),
        role: session.identity.role.name().to_owned(),
        sha256: hash,
        expires_ms: Some(session.expires_ms(on, now_ms)),
    };
    let entry = api.platform.registry().issue_token(&new, now_ms).await?;
    let detail = format!("session {} as {}", entry.id, new.role);
    record(api, Event::SignedIn, &new.name, &session.identity.subject, &detail).await;
    let about =
        tokens::told(entry).ok_or_else(|| Fault::new(Kind::BROKEN, "The registry kept a role that is none."))?;
    if let (Some(refresh_token), Ok(place)) = (given.refresh_token, Arc::clone(&on.sessions).try_acquire_owned()) {
        let (api, on) = (Arc::clone(api), Arc::clone(on));
        tokio::spawn(api.stop.clone().run_until_cancelled_owned(session.keep(api, on, refresh_token, place)));
    }
    Ok(IssuedToken { token, about })
}

struct Session {
    identity: Identity,
    hash: [u8; 32],
    /// The user signs in again after that.
    ends: Instant,
}

impl Session {
    fn expires_ms(&self, on: &SignOn, now_ms: u64) -> u64 {
        let left = self.ends.saturating_duration_since(Instant::now());
        now_ms + (on.settings.confirm * MISSED_CONFIRMATIONS).min(left).as_millis() as u64
    }

    /// Asks the provider at each interval, until the session ends.
    async fn keep(mut self, api: Arc<Api>, on: Arc<SignOn>, mut refresh_token: String, _place: OwnedSemaphorePermit) {
        let mut confirmed = Instant::now();
        let lasts: Duration = on.settings.confirm * MISSED_CONFIRMATIONS;
        while Instant::now() < self.ends && confirmed.elapsed() < lasts {
            tokio::time::sleep(on.settings.confirm).await;
            match self.confirm(&on, &mut refresh_token).await {
                Ok(role) => {
                    let expires_ms = self.expires_ms(&on, now_ms());
                    match api.access.renew(&self.hash, role, expires_ms).await {
                        Ok(true) => (self.identity.role, confirmed) = (role, Instant::now()),
                        Ok(false) => return,
                        Err(fault) => tracing::error!("a session could not be renewed: {}", fault.detail),
                    }
                }
                Err(SignOnError::Unreachable(why)) => tracing::debug!("a session was not confirmed: {why}"),
                Err(error) => return self.end(&api, &error).await,
            }
        }
    }

    /// The role that the provider gives the user now.
    async fn confirm(&self, on: &SignOn, refresh_token: &mut String) -> Result<Role, SignOnError> {
        let given = on.provider.refresh(refresh_token).await?;
        if let Some(next) = given.refresh_token {
            *refresh_token = next;
        }
        // A provider need not repeat the ID token.
        let Some(id_token) = given.id_token else { return Ok(self.identity.role) };
        let now = admitted(on, &id_token, None).await?;
        if now.subject != self.identity.subject {
            return Err(Rejected::OtherUser.into());
        }
        Ok(now.role)
    }

    async fn end(self, api: &Api, error: &SignOnError) {
        let id = token_id(&self.hash);
        if let Err(fault) = api.access.revoke(&id).await {
            tracing::error!("a session could not be ended: {}", fault.detail);
        }
        let detail = format!("session {id}: {error}");
        record(api, Event::SessionEnded, &self.identity.name, &self.identity.subject, &detail).await;
    }
}
