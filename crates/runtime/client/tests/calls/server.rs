//! A server that sends the responses of a test, and records requests.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A request as bytes.
#[derive(Debug, Clone)]
pub struct Asked {
    pub line: String,
    pub headers: hyper::HeaderMap,
    pub body: serde_json::Value,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }
}

pub struct Server {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }

    /// Answers one request after the other with these; the last one for ever.
    pub async fn answering(answers: &[(u16, &str)]) -> Server {
        start(None, answers).await
    }

    /// The same behind TLS.
    pub async fn with_tls(acceptor: TlsAcceptor, answers: &[(u16, &str)]) -> Server {
        start(Some(acceptor), answers).await
    }

    /// Sends these bytes after the first bytes of a client, and closes the connection.
    pub async fn blurting(bytes: &'static [u8]) -> Server {
        let (listener, port) = listen().await;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(bytes).await;
                let _ = stream.shutdown().await;
                // Reads the rest, because the system would answer it with a reset.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
        Server { port, asked: Arc::default() }
    }

    /// Accepts connections and sends nothing.
    pub async fn silent() -> Server {
        let (listener, port) = listen().await;
        tokio::spawn(async move {
            let mut held: Vec<TcpStream> = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        Server { port, asked: Arc::default() }
    }
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

async fn start(acceptor: Option<TlsAcceptor>, answers: &[(u16, &str)]) -> Server {
    let (listener, port) = listen().await;
    let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let answers: VecDeque<(u16, String)> = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
    let (answers, remembered) = (Arc::new(Mutex::new(answers)), Arc::clone(&asked));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answers, asked) = (Arc::clone(&answers), Arc::clone(&remembered));
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Some(acceptor) = acceptor else { return serve(stream, answers, asked).await };
                // A client without trust disconnects, which some tests expect.
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, answers, asked).await;
                }
            });
        }
    });
    Server { port, asked }
}

type Answers = Arc<Mutex<VecDeque<(u16, String)>>>;

async fn serve<S>(stream: S, answers: Answers, asked: Arc<Mutex<Vec<Asked>>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let (answers, asked) = (Arc::clone(&answers), Arc::clone(&asked));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            asked.lock().expect("no panic").push(Asked {
                line: format!("{} {} {:?}", head.method, head.uri, head.version),
                headers: head.headers,
                body: serde_json::from_slice(&body).expect("JSON"),
            });
            let mut answers = answers.lock().expect("no panic");
            let (status, body) = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
                .expect("a test has at least one response");
            let response = Response::builder().status(status).body(Full::new(Bytes::from(body)));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
