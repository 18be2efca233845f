//! Certificates and keys of federations, as Secrets.

use trellis_kube::federation::Federation;
use trellis_kube::render::Trust;

use crate::cache::Seen;
use crate::context::{Context, Findings};

/// What a pass needs to know before it makes objects.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    /// `None`: the federation is not served with certificates that the operator knows.
    pub trust: Option<Trust>,
    /// Objects can be made. Otherwise there are no certificates yet, and the findings say why.
    pub is_complete: bool,
    pub findings: Findings,
}

pub async fn prepare(_context: &Context, _federation: &Federation, _seen: &Seen) -> Prepared {
    Prepared { is_complete: true, ..Prepared::default() }
}
