//! Values that are collected at a scrape: the store's counts, the certificates in use.

use trellis_core::Seconds;
use trellis_core::census::Census;

/// The values of a scrape.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// `None`: the store cannot be read; its values are omitted.
    pub census: Option<Census>,
    /// The last commit succeeded.
    pub store_works: bool,
    /// Jobs that wait for a commit.
    pub store_queue_length: u64,
    pub certificates: Vec<Certificate>,
}

/// A certificate in use.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// Its role, such as `server` or `ca`.
    pub role: &'static str,
    pub expires_at: Seconds,
}
