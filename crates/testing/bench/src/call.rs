//! Calls with the retry rules of an official client: transient errors are retried for ever, other errors are final.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::HeaderMap;
use prost::Message;

use crate::client::Client;
use crate::identity::Identity;
use crate::pacing::{Backoff, Jitter};
use crate::rpc::Rpc;

const ERROR_TEXT_CHARS: usize = 100;

/// Why a call failed, and whether an official client retries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// An official client retries it.
    again: bool,
    text: String,
}

impl CallError {
    /// A transient error: UNAVAILABLE, 503, a broken connection.
    pub fn transient(text: impl Into<String>) -> Self {
        Self { again: true, text: text.into() }
    }

    pub fn fatal(text: impl Into<String>) -> Self {
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

/// Counters over all callers of one measurement.
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

    /// Resets the counters at the start of a measurement.
    pub fn reset(&self) {
        self.retries.store(0, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        self.errors.lock().expect("no panic while counting").clear();
    }

    /// Returns each distinct error with its count, most frequent first.
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

/// The credentials of every call.
pub enum Credentials {
    /// A node's signature.
    Signed(Identity),
    /// The same headers for every call: a token, or only the client's release.
    Fixed(HeaderMap),
}

/// A client of a server with its credentials and counters.
pub struct Caller {
    client: Client,
    credentials: Credentials,
    tally: Arc<Tally>,
}

impl Caller {
    pub fn new(client: Client, credentials: Credentials, tally: Arc<Tally>) -> Self {
        Self { client, credentials, tally }
    }

    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Makes the call once without counting it.
    pub async fn once<Q, A>(&self, rpc: &Rpc<Q, A>, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let headers = match &self.credentials {
            Credentials::Signed(identity) => identity.headers(),
            Credentials::Fixed(headers) => headers.clone(),
        };
        self.client.call(rpc, headers, request).await
    }

    /// Makes the call until it succeeds or fails with a final error.
    pub async fn with_retries<Q, A>(&self, rpc: &Rpc<Q, A>, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        retrying(&self.tally, || self.once(rpc, request)).await
    }
}

async fn retrying<T, F>(tally: &Tally, mut call: impl FnMut() -> F) -> Result<T, CallError>
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
        let mut answers = vec![Ok(7), Err(CallError::transient("busy")), Err(CallError::transient("busy"))];
        let got = retrying(&tally, || std::future::ready(answers.pop().unwrap())).await;
        assert_eq!(got.unwrap(), 7);
        assert_eq!((tally.retries(), tally.failed()), (2, 0));
        assert_eq!(tally.errors(), [("busy".to_owned(), 2)]);
    }

    #[tokio::test]
    async fn other_errors_are_final() {
        let tally = Tally::default();
        let got = retrying::<(), _>(&tally, || std::future::ready(Err(CallError::fatal("shed")))).await;
        assert_eq!(got.unwrap_err(), CallError::fatal("shed"));
        assert_eq!((tally.retries(), tally.failed()), (0, 1));
    }
}
