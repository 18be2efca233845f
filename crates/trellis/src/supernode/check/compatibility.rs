//! Checks of flags that Flower's SuperNode has and this one serves differently, or not.

use super::Checker;
use crate::settings::{dashed, given};

impl Checker<'_> {
    pub(super) fn compatibility(&mut self) {
        let args = &self.raw.args.compatibility;
        let transports = given([("grpc-adapter", args.grpc_adapter), ("rest", args.rest)]);
        if !transports.is_empty() {
            let what = format!("{}: no longer supported by Flower, and not by this SuperNode", dashed(&transports));
            self.refuse(&transports, what, "leave it out: the transport is found out (see --transport)");
        }
        if args.auth_supernode_public_key.is_some() {
            self.warn("--auth-supernode-public-key is ignored, as in Flower: the private key is enough");
        }
        self.app_tls();
    }

    /// The port of apps has no TLS. Those that the node starts are on its own machine, where nobody listens in; SuperExecs
    /// that were told to expect TLS would not connect.
    fn app_tls(&mut self) {
        let args = &self.raw.args.compatibility;
        let files = given([
            ("ssl-certfile", args.ssl_certfile.is_some()),
            ("ssl-keyfile", args.ssl_keyfile.is_some()),
            ("ssl-ca-certfile", args.ssl_ca_certfile.is_some()),
            ("appio-ssl-certfile", args.appio_ssl_certfile.is_some()),
            ("appio-ssl-keyfile", args.appio_ssl_keyfile.is_some()),
            ("appio-ssl-ca-certfile", args.appio_ssl_ca_certfile.is_some()),
        ]);
        if files.is_empty() {
            return;
        }
        let flags = dashed(&files);
        if self.raw.args.apps.isolation.as_deref() == Some("process") {
            let what = format!("{flags}: apps and SuperExecs are served without TLS");
            let advice = "leave it out, and start flower-superexec with --insecure on the same machine or a trusted network; \
                          --superexec-auth-secret-file keeps others out";
            self.refuse(&files, what, advice);
        } else {
            self.warn(format!("{flags}: not needed, since apps run on this machine and are served without TLS"));
        }
    }
}
