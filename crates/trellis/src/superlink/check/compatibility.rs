//! Checks of flags that Flower's SuperLink has and this one does not serve.

use super::Checker;
use crate::settings::{dashed, given};

impl Checker<'_> {
    /// Flags that Flower knows and that cannot be served.
    pub(super) fn refused_flags(&mut self) {
        let args = &self.raw.args.compatibility;
        if args.auth_list_public_keys.is_some() {
            let advice = "use --enable-supernode-auth, and register each node: flwr supernode register PUBLIC-KEY";
            self.refuse(&["auth-list-public-keys"], "a list of public keys is no longer supported by Flower", advice);
        }
        let executor = [
            ("executor", args.executor.is_some()),
            ("executor-dir", args.executor_dir.is_some()),
            ("executor-config", args.executor_config.is_some()),
        ];
        let executor = given(executor);
        if !executor.is_empty() {
            let what = format!("{}: executors are no longer supported by Flower", dashed(&executor));
            self.refuse(&executor, what, "leave it out; --isolation says who starts the apps");
        }
        let simulation =
            [("simulation", args.simulation), ("simulationio-api-address", args.simulationio_api_address.is_some())];
        let simulation = given(simulation);
        if !simulation.is_empty() {
            let what = format!("{}: this SuperLink serves real SuperNodes, not simulations", dashed(&simulation));
            self.refuse(&simulation, what, "leave it out, or simulate with Flower's own flower-superlink");
        }
        let tls = [
            ("appio-ssl-certfile", args.appio_ssl_certfile.is_some()),
            ("appio-ssl-keyfile", args.appio_ssl_keyfile.is_some()),
            ("appio-ssl-ca-certfile", args.appio_ssl_ca_certfile.is_some()),
        ];
        let tls = given(tls);
        if !tls.is_empty() {
            let what = format!("{}: the ServerAppIo API is served without TLS", dashed(&tls));
            let advice =
                "leave it out; SuperExecs of Flower 1.35 and later use the HTTP API, with the TLS of --ssl-certfile";
            self.refuse(&tls, what, advice);
        }
    }

    /// Flags that Flower knows and that change nothing here.
    pub(super) fn ignored_flags(&mut self) {
        let args = &self.raw.args.compatibility;
        match args.fleet_api_type.as_deref() {
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
        match args.fleet_api_num_workers.as_deref().map(str::parse::<i64>) {
            None | Some(Ok(1)) => {}
            Some(Ok(_)) => self.warn("--fleet-api-num-workers is ignored: all cores are used"),
            Some(Err(_)) => {
                let what = "--fleet-api-num-workers is not a number";
                self.refuse(&["fleet-api-num-workers"], what, "leave it out: all cores are used");
            }
        }
        if args.storage_dir.is_some() {
            self.warn("--storage-dir is ignored: apps are kept with the rest of the state (--state-dir)");
        }
        if args.flwr_dir.is_some() {
            self.warn("--flwr-dir is ignored");
        }
    }
}
