//! The line to a SuperLink: detects its transport, keeps the line while it works, and detects again after a failure.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::HeaderMap;

use super::detect::Detected;
use super::error::Failure;
use super::{FleetOptions, Question, Reply, Transport, grpc, http};
use crate::connect::{HTTP_1, HTTP_2, connect, speaks_tls};
use crate::error::Error;
use crate::{Security, Target};

/// To detect whether the peer expects TLS.
const SECOND_LOOK: Duration = Duration::from_secs(3);

/// A way that works.
pub(super) enum Line {
    Grpc(grpc::Line),
    Http(http::Pool),
}

impl Line {
    pub fn transport(&self) -> Transport {
        match self {
            Line::Grpc(_) => Transport::Grpc,
            Line::Http(_) => Transport::Http,
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Line::Grpc(line) => line.is_closed(),
            // Connections of the pool come and go.
            Line::Http(_) => false,
        }
    }
}

/// The current line, and the settings for the next one.
pub(crate) struct Lines {
    pub target: Target,
    pub options: FleetOptions,
    current: Mutex<Option<Arc<Line>>>,
    found: Mutex<Option<Transport>>,
    /// Held while a line is created: concurrent calls wait for it.
    making: tokio::sync::Mutex<()>,
}

impl Lines {
    pub fn new(target: Target, options: FleetOptions) -> Lines {
        Lines { target, options, current: Mutex::default(), found: Mutex::default(), making: Default::default() }
    }

    /// The transport that was found last.
    pub fn transport(&self) -> Option<Transport> {
        *self.found.lock().expect("the lock is not poisoned")
    }

    async fn line(&self) -> Result<Arc<Line>, Failure> {
        if let Some(line) = self.working() {
            return Ok(line);
        }
        let _making = self.making.lock().await;
        if let Some(line) = self.working() {
            return Ok(line);
        }
        let limit = self.options.connect_timeout;
        let too_slow = |_| Error::TooSlow { endpoint: self.target.endpoint(), step: "accept a connection", limit };
        let line = Arc::new(tokio::time::timeout(limit, self.make()).await.map_err(too_slow)??);
        *self.current.lock().expect("the lock is not poisoned") = Some(Arc::clone(&line));
        *self.found.lock().expect("the lock is not poisoned") = Some(line.transport());
        Ok(line)
    }

    fn working(&self) -> Option<Arc<Line>> {
        self.current.lock().expect("the lock is not poisoned").clone().filter(|line| !line.is_closed())
    }

    /// Drops a broken line: later calls use a new one. Calls in progress fail by themselves.
    fn give_up(&self, line: &Arc<Line>) {
        let mut current = self.current.lock().expect("the lock is not poisoned");
        current.take_if(|current| Arc::ptr_eq(current, line));
    }

    /// Makes a call once. A line without an answer is dropped. `proof` has the headers that authenticate the node.
    pub async fn reply(
        &self,
        question: &Question<'_>,
        silence: Duration,
        proof: impl FnOnce(Transport) -> HeaderMap,
    ) -> Result<Reply, Failure> {
        let line = self.line().await?;
        let proof = proof(line.transport());
        question.pulse.beat();
        match question.pulse.watch(silence, self.ask(&line, question, proof)).await {
            Ok(reply) => {
                if matches!(&reply, Reply::Refused(refusal) if refusal.is_not_served()) {
                    self.give_up(&line);
                }
                Ok(reply)
            }
            Err(failure) => {
                self.give_up(&line);
                Err(self.explain(failure).await)
            }
        }
    }

    async fn ask(&self, line: &Line, question: &Question<'_>, proof: HeaderMap) -> Result<Reply, Failure> {
        match line {
            Line::Grpc(line) => line.ask(question, proof).await,
            Line::Http(pool) => pool.ask(&self.target, &self.options, question, proof).await,
        }
    }

    async fn make(&self) -> Result<Line, Failure> {
        let protocols: &[&[u8]] = match self.options.transport {
            Some(Transport::Http) => return Ok(Line::Http(http::Pool::default())),
            Some(Transport::Grpc) => &[HTTP_2],
            None => &[HTTP_2, HTTP_1],
        };
        let connected = connect(&self.target, protocols).await?;
        let may_be_http = self.options.transport.is_none();
        let is_tls = matches!(self.target.security, Security::Tls(_));
        if is_tls && may_be_http && connected.protocol.as_deref() != Some(HTTP_2) {
            return http::Pool::with(connected.stream).await.map(Line::Http);
        }
        let (line, detected) = grpc::Line::open(&self.target, &self.options, connected.stream).await?;
        match detected.await.unwrap_or(Detected::Nothing) {
            Detected::Http2 => Ok(Line::Grpc(line)),
            Detected::Http1 if may_be_http => Ok(Line::Http(http::Pool::default())),
            Detected::Http1 => Err(Failure::Strange("it speaks HTTP/1.1 and not gRPC".to_owned())),
            Detected::Tls => Err(wants_tls()),
            Detected::Nothing if self.wants_tls().await => Err(wants_tls()),
            Detected::Nothing => Err(Failure::Disconnected("it closed the connection at once".to_owned())),
            Detected::Other => Err(Failure::Strange("it speaks neither gRPC nor HTTP".to_owned())),
        }
    }

    /// Why a line that was good does not work any more.
    async fn explain(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Disconnected(_) | Failure::Strange(_) if self.wants_tls().await => wants_tls(),
            // The peer no longer has the detected transport: detect it again on the next call.
            Failure::Strange(what) if self.options.transport.is_none() => Failure::Disconnected(what),
            other => other,
        }
    }

    /// Whether it expects TLS, and is called without. Some hang up without a word then.
    async fn wants_tls(&self) -> bool {
        let is_plain = matches!(self.target.security, Security::Plaintext);
        is_plain && tokio::time::timeout(SECOND_LOOK, speaks_tls(&self.target)).await == Ok(true)
    }
}

fn wants_tls() -> Failure {
    Failure::Strange("it expects TLS, but is called without".to_owned())
}
