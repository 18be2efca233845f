//! HTTP server: a function from a request to an optional response.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Maximum length of a body.
const BODY_BYTES: usize = 64 << 20;

pub struct Asked {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn query(&self, name: &str) -> Option<String> {
        parameter(&self.query, name)
    }

    /// `POST /service/7/scale`
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

pub fn parameter(encoded: &str, name: &str) -> Option<String> {
    form_urlencoded::parse(encoded.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

pub struct Answer {
    pub status: u16,
    /// `None` if the response is empty.
    pub kind: Option<&'static str>,
    /// Replaces the real date.
    pub date: Option<String>,
    pub body: String,
}

impl Answer {
    pub fn new(status: u16, kind: &'static str, body: impl Into<String>) -> Answer {
        Answer { status, kind: Some(kind), date: None, body: body.into() }
    }

    pub fn empty(status: u16) -> Answer {
        Answer { status, kind: None, date: None, body: String::new() }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the connection is cut, as a test wants it")]
struct Cut;

/// If the handler returns `None`, the connection is closed. `refuses` is called for each connection.
pub async fn serve<H, F>(listener: TcpListener, refuses: impl Fn() -> bool + Send + 'static, handler: H) -> Infallible
where
    H: Fn(Asked) -> F + Send + Sync + 'static,
    F: Future<Output = Option<Answer>> + Send + 'static,
{
    let handler = Arc::new(handler);
    // Dropped with the server; then all its connections end.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        if refuses() {
            continue;
        }
        let handler = Arc::clone(&handler);
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let handler = Arc::clone(&handler);
                async move {
                    let Some(asked) = read(request).await else { return Err(Cut) };
                    let answer = handler(asked).await.ok_or(Cut)?;
                    let mut response =
                        Response::builder().status(answer.status).header("X-Content-Type-Options", "nosniff");
                    if let Some(kind) = answer.kind {
                        response = response.header("Content-Type", kind);
                    }
                    if let Some(date) = answer.date {
                        response = response.header("Date", date);
                    }
                    response.body(Full::new(Bytes::from(answer.body))).map_err(|_| Cut)
                }
            });
            // A closed client connection, or an injected one, is no error.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn read(request: Request<Incoming>) -> Option<Asked> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES).collect().await.ok()?.to_bytes();
    Some(Asked {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}
