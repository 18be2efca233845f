//! What a FAB says about itself, in the words of the link: a FAB that cannot be used is a refusal.

use std::collections::BTreeMap;

use bytes::Bytes;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::run::ServerApp;
use trellis_wire::fab::{self, BadFab, FabMetadata};

/// The largest FAB that is taken, as in Flower.
pub const MAX_FAB_BYTES: usize = 10 << 20;

fn refused(problem: BadFab) -> Refusal {
    Refusal::new(Kind::Precondition, problem.to_string())
}

/// Reads the app's `pyproject.toml`.
pub fn pyproject(content: &[u8]) -> Result<toml::Table, Refusal> {
    fab::pyproject(content).map_err(refused)
}

/// Reads publisher, name and version, and who trains.
pub fn metadata(content: &[u8]) -> Result<(FabMetadata, ServerApp), Refusal> {
    let project = pyproject(content)?;
    let server_app = if fab::trains_natively(&project) { ServerApp::Native } else { ServerApp::Flower };
    Ok((fab::metadata(&project).map_err(refused)?, server_app))
}

/// Reads the keys that a run may set, with the values that the app brings along.
pub fn config(content: &[u8]) -> Result<fab::Config, Refusal> {
    fab::config(&pyproject(content)?).map_err(refused)
}

/// Takes the signatures out of a FAB: the FAB that they cover, and its verifications.
pub fn without_signatures(content: Bytes) -> Result<(Bytes, BTreeMap<String, String>), Refusal> {
    match fab::detach(&content).map_err(refused)? {
        Some((bundle, signatures)) => Ok((bundle.fab.content, signatures.to_verifications())),
        None => Ok((content, BTreeMap::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_fab_is_a_refusal() {
        let refusal = metadata(b"garbage").unwrap_err();
        assert_eq!(refusal.kind, Kind::Precondition);
        assert!(refusal.text.starts_with("The FAB cannot be used: not a zip"), "{}", refusal.text);
    }
}
