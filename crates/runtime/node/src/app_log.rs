//! What apps write: logged on the node, and queued for the SuperLink unless the operator keeps it here. Values of secret
//! variables of the node are masked in both. This module knows nothing of processes and links.
//!
//! The mask protects from accidents: an app that wants to send a secret can encode it.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use trellis_core::id::RunId;
use trellis_sandbox::is_secret;

/// Lines that wait for the SuperLink, per run; the oldest ones are dropped.
const MAX_WAITING_BYTES: usize = 128 << 10;
/// Shorter values are no secrets: `true`, `none`.
const MIN_SECRET_BYTES: usize = 6;
const MASK: &str = "********";

/// Clones share everything. The default sends nothing and masks nothing.
#[derive(Clone, Default)]
pub struct AppLog {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Longest first, because one may contain another.
    secrets: Vec<String>,
    is_sent: bool,
    runs: Mutex<BTreeMap<RunId, Lines>>,
    added: Notify,
}

#[derive(Default)]
struct Lines {
    lines: VecDeque<String>,
    bytes: usize,
    dropped: u64,
}

/// Without the secrets.
impl fmt::Debug for AppLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppLog").field("is_sent", &self.inner.is_sent).finish_non_exhaustive()
    }
}

impl AppLog {
    /// `environment`: the variables of the node.
    pub fn new(environment: impl Iterator<Item = (OsString, OsString)>, is_sent: bool) -> AppLog {
        AppLog { inner: Arc::new(Inner { secrets: secrets(environment), is_sent, ..Inner::default() }) }
    }

    /// Replaces secrets.
    pub fn mask(&self, text: String) -> String {
        self.inner.secrets.iter().fold(text, |text, secret| match text.contains(secret) {
            true => text.replace(secret, MASK),
            false => text,
        })
    }

    /// Adds a masked line of an app of this run.
    pub fn add(&self, run: RunId, line: &str) {
        if !self.inner.is_sent {
            return;
        }
        let mut runs = self.runs();
        let waiting = runs.entry(run).or_default();
        waiting.bytes += line.len() + 1;
        waiting.lines.push_back(format!("{line}\n"));
        while waiting.bytes > MAX_WAITING_BYTES {
            let Some(oldest) = waiting.lines.pop_front() else { break };
            waiting.bytes -= oldest.len();
            waiting.dropped += 1;
        }
        self.inner.added.notify_one();
    }

    /// Waits for lines.
    pub async fn added(&self) {
        self.inner.added.notified().await;
    }

    /// Takes the oldest lines of a run, `max_bytes` at most, but at least one line.
    pub fn take(&self, max_bytes: usize) -> Option<(RunId, String)> {
        let mut runs = self.runs();
        let mut first = runs.first_entry()?;
        let (run, waiting) = (*first.key(), first.get_mut());
        let mut text = match std::mem::take(&mut waiting.dropped) {
            0 => String::new(),
            dropped => format!("[{dropped} earlier lines are left out: the SuperLink did not take them in time]\n"),
        };
        while let Some(line) = waiting.lines.front()
            && (text.is_empty() || text.len() + line.len() <= max_bytes)
        {
            text += line;
            waiting.bytes -= line.len();
            waiting.lines.pop_front();
        }
        if waiting.lines.is_empty() {
            first.remove();
        }
        Some((run, text))
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Lines>> {
        self.inner.runs.lock().expect("no holder panics")
    }
}

/// Values of variables with the name of a secret, line by line, and passwords in addresses (`https://user:password@host`).
fn secrets(environment: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let mut secrets = Vec::new();
    for (name, value) in environment {
        let value = value.to_string_lossy();
        if is_secret(&name.to_string_lossy()) {
            secrets.extend(value.lines().map(|line| line.trim().to_owned()));
        }
        let user = value.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
        secrets.extend(user.and_then(|(user, _)| user.split_once(':')).map(|(_, password)| password.to_owned()));
    }
    secrets.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(variables: &[(&str, &str)]) -> AppLog {
        AppLog::new(variables.iter().map(|(name, value)| (name.into(), value.into())), true)
    }

    #[test]
    fn values_of_secret_variables_are_masked_and_others_are_not() {
        let log = log(&[
            ("HF_TOKEN", "hf_abcdef"),
            ("DEPLOY_KEY", "-----BEGIN KEY-----\nMIIEvAIBADAN\n-----END KEY-----\n"),
            ("DB_PASSWORD", "hf_abcdef-longer"),
            ("DATABASE_URL", "postgres://me:hunter22@db/x"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("HOME", "/home/ward"),
        ]);
        for (line, expected) in [
            ("token=hf_abcdef,", "token=********,"),
            ("hf_abcdef-longer hf_abcdef", "******** ********"),
            (r"'-----BEGIN KEY-----\nMIIEvAIBADAN\n'", r"'********\n********\n'"),
            ("postgres://me:hunter22@db/x", "postgres://me:********@db/x"),
            ("false in /home/ward", "false in /home/ward"),
        ] {
            assert_eq!(log.mask(line.to_owned()), expected);
        }
    }

    #[test]
    fn lines_wait_within_a_limit_and_leave_in_their_order() {
        let log = log(&[]);
        assert_eq!(log.take(100), None);
        for number in 0..3 {
            log.add(RunId(7), &format!("line {number}"));
        }
        log.add(RunId(8), "other");
        assert_eq!(log.take(14), Some((RunId(7), "line 0\nline 1\n".to_owned())));
        assert_eq!(log.take(100), Some((RunId(7), "line 2\n".to_owned())));
        assert_eq!(log.take(100), Some((RunId(8), "other\n".to_owned())));
        for _ in 0..MAX_WAITING_BYTES {
            log.add(RunId(7), "x");
        }
        let (_, text) = log.take(usize::MAX).unwrap();
        assert!(text.starts_with("[65536 earlier lines are left out"), "{}", &text[..80]);
        assert_eq!(text.lines().count(), 1 + MAX_WAITING_BYTES / 2);
    }

    #[test]
    fn nothing_waits_if_the_operator_keeps_it() {
        let log = AppLog::new([].into_iter(), false);
        log.add(RunId(7), "line");
        assert_eq!(log.take(100), None);
    }
}
