//! Decides where the SuperLink stores its state.

use crate::federation::Federation;
use crate::object::Object;
use crate::render::{Durability, state_is_given};

/// An existing SuperLink keeps its storage unless the resource changes, because moved state is lost.
/// `has_default_storage`: `None` if unknown.
pub fn durability(federation: &Federation, live: Option<&Object>, has_default_storage: Option<bool>) -> Durability {
    if state_is_given(federation) {
        return Durability::Given;
    }
    match (federation.spec.persistence.enabled, live) {
        (Some(true), _) => Durability::Claim,
        (Some(false), _) => Durability::Pod,
        (None, Some(live)) => {
            let claims = live.0["spec"]["volumeClaimTemplates"].as_array();
            if claims.is_some_and(|claims| !claims.is_empty()) { Durability::Claim } else { Durability::Pod }
        }
        (None, None) if has_default_storage == Some(true) => Durability::Claim,
        (None, None) => Durability::Pod,
    }
}
