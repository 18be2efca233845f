//! Checks of flags that Flower's SuperNode has and this one serves differently, or not.

use trellis_flower::Isolation;

use super::Checker;
use crate::settings::dashed;

impl Checker<'_> {
    pub(super) fn compatibility(&mut self) {
        let transports = self.asked(&["grpc-adapter", "rest"]);
        if !transports.is_empty() {
            let what = format!("{}: no longer supported by Flower, nor by this SuperNode", dashed(&transports));
            self.refuse(&transports, what, "leave it out: the transport is detected (see --transport)");
        }
        if self.is_given("auth-supernode-public-key") {
            self.warn("--auth-supernode-public-key is ignored, as in Flower: the private key is enough");
        }
        self.app_tls();
    }

    /// The port of apps has no TLS: apps of the node run on its own machine. SuperExecs that require TLS could not connect.
    fn app_tls(&mut self) {
        let files = self.asked(&[
            "ssl-certfile",
            "ssl-keyfile",
            "ssl-ca-certfile",
            "appio-ssl-certfile",
            "appio-ssl-keyfile",
            "appio-ssl-ca-certfile",
        ]);
        if files.is_empty() {
            return;
        }
        let flags = dashed(&files);
        if self.checked.isolation == Isolation::Process {
            let what = format!("{flags}: apps and SuperExecs are served without TLS");
            let advice = "leave it out, and start flower-superexec with --insecure on the same machine or a trusted network; \
                          --superexec-auth-secret-file keeps others out";
            self.refuse(&files, what, advice);
        } else {
            self.warn(format!("{flags}: not needed, since apps run on this machine and are served without TLS"));
        }
    }
}
