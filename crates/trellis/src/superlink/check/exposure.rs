//! Checks of who can reach what. What is not encrypted, or asks nobody who they are, stays on this machine unless the user
//! says so twice.

use trellis_link::config::AppTrust;

use super::Checker;
use super::addresses::Addresses;
use super::security::TLS_FILES;
use crate::settings::Place;
use crate::settings::kind::Choice;

/// `None`: by who can reach the addresses. A refused word counts as `on`.
const ACCOUNT_AUTH: Choice<Option<bool>> = Choice(&[("on", Some(true)), ("off", Some(false)), ("auto", None)]);

const OPEN_HERE: &str = "every user and every program of this machine can submit runs, and so execute code as the user of this \
                         SuperLink and on every node: no account is asked for; --account-auth on asks who calls";

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
            let danger = "everybody on the way can read and change models and tokens, and pass for this SuperLink";
            self.warn(format!("serving without TLS on the network ({places}): {danger}"));
        } else if self.security_must_be_decided() {
            let what = format!(
                "--insecure with an address that other machines reach ({places}): without TLS everybody on the way can \
                 read and change models and results, and pass for this SuperLink"
            );
            let advice = "use TLS (trellis pki makes the files), or listen on 127.0.0.1; where every machine on the \
                          network is trusted, add --allow-insecure-network";
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

    fn open_to_all(&mut self, reachable: &[&Place]) {
        if reachable.is_empty() {
            return;
        }
        let places = labels(reachable);
        let danger = "who reaches it can submit runs, and so execute code here and on every node";
        if self.checked.insecure_network_allowed {
            self.warn(format!("no account is asked for (--account-auth off) on {places}: {danger}"));
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
                "{place} has no TLS, and asks nobody who they are before it gives a run away: let only trusted machines \
                 reach it, or give --superexec-auth-secret-file (Flower 1.30 and later, --isolation process)"
            ),
            _ => format!("{place} has no TLS: let only trusted machines reach it"),
        });
    }
}

fn on_network<const N: usize>(places: [&Place; N]) -> Vec<&Place> {
    places.into_iter().filter(|place| place.is_on_network()).collect()
}

fn labels(places: &[&Place]) -> String {
    places.iter().map(|place| place.label()).collect::<Vec<_>>().join(", ")
}

fn flags(places: &[&Place]) -> Vec<&'static str> {
    places.iter().flat_map(|place| place.flags).copied().collect()
}
