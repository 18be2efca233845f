//! Checks of flags that Flower's SuperLink has and this one does not serve.

use super::Checker;
use crate::settings::dashed;

/// Unsupported flags, with the reason and the advice.
const REFUSED: [(&[&str], &str, &str); 3] = [
    (
        &["executor", "executor-dir", "executor-config"],
        "executors are no longer supported by Flower",
        "leave it out; --isolation selects the program that starts apps",
    ),
    (
        &["simulation", "simulationio-api-address"],
        "this SuperLink serves real SuperNodes, not simulations",
        "leave it out, or simulate with Flower's own flower-superlink",
    ),
    (
        &["appio-ssl-certfile", "appio-ssl-keyfile", "appio-ssl-ca-certfile"],
        "the ServerAppIo API is served without TLS",
        "leave it out; SuperExecs of Flower 1.35 and later use the HTTP API, with the TLS of --ssl-certfile",
    ),
];

impl Checker<'_> {
    /// Refuses flags of Flower that are not supported.
    pub(super) fn refused_flags(&mut self) {
        if self.is_given("auth-list-public-keys") {
            let advice = "use --enable-supernode-auth, and register each node: flwr supernode register PUBLIC-KEY";
            self.refuse(&["auth-list-public-keys"], "a list of public keys is no longer supported by Flower", advice);
        }
        for (flags, why, advice) in REFUSED {
            let asked = self.asked(flags);
            if !asked.is_empty() {
                self.refuse(&asked, format!("{}: {why}", dashed(&asked)), advice);
            }
        }
    }

    /// Warns about flags of Flower that have no effect.
    pub(super) fn ignored_flags(&mut self) {
        match self.text("fleet-api-type") {
            None | Some("grpc-rere") => {}
            Some(other @ ("rest" | "grpc-adapter")) => {
                let what = format!("--fleet-api-type {other} is not served");
                let advice = "leave it out, and start SuperNodes without --rest and --grpc-adapter";
                self.refuse(&["fleet-api-type"], what, advice);
            }
            Some(other) => {
                let what = format!("--fleet-api-type cannot be {other:?}");
                self.refuse(&["fleet-api-type"], what, "leave it out, or use grpc-rere");
            }
        }
        match self.text("fleet-api-num-workers").map(str::parse::<i64>) {
            None | Some(Ok(1)) => {}
            Some(Ok(_)) => self.warn("--fleet-api-num-workers is ignored: all cores are used"),
            Some(Err(_)) => {
                let what = "--fleet-api-num-workers is not a number";
                self.refuse(&["fleet-api-num-workers"], what, "leave it out: all cores are used");
            }
        }
        if self.is_given("storage-dir") {
            self.warn("--storage-dir is ignored: apps are stored with the rest of the state (--state-dir)");
        }
        if self.is_given("flwr-dir") {
            self.warn("--flwr-dir is ignored");
        }
    }
}
