//! The API port for apps: dispatches requests to calls.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{
    Answer, Hosts, MessageReader, Payload, Peer, Service, SuperexecSecret, Transport, grpc, http as plain, refusal,
};

use super::caller::Caller;
use super::job_queue::JobQueue;
use super::rpc::{self, Rpc};
use crate::objects::Objects;

/// The largest message, except objects: a context may contain arrays.
const MESSAGE_BYTES: u64 = 512 << 20;
/// Larger messages are read with limited concurrency.
const SMALL_BYTES: u64 = 64 << 10;
const LARGE_MESSAGES: usize = 4;
/// The length of an unknown path in an error.
const MAX_PATH_CHARS: usize = 100;

/// The state that all calls share.
pub struct Server {
    pub queue: Arc<JobQueue>,
    pub objects: Objects,
    /// The secret of SuperExecs; `None`: any client that reaches the port may take jobs.
    pub secret: Option<SuperexecSecret>,
    hosts: Hosts,
    large: Semaphore,
    stop: CancellationToken,
}

impl Server {
    pub fn new(
        queue: Arc<JobQueue>,
        objects: Objects,
        secret: Option<SuperexecSecret>,
        stop: CancellationToken,
    ) -> Arc<Server> {
        let (hosts, large) = (Hosts::new(Vec::new(), None), Semaphore::new(LARGE_MESSAGES));
        Arc::new(Server { queue, objects, secret, hosts, large, stop })
    }
}

#[derive(Clone)]
pub struct AppPort(pub Arc<Server>);

impl Service for AppPort {
    type Presence = ();

    fn opened(&self) {}

    async fn answer(&self, peer: Peer, request: Request<Incoming>) -> Response<Payload> {
        if let Err(foreign) = self.0.hosts.check(&request) {
            return plain::error(foreign.status(), 0, &foreign.to_string());
        }
        let transport = Transport::of(request.headers());
        let Some(rpc) = rpc::find(transport, request.uri().path()) else { return elsewhere(transport, &request) };
        if transport == Transport::Http {
            if request.method() != Method::POST {
                return plain::error(StatusCode::METHOD_NOT_ALLOWED, 0, "Method Not Allowed");
            }
            if !plain::is_protobuf(request.headers()) {
                return plain::wrong_type();
            }
        }
        let answer = self.call(rpc, transport, peer, request).await;
        if let Err(refused) = &answer {
            let is_about_identity = matches!(refused.kind, Kind::Unauthenticated | Kind::Denied);
            refusal::log(refused, rpc.name, is_about_identity);
        }
        match transport {
            Transport::Grpc => grpc::respond(answer),
            Transport::Http => plain::respond(answer, |refusal| rpc.flower_code(refusal.kind)),
        }
    }

    async fn stopped(&self) {
        self.0.stop.cancelled().await;
    }
}

impl AppPort {
    async fn call(
        &self,
        rpc: &'static Rpc,
        transport: Transport,
        peer: Peer,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let (parts, body) = request.into_parts();
        let body = match transport {
            Transport::Grpc => MessageReader::grpc(body).await?,
            Transport::Http => MessageReader::http(body)?,
        };
        let mut _room = None;
        if !rpc.streams_in && body.left() > SMALL_BYTES {
            if body.left() > MESSAGE_BYTES {
                let text = format!("message of {} bytes is larger than the limit of {MESSAGE_BYTES}", body.left());
                return Err(Refusal::new(Kind::TooLarge, text));
            }
            _room = self.0.large.acquire().await.ok();
        }
        let server = Arc::clone(&self.0);
        (rpc.handle)(Caller { server, rpc, transport, headers: parts.headers, connection: peer.connection }, body).await
    }
}

/// Answers requests that are not calls.
fn elsewhere(transport: Transport, request: &Request<Incoming>) -> Response<Payload> {
    let path: String = request.uri().path().chars().take(MAX_PATH_CHARS).collect();
    let read = matches!(*request.method(), Method::GET | Method::HEAD);
    if transport == Transport::Http && read && path == "/health" {
        return plain::with_type(http::HeaderValue::from_static("application/json"), Payload::whole("{}".into()));
    }
    let text = format!(
        "This SuperNode serves ClientApps of Flower 1.25 to 1.42, and has no {path}: check the app's version, and that it \
         connects to the right port."
    );
    tracing::debug!(path, "an app requests an unknown path");
    match transport {
        Transport::Grpc => grpc::respond(Err(Refusal::new(Kind::Unimplemented, text))),
        Transport::Http => plain::error(StatusCode::NOT_FOUND, 0, &text),
    }
}
