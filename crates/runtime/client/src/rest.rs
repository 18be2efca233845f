//! Calls a REST API: one request and its response. Knows no route.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};

use crate::error::Error;
use crate::exchange::{Answer, Begun, Coming, Inquiry, begin, exchange, failed};
use crate::superlink::{Timeouts, bearer};
use crate::target::Target;

/// A request.
#[derive(Debug, Clone)]
pub struct Asking<'a> {
    /// `GET`, `PUT`, `POST` or `DELETE`.
    pub method: &'static str,
    /// Path and query, ready to be sent.
    pub path: &'a str,
    /// The media type of the body.
    pub kind: &'static str,
    /// That of the answer.
    pub accept: &'static str,
    pub body: Bytes,
    /// Further headers, in lower case. Invalid values are left out.
    pub headers: &'a [(&'static str, String)],
}

/// A response.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// `None` if it was larger than the limit.
    pub body: Option<Bytes>,
}

#[derive(Debug, Clone)]
pub struct Rest {
    target: Target,
    timeouts: Timeouts,
}

impl Rest {
    pub fn new(target: Target, timeouts: Timeouts) -> Rest {
        Rest { target, timeouts }
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    pub async fn ask(&self, asking: &Asking<'_>) -> Result<Reply, Error> {
        let headers = self.headers(asking);
        let Answer { status, body } = exchange(&self.target, &self.timeouts, inquiry(asking, &headers)).await?;
        Ok(Reply { status, body })
    }

    /// For an answer that does not end. `Err` within: it was another answer than 200.
    pub async fn listen(&self, asking: &Asking<'_>, silence: Duration) -> Result<Result<Trickle, Reply>, Error> {
        let headers = self.headers(asking);
        match begin(&self.target, &self.timeouts, inquiry(asking, &headers)).await? {
            Begun::Well(coming) => Ok(Ok(Trickle { target: self.target.clone(), coming, silence })),
            Begun::Otherwise(Answer { status, body }) => Ok(Err(Reply { status, body })),
        }
    }

    fn headers(&self, asking: &Asking<'_>) -> HeaderMap {
        let given = asking.headers.iter().filter_map(|(name, value)| {
            let value = HeaderValue::try_from(value).ok()?;
            Some((HeaderName::from_static(name), value))
        });
        self.target.token.iter().map(bearer).chain(given).collect()
    }
}

fn inquiry<'a>(asking: &Asking<'a>, proof: &'a HeaderMap) -> Inquiry<'a> {
    let method = Method::from_bytes(asking.method.as_bytes()).expect("methods are tokens");
    Inquiry { method, path: asking.path, kind: asking.kind, accept: asking.accept, body: asking.body.clone(), proof }
}

/// A streamed response. Its connection ends with it.
pub struct Trickle {
    target: Target,
    coming: Coming,
    /// Maximum silence of the server.
    silence: Duration,
}

impl Trickle {
    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let too_slow =
                |_| Error::TooSlow { endpoint: self.target.endpoint(), step: "say anything", limit: self.silence };
            let frame = tokio::time::timeout(self.silence, self.coming.body.frame()).await.map_err(too_slow)?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(failed(&self.target, error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}
