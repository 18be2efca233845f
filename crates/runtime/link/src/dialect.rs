//! Which Flower a peer speaks, found from the transport and from the version it announces.
//!
//! Versions do not matter by themselves, dialects do: the 18 minor versions served have few differences on each link, and
//! each difference has one place. `control` has those of the command line, `app` those of ServerApps; nodes have none
//! but the transport. A peer that announces nothing (1.25 to 1.29) is known by what it does.

pub mod app;
pub mod control;

use std::fmt;

use http::HeaderMap;
use trellis_core::refusal::{Kind, Refusal};
use trellis_flower::Release;
use trellis_front::Transport;

use crate::watch::metrics as label;

/// The versions that this SuperLink was tested with.
pub const OLDEST: Version = Version::of(Release::OLDEST);
pub const NEWEST: Version = Version::of(Release::NEWEST);

/// Longer version texts are cut.
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

/// What a peer says of itself with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    pub transport: Transport,
    pub version: Option<Version>,
}

impl Client {
    pub fn of(transport: Transport, headers: &HeaderMap) -> Client {
        Client { transport, version: announced(headers).and_then(Version::parse) }
    }

    /// As it is kept and shown: `http 1.42.0`, or `grpc` when no version was announced.
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

    /// Whether this peer can be served at all.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.version {
            Some(version) if version < OLDEST || version.major > NEWEST.major => {
                let text = format!(
                    "This SuperLink serves Flower {OLDEST} to {NEWEST}, and this is {version}: install a version in that range."
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
    fn a_peer_is_served_by_what_it_announces() {
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
