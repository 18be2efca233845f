//! Checks of TLS and of authentication.

use trellis_link::config::TlsFiles;
use trellis_link::configured_token;

use super::Checker;
use crate::settings::dashed;

pub(super) const TLS_FILES: [&str; 3] = ["ssl-certfile", "ssl-keyfile", "ssl-ca-certfile"];

impl Checker<'_> {
    pub(super) fn tls(&mut self) {
        let insecure = self.is_on("insecure");
        let (given, missing): (Vec<&str>, Vec<&str>) = TLS_FILES.iter().partition(|name| self.is_given(name));
        if insecure && !given.is_empty() {
            let what = format!("--insecure contradicts {}", dashed(&given));
            let advice = "keep one of them; --insecure=false overrides the environment and the file";
            self.refuse(&[&["insecure"], given.as_slice()].concat(), what, advice);
        } else if !given.is_empty() && !missing.is_empty() {
            let what = format!("TLS needs three files; missing: {}", dashed(&missing));
            self.refuse(&given, what, format!("give {} too", dashed(&missing)));
        } else if given.is_empty() && !insecure && self.security_must_be_decided() {
            let what = "neither TLS files nor --insecure are given";
            let advice = "give --ssl-certfile, --ssl-keyfile and --ssl-ca-certfile (trellis pki creates them); to try it out \
                          on this machine, --insecure";
            self.refuse_unset("insecure", what, advice);
        }
        let files = TLS_FILES.map(|name| self.file(name, "give the path of a readable PEM file"));
        if let [Some(certificate), Some(key), Some(ca_certificate)] = files {
            self.checked.config.tls = Some(TlsFiles { certificate, key, ca_certificate });
        }
    }

    /// Not needed to inspect the state. If a configuration file could not be read, it may have the missing settings.
    pub(super) fn security_must_be_decided(&self) -> bool {
        !self.is_on("check-state") && !self.given.incomplete
    }

    pub(super) fn admin_token(&mut self) {
        let name = "admin-token-file";
        let Some((path, seen)) = self.content(name, "give the path of a file that holds a token") else { return };
        if let Err(why) = configured_token(&seen.text, seen.mode) {
            let what = format!("--{name}: {} cannot be used: {why}", path.display());
            let advice = "make one: (umask 077; head -c 32 /dev/urandom | base64 -w0 | tr '+/' '-_' > FILE)";
            self.refuse(&[name], what, advice);
        }
        if !self.checked.config.accounts {
            self.warn(format!("--{name} has no effect without accounts: turn them on with --account-auth on"));
        }
        self.checked.config.admin_token = Some(path);
    }

    pub(super) fn supernode_auth(&mut self) {
        if self.checked.config.supernode_auth && self.is_on("insecure") {
            let what = "--enable-supernode-auth needs TLS, and --insecure turns it off";
            let advice = "replace --insecure by --ssl-certfile, --ssl-keyfile and --ssl-ca-certfile";
            self.refuse(&["enable-supernode-auth", "insecure"], what, advice);
        }
        if !self.checked.config.supernode_auth {
            self.warn("any SuperNode may connect: --enable-supernode-auth is off");
        }
    }
}
