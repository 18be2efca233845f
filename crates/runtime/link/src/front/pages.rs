//! Pages for people and monitoring systems.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use trellis_core::account::Permission;
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{Payload, http as plain, refusal};

use super::connection::{Front, Port};
use super::login;
use crate::api::account;
use crate::watch::{metrics, survey};

impl Front {
    pub(super) async fn page(&self, port: Port, remote: SocketAddr, request: Request<Incoming>) -> Response<Payload> {
        let read = matches!(*request.method(), Method::GET | Method::HEAD);
        let mut response = match request.uri().path() {
            "/health" if read && port == Port::Http => self.health(),
            "/metrics" if read && port == Port::Metrics => self.metrics(),
            "/metrics" if read && port == Port::Http => match self.may_monitor(remote, request.headers()) {
                Ok(()) => self.metrics(),
                Err(refusal) => plain::error(refusal::http_status(refusal.kind), 0, &refusal.text),
            },
            "/login" if port == Port::Http && self.link.accounts => login::page(&self.link, request).await,
            path => {
                let refusal = self.unknown(remote, path, request.headers());
                plain::error(StatusCode::NOT_FOUND, 0, &refusal.text)
            }
        };
        if port == Port::Http && self.link.tls.is_some() {
            let (name, value) = plain::HSTS;
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// Admits monitoring systems on this machine, and accounts.
    fn may_monitor(&self, remote: SocketAddr, headers: &HeaderMap) -> Result<(), Refusal> {
        if !self.link.accounts || remote.ip().is_loopback() {
            return Ok(());
        }
        let bearer = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let missing =
            || Refusal::new(Kind::Unauthenticated, "metrics are for this machine, and for those with a token");
        account::authenticate(&self.link, bearer.ok_or_else(missing)?, Permission::View).map(drop)
    }

    fn metrics(&self) -> Response<Payload> {
        let text = self.link.watch.scrape(&survey::snapshot(&self.link));
        plain::with_type(HeaderValue::from_static(metrics::CONTENT_TYPE), Payload::whole(text.into()))
    }

    fn health(&self) -> Response<Payload> {
        let works = self.link.store().is_healthy();
        let body = if works { r#"{"status":"ok"}"# } else { r#"{"status":"the state cannot be written"}"# };
        let mut response = plain::with_type(HeaderValue::from_static("application/json"), Payload::whole(body.into()));
        if !works {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    }
}
