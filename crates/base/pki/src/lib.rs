//! The certificates of a federation: a long-lived authority, short-lived leaves for SuperLinks, a check of certificates from
//! other sources, and reloading certificates while they are in use.
//!
//! There are two sides. [`authority`] stores the keys of the authority in a directory for `trellis pki`, [`keyring`] as data for
//! the operator on Kubernetes; [`check`] and [`reload`] read the files of a SuperLink and never see a key of the authority.
//! Only `trellis pki` and the agents that issue read such a key. Certificate, key and trust bundle appear atomically.
//!
//! Knows no tokio, sockets or clocks: the time is an argument. Only [`authority`], `delivery`, `disk`, [`check::read`] and
//! [`reload`] touch files.

pub mod authority;
pub mod certificate;
pub mod check;
mod delivery;
mod disk;
pub mod endpoint;
mod error;
mod issuance;
pub mod keyring;
mod mint;
pub mod pem;
pub mod reload;
pub mod renewal;
pub mod rotation;
pub mod served;
pub mod span;
#[cfg(test)]
mod testing;

pub use authority::Authority;
pub use certificate::Certificate;
pub use check::{Checked, Files, check};
pub use delivery::Delivery;
pub use endpoint::Endpoint;
pub use error::Error;
pub use issuance::Wish;
pub use keyring::Keyring;
pub use reload::{Look, Reload};
pub use served::Served;

/// Seconds since the Unix epoch.
pub type UnixSeconds = i64;

/// Writes a world-readable file atomically.
pub fn write_public(path: &std::path::Path, bytes: &[u8]) -> Result<(), Error> {
    disk::Disk::default().replace_file(path, bytes, disk::PUBLIC_FILE)
}

/// A moment as people and programs read it, in UTC.
pub fn date(at: UnixSeconds) -> String {
    jiff::Timestamp::from_second(at).map_or_else(|_| format!("{at} s after 1970"), |moment| moment.to_string())
}
