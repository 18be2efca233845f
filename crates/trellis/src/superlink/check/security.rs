//! Checks of encryption and of who may connect.

use std::path::PathBuf;

use trellis_link::chosen_token;
use trellis_link::config::TlsFiles;

use super::Checker;
use crate::settings::{Problem, dashed};

impl Checker<'_> {
    pub(super) fn tls(&mut self) -> Option<TlsFiles> {
        let args = &self.raw.args.security;
        let files = [
            ("ssl-certfile", args.ssl_certfile.as_deref()),
            ("ssl-keyfile", args.ssl_keyfile.as_deref()),
            ("ssl-ca-certfile", args.ssl_ca_certfile.as_deref()),
        ];
        let given: Vec<&str> = files.iter().filter(|(_, path)| path.is_some()).map(|(name, _)| *name).collect();
        let missing: Vec<&str> = files.iter().filter(|(_, path)| path.is_none()).map(|(name, _)| *name).collect();

        if args.insecure && !given.is_empty() {
            let what = format!("--insecure contradicts {}", dashed(&given));
            let advice = "keep one of them; --insecure=false overrides the environment and the file";
            self.refuse(&[&["insecure"], given.as_slice()].concat(), what, advice);
        } else if !given.is_empty() && !missing.is_empty() {
            let what = format!("TLS needs three files; not given: {}", dashed(&missing));
            self.refuse(&given, what, format!("give {} too", dashed(&missing)));
        } else if given.is_empty() && !args.insecure && self.security_must_be_decided() {
            let what = "neither TLS files nor --insecure are given";
            let advice = "give --ssl-certfile, --ssl-keyfile and --ssl-ca-certfile (trellis pki makes them); to try it out \
                          on this machine, --insecure";
            self.problems.push(Problem::new(what, "not set anywhere", advice));
        }
        let [certificate, key, ca_certificate] =
            files.map(|(name, path)| self.file(name, path, "give the path of a readable PEM file"));
        Some(TlsFiles { certificate: certificate?, key: key?, ca_certificate: ca_certificate? })
    }

    /// Looking at the state needs no network, and in a file that cannot be read the answer may stand.
    pub(super) fn security_must_be_decided(&self) -> bool {
        !self.raw.args.inspection.check_state && !self.raw.incomplete
    }

    pub(super) fn admin_token(&mut self, accounts: bool) -> Option<PathBuf> {
        let name = "admin-token-file";
        let given = self.raw.args.security.admin_token_file.as_deref();
        let (path, seen) = self.content(name, given, "give the path of a file that holds a token")?;
        if let Err(why) = chosen_token(&seen.text, seen.mode) {
            let what = format!("--{name}: {} cannot be used: {why}", path.display());
            let advice = "make one: (umask 077; head -c 32 /dev/urandom | base64 -w0 | tr '+/' '-_' > FILE)";
            self.refuse(&[name], what, advice);
        }
        if !accounts {
            self.warn(format!("--{name} has no effect without accounts: --account-auth on asks for them"));
        }
        Some(path)
    }

    pub(super) fn supernode_auth(&mut self) -> bool {
        let args = &self.raw.args.security;
        if args.enable_supernode_auth && args.insecure {
            let what = "--enable-supernode-auth needs TLS, and --insecure turns it off";
            let advice = "replace --insecure by --ssl-certfile, --ssl-keyfile and --ssl-ca-certfile";
            self.refuse(&["enable-supernode-auth", "insecure"], what, advice);
        }
        if !args.enable_supernode_auth {
            self.warn("any SuperNode may connect: --enable-supernode-auth is off");
        }
        args.enable_supernode_auth
    }
}
