//! Calls as protobuf over HTTP/1.1, with the connection pool of the official HTTP client.
//!
//! A connection carries one call at a time: a heartbeat during a held poll needs a second connection. Idle connections
//! are kept for a while and dropped when the next call begins or ends.

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

/// Idle connections expire after this time (the default of httpx).
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout to connect and to wait for an answer, as in Flower 1.42.
const TIMEOUT: Duration = Duration::from_secs(30);
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/protobuf");

pub struct Client {
    server: SocketAddr,
    home: Ipv4Addr,
    headers: HeaderMap,
    opened: AtomicU64,
    idle: Mutex<Vec<Idle>>,
}

struct Connection {
    /// Sequence number within the pool.
    number: u64,
    sender: SendRequest<Full<Bytes>>,
}

struct Idle {
    since: Instant,
    connection: Connection,
}

impl Client {
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
        let client = Self { server, home, headers, opened: AtomicU64::new(0), idle: Mutex::default() };
        let first = client.connect().await?;
        client.put_back(first);
        Ok(client)
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
        let answer = with_timeout("answer", connection.sender.send_request(http_request)).await?;
        let (status, body) = read(answer).await?;
        self.put_back(connection);
        if status != StatusCode::OK {
            return Err(error(status, &body));
        }
        A::decode(body).map_err(|error| CallError::fatal(format!("the answer is no protobuf: {error}")))
    }

    /// Returns the oldest idle connection, or a new one.
    async fn take(&self) -> Result<Connection, CallError> {
        while let Some(mut connection) = self.take_idle() {
            // The server may have closed it meanwhile.
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
        let stream = with_timeout("connection", socket.connect(self.server)).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(no_connection)?;
        // Ends when the sender is dropped, or with an error that the sender also gets.
        tokio::spawn(connection);
        Ok(Connection { number: self.opened.fetch_add(1, Ordering::Relaxed), sender })
    }
}

fn drop_old(idle: &mut Vec<Idle>) {
    idle.retain(|one| one.since.elapsed() <= IDLE_TIMEOUT && !one.connection.sender.is_closed());
}

async fn read(answer: Response<Incoming>) -> Result<(StatusCode, Bytes), CallError> {
    let (head, body) = answer.into_parts();
    let body = with_timeout("whole answer", body.collect()).await?;
    Ok((head.status, body.to_bytes()))
}

/// Official clients retry transport errors and timeouts alike.
async fn with_timeout<T, E: std::error::Error>(
    what: &str,
    waiting: impl Future<Output = Result<T, E>>,
) -> Result<T, CallError> {
    match timeout(TIMEOUT, waiting).await {
        Ok(result) => result.map_err(|error| CallError::transient(format!("no {what}: {error}"))),
        Err(_) => Err(CallError::transient(format!("no {what} within {} s", TIMEOUT.as_secs()))),
    }
}

fn no_connection(error: impl std::error::Error) -> CallError {
    CallError::transient(format!("no connection: {error}"))
}

fn error(status: StatusCode, body: &[u8]) -> CallError {
    let text = format!("HTTP {}: {}", status.as_u16(), String::from_utf8_lossy(body));
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            CallError::transient(text)
        }
        _ => CallError::fatal(text),
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

    /// A server that answers heartbeats at once and GetRun on demand.
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

    async fn beat(client: &Client) {
        let answer = client.call(&SEND_NODE_HEARTBEAT, headers(), &SendNodeHeartbeatRequest::default()).await.unwrap();
        assert!(answer.success);
    }

    #[tokio::test]
    async fn a_connection_carries_one_call_at_a_time_and_is_used_again() {
        let server = Server::start().await;
        let opened = || server.connections.load(Ordering::Relaxed);
        let client = Arc::new(Client::open(server.address, Ipv4Addr::new(127, 0, 1, 1)).await.unwrap());
        beat(&client).await;
        beat(&client).await;
        assert_eq!(opened(), 1);

        let held = tokio::spawn({
            let client = client.clone();
            async move { client.call(&GET_RUN, headers(), &GetRunRequest::default()).await.unwrap() }
        });
        server.asked.acquire().await.unwrap().forget();
        beat(&client).await;
        beat(&client).await;
        assert_eq!(opened(), 2);
        server.may_answer.add_permits(1);
        assert_eq!(held.await.unwrap().run.unwrap().run_id, 7);
        beat(&client).await;
        assert_eq!(opened(), 2);
    }

    #[tokio::test]
    async fn a_connection_that_was_idle_too_long_is_dropped() {
        let server = Server::start().await;
        let client = Client::open(server.address, Ipv4Addr::LOCALHOST).await.unwrap();
        beat(&client).await;
        // Pause the clock only for the jump: a paused clock would trigger timeouts of real sockets.
        tokio::time::pause();
        tokio::time::advance(IDLE_TIMEOUT + Duration::from_millis(1)).await;
        tokio::time::resume();
        beat(&client).await;
        assert_eq!(server.connections.load(Ordering::Relaxed), 2);
        assert_eq!(client.idle.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn an_unreachable_server_is_retried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let Err(error) = Client::open(address, Ipv4Addr::LOCALHOST).await else { panic!("connected") };
        assert!(error.is_transient(), "{error}");
    }

    #[test]
    fn only_gateway_errors_are_retried() {
        for (status, transient) in [(502, true), (503, true), (504, true), (500, false), (403, false), (401, false)] {
            let error = error(StatusCode::from_u16(status).unwrap(), b"{}");
            assert_eq!((error.is_transient(), error.to_string()), (transient, format!("HTTP {status}: {{}}")));
        }
    }
}
