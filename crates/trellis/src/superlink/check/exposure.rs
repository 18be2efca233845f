//! Checks of exposure: APIs without encryption or authentication listen on this machine only, unless the user confirms them
//! with a second flag.

use trellis_link::config::AppTrust;

use super::Checker;
use super::addresses::Addresses;
use super::security::TLS_FILES;
use crate::settings::ListenAddress;
use crate::settings::kind::Choice;

/// `None`: depends on the addresses. A refused value counts as `on`.
const ACCOUNT_AUTH: Choice<Option<bool>> = Choice(&[("on", Some(true)), ("off", Some(false)), ("auto", None)]);

const OPEN_HERE: &str = "every user and every program of this machine can submit runs, and so execute code as the user of this \
                         SuperLink and on every node: accounts are off; --account-auth on turns them on";

impl Checker<'_> {
    /// Plaintext must not leave this machine unnoticed.
    pub(super) fn plaintext(&mut self, addresses: &Addresses) {
        if !self.is_on("insecure") || !self.asked(&TLS_FILES).is_empty() {
            return;
        }
        let reachable = on_network([&addresses.http, &addresses.control, &addresses.fleet]);
        if reachable.is_empty() {
            self.warn("serving without TLS (--insecure): for this machine only");
            return;
        }
        let places = labels(&reachable);
        if self.checked.insecure_network_allowed {
            let danger =
                "all machines on the path can read and change models and tokens, and impersonate this SuperLink";
            self.warn(format!("serving without TLS on the network ({places}): {danger}"));
        } else if self.security_must_be_decided() {
            let what = format!(
                "--insecure with an address that other machines reach ({places}): without TLS all machines on the path can \
                 read and change models and results, and impersonate this SuperLink"
            );
            let advice = "use TLS (trellis pki creates the files), or listen on 127.0.0.1; if all machines on the \
                          network are trusted, add --allow-insecure-network";
            self.refuse(&[&["insecure"], flags(&reachable).as_slice()].concat(), what, advice);
        }
    }

    /// Whether Control calls need the token of an account.
    pub(super) fn accounts(&mut self, addresses: &Addresses) {
        let reachable = on_network([&addresses.http, &addresses.control]);
        let given = self.is_given("account-auth");
        let wanted = self.read("account-auth", &ACCOUNT_AUTH).flatten().filter(|_| given);
        self.checked.config.accounts = wanted.unwrap_or(!reachable.is_empty());
        if !self.checked.config.accounts && reachable.is_empty() {
            self.warn(OPEN_HERE);
        }
        if wanted == Some(false) {
            self.open_to_all(&reachable);
        }
    }

    fn open_to_all(&mut self, reachable: &[&ListenAddress]) {
        if reachable.is_empty() {
            return;
        }
        let places = labels(reachable);
        let danger = "every client can submit runs, and so execute code here and on every node";
        if self.checked.insecure_network_allowed {
            self.warn(format!("accounts are off (--account-auth off) on {places}: {danger}"));
        } else if self.security_must_be_decided() {
            let what = format!("--account-auth off with an address that other machines reach ({places}): {danger}");
            let advice = "leave it out, or listen on 127.0.0.1; where every machine on the network is trusted, add \
                          --allow-insecure-network";
            self.refuse(&[&["account-auth"], flags(reachable).as_slice()].concat(), what, advice);
        }
    }

    /// The app port is never encrypted, and `app_trust` decides which callers without a secret are trusted.
    pub(super) fn app_port(&mut self, addresses: &Addresses) {
        if !addresses.serverappio.is_on_network() {
            return;
        }
        let place = addresses.serverappio.label();
        self.warn(match self.checked.config.app_trust {
            AppTrust::Network if self.checked.config.superexec_secret.is_none() => format!(
                "{place} has no TLS, and does not authenticate clients before they get a run: let only trusted machines \
                 reach it, or give --superexec-auth-secret-file (Flower 1.30 and later, --isolation process)"
            ),
            _ => format!("{place} has no TLS: let only trusted machines reach it"),
        });
    }
}

fn on_network<const N: usize>(places: [&ListenAddress; N]) -> Vec<&ListenAddress> {
    places.into_iter().filter(|place| place.is_on_network()).collect()
}

fn labels(places: &[&ListenAddress]) -> String {
    places.iter().map(|place| place.label()).collect::<Vec<_>>().join(", ")
}

fn flags(places: &[&ListenAddress]) -> Vec<&'static str> {
    places.iter().flat_map(|place| place.flags).copied().collect()
}
