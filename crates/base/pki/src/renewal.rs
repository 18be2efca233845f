//! Decides whether a leaf must be renewed. Pure.

use std::collections::BTreeSet;

use crate::UnixSeconds;
use crate::certificate::Certificate;
use crate::endpoint::Endpoint;

/// A leaf is renewed when less than this fraction of its life is left: two renewals may fail before it ends.
const PARTS: i64 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The caller forces it.
    Asked,
    /// There is no leaf.
    First,
    Damaged(String),
    /// Less than a third of its life is left, or none.
    Old,
    /// It is not valid yet: the clock was set back.
    NotYetValid,
    Endpoints,
    /// Another authority signs now.
    Authority,
}

impl Reason {
    /// For people, after "because".
    pub fn words(&self) -> String {
        match self {
            Reason::Asked => "it was requested".to_owned(),
            Reason::First => "there was none".to_owned(),
            Reason::Damaged(why) => format!("the present one is damaged: {why}"),
            Reason::Old => "less than a third of its lifetime was left".to_owned(),
            Reason::NotYetValid => "the present one is not valid yet".to_owned(),
            Reason::Endpoints => "the endpoints changed".to_owned(),
            Reason::Authority => "another CA signs now".to_owned(),
        }
    }
}

/// Why `leaf` must be replaced, if so.
pub fn due(leaf: &Certificate, endpoints: &[Endpoint], signing: &Certificate, now: UnixSeconds) -> Option<Reason> {
    let wanted: BTreeSet<String> = endpoints.iter().map(Endpoint::to_string).collect();
    let present: BTreeSet<String> = leaf.names.iter().cloned().collect();
    if leaf.issuer != signing.subject {
        Some(Reason::Authority)
    } else if wanted != present {
        Some(Reason::Endpoints)
    } else if is_old(leaf, now) {
        Some(Reason::Old)
    } else if now < leaf.not_before {
        Some(Reason::NotYetValid)
    } else {
        None
    }
}

pub fn is_old(leaf: &Certificate, now: UnixSeconds) -> bool {
    leaf.left_s(now) < leaf.lifetime_s() / PARTS
}
