//! A SuperLink to call: encodes calls, decodes responses and errors. The only retry is after "not now": the SuperLink has done
//! nothing then, so every call may be repeated.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::control::Rpc;
use crate::error::Error;
use crate::exchange::{Answer, Begun, Inquiry, JSON, PROTOBUF, begin, exchange, failed};
use crate::fleet::Transport;
use crate::node_key::NodeKey;
use crate::pieces::{Pieces, Prefix};
use crate::target::Target;
use crate::{grpc, pieces};
use trellis_wire::call::Call;
use trellis_wire::token::Token;

/// Characters of an unexpected response in an error.
const QUOTED_CHARS: usize = 120;

/// The timeouts of a call.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// For a connection, including TLS and name resolution.
    pub connect: Duration,
    /// For the answer, to its last byte.
    pub answer: Duration,
    /// Before each new try of a call that was answered "not now" (503).
    pub retries: Vec<Duration>,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        let retries = [250, 500, 1000, 2000].map(Duration::from_millis).to_vec();
        Timeouts { connect: Duration::from_secs(10), answer: Duration::from_secs(30), retries }
    }
}

#[derive(Debug, Clone)]
pub struct SuperLink {
    target: Target,
    timeouts: Timeouts,
    transport: Transport,
}

impl SuperLink {
    pub fn new(target: Target) -> SuperLink {
        SuperLink { target, timeouts: Timeouts::default(), transport: Transport::Http }
    }

    pub fn with_timeouts(self, timeouts: Timeouts) -> SuperLink {
        SuperLink { timeouts, ..self }
    }

    /// The transport of Flower's calls; HTTP by default. Official SuperLinks before 1.37 have only gRPC for them, later ones only
    /// HTTP. Our own calls always use HTTP.
    pub fn over(self, transport: Transport) -> SuperLink {
        SuperLink { transport, ..self }
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// `host:port` of the SuperLink.
    pub fn endpoint(&self) -> String {
        self.target.endpoint()
    }

    /// Makes a call with the token of the target. Repeats it a few times after "not now".
    pub async fn call<C: Call>(&self, call: &C) -> Result<C::Answer, Error> {
        self.prove(call, &self.as_account()).await
    }

    /// The authentication of the account.
    fn as_account(&self) -> HeaderMap {
        self.target.token.iter().map(bearer).collect()
    }

    /// Makes a call of Flower with the token of the target.
    pub(crate) async fn flower<A: prost::Message + Default>(
        &self,
        rpc: &'static Rpc,
        question: &impl prost::Message,
    ) -> Result<A, Error> {
        let (proof, body) = (self.as_account(), Bytes::from(question.encode_to_vec()));
        let decode = |body: &[u8]| A::decode(body).map_err(|error| error.to_string());
        match self.transport {
            Transport::Http => {
                let inquiry = || Inquiry::post(rpc.http, PROTOBUF, body.clone(), &proof);
                self.insist(|| self.once(rpc.name, &self.timeouts, inquiry(), decode)).await
            }
            Transport::Grpc => self.insist(|| self.once_over_grpc(rpc, &body, &proof, decode)).await,
        }
    }

    /// Starts a call of Flower with a streamed response.
    pub(crate) async fn flower_stream(
        &self,
        rpc: &'static Rpc,
        question: &impl prost::Message,
    ) -> Result<Pieces, Error> {
        let (proof, body) = (self.as_account(), Bytes::from(question.encode_to_vec()));
        if self.transport == Transport::Grpc {
            return self.ask_over_grpc(rpc, &body, &proof).await;
        }
        let inquiry = Inquiry::post(rpc.http, PROTOBUF, body, &proof);
        match begin(&self.target, &self.timeouts, inquiry).await? {
            Begun::Well(coming) => Ok(Pieces::new(coming, Prefix::Length)),
            Begun::Otherwise(Answer { status, body }) => Err(self.refused(rpc.name, status, &body.unwrap_or_default())),
        }
    }

    async fn ask_over_grpc(&self, rpc: &'static Rpc, body: &[u8], proof: &HeaderMap) -> Result<Pieces, Error> {
        match grpc::begin(&self.target, &self.timeouts, rpc.grpc, body, proof).await? {
            Ok(coming) => Ok(Pieces::new(coming, Prefix::Grpc)),
            Err(strange) => {
                let unexpected = Error::Unexpected {
                    endpoint: self.endpoint(),
                    call: rpc.name,
                    status: strange.status,
                    what: "it is not gRPC".to_owned(),
                };
                Err(unexpected)
            }
        }
    }

    async fn once_over_grpc<A>(
        &self,
        rpc: &'static Rpc,
        body: &[u8],
        proof: &HeaderMap,
        decode: impl Fn(&[u8]) -> Result<A, String>,
    ) -> Result<A, Error> {
        let limit = self.timeouts.answer;
        let answering = async {
            let mut pieces = self.ask_over_grpc(rpc, body, proof).await?;
            let piece = pieces.only().await.map_err(|why| self.broken(rpc.name, why))?;
            decode(&piece).map_err(|what| self.broken(rpc.name, pieces::Broken::Strange(what)))
        };
        let too_slow = |_| Error::TooSlow { endpoint: self.endpoint(), step: "answer", limit };
        tokio::time::timeout(limit, answering).await.map_err(too_slow)?
    }

    /// The error of a response in pieces without a next one.
    pub(crate) fn broken(&self, call: &'static str, why: pieces::Broken) -> Error {
        let endpoint = self.endpoint();
        match why {
            pieces::Broken::Connection(source) => failed(&self.target, source),
            pieces::Broken::Refused { status, detail } => Error::Refused { endpoint, call, status, detail },
            pieces::Broken::Strange(what) => Error::Unexpected { endpoint, call, status: 200, what },
        }
    }

    /// Makes a call as the node with this key, signed like all calls of nodes.
    pub async fn call_as_node<C: Call>(&self, call: &C, key: &NodeKey) -> Result<C::Answer, Error> {
        let signed = key.sign_now().into_iter().map(|(name, value)| {
            let value = HeaderValue::try_from(value).expect("base64 and times are printable");
            (HeaderName::from_static(name), value)
        });
        self.prove(call, &signed.collect()).await
    }

    /// Makes a call with these headers for authentication.
    pub(crate) async fn call_with<C: Call>(&self, call: &C, proof: &HeaderMap) -> Result<C::Answer, Error> {
        self.prove(call, proof).await
    }

    async fn prove<C: Call>(&self, call: &C, proof: &HeaderMap) -> Result<C::Answer, Error> {
        let path = format!("/v1/trellis/{}", C::NAME);
        let body = Bytes::from(serde_json::to_vec(call).expect("calls are plain data"));
        let inquiry = || Inquiry::post(&path, JSON, body.clone(), proof);
        let decode = |body: &[u8]| serde_json::from_slice(body).map_err(|error| error.to_string());
        let timeouts = Timeouts { answer: self.timeouts.answer + call.hold(), ..self.timeouts.clone() };
        self.insist(|| self.once(C::NAME, &timeouts, inquiry(), decode)).await
    }

    /// Repeats the call after "not now".
    async fn insist<A, F: Future<Output = Result<A, Error>>>(&self, ask: impl Fn() -> F) -> Result<A, Error> {
        for wait in &self.timeouts.retries {
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
        timeouts: &Timeouts,
        inquiry: Inquiry<'_>,
        decode: impl Fn(&[u8]) -> Result<A, String>,
    ) -> Result<A, Error> {
        let Answer { status, body } = exchange(&self.target, timeouts, inquiry).await?;
        let unexpected = |what: String| Error::Unexpected { endpoint: self.endpoint(), call, status, what };
        let Some(body) = body else { return Err(unexpected("it is too long".to_owned())) };
        if status == 200 { decode(&body).map_err(unexpected) } else { Err(self.refused(call, status, &body)) }
    }

    /// The error of an unsuccessful response.
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
