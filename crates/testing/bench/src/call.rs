//! Calls as an official client makes them: what is transient is tried again for ever, anything else is the end of it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::HeaderMap;
use prost::Message;

use crate::identity::Identity;
use crate::line::Line;
use crate::pacing::{Backoff, Jitter};
use crate::rpc::Rpc;

const ERROR_TEXT_CHARS: usize = 100;

/// Why a call failed, and what an official client would do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// Whether it would try again.
    again: bool,
    text: String,
}

impl CallError {
    /// A transient failure: UNAVAILABLE, 503, a broken connection.
    pub fn again(text: impl Into<String>) -> Self {
        Self { again: true, text: text.into() }
    }

    pub fn end(text: impl Into<String>) -> Self {
        Self { again: false, text: text.into() }
    }

    pub fn is_transient(&self) -> bool {
        self.again
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CallError {}

/// Counts over all callers of one measurement.
#[derive(Default)]
pub struct Tally {
    retries: AtomicU64,
    failed: AtomicU64,
    seed: AtomicU64,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub fn fail(&self, error: &CallError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.note(error);
    }

    /// Forgets what came before: the measuring starts now.
    pub fn reset(&self) {
        self.retries.store(0, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        self.errors.lock().expect("no panic while counting").clear();
    }

    /// Each distinct error with its count, most frequent first.
    pub fn errors(&self) -> Vec<(String, u64)> {
        let errors = self.errors.lock().expect("no panic while counting");
        let mut list: Vec<(String, u64)> = errors.iter().map(|(text, count)| (text.clone(), *count)).collect();
        list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        list
    }

    fn note(&self, error: &CallError) {
        let text: String = error.text.chars().take(ERROR_TEXT_CHARS).collect();
        *self.errors.lock().expect("no panic while counting").entry(text).or_default() += 1;
    }

    fn retried(&self, error: &CallError) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.note(error);
    }

    pub fn jitter(&self) -> Jitter {
        Jitter::new(self.seed.fetch_add(1, Ordering::Relaxed))
    }
}

/// What is shown to the server with every call.
pub enum Credentials {
    /// A node's signature.
    Signed(Identity),
    /// The same headers for every call: a token, or nothing but what the client is.
    Fixed(HeaderMap),
}

/// Somebody who calls a server: the line, what is shown on it, and where it is counted.
pub struct Caller {
    line: Line,
    credentials: Credentials,
    tally: Arc<Tally>,
}

impl Caller {
    pub fn new(line: Line, credentials: Credentials, tally: Arc<Tally>) -> Self {
        Self { line, credentials, tally }
    }

    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Makes the call once and counts nothing.
    pub async fn once<Q, A>(&self, rpc: &Rpc<Q, A>, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let headers = match &self.credentials {
            Credentials::Signed(identity) => identity.headers(),
            Credentials::Fixed(headers) => headers.clone(),
        };
        self.line.call(rpc, headers, request).await
    }

    /// Makes the call until it succeeds or fails for good.
    pub async fn insist<Q, A>(&self, rpc: &Rpc<Q, A>, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        persistently(&self.tally, || self.once(rpc, request)).await
    }
}

async fn persistently<T, F>(tally: &Tally, mut call: impl FnMut() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut backoff = Backoff::default();
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_transient() => {
                tally.retried(&error);
                tokio::time::sleep(backoff.after_unavailable(&mut tally.jitter())).await;
            }
            Err(error) => {
                tally.fail(&error);
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_retried_and_counted() {
        let tally = Tally::default();
        let mut answers = vec![Ok(7), Err(CallError::again("busy")), Err(CallError::again("busy"))];
        let got = persistently(&tally, || std::future::ready(answers.pop().unwrap())).await;
        assert_eq!(got.unwrap(), 7);
        assert_eq!((tally.retries(), tally.failed()), (2, 0));
        assert_eq!(tally.errors(), [("busy".to_owned(), 2)]);
    }

    #[tokio::test]
    async fn anything_else_fails_at_once() {
        let tally = Tally::default();
        let got = persistently::<(), _>(&tally, || std::future::ready(Err(CallError::end("shed")))).await;
        assert_eq!(got.unwrap_err(), CallError::end("shed"));
        assert_eq!((tally.retries(), tally.failed()), (0, 1));
    }
}
