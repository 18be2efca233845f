//! Single sign-on with OpenID Connect. This server is the client of the provider, and page and commands are clients of this server:
//! each shows a challenge (PKCE), sends its user to the provider, and gets a code that only its verifier turns into a token.
//!
//! # Invariants
//! - Callers are unknown here: what they can make us send to the provider is limited per address and in total.
//! - A user is sent back to this server's page or to the same user's own machine, never to an address from a request.
//! - A token of the provider never leaves this server.

mod provider;
mod session;
mod waiting;

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use tokio::sync::Semaphore;
use trellis_api::{DeviceLogin, Proof, Role};
use trellis_client::TrustError;
use trellis_front::{Rate, Source};
use trellis_oidc::{Identity, Rules, Tokens, pkce};
use trellis_wire::token::Token;

use super::Api;
use super::audit::{Event, record};
use super::call::{Answer, empty, json, ok};
use super::fault::{Fault, Kind};
use super::guard::{read_json, remote};
use super::query::{Form, Parameter, Query};
use super::route::BASE;
use super::secret;
use provider::{Polled, Provider, SignOnError};
use waiting::Waiting;

/// Calls of one address: at once, and then one in this time.
const BURST: u32 = 60;
const INTERVAL_S: f64 = 0.5;
const MAX_SOURCES: usize = 4096;
/// How long a user may take at the provider.
const LOGIN_TTL: Duration = Duration::from_secs(600);
/// How long the code for page or command is good.
const CODE_TTL: Duration = Duration::from_secs(60);
/// Maximum number of sessions that the provider confirms again; more last as long as one confirmation.
const MAX_SESSIONS: usize = 10_000;
/// Time between two polls of a device, where the provider names none (RFC 8628, 3.2), and what "slow down" adds.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// An ID token with many groups is smaller.
const MAX_PROOF_BYTES: usize = 64 << 10;

const CHALLENGE: Parameter = Parameter {
    name: "challenge",
    about: "",
    form: Form::Text { pattern: "^[A-Za-z0-9_-]{43}$", longest: 43, fits: pkce::is_challenge },
};
const PORT: Parameter = Parameter { name: "port", about: "", form: Form::Number { least: 1, most: 65_535 } };

/// The identity provider, and what its users may.
#[derive(Debug, Clone)]
pub struct SignOnSettings {
    /// For people.
    pub name: String,
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Option<Token>,
    /// PEM file with the authorities for the provider's certificate; `None`: those of the system.
    pub trust: Option<PathBuf>,
    pub rules: Rules,
    /// After this time users sign in again.
    pub session: Duration,
    /// How often the provider confirms a session.
    pub confirm: Duration,
    /// Where browsers reach this server; `None`: the address of its port.
    pub url: Option<String>,
}

/// Single sign-on at work.
pub struct SignOn {
    settings: SignOnSettings,
    url: String,
    provider: Provider,
    calls: Rate<Source>,
    logins: Waiting<Login>,
    codes: Waiting<Code>,
    devices: Waiting<Device>,
    sessions: Arc<Semaphore>,
    since: Instant,
}

/// Who gets the code: the page of this server, or a command on the machine of the browser.
#[derive(Clone, Copy)]
enum Client {
    Page,
    Command { port: u16 },
}

/// A user who is at the provider.
struct Login {
    client: Client,
    challenge: String,
    verifier: String,
    nonce: String,
}

/// A user who is back.
struct Code {
    challenge: String,
    identity: Identity,
    tokens: Tokens,
}

struct Device {
    code: String,
    interval: Duration,
    next_poll: Instant,
}

impl SignOn {
    /// `url`: that of the port.
    pub fn new(settings: SignOnSettings, url: String) -> Result<Arc<SignOn>, TrustError> {
        Ok(Arc::new(SignOn {
            provider: Provider::new(settings.clone())?,
            url: settings.url.clone().unwrap_or(url),
            settings,
            calls: Rate::new(BURST, INTERVAL_S, MAX_SOURCES),
            logins: Waiting::default(),
            codes: Waiting::default(),
            devices: Waiting::default(),
            sessions: Arc::new(Semaphore::new(MAX_SESSIONS)),
            since: Instant::now(),
        }))
    }

    fn callback(&self) -> String {
        format!("{}{BASE}/sign-on/callback", self.url)
    }

    /// The time after which a session ends at the latest: also that of a `flwr login`.
    pub fn session(&self) -> Duration {
        self.settings.session
    }
}

/// The routes beside the table: their callers have no token yet.
pub fn routes(api: &Arc<Api>) -> Router {
    Router::new()
        .route(&format!("{BASE}/sign-on"), get(describe))
        .route(&format!("{BASE}/sign-on/start"), get(start))
        .route(&format!("{BASE}/sign-on/callback"), get(callback))
        .route(&format!("{BASE}/sign-on/device"), post(begin_device))
        .route(&format!("{BASE}/sign-on/token"), post(issue).delete(sign_out))
        .with_state(Arc::clone(api))
}

/// Single sign-on, for a caller who has not called too often.
fn entered<'a>(api: &'a Api, request: &Parts) -> Result<(&'a Arc<SignOn>, IpAddr), Fault> {
    let off = || Fault::new(Kind::NOT_FOUND, "This server has no single sign-on. Its administrator issues tokens.");
    let on = api.sign_on.as_ref().ok_or_else(off)?;
    let remote = remote(&request.extensions);
    match on.calls.admit(remote.into(), on.since.elapsed().as_secs_f64()) {
        Some(_) => Ok((on, remote)),
        None => {
            Err(Fault::new(Kind::TOO_MANY, "Too many logins came from this address. Wait a little.").retry_after(1))
        }
    }
}

async fn describe(State(api): State<Arc<Api>>, request: Parts) -> Response {
    let described = async {
        let (on, _) = entered(&api, &request)?;
        let SignOnSettings { name, issuer, .. } = &on.settings;
        // Told without asking the provider: it may be away.
        ok(&trellis_api::SignOn { name: name.clone(), issuer: issuer.clone() })
    };
    described.await.unwrap_or_else(Fault::into_response)
}

/// Sends a browser to the provider.
async fn start(State(api): State<Arc<Api>>, request: Parts) -> Response {
    let started = async {
        let (on, remote) = entered(&api, &request)?;
        let query = Query::read(request.uri.query().unwrap_or_default(), &[CHALLENGE, PORT])?;
        let missing = || Fault::new(Kind::MALFORMED, "The parameter challenge is missing.");
        let challenge = query.text(CHALLENGE.name).ok_or_else(missing)?.to_owned();
        let client = match query.number(PORT.name) {
            Some(port) => Client::Command { port: port as u16 },
            None => Client::Page,
        };
        let documents = match on.provider.documents().await {
            Ok(documents) => documents,
            Err(error) => return Ok(client.go_back(Err(&error.to_string()))),
        };
        let (verifier, nonce) = (secret::fresh(), secret::fresh());
        let our_challenge = pkce::challenge(&verifier);
        let login = Login { client, challenge, verifier, nonce: nonce.clone() };
        let state = on.logins.add(remote, login, LOGIN_TTL, Instant::now()).ok_or_else(too_many)?;
        Ok(redirect(&documents.metadata.authorization_url(&[
            ("response_type", "code"),
            ("client_id", &on.settings.client_id),
            ("redirect_uri", &on.callback()),
            ("scope", &documents.metadata.scope()),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", &our_challenge),
            ("code_challenge_method", "S256"),
        ])))
    };
    started.await.unwrap_or_else(Fault::into_response)
}

/// Where the provider sends a browser back to.
async fn callback(State(api): State<Arc<Api>>, request: Parts) -> Response {
    let (on, remote) = match entered(&api, &request) {
        Ok(entered) => entered,
        Err(fault) => return fault.into_response(),
    };
    let query = request.uri.query().unwrap_or_default();
    let field =
        |name: &str| form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value);
    let login = field("state").and_then(|state| on.logins.take(&state, Instant::now()));
    let Some(login) = login else {
        let error = SignOnError::Refused("the login took too long, or was not begun here".to_owned());
        refuse(&api, remote, &error).await;
        return Client::Page.go_back(Err(&error.to_string()));
    };
    let client = login.client;
    match returned(on, &login, field).await {
        Ok((identity, tokens)) => {
            let code = Code { challenge: login.challenge, identity, tokens };
            match on.codes.add(remote, code, CODE_TTL, Instant::now()) {
                Some(code) => client.go_back(Ok(&code)),
                None => too_many().into_response(),
            }
        }
        Err(error) => {
            refuse(&api, remote, &error).await;
            client.go_back(Err(&error.to_string()))
        }
    }
}

async fn returned<'a>(
    on: &SignOn,
    login: &Login,
    field: impl Fn(&str) -> Option<Cow<'a, str>>,
) -> Result<(Identity, Tokens), SignOnError> {
    let other_issuer = field("iss").is_some_and(|issuer| issuer != on.settings.issuer);
    let code = match (field("code"), field("error")) {
        (Some(code), None) if !other_issuer => code,
        (_, error) => {
            let description = field("error_description").unwrap_or_default();
            let what = format!("{} {description}", error.unwrap_or("it sent no code".into()));
            return Err(SignOnError::Refused(what.trim().to_owned()));
        }
    };
    let tokens = on.provider.exchange(&code, &login.verifier, &on.callback()).await?;
    let identity = identity_of(on, &tokens, Some(&login.nonce)).await?;
    Ok((identity, tokens))
}

async fn identity_of(on: &SignOn, tokens: &Tokens, nonce: Option<&str>) -> Result<Identity, SignOnError> {
    let missing = || SignOnError::Refused("it sent no ID token".to_owned());
    admitted(on, tokens.id_token.as_deref().ok_or_else(missing)?, nonce).await
}

/// Whom an ID token names, if they may come in.
async fn admitted(on: &SignOn, id_token: &str, nonce: Option<&str>) -> Result<Identity, SignOnError> {
    let claims = on.provider.verify(id_token, nonce).await?;
    let rules = &on.settings.rules;
    rules.identity(&claims).map_err(|why| SignOnError::Rejected { who: rules.called(&claims).to_owned(), why })
}

async fn begin_device(State(api): State<Arc<Api>>, request: Parts) -> Response {
    let begun = async {
        let (on, remote) = entered(&api, &request)?;
        let code = on.provider.device().await.map_err(|error| fault(&error))?;
        let interval = code.interval.map_or(POLL_INTERVAL, Duration::from_secs);
        let device = Device { code: code.device_code, interval, next_poll: Instant::now() };
        let ttl = Duration::from_secs(code.expires_in).min(LOGIN_TTL);
        let device = on.devices.add(remote, device, ttl, Instant::now()).ok_or_else(too_many)?;
        ok(&DeviceLogin {
            device,
            user_code: code.user_code,
            url: code.verification_uri,
            url_with_code: code.verification_uri_complete,
            expires_in_s: ttl.as_secs(),
            poll_interval_s: interval.as_secs(),
        })
    };
    begun.await.unwrap_or_else(Fault::into_response)
}

/// Exchanges a proof for a token.
async fn issue(State(api): State<Arc<Api>>, request: Parts, body: Body) -> Response {
    let answered: Answer = async {
        let (on, remote) = entered(&api, &request)?;
        let body = read_json(MAX_PROOF_BYTES, &request.headers, body).await?;
        let unreadable = |error| Fault::new(Kind::MALFORMED, format!("The body cannot be used: {error}."));
        let proof: Proof = serde_json::from_slice(&body).map_err(unreadable)?;
        match proved(on, proof).await {
            Ok(Some((identity, tokens))) => {
                json(StatusCode::CREATED, &session::begin(&api, on, identity, tokens).await?)
            }
            Ok(None) => empty(StatusCode::ACCEPTED),
            Err(error) => {
                if !matches!(error, SignOnError::Unreachable(_)) {
                    refuse(&api, remote, &error).await;
                }
                Err(fault(&error))
            }
        }
    }
    .await;
    answered.unwrap_or_else(Fault::into_response)
}

/// `None`: not yet.
async fn proved(on: &SignOn, proof: Proof) -> Result<Option<(Identity, Tokens)>, SignOnError> {
    let expired = |what: &str| SignOnError::Refused(format!("{what} is not known, was used, or has expired"));
    match proof {
        Proof::Browser { code, verifier } => {
            let code = on.codes.take(&code, Instant::now()).filter(|code| pkce::fits(&verifier, &code.challenge));
            code.map(|code| Some((code.identity, code.tokens))).ok_or_else(|| expired("the code"))
        }
        Proof::IdToken(id_token) => {
            let identity = admitted(on, &id_token, None).await?;
            Ok(Some((identity, Tokens { id_token: None, refresh_token: None })))
        }
        Proof::Device(key) => {
            let now = Instant::now();
            let due = on.devices.with(&key, now, |device| {
                let due = device.next_poll <= now;
                device.next_poll = device.next_poll.max(now + device.interval);
                due.then(|| device.code.clone())
            });
            let Some(code) = due.ok_or_else(|| expired("the device"))? else { return Ok(None) };
            match on.provider.poll(&code).await? {
                Polled::Pending { slow_down } => {
                    let slower = if slow_down { POLL_INTERVAL } else { Duration::ZERO };
                    on.devices.with(&key, now, |device| device.interval += slower);
                    Ok(None)
                }
                Polled::Approved(tokens) => {
                    on.devices.take(&key, now);
                    Ok(Some((identity_of(on, &tokens, None).await?, tokens)))
                }
            }
        }
    }
}

/// Ends the caller's session. A token that an administrator issued stays.
async fn sign_out(State(api): State<Arc<Api>>, request: Parts) -> Response {
    let ended = async {
        let (_, remote) = entered(&api, &request)?;
        let caller = api.access.admit(&request.headers, remote, Role::Viewer).await?;
        if caller.is_identity() && api.access.revoke(&caller.id).await? {
            record(&api, Event::SignedOut, &caller.name, &caller.id, "").await;
        }
        empty(StatusCode::NO_CONTENT)
    };
    ended.await.unwrap_or_else(Fault::into_response)
}

impl Client {
    /// To where the login began, with a code or with what went wrong. The page reads the fragment, which no server sees.
    fn go_back(self, outcome: Result<&str, &str>) -> Response {
        let (name, text) = outcome.map_or_else(|error| ("error", error), |code| ("code", code));
        let pair = form_urlencoded::Serializer::new(String::new()).append_pair(name, text).finish();
        redirect(&match self {
            Client::Page => format!("/#sign-on-{pair}"),
            Client::Command { port } => format!("http://127.0.0.1:{port}/?{pair}"),
        })
    }
}

fn redirect(url: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    match HeaderValue::try_from(url) {
        Ok(url) => response.headers_mut().insert(LOCATION, url),
        Err(error) => return Fault::broken(&error).into_response(),
    };
    response
}

async fn refuse(api: &Api, remote: IpAddr, error: &SignOnError) {
    let actor = if let SignOnError::Rejected { who, .. } = error { who } else { "unknown" };
    record(api, Event::SignInRefused, actor, "sign-on", &format!("from {remote}: {error}")).await;
}

fn too_many() -> Fault {
    Fault::new(Kind::BUSY, "Too many logins are under way. Try again later.").retry_after(10)
}

fn fault(error: &SignOnError) -> Fault {
    let kind = match error {
        SignOnError::Unreachable(_) => Kind::NO_PROVIDER,
        SignOnError::Refused(_) | SignOnError::Rejected { .. } => Kind::NOT_ADMITTED,
    };
    let mut text = error.to_string();
    text[..1].make_ascii_uppercase();
    Fault::new(kind, text + ".")
}
