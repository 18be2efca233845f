//! What is looked up when it is asked for, by those who know: the store's counts, the certificates in use.

use trellis_core::Seconds;
use trellis_core::census::Census;

/// How things stand at the moment of a scrape.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// `None`: the store cannot be read now. What it would say is then left out.
    pub census: Option<Census>,
    /// The last commit worked.
    pub store_works: bool,
    /// Changes that wait for a commit.
    pub store_queue_length: u64,
    pub certificates: Vec<Certificate>,
}

/// A certificate that is in use.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// What it is for, such as `server` or `ca`.
    pub role: &'static str,
    pub expires_at: Seconds,
}
