//! Detects the Flower dialect of a peer from the transport and the announced release.
//!
//! The 18 supported minor releases differ in few places, and each difference is implemented once: `control` for the
//! command line, `app` for ServerApps. Nodes differ only by transport. A peer without an announced release (1.25 to
//! 1.29) is recognised by its calls.

pub mod app;
pub mod control;

use std::fmt;

use http::HeaderMap;
use trellis_core::refusal::{Kind, Refusal};
use trellis_flower::Release;
use trellis_front::Transport;

use crate::watch::metrics as label;

/// The range of tested releases.
pub const OLDEST: Version = Version::of(Release::OLDEST);
pub const NEWEST: Version = Version::of(Release::NEWEST);

/// Longer release texts are truncated.
const VERSION_TEXT_BYTES: usize = 32;

impl From<Transport> for label::Transport {
    fn from(transport: Transport) -> label::Transport {
        match transport {
            Transport::Grpc => label::Transport::Grpc,
            Transport::Http => label::Transport::Http,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
}

impl Version {
    pub const fn of(release: Release) -> Version {
        Version { major: 1, minor: release.minor }
    }

    fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.split(['.', '-', '+']);
        Some(Version { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The transport and release of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    pub transport: Transport,
    pub version: Option<Version>,
}

impl Client {
    pub fn of(transport: Transport, headers: &HeaderMap) -> Client {
        Client { transport, version: announced(headers).and_then(Version::parse) }
    }

    /// Returns the stored and displayed form: `http 1.42.0`, or `grpc` without a release.
    pub fn describe(&self, headers: &HeaderMap) -> String {
        match announced(headers).filter(|_| self.version.is_some()) {
            Some(text) => {
                let cut: String = text.chars().take(VERSION_TEXT_BYTES).collect();
                format!("{} {cut}", self.transport.name())
            }
            None => self.transport.name().to_owned(),
        }
    }

    pub fn version_label(&self) -> label::Version {
        match self.version {
            None => label::Version::Unknown,
            Some(Version { major: 1, minor }) if minor <= 99 => label::Version::One(minor as u8),
            Some(_) => label::Version::Other,
        }
    }

    /// Refuses releases outside of the supported range.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.version {
            Some(version) if version < OLDEST || version.major > NEWEST.major => {
                let text = format!(
                    "This SuperLink serves Flower {OLDEST} to {NEWEST}, not {version}: install a supported release."
                );
                Err(Refusal::new(Kind::Precondition, text))
            }
            _ => Ok(()),
        }
    }
}

fn announced(headers: &HeaderMap) -> Option<&str> {
    headers.get("flwr-package-version")?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(transport: Transport, version: Option<&str>) -> (Client, HeaderMap) {
        let mut headers = HeaderMap::new();
        if let Some(version) = version {
            headers.insert("flwr-package-version", version.parse().unwrap());
        }
        (Client::of(transport, &headers), headers)
    }

    #[test]
    fn a_peer_is_checked_by_its_release() {
        let cases = [
            (None, true, "grpc"),
            (Some("1.25.0"), true, "grpc 1.25.0"),
            (Some("1.42.0"), true, "grpc 1.42.0"),
            (Some("1.43.0.dev20261101"), true, "grpc 1.43.0.dev20261101"),
            (Some("1.24.9"), false, "grpc 1.24.9"),
            (Some("2.0.0"), false, "grpc 2.0.0"),
            (Some("unknown"), true, "grpc"),
        ];
        for (version, served, described) in cases {
            let (client, headers) = client(Transport::Grpc, version);
            assert_eq!(client.check().is_ok(), served, "{version:?}");
            assert_eq!(client.describe(&headers), described, "{version:?}");
        }
    }
}
