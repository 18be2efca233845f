//! What is wrong with a call, as a problem document. The one place that knows which refusal has which status.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use trellis_api::{Detail, PROBLEM_JSON, Problem};
use trellis_registry::RegistryError;

use crate::platform::Refusal;

/// What kind of wrong. The word never changes: programs act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub status: StatusCode,
    pub word: &'static str,
    pub title: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $status:ident, $word:literal, $title:literal;)*) => {
        impl Kind {
            $(pub const $name: Kind = Kind { status: StatusCode::$status, word: $word, title: $title };)*
            #[cfg(test)]
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];
        }
    };
}

kinds! {
    MALFORMED = BAD_REQUEST, "malformed", "The request cannot be read";
    UNKNOWN_CALLER = UNAUTHORIZED, "unknown-caller", "A token is needed";
    FORBIDDEN = FORBIDDEN, "forbidden", "The role of this token is too low";
    NOT_ADMITTED = FORBIDDEN, "not-admitted", "The identity is not admitted";
    NOT_FOUND = NOT_FOUND, "not-found", "There is no such thing";
    METHOD = METHOD_NOT_ALLOWED, "method", "This cannot be done here";
    TOO_SLOW = REQUEST_TIMEOUT, "too-slow", "The request took too long to arrive";
    CONFLICT = CONFLICT, "conflict", "It does not fit what is there now";
    NOT_NOW = CONFLICT, "not-now", "It may work later";
    UNDER_WAY = CONFLICT, "under-way", "The same is being done";
    CHANGED = PRECONDITION_FAILED, "changed", "It is of another revision";
    TOO_LARGE = PAYLOAD_TOO_LARGE, "too-large", "The body is too large";
    MEDIA_TYPE = UNSUPPORTED_MEDIA_TYPE, "media-type", "The body is of a type that is not understood";
    WRONG_HOST = MISDIRECTED_REQUEST, "wrong-host", "The server is not called so";
    INVALID = UNPROCESSABLE_ENTITY, "invalid", "What was sent cannot be used";
    REFUSED = UNPROCESSABLE_ENTITY, "refused", "The SuperLink refused it";
    KEY_REUSED = UNPROCESSABLE_ENTITY, "key-reused", "The Idempotency-Key belongs to another request";
    TOO_MANY = TOO_MANY_REQUESTS, "too-many-attempts", "Too many attempts with tokens that do not count";
    BROKEN = INTERNAL_SERVER_ERROR, "broken", "The server failed";
    NO_PROVIDER = BAD_GATEWAY, "no-provider", "The identity provider does not answer";
    BUSY = SERVICE_UNAVAILABLE, "busy", "The server has too much to do";
}

/// Why a call was not carried out.
#[derive(Debug, Clone)]
pub struct Fault {
    pub kind: Kind,
    pub detail: String,
    pub problems: Vec<Detail>,
    pub retry_after_s: Option<u64>,
}

impl Fault {
    pub fn new(kind: Kind, detail: impl Into<String>) -> Fault {
        Fault { kind, detail: detail.into(), problems: Vec::new(), retry_after_s: None }
    }

    pub fn with(self, problems: Vec<Detail>) -> Fault {
        Fault { problems, ..self }
    }

    pub fn retry_after(self, seconds: u64) -> Fault {
        Fault { retry_after_s: Some(seconds), ..self }
    }

    /// A fault of ours: the log has the reason, the caller has not.
    pub fn broken(error: &dyn std::error::Error) -> Fault {
        let mut reasons = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            reasons = format!("{reasons}: {error}");
            source = error.source();
        }
        tracing::error!("a call failed: {reasons}");
        Fault::new(Kind::BROKEN, "The log of the server says why.")
    }

    fn problem(&self) -> Problem {
        Problem {
            kind: format!("urn:trellis:{}", self.kind.word),
            title: self.kind.title.to_owned(),
            status: self.kind.status.as_u16(),
            detail: self.detail.clone(),
            problems: self.problems.clone(),
        }
    }
}

/// One thing that is wrong with a named part of a request.
pub fn detail(path: &str, what: impl Into<String>, advice: impl Into<String>) -> Detail {
    Detail { path: path.to_owned(), what: what.into(), advice: advice.into(), ..Detail::default() }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.problem()).unwrap_or_default();
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = self.kind.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == Kind::UNKNOWN_CALLER {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"trellis\""));
        }
        response
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        match refusal {
            Refusal::NotFound(what) => Fault::new(Kind::NOT_FOUND, what),
            Refusal::Invalid { what, problems } => Fault::new(Kind::INVALID, what).with(problems),
            Refusal::Conflict(what) => Fault::new(Kind::CONFLICT, what),
            Refusal::Forbidden(what) => Fault::new(Kind::FORBIDDEN, what),
            Refusal::NotNow(what) => Fault::new(Kind::NOT_NOW, what).retry_after(1),
            Refusal::Refused(what) => Fault::new(Kind::REFUSED, what),
            Refusal::Broken(_) => Fault::broken(&refusal),
        }
    }
}

impl From<RegistryError> for Fault {
    fn from(error: RegistryError) -> Fault {
        match &error {
            RegistryError::Conflict { .. } | RegistryError::Leaving => Fault::new(Kind::CONFLICT, error.to_string()),
            _ => Fault::broken(&error),
        }
    }
}
