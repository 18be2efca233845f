//! What happens to every call before its handler and after: who calls and may they, is the request well-formed, how long did
//! it take. Handlers see only what passed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{FromRequestParts as _, MatchedPath, RawPathParams, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use trellis_front::HostError;

use super::Api;
use super::audit::{self, Event};
use super::call::{Answer, Call, JSON};
use super::fault::{Fault, Kind, detail};
use super::query::{Parameter, Query};
use super::route::{Route, Takes};
use super::routes::DOCUMENT_BYTES;

/// A body must be here whole after this time.
const BODY_LIMIT: Duration = Duration::from_secs(60);
/// What documents may be called; the names are those in use.
const DOCUMENT_TYPES: [&str; 4] = ["application/yaml", JSON, "application/x-yaml", "text/yaml"];
/// For everything but the page: there is nothing to load.
const NO_CONTENT_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// Where a request comes from; the connection puts it there.
#[derive(Debug, Clone, Copy)]
pub struct Remote(pub SocketAddr);

/// Who called, for the log.
#[derive(Debug, Clone)]
struct By(String);

/// Around everything: the page and unknown paths too.
pub async fn surround(api: Arc<Api>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let remote = remote(request.extensions());
    let mut response = match api.hosts.check(&request) {
        Ok(()) => carefully(next.run(request)).await,
        Err(foreign) => misdirected(&foreign).into_response(),
    };
    harden(response.headers_mut());
    if api.hosts.uses_tls() {
        let (name, value) = trellis_front::http::HSTS;
        response.headers_mut().insert(name, value);
    }
    let by = response.extensions().get::<By>().map_or("-", |by| by.0.as_str());
    let (status, ms) = (response.status(), began.elapsed().as_millis());
    let route = route.as_deref().unwrap_or("-");
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS) {
        tracing::info!(%method, route, status = status.as_u16(), ms, by, %remote, "call refused");
    } else {
        tracing::debug!(%method, route, status = status.as_u16(), ms, by, %remote, "call");
    }
    response
}

fn misdirected(foreign: &HostError) -> Fault {
    let kind = match foreign {
        HostError::NoHost => Kind::MALFORMED,
        HostError::Host(_) | HostError::Origin(_) => Kind::WRONG_HOST,
    };
    Fault::new(kind, foreign.to_string())
}

/// A fault of ours must not cost the connection.
async fn carefully(answer: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answer)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Fault::new(Kind::BROKEN, "The log of the server says why.").into_response())
}

fn harden(headers: &mut HeaderMap) {
    let mut usual = |name: HeaderName, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    usual(X_CONTENT_TYPE_OPTIONS, "nosniff");
    usual(REFERRER_POLICY, "no-referrer");
    usual(CACHE_CONTROL, "no-store");
    usual(CONTENT_SECURITY_POLICY, NO_CONTENT_POLICY);
}

/// Answers a call of the table.
pub async fn answer(api: Arc<Api>, route: &'static Route, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let remote = remote(&parts.extensions);
    let caller = match api.access.admit(&parts.headers, remote, route.role).await {
        Ok(caller) => caller,
        Err(fault) => {
            if fault.kind == Kind::UNKNOWN_CALLER
                && let Some((id, expired)) = api.access.refused_token(&parts.headers).await
            {
                let why = if expired { "expired token" } else { "unknown or revoked token" };
                audit::record(&api, Event::CallRefused, &id, route.id, &format!("from {remote}: {why}")).await;
            }
            return fault.into_response();
        }
    };
    let by = By(caller.name.clone());
    let answer: Answer = async {
        let path = path_parts(&mut parts).await?;
        let query = Query::read(parts.uri.query().unwrap_or_default(), route.query)?;
        check_headers(&parts.headers, route.headers)?;
        let body = read_body(route.takes, &parts.headers, body).await?;
        (route.handler)(api, Call::new(caller, path, query, parts.headers, body)).await
    }
    .await;
    let mut response = answer.unwrap_or_else(Fault::into_response);
    response.extensions_mut().insert(by);
    response
}

pub fn remote(extensions: &http::Extensions) -> IpAddr {
    extensions.get::<Remote>().map_or(Ipv4Addr::UNSPECIFIED.into(), |remote| remote.0.ip())
}

async fn path_parts(parts: &mut Parts) -> Result<Vec<(String, String)>, Fault> {
    if parts.extensions.get::<MatchedPath>().is_none_or(|path| !path.as_str().contains('{')) {
        return Ok(Vec::new());
    }
    let read = RawPathParams::from_request_parts(parts, &()).await;
    let read = read.map_err(|error| Fault::new(Kind::MALFORMED, format!("The address cannot be read: {error}.")))?;
    Ok(read.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn check_headers(given: &HeaderMap, known: &[Parameter]) -> Result<(), Fault> {
    let bad = known.iter().filter_map(|header| {
        let values: Vec<_> = given.get_all(header.name).iter().collect();
        let advice = match values[..] {
            [] => return None,
            [one] => header.form.check(one.to_str().unwrap_or_default()).err()?,
            _ => "send it once".to_owned(),
        };
        Some(detail(header.name, "the header cannot be used", advice))
    });
    let problems: Vec<_> = bad.collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Fault::new(Kind::MALFORMED, "Headers of the request cannot be used.").with(problems))
}

async fn read_body(takes: Takes, headers: &HeaderMap, body: Body) -> Result<Bytes, Fault> {
    match takes {
        Takes::Nothing => Ok(Bytes::new()),
        Takes::Document => read_whole(&DOCUMENT_TYPES, DOCUMENT_BYTES, headers, body).await,
        Takes::Json { most_bytes, .. } => read_json(most_bytes, headers, body).await,
    }
}

pub async fn read_json(most_bytes: usize, headers: &HeaderMap, body: Body) -> Result<Bytes, Fault> {
    read_whole(&[JSON], most_bytes, headers, body).await
}

async fn read_whole(types: &[&str], most_bytes: usize, headers: &HeaderMap, body: Body) -> Result<Bytes, Fault> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !types.contains(&media_type.as_str()) {
        let told = format!("The Content-Type is {given:?}: send {}.", types[..types.len().min(2)].join(" or "));
        return Err(Fault::new(Kind::MEDIA_TYPE, told));
    }
    let whole = tokio::time::timeout(BODY_LIMIT, Limited::new(body, most_bytes).collect()).await;
    match whole {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Fault::new(Kind::TOO_LARGE, format!("The body may have {most_bytes} bytes at most.")))
        }
        Ok(Err(error)) => Err(Fault::new(Kind::MALFORMED, format!("The body did not arrive: {error}."))),
        Err(_) => Err(Fault::new(Kind::TOO_SLOW, format!("The body was not here after {} s.", BODY_LIMIT.as_secs()))),
    }
}

/// For a method that a path does not have. The router adds `Allow`, which is all that OPTIONS asks for.
pub async fn wrong_method(method: Method) -> Response {
    if method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    Fault::new(Kind::METHOD, format!("{method} cannot be done here; the header Allow says what can.")).into_response()
}

/// For a path that nobody has.
pub fn nothing_here(path: &str) -> Response {
    let told = format!("There is nothing at {path:?}. The OpenAPI document, /api/v1/openapi.json, has what there is.");
    Fault::new(Kind::NOT_FOUND, told).into_response()
}

/// For a path that can only be read.
pub fn only_read(method: &Method) -> Response {
    let mut response =
        Fault::new(Kind::METHOD, format!("{method} cannot be done here; the header Allow says what can."))
            .into_response();
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer_without_details() {
        let response = carefully(async { panic!("the secret reason") }).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert!(!String::from_utf8_lossy(&body).contains("secret"));
    }
}
