//! Discovery of a node's SuperLink: how to read a snapshot of a VM's attributes, and when to retry or give up. Pure: the
//! agent calls OneGate and waits.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use trellis_one::keys;

use crate::failure::{Code, Failure};
use crate::settings::Backoff;
use crate::shards::Shards;

const MIN_BACKOFF: Duration = Duration::from_secs(1);
const FIXED_BACKOFF: Duration = Duration::from_secs(10);
/// After this many rejections in a row the token is invalid.
const MAX_REJECTIONS: u32 = 3;
/// Time that a new node waits for its shard. A SuperLink without an agent may have no shard table.
const SHARD_TIMEOUT: Duration = Duration::from_secs(60);

/// A SuperLink that the node can join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinator {
    /// `host:port`, an IPv6 host in brackets.
    pub endpoint: String,
    /// PEM; `None` without TLS, or if the system's trust store applies.
    pub trust: Option<String>,
    pub version: Option<String>,
    /// Address of our own calls if the SuperLink is ours: `host:port`.
    pub http: Option<String>,
    /// Shard of this node, and the number of shards.
    pub shard: Option<(u32, u32)>,
}

/// What the node requires of a SuperLink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    pub vm: u64,
    pub tls: bool,
    /// An authority in the settings takes precedence over the published one.
    pub trust: Option<String>,
    /// Release of an official node. Major and minor version must equal those of the SuperLink.
    pub official: Option<String>,
    /// The node needs a shard from the SuperLink's table.
    pub shard: bool,
}

/// Why a snapshot is not sufficient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No VM has the role, or none of them runs.
    NoSuperLink,
    NotReady,
    /// Value of the SuperLink's FL_ERROR.
    Failed(String),
    Endpoint(String),
    Version,
    VersionDiffers(String),
    Authority,
    BadAuthority(String),
    /// The SuperLink serves without TLS, and the node requires TLS.
    Plaintext,
    Shard,
}

/// Reads all values from ONE snapshot, because values of different times may belong to different starts of the SuperLink.
pub fn read(attributes: &BTreeMap<String, String>, wanted: &Requirements) -> Result<Coordinator, Missing> {
    let said = |key: &str| attributes.get(key).map(|value| value.trim()).filter(|value| !value.is_empty());
    if said(keys::FL_READY) != Some("YES") {
        return Err(said(keys::FL_ERROR).map_or(Missing::NotReady, |error| Missing::Failed(error.to_owned())));
    }
    let endpoint = said(keys::FL_ENDPOINT).ok_or(Missing::NotReady)?;
    if !is_endpoint(endpoint) {
        return Err(Missing::Endpoint(endpoint.to_owned()));
    }
    let version = said(keys::FL_VERSION).ok_or(Missing::Version)?;
    if let Some(ours) = &wanted.official
        && line(ours) != line(version)
    {
        return Err(Missing::VersionDiffers(version.to_owned()));
    }
    let trust = match (wanted.tls, &wanted.trust) {
        (false, _) => None,
        (true, Some(given)) => Some(given.clone()),
        (true, None) if said(keys::FL_TLS) == Some("NO") => return Err(Missing::Plaintext),
        (true, None) => Some(authority(said(keys::FL_CA_CERT).ok_or(Missing::Authority)?)?),
    };
    let table = said(keys::TRELLIS_SHARDS).filter(|_| wanted.shard).and_then(Shards::parse);
    let shard = match table {
        None => None,
        Some(table) => Some(table.shard(wanted.vm).ok_or(Missing::Shard)?),
    };
    let http = said(keys::TRELLIS_HTTP).filter(|text| is_endpoint(text)).map(str::to_owned);
    Ok(Coordinator { endpoint: endpoint.to_owned(), trust, version: Some(version.to_owned()), http, shard })
}

/// Major and minor version of a release.
fn line(version: &str) -> Option<(&str, &str)> {
    let mut numbers = version.split('.');
    Some((numbers.next()?, numbers.next()?))
}

/// Validates `host:port`. The value becomes a command line argument.
pub fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    port.parse::<u16>().is_ok_and(|port| port > 0)
        && !host.starts_with('-')
        && trellis_pki::Endpoint::parse(host).is_ok()
        && (!host.contains(':') || host.starts_with('['))
}

/// Decodes and validates published authorities.
fn authority(text: &str) -> Result<String, Missing> {
    let bad = |why: String| Missing::BadAuthority(why);
    let bytes = STANDARD.decode(text).map_err(|error| bad(format!("it is not base64: {error}")))?;
    let pem = String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8".to_owned()))?;
    check_authority(&pem).map_err(bad)?;
    Ok(pem)
}

/// Checks that a PEM has at least one certificate and that all of them are valid.
pub fn check_authority(pem: &str) -> Result<(), String> {
    let found = trellis_pki::pem::certificates(pem.as_bytes()).map_err(|error| error.what.to_string())?;
    if found.is_empty() {
        return Err("it contains no certificate".to_owned());
    }
    found.iter().try_for_each(|der| trellis_pki::Certificate::read(der).map(drop))
}

/// Result of one poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Poll {
    Found(Coordinator),
    Missing(Missing),
    /// OneGate did not answer, or returned an error.
    Unreachable(String),
    Unauthorised(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Join(Coordinator),
    RetryAfter(Duration, Failure),
    GiveUp(Failure),
}

/// A search for a SuperLink.
#[derive(Debug, Clone)]
pub struct Search {
    backoff: Backoff,
    /// `None` if the search has no limit, as for edge machines that are offline for days.
    limit: Option<Duration>,
    polls: u32,
    refusals: u32,
}

impl Search {
    pub fn new(backoff: Backoff, limit: Option<Duration>) -> Search {
        Search { backoff, limit, polls: 0, refusals: 0 }
    }

    /// Returns what to do after a poll, `elapsed` after the start of the search. `random` is between 0 and 1.
    pub fn next(&mut self, poll: Poll, elapsed: Duration, random: f64) -> Next {
        self.refusals = if matches!(poll, Poll::Unauthorised(_)) { self.refusals + 1 } else { 0 };
        let poll = match poll {
            Poll::Found(coordinator) => return Next::Join(coordinator),
            poll => poll,
        };
        let failure = failure(&poll);
        let hopeless = matches!(poll, Poll::Missing(Missing::VersionDiffers(_)))
            || (matches!(poll, Poll::Unauthorised(_)) && self.refusals >= MAX_REJECTIONS);
        if hopeless || self.limit.is_some_and(|limit| elapsed >= limit) {
            return Next::GiveUp(failure);
        }
        let pause = self.pause(random);
        self.polls += 1;
        Next::RetryAfter(self.limit.map_or(pause, |limit| pause.min(limit - elapsed)), failure)
    }

    fn pause(&self, random: f64) -> Duration {
        if !self.backoff.exponential {
            return FIXED_BACKOFF.min(self.backoff.max_interval);
        }
        let doubled = MIN_BACKOFF.saturating_mul(1u32.checked_shl(self.polls).unwrap_or(u32::MAX));
        // Jitter, so that nodes that started together do not poll together.
        doubled.min(self.backoff.max_interval).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// Whether a node still waits for its shard. After that it starts without one.
    pub fn waits_for_shard(elapsed: Duration) -> bool {
        elapsed < SHARD_TIMEOUT
    }
}

/// The failure to report for a poll.
fn failure(poll: &Poll) -> Failure {
    let (code, what) = match poll {
        Poll::Found(_) => (Code::HealthCheckTimeout, "the SuperLink was found".to_owned()),
        Poll::Unreachable(why) => (Code::OnegateUnreachable, why.clone()),
        Poll::Unauthorised(why) => (Code::OnegateUnauthorised, why.clone()),
        Poll::Missing(missing) => match missing {
            Missing::NoSuperLink => (Code::DiscoveryTimeout, "there is no VM with the role superlink".to_owned()),
            Missing::NotReady => (Code::DiscoveryTimeout, "the SuperLink does not publish FL_READY=YES yet".to_owned()),
            Missing::Failed(error) => (Code::DiscoveryTimeout, format!("the SuperLink publishes FL_ERROR={error}")),
            Missing::Endpoint(text) => {
                (Code::DiscoveryTimeout, format!("the SuperLink's FL_ENDPOINT {text:?} is not host:port"))
            }
            Missing::Version => (Code::DiscoveryTimeout, "the SuperLink does not publish FL_VERSION".to_owned()),
            Missing::VersionDiffers(theirs) => {
                (Code::VersionMismatch, format!("the SuperLink runs Flower {theirs}, and this node another release"))
            }
            Missing::Authority => (Code::CaMissing, "the SuperLink has not published FL_CA_CERT".to_owned()),
            Missing::BadAuthority(why) => (Code::CaInvalid, format!("the SuperLink's FL_CA_CERT is invalid: {why}")),
            Missing::Plaintext => {
                (Code::CaMissing, "the SuperLink serves without TLS, and this node requires TLS".to_owned())
            }
            Missing::Shard => (Code::DiscoveryTimeout, "the SuperLink has no shard for this VM yet".to_owned()),
        },
    };
    Failure::new(code, what)
}

#[cfg(test)]
mod tests;
