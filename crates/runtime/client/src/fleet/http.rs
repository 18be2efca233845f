//! Calls as protobuf over HTTP/1.1, as in Flower 1.40 and later. A connection has one call at a time, so concurrent calls use a
//! pool of connections.

use std::sync::Mutex;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::body::{Intake, Outgoing};
use super::error::Failure;
use super::refusal::Refusal;
use super::{FleetOptions, Question, Reply};
use crate::Target;
use crate::connect::{HTTP_1, Stream, connect};
use crate::error::Error;

/// A connection that was idle for longer is not used again: uvicorn, the server of official SuperLinks, closes it after 5 s.
const KEPT: Duration = Duration::from_secs(4);
const KEPT_CONNECTIONS: usize = 8;
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/protobuf");

type Sender = http1::SendRequest<Outgoing>;

struct Idle {
    since: Instant,
    sender: Sender,
}

/// Connections to one SuperLink that are not in use.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
}

impl Pool {
    /// Starts with an unused connection.
    pub async fn with(stream: Box<dyn Stream>) -> Result<Pool, Failure> {
        let pool = Pool::default();
        pool.put_back(begin(stream).await?);
        Ok(pool)
    }

    /// Makes a call. The peer may close an idle connection at the moment of its use, so then the call is repeated on a new one.
    pub async fn ask(
        &self,
        target: &Target,
        options: &FleetOptions,
        question: &Question<'_>,
        proof: HeaderMap,
    ) -> Result<Reply, Failure> {
        if let Some(mut sender) = self.take()
            && sender.ready().await.is_ok()
        {
            let sent = sender.send_request(request(target, question, proof.clone())).await;
            if let Ok(response) = sent {
                return self.read(sender, response, &question.intake()).await;
            }
        }
        let mut sender = fresh(target, options).await?;
        question.pulse.beat();
        let response = sender.send_request(request(target, question, proof)).await?;
        self.read(sender, response, &question.intake()).await
    }

    async fn read(&self, sender: Sender, response: Response<Incoming>, intake: &Intake<'_>) -> Result<Reply, Failure> {
        let (head, body) = response.into_parts();
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let (bytes, _) = intake.read(body, |_| length).await?;
        self.put_back(sender);
        if head.status != StatusCode::OK {
            return Ok(Reply::Refused(Refusal::http(head.status.as_u16(), &bytes)));
        }
        let kind = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if !kind.starts_with(PROTOBUF.as_bytes()) {
            let kind = String::from_utf8_lossy(kind);
            return Err(Failure::Strange(format!("an answer of the type {kind:?} came: this is no SuperLink")));
        }
        Ok(Reply::Message(bytes))
    }

    /// The connection that was used last, if any is still good.
    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().expect("no panic while choosing");
        drop_old(&mut idle);
        idle.pop().map(|idle| idle.sender)
    }

    fn put_back(&self, sender: Sender) {
        let mut idle = self.idle.lock().expect("no panic while choosing");
        drop_old(&mut idle);
        if idle.len() < KEPT_CONNECTIONS {
            idle.push(Idle { since: Instant::now(), sender });
        }
    }
}

fn drop_old(idle: &mut Vec<Idle>) {
    idle.retain(|one| one.since.elapsed() < KEPT && !one.sender.is_closed());
}

async fn fresh(target: &Target, options: &FleetOptions) -> Result<Sender, Failure> {
    let limit = options.connect_timeout;
    let too_slow = |_| Error::TooSlow { endpoint: target.endpoint(), step: "accept a connection", limit };
    let connected = tokio::time::timeout(limit, connect(target, &[HTTP_1])).await.map_err(too_slow)??;
    begin(connected.stream).await
}

async fn begin(stream: Box<dyn Stream>) -> Result<Sender, Failure> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends when the sender is dropped, or with an error that the call gets, too.
    tokio::spawn(connection);
    Ok(sender)
}

fn request(target: &Target, question: &Question<'_>, mut headers: HeaderMap) -> Request<Outgoing> {
    let mut request = Request::new(question.outgoing(question.head.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(question.rpc.http);
    let host = HeaderValue::try_from(target.endpoint());
    headers.insert(HOST, host.unwrap_or(HeaderValue::from_static("superlink")));
    headers.insert(CONTENT_TYPE, PROTOBUF);
    headers.insert(ACCEPT, PROTOBUF);
    *request.headers_mut() = headers;
    request
}
