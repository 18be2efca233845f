//! One call as an official client makes it: UNAVAILABLE is tried again for ever, anything else is the end of it.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::{Code, Status};

use crate::pacing::{Backoff, Jitter};

const ERROR_TEXT_CHARS: usize = 100;

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

    pub fn fail(&self, status: &Status) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.note(status);
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

    fn note(&self, status: &Status) {
        let text: String = status.message().chars().take(ERROR_TEXT_CHARS).collect();
        let key = format!("{:?}: {text}", status.code());
        *self.errors.lock().expect("no panic while counting").entry(key).or_default() += 1;
    }

    fn retried(&self, status: &Status) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.note(status);
    }

    pub fn jitter(&self) -> Jitter {
        Jitter::new(self.seed.fetch_add(1, Ordering::Relaxed))
    }
}

/// Makes the call until it succeeds or fails for good.
pub async fn persistently<T, F>(tally: &Tally, mut call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<tonic::Response<T>, Status>>,
{
    let mut backoff = Backoff::default();
    loop {
        match call().await {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) if is_unavailable(&status) => {
                tally.retried(&status);
                tokio::time::sleep(backoff.after_unavailable(&mut tally.jitter())).await;
            }
            Err(status) => {
                tally.fail(&status);
                return Err(status);
            }
        }
    }
}

/// A broken connection is UNAVAILABLE to official clients; here it is UNKNOWN with a local cause.
fn is_unavailable(status: &Status) -> bool {
    status.code() == Code::Unavailable || (status.code() == Code::Unknown && status.source().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unavailable_is_retried_and_counted() {
        let tally = Tally::default();
        let mut answers =
            vec![Ok(tonic::Response::new(7)), Err(Status::unavailable("busy")), Err(Status::unavailable("busy"))];
        let got = persistently(&tally, || std::future::ready(answers.pop().unwrap())).await;
        assert_eq!(got.unwrap(), 7);
        assert_eq!((tally.retries(), tally.failed()), (2, 0));
        assert_eq!(tally.errors(), [("Unavailable: busy".to_owned(), 2)]);
    }

    #[tokio::test]
    async fn anything_else_fails_at_once() {
        let tally = Tally::default();
        let got = persistently::<(), _>(&tally, || std::future::ready(Err(Status::cancelled("shed")))).await;
        assert_eq!(got.unwrap_err().code(), Code::Cancelled);
        assert_eq!((tally.retries(), tally.failed()), (0, 1));
    }

    #[test]
    fn unknown_from_the_server_is_final() {
        assert!(!is_unavailable(&Status::unknown("Exception calling application")));
        assert!(is_unavailable(&Status::unavailable("")));
    }
}
