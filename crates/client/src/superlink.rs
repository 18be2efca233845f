//! A SuperLink to call: makes a typed call into a request, an answer into a value or a reason. The only retry is here:
//! a SuperLink that says "not now" has done nothing, so the call may be repeated, whatever it is.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::call::Call;
use crate::error::Error;
use crate::exchange::{Answer, exchange};
use crate::node_key::NodeKey;
use crate::target::{Target, Token};

/// How much of a strange answer is worth telling.
const QUOTED_CHARS: usize = 120;

/// How long to wait for what.
#[derive(Debug, Clone)]
pub struct Patience {
    /// For a connection, TLS and looking up the name included.
    pub connect: Duration,
    /// For the answer, to its last byte.
    pub answer: Duration,
    /// Before each new try of a call that was answered "not now" (503).
    pub retries: Vec<Duration>,
}

impl Default for Patience {
    fn default() -> Patience {
        let retries = [250, 500, 1000, 2000].map(Duration::from_millis).to_vec();
        Patience { connect: Duration::from_secs(10), answer: Duration::from_secs(30), retries }
    }
}

#[derive(Debug, Clone)]
pub struct SuperLink {
    target: Target,
    patience: Patience,
}

impl SuperLink {
    pub fn new(target: Target) -> SuperLink {
        SuperLink { target, patience: Patience::default() }
    }

    pub fn with_patience(self, patience: Patience) -> SuperLink {
        SuperLink { patience, ..self }
    }

    /// `host:port` of the SuperLink.
    pub fn endpoint(&self) -> String {
        self.target.endpoint()
    }

    /// Makes a call as the account whose token is known. A call that was answered "not now" is repeated a few times.
    pub async fn call<C: Call>(&self, call: &C) -> Result<C::Answer, Error> {
        let bearer = |token: &Token| HeaderValue::try_from(format!("Bearer {}", token.reveal()));
        let proof = self.target.token.iter().map(|token| (AUTHORIZATION, bearer(token).expect("tokens are printable")));
        self.prove(call, &proof.collect()).await
    }

    /// Makes a call as the node with this key, in the way in which nodes sign all their calls.
    pub async fn call_as_node<C: Call>(&self, call: &C, key: &NodeKey) -> Result<C::Answer, Error> {
        let signed = key.sign_now().into_iter().map(|(name, value)| {
            let value = HeaderValue::try_from(value).expect("base64 and times are printable");
            (HeaderName::from_static(name), value)
        });
        self.prove(call, &signed.collect()).await
    }

    /// Makes a call that these headers prove the right to.
    pub(crate) async fn call_with<C: Call>(&self, call: &C, proof: &HeaderMap) -> Result<C::Answer, Error> {
        self.prove(call, proof).await
    }

    async fn prove<C: Call>(&self, call: &C, proof: &HeaderMap) -> Result<C::Answer, Error> {
        let path = format!("/v1/trellis/{}", C::NAME);
        let body = Bytes::from(serde_json::to_vec(call).expect("calls are plain data"));
        for wait in &self.patience.retries {
            match self.once::<C>(&path, body.clone(), proof).await {
                Err(Error::Refused { status: 503, .. }) => tokio::time::sleep(*wait).await,
                other => return other,
            }
        }
        self.once::<C>(&path, body, proof).await
    }

    async fn once<C: Call>(&self, path: &str, body: Bytes, proof: &HeaderMap) -> Result<C::Answer, Error> {
        let Answer { status, body } = exchange(&self.target, &self.patience, path, body, proof).await?;
        let endpoint = self.endpoint();
        let unexpected = |what: String| Error::Unexpected { endpoint: self.endpoint(), call: C::NAME, status, what };
        let Some(body) = body else { return Err(unexpected("it is too long".to_owned())) };
        if status == 200 {
            return serde_json::from_slice(&body).map_err(|error| unexpected(error.to_string()));
        }
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(Refusal { detail }) if status >= 400 => Err(Error::Refused { endpoint, call: C::NAME, status, detail }),
            _ => Err(unexpected(quote(&body))),
        }
    }
}

#[derive(Deserialize)]
struct Refusal {
    detail: String,
}

/// The beginning of a strange answer, safe to print.
fn quote(body: &[u8]) -> String {
    match body {
        [] => "it is empty".to_owned(),
        _ => format!("{:?}", String::from_utf8_lossy(body).chars().take(QUOTED_CHARS).collect::<String>()),
    }
}
