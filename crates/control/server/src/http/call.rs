//! One call, after everything about it was checked that does not depend on what it does, and the answers to it.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use trellis_api::Detail;

use super::access::Caller;
use super::fault::{Fault, Kind};
use super::query::Query;

pub const JSON: &str = "application/json";
pub const BYTES: &str = "application/octet-stream";

pub struct Call {
    pub caller: Caller,
    path: Vec<(String, String)>,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub type Answer = Result<Response, Fault>;

impl Call {
    pub fn new(caller: Caller, path: Vec<(String, String)>, query: Query, headers: HeaderMap, body: Bytes) -> Call {
        Call { caller, path, query, headers, body }
    }

    /// A part of the path; the table of routes has it between braces.
    pub fn part(&self, name: &str) -> &str {
        self.path.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    /// The body as JSON, or what is wrong with it and where.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let kind = match error.classify() {
                Category::Data => Kind::INVALID,
                Category::Syntax | Category::Eof | Category::Io => Kind::MALFORMED,
            };
            let problem = Detail {
                line: Some(error.line()),
                column: Some(error.column()),
                what: error.to_string(),
                advice: "the OpenAPI document, /api/v1/openapi.json, has what is expected".to_owned(),
                ..Detail::default()
            };
            Fault::new(kind, format!("The body cannot be used: {error}.")).with(vec![problem])
        })
    }

    /// The body as text.
    pub fn text(&self) -> Result<&str, Fault> {
        std::str::from_utf8(&self.body)
            .map_err(|error| Fault::new(Kind::MALFORMED, format!("The body is not text in UTF-8: {error}.")))
    }

    /// A header that is given at most once.
    pub fn header(&self, name: &str) -> Result<Option<&str>, Fault> {
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        match (value.to_str(), values.next()) {
            (Ok(value), None) => Ok(Some(value)),
            _ => Err(Fault::new(Kind::MALFORMED, format!("The header {name} must be given once, in plain letters."))),
        }
    }
}

pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(value).map_err(|error| Fault::broken(&error))?;
    Ok(typed(status, JSON, Body::from(bytes)))
}

pub fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, value)
}

pub fn empty(status: StatusCode) -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    Ok(response)
}

pub fn typed(status: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
