//! A SuperLink of a test: serves one of the transports, and answers each call as the test says.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

const ANY_PORT: u16 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Grpc,
    Http,
}

/// How to answer a call.
#[derive(Debug, Clone)]
pub enum Act {
    /// Answers with this message.
    Answer(Vec<u8>),
    /// The same, when the test lets it.
    Held(Vec<u8>),
    /// gRPC status and text.
    Status(u16, &'static str),
    /// HTTP status and body.
    Page(u16, &'static str),
    /// Promises an answer, sends a part of it and hangs up.
    CutOff,
}

/// A call as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub headers: HeaderMap,
    pub message: Bytes,
}

#[derive(Clone)]
pub struct SuperLink {
    pub port: u16,
    speaks: Speaks,
    tls: Option<TlsAcceptor>,
    acts: Arc<Mutex<HashMap<String, Vec<Act>>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    pub connections: Arc<AtomicUsize>,
    /// One permit for each held call that arrived.
    pub arrived: Arc<Semaphore>,
    /// One permit lets one held call go.
    pub let_go: Arc<Semaphore>,
}

impl SuperLink {
    pub async fn start(speaks: Speaks) -> SuperLink {
        SuperLink::start_at(speaks, ANY_PORT, None).await.0
    }

    pub async fn start_with_tls(speaks: Speaks, tls: TlsAcceptor) -> SuperLink {
        SuperLink::start_at(speaks, ANY_PORT, Some(tls)).await.0
    }

    /// The task is the SuperLink's life: to abort it ends all connections.
    pub async fn start_at(speaks: Speaks, port: u16, tls: Option<TlsAcceptor>) -> (SuperLink, JoinHandle<()>) {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
        let none = || Arc::new(Semaphore::new(0));
        let superlink = SuperLink {
            port: listener.local_addr().expect("an address").port(),
            speaks,
            tls,
            acts: Arc::default(),
            asked: Arc::default(),
            connections: Arc::default(),
            arrived: none(),
            let_go: none(),
        };
        let serving = superlink.clone();
        let life = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serving.clone().serve(stream));
            }
        });
        (superlink, life)
    }

    /// The answers to calls of this name (as in HTTP paths), in order; the last one is repeated.
    pub fn on(&self, call: &str, acts: impl IntoIterator<Item = Act>) {
        self.acts.lock().expect("no panic").insert(call.to_owned(), acts.into_iter().collect());
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }

    async fn serve(self, mut stream: TcpStream) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        if let Some(tls) = &self.tls {
            // A client without trust or TLS disconnects, which some tests expect.
            if let Ok(stream) = tls.accept(stream).await {
                self.serve_on(stream).await;
            }
            return;
        }
        let mut first = [0; 3];
        if self.speaks == Speaks::Http && stream.peek(&mut first).await.is_ok() && &first == b"PRI" {
            // As uvicorn does it.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
            return;
        }
        self.serve_on(stream).await;
    }

    async fn serve_on(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let (stream, speaks) = (TokioIo::new(stream), self.speaks);
        let service = service_fn(move |request| self.clone().answer(request));
        // The client observes the end of connections.
        let _ = match speaks {
            Speaks::Grpc => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
            Speaks::Http => http1::Builder::new().serve_connection(stream, service).await,
        };
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Payload>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let call = kebab(head.uri.path().rsplit('/').next().unwrap_or_default());
        let message = if self.speaks == Speaks::Grpc { body.slice(5.min(body.len())..) } else { body };
        let asked = Asked { path: head.uri.path().to_owned(), headers: head.headers, message };
        self.asked.lock().expect("no panic").push(asked);
        let act = {
            let mut acts = self.acts.lock().expect("no panic");
            let acts = acts.get_mut(&call).unwrap_or_else(|| panic!("the test says nothing of {call}"));
            if acts.len() > 1 { acts.remove(0) } else { acts[0].clone() }
        };
        Ok(match act {
            Act::Answer(message) => self.message(&message),
            Act::Held(message) => {
                self.arrived.add_permits(1);
                self.let_go.acquire().await.expect("open").forget();
                self.message(&message)
            }
            Act::Status(code, text) => {
                let mut response = self.typed(Payload::default());
                response.headers_mut().insert("grpc-status", code.into());
                response.headers_mut().insert("grpc-message", text.parse().expect("printable"));
                response
            }
            Act::Page(status, body) => {
                let mut response = Response::new(Payload::of([Ok(Frame::data(body.into()))]));
                *response.status_mut() = status.try_into().expect("a status");
                response
            }
            Act::CutOff => {
                let part = Ok(Frame::data(Bytes::from_static(b"\0\0\0\0\x09half")));
                self.typed(Payload::of([part, Err(io::Error::other("cut off"))]))
            }
        })
    }

    fn typed(&self, payload: Payload) -> Response<Payload> {
        let mut response = Response::new(payload);
        let kind = if self.speaks == Speaks::Grpc { "application/grpc" } else { "application/protobuf" };
        response.headers_mut().insert("content-type", kind.parse().expect("printable"));
        response
    }

    fn message(&self, message: &[u8]) -> Response<Payload> {
        let mut bytes = BytesMut::new();
        let mut frames = VecDeque::new();
        if self.speaks == Speaks::Grpc {
            bytes.put_u8(0);
            bytes.put_u32(message.len() as u32);
        }
        bytes.put_slice(message);
        if !bytes.is_empty() {
            frames.push_back(Ok(Frame::data(bytes.freeze())));
        }
        if self.speaks == Speaks::Grpc {
            frames.push_back(Ok(Frame::trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), 0.into())]))));
        }
        self.typed(Payload { frames })
    }
}

/// `PullMessages` as `pull-messages`.
fn kebab(name: &str) -> String {
    let mut path = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !path.is_empty() {
            path.push('-');
        }
        path.push(letter.to_ascii_lowercase());
    }
    path
}

/// Frames in their order; an error ends the connection.
#[derive(Default)]
struct Payload {
    frames: VecDeque<io::Result<Frame<Bytes>>>,
}

impl Payload {
    fn of<const N: usize>(frames: [io::Result<Frame<Bytes>>; N]) -> Payload {
        Payload { frames: frames.into() }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.frames.pop_front())
    }
}
