//! Errors as Flower's numbers, and as reasons for metrics. `trellis_front::refusal` has their codes in the transports.

use trellis_core::refusal::{Kind, Refusal};

use super::admission::BUSY;
use super::rpc::Api;
use crate::link::STOPPING;
use crate::watch::metrics::Reason;

/// Returns Flower's error number for the body of an HTTP response.
pub fn flower_code(api: Api, rpc: &str, kind: Kind) -> u16 {
    match (api, rpc, kind) {
        (_, _, Kind::Transient) => 1005,
        (Api::Control, _, Kind::Unauthenticated) => 36,
        (_, _, Kind::Unauthenticated) => 1008,
        (Api::Fleet, "SendNodeHeartbeat" | "ActivateNode", Kind::Invalid) => 2003,
        (_, _, Kind::Invalid | Kind::TooLarge) => 1003,
        (Api::Control, "StartRun", Kind::Precondition) => 15,
        (Api::Control, "StopRun" | "StreamLogs" | "ListRuns" | "PullArtifacts", Kind::NotFound) => 16,
        (Api::Control, "StopRun", Kind::Precondition) => 18,
        (Api::Control, "PullArtifacts", _) => 20,
        (Api::Control, "RegisterNode", Kind::Precondition) => 23,
        (Api::Control, "UnregisterNode", Kind::NotFound) => 24,
        (Api::Control, "ShowFederation", Kind::Precondition) => 26,
        (Api::Control, "GetAuthTokens" | "GetLoginDetails" | "RefreshAuthTokens", Kind::Unimplemented) => 19,
        (Api::Control, _, Kind::Unimplemented) => 1,
        (Api::Control, _, Kind::Denied) => 9,
        (Api::Control, ..) => 10,
        (Api::Fleet, "RegisterNode", _) => 2001,
        (Api::Fleet, "ActivateNode", _) => 2004,
        (Api::Fleet, "DeactivateNode", _) => 2005,
        (Api::Fleet, "UnregisterNode", _) => 2006,
        (Api::Fleet, "GetRun", _) => 2008,
        (Api::Fleet, "GetFab", _) => 2009,
        (Api::Fleet, ..) => 2007,
        (Api::App, "PullTaskInput", _) => 3002,
        (Api::App, "PushObject" | "PullObject", Kind::Precondition) => 3004,
        (Api::App, ..) => 3005,
        (Api::Trellis, ..) => 0,
    }
}

/// Returns why a call was refused, for metrics.
pub fn reason(refusal: &Refusal) -> Reason {
    match refusal.kind {
        Kind::Transient if refusal.text == BUSY => Reason::Overloaded,
        Kind::Transient if refusal.text == STOPPING => Reason::Stopping,
        Kind::Transient => Reason::StoreFailed,
        Kind::RunOver => Reason::RunOver,
        Kind::Denied => Reason::Denied,
        Kind::Unauthenticated => Reason::Unauthenticated,
        Kind::Invalid => Reason::Invalid,
        Kind::Precondition => Reason::Precondition,
        Kind::NotFound => Reason::NotFound,
        Kind::Unimplemented => Reason::Unimplemented,
        Kind::TooLarge => Reason::TooLarge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_flowers_calls_has_a_number_of_its_api() {
        for kind in Kind::ALL {
            for (api, own) in [(Api::Control, 1..=45), (Api::Fleet, 2001..=2009), (Api::App, 3001..=3016)] {
                for rpc in super::super::rpc::ALL.iter().filter(|rpc| rpc.api == api) {
                    let code = flower_code(api, rpc.name, kind);
                    assert!(
                        own.contains(&code) || (1001..=1010).contains(&code),
                        "{api:?} {} {kind:?} {code}",
                        rpc.name
                    );
                }
            }
        }
    }
}
