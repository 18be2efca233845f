//! A SuperLink to call: makes a typed call into a request, an answer into a value or a reason. The only retry is here:
//! a SuperLink that says "not now" has done nothing, so the call may be repeated, whatever it is.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::call::Call;
use crate::error::Error;
use crate::exchange::{Answer, Begun, Coming, Inquiry, JSON, PROTOBUF, begin, exchange};
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
        self.prove(call, &self.as_account()).await
    }

    /// The proof that the account calls whose token is known.
    fn as_account(&self) -> HeaderMap {
        self.target.token.iter().map(bearer).collect()
    }

    /// Makes a call of Flower's own, as that account.
    pub(crate) async fn flower<A: prost::Message + Default>(
        &self,
        api: &str,
        name: &'static str,
        question: &impl prost::Message,
    ) -> Result<A, Error> {
        let (path, proof) = (format!("/v1/{api}/{name}"), self.as_account());
        let body = Bytes::from(question.encode_to_vec());
        let inquiry = || Inquiry::post(&path, PROTOBUF, body.clone(), &proof);
        let decode = |body: &[u8]| A::decode(body).map_err(|error| error.to_string());
        self.insist(|| self.once(name, &self.patience, inquiry(), decode)).await
    }

    /// Begins a call of Flower's own whose answer is a stream.
    pub(crate) async fn flower_stream(
        &self,
        name: &'static str,
        question: &impl prost::Message,
    ) -> Result<Coming, Error> {
        let (path, proof) = (format!("/v1/control/{name}"), self.as_account());
        let inquiry = Inquiry::post(&path, PROTOBUF, question.encode_to_vec().into(), &proof);
        match begin(&self.target, &self.patience, inquiry).await? {
            Begun::Well(coming) => Ok(coming),
            Begun::Otherwise(Answer { status, body }) => Err(self.refused(name, status, &body.unwrap_or_default())),
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
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
        let inquiry = || Inquiry::post(&path, JSON, body.clone(), proof);
        let decode = |body: &[u8]| serde_json::from_slice(body).map_err(|error| error.to_string());
        let patience = Patience { answer: self.patience.answer + call.hold(), ..self.patience.clone() };
        self.insist(|| self.once(C::NAME, &patience, inquiry(), decode)).await
    }

    /// Repeats what was answered "not now".
    async fn insist<A, F: Future<Output = Result<A, Error>>>(&self, ask: impl Fn() -> F) -> Result<A, Error> {
        for wait in &self.patience.retries {
            match ask().await {
                Err(Error::Refused { status: 503, .. }) => tokio::time::sleep(*wait).await,
                other => return other,
            }
        }
        ask().await
    }

    async fn once<A>(
        &self,
        call: &'static str,
        patience: &Patience,
        inquiry: Inquiry<'_>,
        decode: impl Fn(&[u8]) -> Result<A, String>,
    ) -> Result<A, Error> {
        let Answer { status, body } = exchange(&self.target, patience, inquiry).await?;
        let unexpected = |what: String| Error::Unexpected { endpoint: self.endpoint(), call, status, what };
        let Some(body) = body else { return Err(unexpected("it is too long".to_owned())) };
        if status == 200 { decode(&body).map_err(unexpected) } else { Err(self.refused(call, status, &body)) }
    }

    /// What an answer means that is not the one that was hoped for.
    pub(crate) fn refused(&self, call: &'static str, status: u16, body: &[u8]) -> Error {
        let endpoint = self.endpoint();
        match serde_json::from_slice::<Refusal>(body) {
            Ok(Refusal { detail }) if status >= 400 => Error::Refused { endpoint, call, status, detail },
            _ => Error::Unexpected { endpoint, call, status, what: quote(body) },
        }
    }
}

/// The header that shows a token.
pub(crate) fn bearer(token: &Token) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
    (AUTHORIZATION, value.expect("tokens are printable"))
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
