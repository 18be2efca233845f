//! A connection at work: its requests become calls, their answers responses. Both transports are served on every port;
//! which APIs, the port says.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use trellis_core::refusal::{Kind, Refusal};

use super::answer::{Answer, Payload};
use super::call::Call;
use super::door::Door;
use super::listen::{Connection, Line, Listener};
use super::reader::MessageReader;
use super::rpc::{self, Api, Rpc};
use super::{grpc, http as plain, refusal};
use crate::config::Keepalive;
use crate::dialect::{Client, NEWEST, OLDEST, Transport};
use crate::link::Link;

/// Bytes a peer may send ahead on one call, and on one connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// Headers of one request, all together.
const HEADER_BYTES: u32 = 64 << 10;

/// A port by its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    Control,
    Fleet,
    /// For ServerApps and those who start them; never TLS.
    App,
    /// Everything, as Flower 1.40 and later have it.
    Http,
    Metrics,
}

impl Port {
    fn serves(self, api: Api) -> bool {
        match self {
            Port::Http => true,
            Port::Control => matches!(api, Api::Control | Api::Trellis),
            Port::Fleet => api == Api::Fleet,
            Port::App => api == Api::App,
            Port::Metrics => false,
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

/// What all ports share.
#[derive(Clone)]
pub struct Front {
    link: Arc<Link>,
    door: Door,
    keepalive: Keepalive,
}

impl Front {
    pub fn new(link: Arc<Link>, keepalive: Keepalive) -> Front {
        Front { door: Door::new(&link.limits), link, keepalive }
    }

    /// Serves a port until the waiting room closes, and its connections until their calls are answered.
    pub async fn serve(self, port: Port, listener: Listener) {
        let tasks = tokio_util::task::TaskTracker::new();
        let (front, tracker) = (self.clone(), tasks.clone());
        let serve = move |connection| drop(tracker.spawn(front.clone().connection(port, connection)));
        listener.accept(self.keepalive, serve, self.link.room.closed()).await;
        tasks.close();
        tasks.wait().await;
    }

    async fn connection(self, port: Port, connection: Connection) {
        let (remote, line, room) = (connection.remote, connection.line.clone(), Arc::clone(&self.link.room));
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.keepalive.idle)
            .http2()
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(self.link.limits.requests_per_connection)
            .max_header_list_size(HEADER_BYTES)
            .keep_alive_interval(self.keepalive.interval)
            .keep_alive_timeout(self.keepalive.timeout);
        let service = service_fn(move |request| {
            let (front, line) = (self.clone(), line.clone());
            async move { Ok::<_, Infallible>(front.answer(port, remote, line, request).await) }
        });
        let serving = builder.serve_connection(TokioIo::new(connection), service);
        tokio::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = room.closed() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::trace!(%remote, %error, "connection ended");
        }
    }

    async fn answer(
        &self,
        port: Port,
        remote: SocketAddr,
        line: Line,
        request: Request<Incoming>,
    ) -> Response<Payload> {
        let transport = if grpc::is_grpc(request.headers()) { Transport::Grpc } else { Transport::Http };
        let Some((method, rpc)) = rpc::find(transport, request.uri().path()).filter(|(_, rpc)| port.serves(rpc.api))
        else {
            return match transport {
                Transport::Http => self.page(port, remote, request).await,
                Transport::Grpc => grpc::respond(Err(self.unknown(remote, request.uri().path(), request.headers()))),
            };
        };
        if transport == Transport::Http {
            if request.method() != Method::POST {
                return plain::error(StatusCode::METHOD_NOT_ALLOWED, 0, "Method Not Allowed");
            }
            if !plain::has_right_type(rpc.api, request.headers()) {
                return plain::wrong_type();
            }
        }
        let answer = self.call(method, rpc, transport, port, remote, line, request).await;
        if let Err(refusal) = &answer {
            refusal::log(refusal, method);
        }
        match transport {
            Transport::Grpc => grpc::respond(answer),
            Transport::Http => plain::respond(rpc, answer),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a call is made of")]
    async fn call(
        &self,
        method: &'static str,
        rpc: &'static Rpc,
        transport: Transport,
        port: Port,
        remote: SocketAddr,
        line: Line,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let _place = self.door.enter(rpc)?;
        let (parts, body) = request.into_parts();
        let client = Client::of(transport, &parts.headers);
        if let Err(refusal) = client.check() {
            self.link.say_once(format!("{remote:?} {client:?}", remote = remote.ip()), || {
                tracing::warn!(%remote, method, error = %refusal, "a peer of an unknown version is turned away");
            });
            return Err(refusal);
        }
        let body = match transport {
            Transport::Grpc => MessageReader::grpc(body).await?,
            Transport::Http => MessageReader::http(body)?,
        };
        let _room = self.door.room(rpc, body.left()).await?;
        let link = Arc::clone(&self.link);
        (rpc.handle)(Call { link, rpc, client, headers: parts.headers, port, remote, line, body }).await
    }

    /// A call that is not served, probably of a peer that is too old, too new or configured for something else.
    fn unknown(&self, remote: SocketAddr, path: &str, headers: &http::HeaderMap) -> Refusal {
        let advice = if path.contains("GrpcAdapter") || path.starts_with("/api/v0/") {
            "start SuperNodes without --grpc-adapter and --rest"
        } else {
            "check that both sides are in this range, and that the peer connects to the right port"
        };
        let text = format!("This SuperLink serves Flower {OLDEST} to {NEWEST}, and has no {path:.100}: {advice}.");
        self.link.say_once(format!("{} {path}", remote.ip()), || {
            let client = Client::of(Transport::Grpc, headers).describe(headers);
            tracing::warn!(%remote, path, client, "a peer asks for what is not served: {advice}");
        });
        Refusal::new(Kind::Unimplemented, text)
    }

    /// What is not a call: the pages for people and monitors.
    async fn page(&self, port: Port, remote: SocketAddr, request: Request<Incoming>) -> Response<Payload> {
        let read = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/health" if read && port == Port::Http => self.health(),
            path => {
                let refusal = self.unknown(remote, path, request.headers());
                plain::error(StatusCode::NOT_FOUND, 0, &refusal.text)
            }
        }
    }

    fn health(&self) -> Response<Payload> {
        let works = self.link.store().works();
        let body = if works { r#"{"status":"ok"}"# } else { r#"{"status":"the state cannot be written"}"# };
        let mut response = plain::with_type(HeaderValue::from_static("application/json"), Payload::whole(body.into()));
        if !works {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    }
}
