//! FABs for the handlers: an invalid FAB becomes a `Refusal`.

use std::collections::BTreeMap;

use bytes::Bytes;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::run::ServerApp;
use trellis_wire::fab::{self, BadFab, FabMetadata};

/// Maximum size of a FAB, as in Flower.
pub const MAX_FAB_BYTES: usize = 10 << 20;

fn refused(problem: BadFab) -> Refusal {
    Refusal::new(Kind::Precondition, problem.to_string())
}

/// Reads the app's `pyproject.toml`.
pub fn pyproject(content: &[u8]) -> Result<toml::Table, Refusal> {
    fab::pyproject(content).map_err(refused)
}

/// Reads publisher, name and version, and the kind of ServerApp.
pub fn metadata(content: &[u8]) -> Result<(FabMetadata, ServerApp), Refusal> {
    let project = pyproject(content)?;
    let server_app = if fab::trains_natively(&project) { ServerApp::Native } else { ServerApp::Flower };
    Ok((fab::metadata(&project).map_err(refused)?, server_app))
}

/// Reads the configuration keys of the app with their values.
pub fn config(content: &[u8]) -> Result<fab::Config, Refusal> {
    fab::config(&pyproject(content)?).map_err(refused)
}

/// Separates a FAB from its signatures. Returns the signed FAB and its verifications.
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
    fn an_invalid_fab_is_refused() {
        let refusal = metadata(b"garbage").unwrap_err();
        assert_eq!(refusal.kind, Kind::Precondition);
        assert!(refusal.text.starts_with("The FAB cannot be used: not a zip"), "{}", refusal.text);
    }
}
