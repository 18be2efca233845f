//! What is known beside the resource when objects are made, as far as it can be told from what exists.

use crate::federation::Federation;
use crate::object::Object;
use crate::render::Durability;

/// Arguments by which a user says where the SuperLink's state is.
const STATE_ARGUMENTS: [&str; 2] = ["--database", "--state-dir"];

/// Where the SuperLink's state is to be. What exists stays as it is unless the resource says otherwise: state that moved is lost.
/// `has_default_storage` is `None` where nobody may tell.
pub fn durability(federation: &Federation, live: Option<&Object>, has_default_storage: Option<bool>) -> Durability {
    let superlink = &federation.spec.superlink;
    let says = |argument: &String| STATE_ARGUMENTS.iter().any(|name| argument.split('=').next() == Some(name));
    if superlink.extra_args.iter().any(says) || !superlink.volume_claim_templates.is_empty() {
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
