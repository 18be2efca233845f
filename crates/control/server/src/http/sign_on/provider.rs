//! Calls to the identity provider, limited in number, size and time. What its documents mean is decided in `trellis-oidc`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, Semaphore};
use trellis_client::{Asking, Reply, Rest, Security, Target, Timeouts, Trust, TrustError};
use trellis_clock::now_ms;
use trellis_oidc::{Claims, DeviceCode, Endpoint, Expected, Keys, Metadata, Rejected, TokenError, Tokens, verify};

use super::SignOnSettings;

const TIMEOUTS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(10));
/// Maximum size of an answer: discovery documents, keys and tokens are small.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Maximum number of calls at once; more fail at once.
const MAX_CALLS: usize = 16;
/// Age from which the documents of the provider are read again, so that withdrawn keys are forgotten.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// The same if a token is signed with an unknown key: anybody can send one.
const MIN_AGE: Duration = Duration::from_secs(10);
/// After a failure, nothing is read for this time.
const FAILURE_PAUSE: Duration = Duration::from_secs(3);
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// Why there is no identity.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SignOnError {
    #[error("the identity provider cannot be reached: {0}")]
    Unreachable(String),
    #[error("login refused: {0}")]
    Refused(String),
    /// `who`: whom the token names, if it is genuine.
    #[error("{why}")]
    Rejected { who: String, why: Rejected },
}

impl From<Rejected> for SignOnError {
    fn from(why: Rejected) -> SignOnError {
        SignOnError::Rejected { who: "unknown".to_owned(), why }
    }
}

/// What a device is told while its user has not decided.
pub enum Polled {
    Pending { slow_down: bool },
    Approved(Tokens),
}

pub struct Provider {
    settings: SignOnSettings,
    security: Security,
    calls: Semaphore,
    /// Held while the documents are read: one reader at a time.
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    documents: Option<Arc<Documents>>,
    failed: Option<(Instant, SignOnError)>,
}

pub struct Documents {
    pub metadata: Metadata,
    keys: Keys,
    read_at: Instant,
}

impl Provider {
    pub fn new(settings: SignOnSettings) -> Result<Provider, TrustError> {
        let security = match &settings.trust {
            Some(path) => Security::Tls(Trust::bundle(path)?),
            None if settings.issuer.starts_with("http://") => Security::Plaintext,
            None => Security::Tls(Trust::system()?),
        };
        Ok(Provider { settings, security, calls: Semaphore::new(MAX_CALLS), known: Mutex::default() })
    }

    pub async fn documents(&self) -> Result<Arc<Documents>, SignOnError> {
        self.documents_younger_than(MAX_AGE).await
    }

    async fn documents_younger_than(&self, max_age: Duration) -> Result<Arc<Documents>, SignOnError> {
        let mut known = self.known.lock().await;
        if let Some(documents) = known.documents.as_ref().filter(|known| known.read_at.elapsed() < max_age) {
            return Ok(Arc::clone(documents));
        }
        if let Some((at, error)) = known.failed.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_PAUSE) {
            tracing::debug!(ago_ms = at.elapsed().as_millis(), "the provider was not reached a moment ago");
            return Err(error.clone());
        }
        match self.read_documents().await {
            Ok(documents) => {
                let documents = Arc::new(documents);
                *known = Known { documents: Some(Arc::clone(&documents)), failed: None };
                Ok(documents)
            }
            Err(error) => {
                tracing::warn!(issuer = self.settings.issuer, "single sign-on: {error}");
                known.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn read_documents(&self) -> Result<Documents, SignOnError> {
        let discovery = Endpoint::discovery(&self.settings.issuer).map_err(unusable)?;
        let metadata: Metadata = read(&self.ask(&discovery, None, None).await?)?;
        if metadata.issuer != self.settings.issuer {
            let what = format!("its discovery document is of the issuer {:?}", metadata.issuer);
            return Err(SignOnError::Unreachable(what));
        }
        let reply = self.ask(&Endpoint::parse(&metadata.jwks_uri).map_err(unusable)?, None, None).await?;
        let keys = Keys::parse(&body(&reply)?).map_err(unusable)?;
        Ok(Documents { metadata, keys, read_at: Instant::now() })
    }

    /// The claims of a token that counts.
    pub async fn verify(&self, token: &str, nonce: Option<&str>) -> Result<Claims, SignOnError> {
        let SignOnSettings { issuer, client_id, .. } = &self.settings;
        let expected = Expected { issuer, client_id, nonce };
        let checked = |documents: &Documents| verify(token, &documents.keys, &expected, now_ms() as f64 / 1000.0);
        match checked(&*self.documents().await?) {
            // The provider may have new keys.
            Err(Rejected::UnknownKey) => Ok(checked(&*self.documents_younger_than(MIN_AGE).await?)?),
            claims => Ok(claims?),
        }
    }

    pub async fn exchange(&self, code: &str, verifier: &str, redirect: &str) -> Result<Tokens, SignOnError> {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", verifier),
            ("redirect_uri", redirect),
        ];
        self.tokens(&form).await?.map_err(refused)
    }

    pub async fn refresh(&self, refresh_token: &str) -> Result<Tokens, SignOnError> {
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        self.tokens(&form).await?.map_err(refused)
    }

    pub async fn device(&self) -> Result<DeviceCode, SignOnError> {
        let documents = self.documents().await?;
        let metadata = &documents.metadata;
        let missing = || SignOnError::Refused("it has no device flow".to_owned());
        let url = metadata.device_authorization_endpoint.as_deref().ok_or_else(missing)?;
        let form = [("scope", metadata.scope())];
        let form: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        read(&self.post(url, &form, metadata).await?)
    }

    pub async fn poll(&self, device_code: &str) -> Result<Polled, SignOnError> {
        let form = [("grant_type", DEVICE_GRANT), ("device_code", device_code)];
        match self.tokens(&form).await? {
            Ok(tokens) => Ok(Polled::Approved(tokens)),
            Err(error) if error.error == "authorization_pending" => Ok(Polled::Pending { slow_down: false }),
            Err(error) if error.error == "slow_down" => Ok(Polled::Pending { slow_down: true }),
            Err(error) => Err(refused(error)),
        }
    }

    async fn tokens(&self, form: &[(&str, &str)]) -> Result<Result<Tokens, TokenError>, SignOnError> {
        let documents = self.documents().await?;
        let metadata = &documents.metadata;
        let reply = self.post(&metadata.token_endpoint, form, metadata).await?;
        if reply.status == 200 {
            return read(&reply).map(Ok);
        }
        match read::<TokenError>(&reply) {
            Ok(error) if !matches!(error.error.as_str(), "server_error" | "temporarily_unavailable") => Ok(Err(error)),
            _ => Err(SignOnError::Unreachable(format!("it answers with status {}", reply.status))),
        }
    }

    /// Sends a form as our client.
    async fn post(&self, url: &str, form: &[(&str, &str)], metadata: &Metadata) -> Result<Reply, SignOnError> {
        let (body, header) = self.signed(form, metadata);
        self.ask(&Endpoint::parse(url).map_err(unusable)?, Some(body), header).await
    }

    /// A form with what proves that we send it, and a header if that belongs there.
    fn signed(&self, form: &[(&str, &str)], metadata: &Metadata) -> (Bytes, Option<(&'static str, String)>) {
        let SignOnSettings { client_id, client_secret, .. } = &self.settings;
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form).append_pair("client_id", client_id);
        let header = match client_secret {
            Some(secret) if metadata.takes_secret_in_form() => {
                body.append_pair("client_secret", secret.reveal());
                None
            }
            Some(secret) => {
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let both = format!("{}:{}", encoded(client_id), encoded(secret.reveal()));
                Some(("authorization", format!("Basic {}", STANDARD.encode(both))))
            }
            None => None,
        };
        (body.finish().into(), header)
    }

    async fn ask(
        &self,
        endpoint: &Endpoint,
        form: Option<Bytes>,
        header: Option<(&'static str, String)>,
    ) -> Result<Reply, SignOnError> {
        let busy = |_| SignOnError::Unreachable("too many calls to it are under way".to_owned());
        let _permit = self.calls.try_acquire().map_err(busy)?;
        let security = if endpoint.secure { self.security.clone() } else { Security::Plaintext };
        let target = Target { host: endpoint.host.clone(), port: endpoint.port, security, token: None };
        let timeouts = Timeouts { connect: TIMEOUTS.0, answer: TIMEOUTS.1, retries: Vec::new() };
        let (method, kind) = if form.is_some() { ("POST", FORM) } else { ("GET", JSON) };
        let body = form.unwrap_or_default();
        let asking = Asking { method, path: &endpoint.path, kind, accept: JSON, body, headers: header.as_slice() };
        let reply = Rest::new(target, timeouts).ask(&asking).await;
        reply.map_err(|error| SignOnError::Unreachable(error.to_string()))
    }
}

fn read<T: DeserializeOwned>(reply: &Reply) -> Result<T, SignOnError> {
    serde_json::from_slice(&body(reply)?).map_err(|error| {
        SignOnError::Unreachable(format!("its answer with status {} cannot be read: {error}", reply.status))
    })
}

fn body(reply: &Reply) -> Result<Bytes, SignOnError> {
    let fits = reply.body.clone().filter(|body| body.len() <= MAX_ANSWER_BYTES);
    fits.ok_or_else(|| SignOnError::Unreachable("its answer is too large".to_owned()))
}

fn unusable(error: impl std::error::Error) -> SignOnError {
    SignOnError::Unreachable(format!("its documents cannot be used: {error}"))
}

fn refused(error: TokenError) -> SignOnError {
    SignOnError::Refused([error.error, error.error_description].join(" ").trim().to_owned())
}
