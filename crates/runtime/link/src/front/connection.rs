//! Converts the requests of a connection to calls, and answers to responses. Every port serves both transports; the
//! port determines the APIs.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use trellis_core::access::Rejected;
use trellis_core::audit::RefusedCall;
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::refusal::code_name;
use trellis_front::{
    Answer, ConnectionHandle, HostError, Hosts, Listener, MessageReader, Payload, Peer, Service, Source, Transport,
    grpc, http as plain, malformed,
};

use super::admission::{AdmissionControl, Admitted, UNKNOWN_SENDER_TIMEOUT};
use super::call::{Call, Shown};
use super::refusal;
use super::rpc::{self, Access, Api, Rpc};
use super::sender::{ACCESS_TOKEN, Head, REFRESH_TOKEN};
use crate::api::account::Tokens;
use crate::config::Keepalive;
use crate::dialect::{Client, NEWEST, OLDEST};
use crate::link::Link;
use crate::refusals;
use crate::watch::metrics::{self, FrontEnd, Reason};

/// Longer unknown paths are truncated in logs and errors.
const MAX_PATH_CHARS: usize = 100;

/// The purpose of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    Control,
    Fleet,
    /// For ServerApps and their launchers; never TLS.
    App,
    /// All APIs, as in Flower 1.40 and later.
    Http,
    Metrics,
}

impl Port {
    fn serves(self, rpc: &Rpc) -> bool {
        match self {
            Port::Http => true,
            Port::Control => matches!(rpc.api, Api::Control | Api::Trellis) && rpc.access != Access::App,
            // Including Trellis' own calls for nodes.
            Port::Fleet => rpc.access == Access::Node,
            // Including Trellis' own calls for apps.
            Port::App => matches!(rpc.access, Access::App | Access::Launcher),
            Port::Metrics => false,
        }
    }

    fn label(self) -> FrontEnd {
        match self {
            Port::Control => FrontEnd::Control,
            Port::Fleet => FrontEnd::Fleet,
            Port::App => FrontEnd::App,
            Port::Http => FrontEnd::Http,
            Port::Metrics => FrontEnd::Metrics,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Port::Control => "Control",
            Port::Fleet => "Fleet",
            Port::App => "ServerAppIo",
            Port::Http => "HTTP",
            Port::Metrics => "metrics",
        }
    }
}

/// Returns whether a call was refused because of the sender's identity. Flower refuses unknown keys of nodes as a
/// failed precondition.
fn is_about_identity(rpc: &Rpc, kind: Kind) -> bool {
    match kind {
        Kind::Unauthenticated | Kind::Denied => true,
        Kind::Precondition => rpc.api == Api::Fleet && matches!(rpc.name, "RegisterNode" | "ActivateNode"),
        _ => false,
    }
}

/// Returns whether the content type fits the call.
fn has_right_type(api: Api, headers: &HeaderMap) -> bool {
    match api {
        // Always required: a foreign web page can send any other type, or none, without a CORS preflight.
        Api::Trellis => plain::has_type(headers, "application/json"),
        _ => plain::is_protobuf(headers),
    }
}

/// Monitors and load balancers use any host name; these endpoints are read-only and meant for them.
fn is_monitored<B>(port: Port, request: &Request<B>) -> bool {
    port == Port::Metrics || (request.method() == Method::GET && request.uri().path() == "/health")
}

/// Frames an answer for HTTP.
fn respond(rpc: &Rpc, answer: Result<Answer, Refusal>) -> Response<Payload> {
    let unknown = matches!(&answer, Err(refusal) if refusal.kind == Kind::Unauthenticated);
    let mut response = plain::respond(answer, |refusal| refusal::flower_code(rpc.api, rpc.name, refusal.kind));
    if unknown && matches!(rpc.api, Api::Control | Api::Trellis) {
        response.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"));
    }
    response
}

/// The service of one port.
#[derive(Clone)]
struct PortService {
    front: Front,
    port: Port,
}

impl Service for PortService {
    type Presence = metrics::Present;

    fn opened(&self) -> metrics::Present {
        self.front.link.watch.metrics.connection_opened(self.port.label())
    }

    async fn answer(&self, peer: Peer, request: Request<Incoming>) -> Response<Payload> {
        self.front.answer(self.port, peer.remote, peer.connection, request).await
    }

    async fn stopped(&self) {
        self.front.link.room.closed().await;
    }
}

/// The origin of a call.
struct From {
    client: Client,
    port: Port,
    remote: SocketAddr,
    connection: ConnectionHandle,
    renewed: Arc<OnceLock<Tokens>>,
}

/// The state that all ports share.
#[derive(Clone)]
pub struct Front {
    pub(super) link: Arc<Link>,
    admission: AdmissionControl,
    hosts: Hosts,
    keepalive: Keepalive,
    http_port: u16,
}

impl Front {
    pub fn new(link: Arc<Link>, hosts: Hosts, keepalive: Keepalive, http_port: u16) -> Front {
        Front { admission: AdmissionControl::new(&link.limits), link, hosts, keepalive, http_port }
    }

    /// Serves a port until the waiting room is closed, and open connections until their calls are answered.
    pub async fn serve(self, port: Port, listener: Listener) {
        let (keepalive, requests) = (self.keepalive, self.link.limits.requests_per_connection);
        trellis_front::serve(PortService { front: self, port }, listener, keepalive, requests).await;
    }

    async fn answer(
        &self,
        port: Port,
        remote: SocketAddr,
        connection: ConnectionHandle,
        request: Request<Incoming>,
    ) -> Response<Payload> {
        if !is_monitored(port, &request)
            && let Err(foreign) = self.hosts.check(&request)
        {
            return self.foreign(remote, &foreign);
        }
        let transport = Transport::of(request.headers());
        let Some((method, rpc)) = rpc::find(transport, request.uri().path()).filter(|(_, rpc)| port.serves(rpc)) else {
            return match transport {
                Transport::Http => self.page(port, remote, request).await,
                Transport::Grpc => grpc::respond(Err(self.unknown(remote, request.uri().path(), request.headers()))),
            };
        };
        if transport == Transport::Http {
            if request.method() != Method::POST {
                return plain::error(StatusCode::METHOD_NOT_ALLOWED, 0, "Method Not Allowed");
            }
            if !has_right_type(rpc.api, request.headers()) {
                return plain::wrong_type();
            }
        }
        let (client, since) = (Client::of(transport, request.headers()), Instant::now());
        let (shown, renewed) = (Shown::by(request.headers()), Arc::new(OnceLock::new()));
        let held = rpc.held.then(|| self.link.watch.metrics.call_held(rpc.api.label()));
        let from = From { client, port, remote, connection, renewed: Arc::clone(&renewed) };
        let answer = self.call(rpc, from, request).await;
        drop(held);
        if let Err(refusal) = &answer {
            let reason = if client.check().is_err() { Reason::TooOld } else { refusal::reason(refusal) };
            self.link.watch.metrics.call_refused(reason);
            self.refused(rpc, method, remote, &shown, refusal);
        }
        let seen = metrics::Call {
            api: rpc.api.label(),
            rpc: rpc.name,
            transport: transport.into(),
            version: client.version_label(),
            code: code_name(transport, answer.as_ref().err().map(|refusal| refusal.kind)),
        };
        self.link.watch.metrics.call_finished(seen, (!rpc.held).then(|| since.elapsed()));
        let mut response = match transport {
            Transport::Grpc => grpc::respond(answer),
            Transport::Http => respond(rpc, answer),
        };
        if let Some(tokens) = renewed.get() {
            for (name, token) in [(ACCESS_TOKEN, &tokens.access), (REFRESH_TOKEN, &tokens.refresh)] {
                response.headers_mut().insert(name, token.parse().expect("hexadecimal"));
            }
        }
        response
    }

    /// Identifies the sender of the call before it reads the message.
    async fn call(&self, rpc: &'static Rpc, from: From, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let From { client, port, remote, connection, renewed } = from;
        let (parts, body) = request.into_parts();
        if let Err(refusal) = client.check() {
            self.link.log_once(format!("{} {client:?}", remote.ip()), || {
                tracing::warn!(%remote, call = rpc.name, error = %refusal, "peer refused: unsupported release");
            });
            return Err(refusal);
        }
        let headers = parts.headers;
        let head = Head {
            link: &self.link,
            rpc,
            client: &client,
            headers: &headers,
            port,
            remote,
            connection: &connection,
            renewed: &renewed,
        };
        let (sender, source) = (head.sender().await?, Source::from(remote.ip()));
        let identity = sender.identity(source);
        let _place = match identity {
            Some(_) => self.admission.admit(rpc)?,
            None => self.admission.admit_unknown(source).await?,
        };
        let mut body = match client.transport {
            // The length of the message is part of the body, and an unknown sender may withhold it.
            Transport::Grpc if identity.is_none() => {
                tokio::time::timeout(UNKNOWN_SENDER_TIMEOUT, MessageReader::grpc(body))
                    .await
                    .map_err(|_| malformed("the message did not arrive in time"))??
            }
            Transport::Grpc => MessageReader::grpc(body).await?,
            Transport::Http => MessageReader::http(body)?,
        };
        self.admission.check_size(rpc, identity.is_some(), body.left())?;
        let _room = match identity {
            Some(identity) => self.admission.reserve(rpc, identity, source, body.left()).await?,
            None => {
                body.within(UNKNOWN_SENDER_TIMEOUT);
                Admitted::default()
            }
        };
        let link = Arc::clone(&self.link);
        let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned());
        let http_port = self.http_port;
        let call =
            Call { link, rpc, client, headers, port, remote, connection, sender, body, authority, http_port, renewed };
        (rpc.handle)(call).await
    }

    /// Logs a refused call, and adds an audit entry if the reason is the identity of the sender. The rate per address
    /// is limited.
    fn refused(&self, rpc: &Rpc, method: &str, remote: SocketAddr, shown: &Shown, refusal: &Refusal) {
        let (source, is_about_identity) = (Source::from(remote.ip()), is_about_identity(rpc, refusal.kind));
        if let Some(unlogged) = self.link.refused.may_log(source, self.link.now()) {
            trellis_front::refusal::log(refusal, method, is_about_identity);
            if unlogged > 0 {
                tracing::warn!(%remote, unlogged, "more calls from this address were refused");
            }
        }
        if is_about_identity {
            let reason = Rejected::of(refusal).map_or_else(|| refusal.text.to_string(), |why| why.to_string());
            let (identity, peer) = (shown.describe(), remote.ip().to_string());
            let call = RefusedCall { identity, peer, call: method.into(), reason, unwritten: 0 };
            refusals::note(&self.link, source, call);
        }
    }

    /// Refuses a request with a foreign Host or Origin.
    fn foreign(&self, remote: SocketAddr, foreign: &HostError) -> Response<Payload> {
        self.link.log_once(format!("{} {foreign:?}", remote.ip()), || {
            tracing::warn!(%remote, "request refused: {foreign} (--allowed-host adds names)");
        });
        self.link.watch.metrics.call_refused(Reason::Denied);
        plain::error(foreign.status(), 0, &foreign.to_string())
    }

    /// Logs an unknown call, probably of a peer that is too old, too new or misconfigured.
    pub(super) fn unknown(&self, remote: SocketAddr, path: &str, headers: &HeaderMap) -> Refusal {
        let path: String = path.chars().take(MAX_PATH_CHARS).collect();
        let advice = if path.contains("GrpcAdapter") || path.starts_with("/api/v0/") {
            "start SuperNodes without --grpc-adapter and --rest"
        } else {
            "check that both sides are in this range, and that the peer connects to the right port"
        };
        let text = format!("This SuperLink serves Flower {OLDEST} to {NEWEST}, and has no {path}: {advice}.");
        self.link.log_once(format!("{} {path}", remote.ip()), || {
            let client = Client::of(Transport::Grpc, headers).describe(headers);
            tracing::warn!(%remote, path, client, "unknown call: {advice}");
        });
        self.link.watch.metrics.call_refused(Reason::UnknownDialect);
        Refusal::new(Kind::Unimplemented, text)
    }
}
