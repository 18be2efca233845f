//! The certificates of a federation: a long-lived authority, short leaves for SuperLinks, a check of certificates that an
//! operator brings, and reloading them while they are in use.
//!
//! Two sides. [`authority`] keeps the keys of the authority in a directory and is used by `trellis pki`, [`keyring`] is the same
//! as data, for the operator on Kubernetes; [`check`] and [`reload`] read what a SuperLink serves with and never see a key of the
//! authority.
//!
//! Nothing here knows of tokio, sockets or clocks: the time is an argument. Files are touched in [`authority`],
//! `delivery`, `disk`, [`check::read`] and [`reload`] only; what they mean is decided elsewhere.

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
pub mod problem;
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
pub use problem::{Problem, Severity};
pub use reload::{Look, Reload};
pub use served::Served;

/// Seconds since the Unix epoch.
pub type UnixSeconds = i64;

/// Writes a file that everybody may read, whole or not at all.
pub fn write_public(path: &std::path::Path, bytes: &[u8]) -> Result<(), Error> {
    disk::Disk::default().replace_file(path, bytes, disk::PUBLIC_FILE)
}

/// A moment as people and programs read it, in UTC.
pub fn date(at: UnixSeconds) -> String {
    jiff::Timestamp::from_second(at).map_or_else(|_| format!("{at} s after 1970"), |moment| moment.to_string())
}
