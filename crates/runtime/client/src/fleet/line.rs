//! The way to a SuperLink, over whichever transport it speaks: found out, kept while it works, and found anew after it broke.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::HeaderMap;

use super::error::Trouble;
use super::overhear::Heard;
use super::{FleetOptions, Question, Reply, Transport, grpc, http};
use crate::connect::{HTTP_1, HTTP_2, connect, speaks_tls};
use crate::error::Error;
use crate::{Security, Target};

/// To find out whether TLS is what the other side expects.
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
            // Its connections come and go.
            Line::Http(_) => false,
        }
    }
}

/// The line that is used now, and what is needed to make the next one.
pub(crate) struct Lines {
    pub target: Target,
    pub options: FleetOptions,
    current: Mutex<Option<Arc<Line>>>,
    found: Mutex<Option<Transport>>,
    /// Held by whoever makes a line: the others wait for that one.
    making: tokio::sync::Mutex<()>,
}

impl Lines {
    pub fn new(target: Target, options: FleetOptions) -> Lines {
        Lines { target, options, current: Mutex::default(), found: Mutex::default(), making: Default::default() }
    }

    /// The transport that was found last.
    pub fn transport(&self) -> Option<Transport> {
        *self.found.lock().expect("no panic while looking")
    }

    async fn line(&self) -> Result<Arc<Line>, Trouble> {
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
        *self.current.lock().expect("no panic while looking") = Some(Arc::clone(&line));
        *self.found.lock().expect("no panic while looking") = Some(line.transport());
        Ok(line)
    }

    fn working(&self) -> Option<Arc<Line>> {
        self.current.lock().expect("no panic while looking").clone().filter(|line| !line.is_closed())
    }

    /// This line does not work: calls to come use another. Those that are under way find out by themselves.
    fn give_up(&self, line: &Arc<Line>) {
        let mut current = self.current.lock().expect("no panic while looking");
        current.take_if(|current| Arc::ptr_eq(current, line));
    }

    /// Asks once. A line that gave no answer is not used again. `proof` gives the headers that prove who asks.
    pub async fn reply(
        &self,
        question: &Question<'_>,
        silence: Duration,
        proof: impl FnOnce(Transport) -> HeaderMap,
    ) -> Result<Reply, Trouble> {
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
            Err(trouble) => {
                self.give_up(&line);
                Err(self.explain(trouble).await)
            }
        }
    }

    async fn ask(&self, line: &Line, question: &Question<'_>, proof: HeaderMap) -> Result<Reply, Trouble> {
        match line {
            Line::Grpc(line) => line.ask(question, proof).await,
            Line::Http(pool) => pool.ask(&self.target, &self.options, question, proof).await,
        }
    }

    async fn make(&self) -> Result<Line, Trouble> {
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
        let (line, heard) = grpc::Line::open(&self.target, &self.options, connected.stream).await?;
        match heard.await.unwrap_or(Heard::Nothing) {
            Heard::Http2 => Ok(Line::Grpc(line)),
            Heard::Http1 if may_be_http => Ok(Line::Http(http::Pool::default())),
            Heard::Http1 => Err(Trouble::Strange("it speaks HTTP/1.1 and not gRPC".to_owned())),
            Heard::Tls => Err(wants_tls()),
            Heard::Nothing if self.wants_tls().await => Err(wants_tls()),
            Heard::Nothing => Err(Trouble::Hungup("it hung up at once".to_owned())),
            Heard::Other => Err(Trouble::Strange("it speaks neither gRPC nor HTTP".to_owned())),
        }
    }

    /// Why a line that was good does not work any more.
    async fn explain(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Hungup(_) | Trouble::Strange(_) if self.wants_tls().await => wants_tls(),
            // It was found to speak so, and does no more: next time it is found out anew.
            Trouble::Strange(what) if self.options.transport.is_none() => Trouble::Hungup(what),
            other => other,
        }
    }

    /// Whether it expects TLS, and is called without. Some hang up without a word then.
    async fn wants_tls(&self) -> bool {
        let is_plain = matches!(self.target.security, Security::Plaintext);
        is_plain && tokio::time::timeout(SECOND_LOOK, speaks_tls(&self.target)).await == Ok(true)
    }
}

fn wants_tls() -> Trouble {
    Trouble::Strange("it expects TLS, and is called without".to_owned())
}
