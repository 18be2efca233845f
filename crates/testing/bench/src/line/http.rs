//! Calls as protobuf over HTTP/1.1, with connections kept and dropped as the HTTP client of official components does.
//!
//! A connection carries one call at a time: while a poll is held, a heartbeat needs a second one. Afterwards it is kept
//! for a while. Nobody looks at the clock for that: old connections are dropped when the next call begins or ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpSocket;
use tokio::time::{Instant, timeout};

use crate::call::CallError;
use crate::rpc::Rpc;

/// A connection that was idle for longer is not used again (the default of httpx).
const KEPT: Duration = Duration::from_secs(5);
/// To connect, and to wait for an answer, before the call counts as failed (what Flower 1.42 sets).
const PATIENCE: Duration = Duration::from_secs(30);
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/protobuf");

pub struct Line {
    server: SocketAddr,
    home: Ipv4Addr,
    headers: HeaderMap,
    opened: AtomicU64,
    idle: Mutex<Vec<Idle>>,
}

struct Connection {
    /// The how manyeth of its line.
    number: u64,
    sender: SendRequest<Full<Bytes>>,
}

struct Idle {
    since: Instant,
    connection: Connection,
}

impl Line {
    pub async fn open(server: SocketAddr, home: Ipv4Addr) -> Result<Self, CallError> {
        let host = HeaderValue::try_from(server.to_string()).expect("a socket address makes a valid header");
        let headers = HeaderMap::from_iter([
            (HOST, host),
            (CONTENT_TYPE, PROTOBUF),
            (ACCEPT, PROTOBUF),
            (ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate")),
            (CONNECTION, HeaderValue::from_static("keep-alive")),
            (USER_AGENT, HeaderValue::from_static("python-httpx/0.28.1")),
        ]);
        let line = Self { server, home, headers, opened: AtomicU64::new(0), idle: Mutex::default() };
        let first = line.connect().await?;
        line.put_back(first);
        Ok(line)
    }

    pub async fn call<Q, A>(&self, rpc: &Rpc<Q, A>, headers: HeaderMap, request: &Q) -> Result<A, CallError>
    where
        Q: Message,
        A: Message + Default,
    {
        let mut http_request = Request::new(Full::new(Bytes::from(request.encode_to_vec())));
        *http_request.method_mut() = Method::POST;
        *http_request.uri_mut() = Uri::from_static(rpc.http);
        *http_request.headers_mut() = headers;
        http_request.headers_mut().extend(self.headers.clone());

        let mut connection = self.take().await?;
        let answer = patiently("answer", connection.sender.send_request(http_request)).await?;
        let (status, body) = read(answer).await?;
        self.put_back(connection);
        if status != StatusCode::OK {
            return Err(error(status, &body));
        }
        A::decode(body).map_err(|error| CallError::end(format!("the answer is no protobuf: {error}")))
    }

    /// The oldest of the connections that are free, or a new one.
    async fn take(&self) -> Result<Connection, CallError> {
        while let Some(mut connection) = self.take_idle() {
            // The server may have closed it in the meantime.
            if connection.sender.ready().await.is_ok() {
                return Ok(connection);
            }
        }
        self.connect().await
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().expect("no panic while choosing");
        drop_old(&mut idle);
        let oldest = (0..idle.len()).min_by_key(|&index| idle[index].connection.number)?;
        Some(idle.swap_remove(oldest).connection)
    }

    fn put_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().expect("no panic while choosing");
        idle.push(Idle { since: Instant::now(), connection });
        drop_old(&mut idle);
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let socket = TcpSocket::new_v4().map_err(no_connection)?;
        socket.bind((self.home, 0).into()).map_err(no_connection)?;
        socket.set_nodelay(true).map_err(no_connection)?;
        let stream = patiently("connection", socket.connect(self.server)).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(no_connection)?;
        // It ends when the sender is dropped, or with an error that the sender tells.
        tokio::spawn(connection);
        Ok(Connection { number: self.opened.fetch_add(1, Ordering::Relaxed), sender })
    }
}

fn drop_old(idle: &mut Vec<Idle>) {
    idle.retain(|one| one.since.elapsed() <= KEPT && !one.connection.sender.is_closed());
}

async fn read(answer: Response<Incoming>) -> Result<(StatusCode, Bytes), CallError> {
    let (head, body) = answer.into_parts();
    let body = patiently("whole answer", body.collect()).await?;
    Ok((head.status, body.to_bytes()))
}

/// Transport errors and timeouts are alike to official clients: they try again.
async fn patiently<T, E: std::error::Error>(
    what: &str,
    waiting: impl Future<Output = Result<T, E>>,
) -> Result<T, CallError> {
    match timeout(PATIENCE, waiting).await {
        Ok(result) => result.map_err(|error| CallError::again(format!("no {what}: {error}"))),
        Err(_) => Err(CallError::again(format!("no {what} within {} s", PATIENCE.as_secs()))),
    }
}

fn no_connection(error: impl std::error::Error) -> CallError {
    CallError::again(format!("no connection: {error}"))
}

fn error(status: StatusCode, body: &[u8]) -> CallError {
    let text = format!("HTTP {}: {}", status.as_u16(), String::from_utf8_lossy(body));
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            CallError::again(text)
        }
        _ => CallError::end(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::fleet::{GET_RUN, SEND_NODE_HEARTBEAT};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;
    use trellis_wire::proto::{
        GetRunRequest, GetRunResponse, Run, SendNodeHeartbeatRequest, SendNodeHeartbeatResponse,
    };

    /// A server that answers heartbeats at once and questions for a run when told to.
    #[derive(Clone)]
    struct Server {
        address: SocketAddr,
        connections: Arc<AtomicUsize>,
        asked: Arc<Semaphore>,
        may_answer: Arc<Semaphore>,
    }

    impl Server {
        async fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let none = || Arc::new(Semaphore::new(0));
            let (address, connections) = (listener.local_addr().unwrap(), Arc::default());
            let server = Self { address, connections, asked: none(), may_answer: none() };
            let serving = server.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    serving.connections.fetch_add(1, Ordering::Relaxed);
                    let server = serving.clone();
                    let service = service_fn(move |request| server.clone().answer(request));
                    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                }
            });
            server
        }

        async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
            assert_eq!(request.headers()[CONTENT_TYPE], PROTOBUF);
            assert_eq!(request.headers()["flwr-timestamp"], "now");
            let body = match request.uri().path() {
                "/v1/fleet/send-node-heartbeat" => SendNodeHeartbeatResponse { success: true }.encode_to_vec(),
                "/v1/fleet/get-run" => {
                    self.asked.add_permits(1);
                    self.may_answer.acquire().await.unwrap().forget();
                    GetRunResponse { run: Some(Run { run_id: 7, ..Run::default() }) }.encode_to_vec()
                }
                other => panic!("nobody asks for {other}"),
            };
            Ok(Response::new(Full::new(body.into())))
        }
    }

    fn headers() -> HeaderMap {
        HeaderMap::from_iter([("flwr-timestamp".parse().unwrap(), HeaderValue::from_static("now"))])
    }

    async fn beat(line: &Line) {
        let answer = line.call(&SEND_NODE_HEARTBEAT, headers(), &SendNodeHeartbeatRequest::default()).await.unwrap();
        assert!(answer.success);
    }

    #[tokio::test]
    async fn a_connection_carries_one_call_at_a_time_and_is_used_again() {
        let server = Server::start().await;
        let opened = || server.connections.load(Ordering::Relaxed);
        let line = Arc::new(Line::open(server.address, Ipv4Addr::new(127, 0, 1, 1)).await.unwrap());
        beat(&line).await;
        beat(&line).await;
        assert_eq!(opened(), 1);

        let held = tokio::spawn({
            let line = line.clone();
            async move { line.call(&GET_RUN, headers(), &GetRunRequest::default()).await.unwrap() }
        });
        server.asked.acquire().await.unwrap().forget();
        beat(&line).await;
        beat(&line).await;
        assert_eq!(opened(), 2);
        server.may_answer.add_permits(1);
        assert_eq!(held.await.unwrap().run.unwrap().run_id, 7);
        beat(&line).await;
        assert_eq!(opened(), 2);
    }

    #[tokio::test]
    async fn a_connection_that_was_idle_for_long_is_dropped() {
        let server = Server::start().await;
        let line = Line::open(server.address, Ipv4Addr::LOCALHOST).await.unwrap();
        beat(&line).await;
        // Only for the jump: a clock that stands still would run out the patience with a real socket.
        tokio::time::pause();
        tokio::time::advance(KEPT + Duration::from_millis(1)).await;
        tokio::time::resume();
        beat(&line).await;
        assert_eq!(server.connections.load(Ordering::Relaxed), 2);
        assert_eq!(line.idle.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_server_that_is_gone_may_come_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let Err(error) = Line::open(address, Ipv4Addr::LOCALHOST).await else { panic!("nobody listens") };
        assert!(error.is_transient(), "{error}");
    }

    #[test]
    fn only_gateway_errors_are_tried_again() {
        for (status, transient) in [(502, true), (503, true), (504, true), (500, false), (403, false), (401, false)] {
            let error = error(StatusCode::from_u16(status).unwrap(), b"{}");
            assert_eq!((error.is_transient(), error.to_string()), (transient, format!("HTTP {status}: {{}}")));
        }
    }
}
