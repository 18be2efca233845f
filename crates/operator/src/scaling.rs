//! How many nodes a pool should have, by what its SuperLink tells.

use std::collections::BTreeMap;

use trellis_kube::federation::Federation;

use crate::cache::Seen;
use crate::context::{Context, Findings};

/// Pools whose size is not (only) what the resource says.
#[derive(Debug, Clone, Default)]
pub struct Sizes {
    pub sizes: BTreeMap<String, i32>,
    pub findings: Findings,
}

pub async fn sizes(_context: &Context, federation: &Federation, _seen: &Seen) -> Sizes {
    let scaled = federation.spec.scaling.as_ref().and_then(|scaling| Some((scaling.pool.clone(), scaling.replicas?)));
    Sizes { sizes: scaled.into_iter().collect(), findings: Findings::default() }
}
