//! How a node finds its SuperLink: what one snapshot of a VM's attributes says, and when to look again or to give up. Pure:
//! who asks OneGate, and waits, is elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use trellis_one::keys;

use crate::settings::Backoff;
use crate::shards::Shards;
use crate::trouble::{Code, Trouble};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const FIXED_PAUSE: Duration = Duration::from_secs(10);
/// A token that is refused so often in a row is the wrong one.
const REFUSALS: u32 = 3;
/// A new node waits so long for its shard to be told; a SuperLink by hand may keep no table.
const SHARD_PATIENCE: Duration = Duration::from_secs(60);

/// A SuperLink that can be joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinator {
    /// `host:port`, an IPv6 host in brackets.
    pub endpoint: String,
    /// PEM; `None`: without TLS, or whom the system trusts.
    pub trust: Option<String>,
    pub version: Option<String>,
    /// Where our own calls go, if it is ours: `host:port`.
    pub http: Option<String>,
    /// Our shard, and of how many.
    pub shard: Option<(u32, u32)>,
}

/// What the node needs to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub vm: u64,
    pub tls: bool,
    /// An authority that was given beats what is published.
    pub trust: Option<String>,
    /// Of the official programs, which must be equal on both sides in their first two numbers.
    pub official: Option<String>,
    /// Nobody said which shard is ours.
    pub shard: bool,
}

/// Why a snapshot is not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No VM has the role, or none that runs.
    NoSuperLink,
    NotReady,
    /// Its words, if it has any.
    InTrouble(String),
    Endpoint(String),
    Version,
    VersionDiffers(String),
    Authority,
    BadAuthority(String),
    /// It serves without TLS, and we must not trust that.
    Plaintext,
    Shard,
}

/// Everything, from ONE snapshot: what was read at another moment may be of another start of the SuperLink.
pub fn read(attributes: &BTreeMap<String, String>, wanted: &Wanted) -> Result<Coordinator, Missing> {
    let said = |key: &str| attributes.get(key).map(|value| value.trim()).filter(|value| !value.is_empty());
    if said(keys::FL_READY) != Some("YES") {
        return Err(said(keys::FL_ERROR).map_or(Missing::NotReady, |error| Missing::InTrouble(error.to_owned())));
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

/// The first two numbers of a release.
fn line(version: &str) -> Option<(&str, &str)> {
    let mut numbers = version.split('.');
    Some((numbers.next()?, numbers.next()?))
}

/// `host:port`: anything else would become an argument that nobody meant.
pub fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    port.parse::<u16>().is_ok_and(|port| port > 0)
        && !host.starts_with('-')
        && trellis_pki::Endpoint::parse(host).is_ok()
        && (!host.contains(':') || host.starts_with('['))
}

/// The PEM of authorities in base64, looked at: a SuperLink's word is not taken for what it is.
fn authority(text: &str) -> Result<String, Missing> {
    let bad = |why: String| Missing::BadAuthority(why);
    let bytes = STANDARD.decode(text).map_err(|error| bad(format!("it is no base64: {error}")))?;
    let pem = String::from_utf8(bytes).map_err(|_| bad("it is no text".to_owned()))?;
    check_authority(&pem).map_err(bad)?;
    Ok(pem)
}

/// Whether a PEM has certificates that can be read, and nothing that cannot.
pub fn check_authority(pem: &str) -> Result<(), String> {
    let found = trellis_pki::pem::certificates(pem.as_bytes()).map_err(|error| error.what.to_string())?;
    if found.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    found.iter().try_for_each(|der| trellis_pki::Certificate::read(der).map(drop))
}

/// What one look had for a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    Found(Coordinator),
    Missing(Missing),
    /// OneGate did not answer, or not well.
    Unreachable(String),
    Unauthorised(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Join(Coordinator),
    AgainAfter(Duration, Trouble),
    GiveUp(Trouble),
}

/// A search, from the first look to its end.
#[derive(Debug, Clone)]
pub struct Search {
    backoff: Backoff,
    /// `None`: without end, as at an edge whose line may be down for days.
    limit: Option<Duration>,
    looks: u32,
    refusals: u32,
}

impl Search {
    pub fn new(backoff: Backoff, limit: Option<Duration>) -> Search {
        Search { backoff, limit, looks: 0, refusals: 0 }
    }

    /// What to do after a look, `elapsed` after the search began. `random` is between 0 and 1.
    pub fn next(&mut self, look: Look, elapsed: Duration, random: f64) -> Next {
        self.refusals = if matches!(look, Look::Unauthorised(_)) { self.refusals + 1 } else { 0 };
        let look = match look {
            Look::Found(coordinator) => return Next::Join(coordinator),
            look => look,
        };
        let trouble = trouble(&look);
        let hopeless = matches!(look, Look::Missing(Missing::VersionDiffers(_)))
            || (matches!(look, Look::Unauthorised(_)) && self.refusals >= REFUSALS);
        if hopeless || self.limit.is_some_and(|limit| elapsed >= limit) {
            return Next::GiveUp(trouble);
        }
        let pause = self.pause(random);
        self.looks += 1;
        Next::AgainAfter(self.limit.map_or(pause, |limit| pause.min(limit - elapsed)), trouble)
    }

    fn pause(&self, random: f64) -> Duration {
        if !self.backoff.exponential {
            return FIXED_PAUSE.min(self.backoff.longest);
        }
        let doubled = FIRST_PAUSE.saturating_mul(1u32.checked_shl(self.looks).unwrap_or(u32::MAX));
        // Nodes that were started together do not ask together for ever.
        doubled.min(self.backoff.longest).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// A node is not kept waiting for its shard for ever: it may be started without.
    pub fn waits_for_shard(elapsed: Duration) -> bool {
        elapsed < SHARD_PATIENCE
    }
}

/// What to call it where it goes on for too long.
fn trouble(look: &Look) -> Trouble {
    let (code, what) = match look {
        Look::Found(_) => (Code::HealthCheckTimeout, "the SuperLink was found".to_owned()),
        Look::Unreachable(why) => (Code::OnegateUnreachable, why.clone()),
        Look::Unauthorised(why) => (Code::OnegateUnauthorised, why.clone()),
        Look::Missing(missing) => match missing {
            Missing::NoSuperLink => (Code::DiscoveryTimeout, "no VM of the role superlink is there".to_owned()),
            Missing::NotReady => (Code::DiscoveryTimeout, "the SuperLink does not say FL_READY=YES yet".to_owned()),
            Missing::InTrouble(error) => (Code::DiscoveryTimeout, format!("the SuperLink says FL_ERROR={error}")),
            Missing::Endpoint(text) => {
                (Code::DiscoveryTimeout, format!("the SuperLink's FL_ENDPOINT {text:?} is no host:port"))
            }
            Missing::Version => (Code::DiscoveryTimeout, "the SuperLink does not say FL_VERSION".to_owned()),
            Missing::VersionDiffers(theirs) => {
                (Code::VersionMismatch, format!("the SuperLink is Flower {theirs}, this node is to be another"))
            }
            Missing::Authority => (Code::CaMissing, "the SuperLink has not published FL_CA_CERT".to_owned()),
            Missing::BadAuthority(why) => {
                (Code::CaInvalid, format!("the SuperLink's FL_CA_CERT cannot be used: {why}"))
            }
            Missing::Plaintext => {
                (Code::CaMissing, "the SuperLink serves without TLS, and this node wants TLS".to_owned())
            }
            Missing::Shard => (Code::DiscoveryTimeout, "the SuperLink has no shard for this VM yet".to_owned()),
        },
    };
    Trouble::new(code, what)
}

#[cfg(test)]
mod tests;
