//! A SuperLink to call: makes a typed call into a request, an answer into a value or a reason. The only retry is here:
//! a SuperLink that says "not now" has done nothing, so the call may be repeated, whatever it is.

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
    transport: Transport,
}

impl SuperLink {
    pub fn new(target: Target) -> SuperLink {
        SuperLink { target, patience: Patience::default(), transport: Transport::Http }
    }

    pub fn with_patience(self, patience: Patience) -> SuperLink {
        SuperLink { patience, ..self }
    }

    /// The transport of Flower's own calls; HTTP unless told otherwise. An official SuperLink before 1.37 has only gRPC for
    /// them, and one since only HTTP. Our calls go over HTTP always.
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
        rpc: &'static Rpc,
        question: &impl prost::Message,
    ) -> Result<A, Error> {
        let (proof, body) = (self.as_account(), Bytes::from(question.encode_to_vec()));
        let decode = |body: &[u8]| A::decode(body).map_err(|error| error.to_string());
        match self.transport {
            Transport::Http => {
                let inquiry = || Inquiry::post(rpc.http, PROTOBUF, body.clone(), &proof);
                self.insist(|| self.once(rpc.name, &self.patience, inquiry(), decode)).await
            }
            Transport::Grpc => self.insist(|| self.once_over_grpc(rpc, &body, &proof, decode)).await,
        }
    }

    /// Begins a call of Flower's own whose answer is a stream.
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
        match begin(&self.target, &self.patience, inquiry).await? {
            Begun::Well(coming) => Ok(Pieces::new(coming, Prefix::Length)),
            Begun::Otherwise(Answer { status, body }) => Err(self.refused(rpc.name, status, &body.unwrap_or_default())),
        }
    }

    async fn ask_over_grpc(&self, rpc: &'static Rpc, body: &[u8], proof: &HeaderMap) -> Result<Pieces, Error> {
        match grpc::begin(&self.target, &self.patience, rpc.grpc, body, proof).await? {
            Ok(coming) => Ok(Pieces::new(coming, Prefix::Grpc)),
            Err(strange) => {
                let unexpected = Error::Unexpected {
                    endpoint: self.endpoint(),
                    call: rpc.name,
                    status: strange.status,
                    what: "it is no gRPC".to_owned(),
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
        let limit = self.patience.answer;
        let answering = async {
            let mut pieces = self.ask_over_grpc(rpc, body, proof).await?;
            let piece = pieces.only().await.map_err(|why| self.broken(rpc.name, why))?;
            decode(&piece).map_err(|what| self.broken(rpc.name, pieces::Broken::Strange(what)))
        };
        let too_slow = |_| Error::TooSlow { endpoint: self.endpoint(), step: "answer", limit };
        tokio::time::timeout(limit, answering).await.map_err(too_slow)?
    }

    /// What it means that an answer in pieces has no next one.
    pub(crate) fn broken(&self, call: &'static str, why: pieces::Broken) -> Error {
        let endpoint = self.endpoint();
        match why {
            pieces::Broken::Connection(source) => failed(&self.target, source),
            pieces::Broken::Refused { status, detail } => Error::Refused { endpoint, call, status, detail },
            pieces::Broken::Strange(what) => Error::Unexpected { endpoint, call, status: 200, what },
        }
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
