//! A server on loopback that returns scripted responses in order, and records the requests.

// Each test binary uses only some functions.
#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub struct Asked {
    /// `GET /vm`
    pub line: String,
    headers: BTreeMap<String, String>,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// An invalid HTTP status.
const SILENCE: u16 = 0;

struct Scripted {
    status: u16,
    body: String,
    close: bool,
}

pub struct Server {
    scheme: &'static str,
    port: u16,
    answers: Arc<Mutex<VecDeque<Scripted>>>,
    asked: tokio::sync::Mutex<mpsc::UnboundedReceiver<Asked>>,
    connections: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Server {
        Server::start_with("http", None).await
    }

    /// Uses this certificate.
    pub async fn start_tls(config: ServerConfig) -> Server {
        Server::start_with("https", Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start_with(scheme: &'static str, tls: Option<TlsAcceptor>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers: Arc<Mutex<VecDeque<Scripted>>> = Arc::default();
        let connections = Arc::new(AtomicUsize::new(0));
        let (tell, asked) = mpsc::unbounded_channel();
        let serving = tokio::spawn(serve(listener, tls, answers.clone(), tell, connections.clone()));
        Server { scheme, port, answers, asked: tokio::sync::Mutex::new(asked), connections, serving }
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub fn respond(&self, status: u16, body: impl Into<String>) {
        self.answers.lock().unwrap().push_back(Scripted { status, body: body.into(), close: false });
    }

    pub fn respond_and_close(&self, status: u16, body: impl Into<String>) {
        self.answers.lock().unwrap().push_back(Scripted { status, body: body.into(), close: true });
    }

    /// The server never responds to the next request.
    pub fn stay_silent(&self) {
        self.answers.lock().unwrap().push_back(Scripted { status: SILENCE, body: String::new(), close: false });
    }

    /// The next recorded request.
    pub async fn asked(&self) -> Asked {
        self.asked.lock().await.recv().await.unwrap()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    answers: Arc<Mutex<VecDeque<Scripted>>>,
    tell: mpsc::UnboundedSender<Asked>,
    connections: Arc<AtomicUsize>,
) {
    let mut open = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.fetch_add(1, Ordering::SeqCst);
        let (answers, tell, tls) = (answers.clone(), tell.clone(), tls.clone());
        open.spawn(async move {
            let service = service_fn(move |request| respond(request, answers.clone(), tell.clone()));
            let server = http1::Builder::new();
            match tls {
                None => drop(server.serve_connection(TokioIo::new(stream), service).await),
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    drop(server.serve_connection(TokioIo::new(stream), service).await);
                }
            }
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    answers: Arc<Mutex<VecDeque<Scripted>>>,
    tell: mpsc::UnboundedSender<Asked>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let line = format!("{} {}", request.method(), request.uri());
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let _ = tell.send(Asked { line, headers, body: String::from_utf8(body.to_vec()).unwrap() });
    let scripted = answers.lock().unwrap().pop_front();
    let scripted = scripted.unwrap_or(Scripted { status: 599, body: "no response was scripted".into(), close: false });
    if scripted.status == SILENCE {
        std::future::pending::<()>().await;
    }
    let mut response = Response::builder().status(scripted.status);
    if scripted.close {
        response = response.header("connection", "close");
    }
    Ok(response.body(Full::new(Bytes::from(scripted.body))).unwrap())
}
