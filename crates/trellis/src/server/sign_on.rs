//! Checks the settings of single sign-on.

use std::time::Duration;

use trellis_api::Role;
use trellis_oidc::{Endpoint, Rules};
use trellis_pki::endpoint;
use trellis_server::SignOnSettings;
use trellis_wire::token::Token;

use super::check::Checker;
use crate::settings::kind::Time;

const SESSION: Duration = Duration::from_secs(12 * 3600);
const CONFIRM: Duration = Duration::from_secs(15 * 60);
const MAX_SESSION: Duration = Duration::from_secs(30 * 86_400);
const MAX_CONFIRM: Duration = Duration::from_secs(86_400);
/// Settings that mean something with an issuer only.
const OF_ISSUER: [&str; 9] = [
    "oidc-client-id",
    "oidc-client-secret-file",
    "oidc-role",
    "oidc-groups-claim",
    "oidc-name-claim",
    "oidc-label",
    "oidc-trust",
    "oidc-session",
    "oidc-confirm",
];

impl Checker<'_> {
    pub(super) fn sign_on(&mut self) {
        let Some(issuer) = self.text("oidc-issuer") else {
            for name in self.asked(&OF_ISSUER) {
                let what = format!("--{name} does nothing without --oidc-issuer");
                self.refuse(&[name], what, "give the issuer of your identity provider, or remove it");
            }
            return;
        };
        let place = Endpoint::parse(issuer).map_err(|why| {
            let advice = "give the issuer as the provider states it, as in https://login.example.org/realms/research";
            self.refuse(&["oidc-issuer"], format!("--oidc-issuer cannot be {issuer:?}: {why}"), advice);
        });
        let roles = self.roles();
        let client_id = self.text("oidc-client-id");
        if client_id.is_none() {
            let what = "--oidc-issuer requires --oidc-client-id, too";
            self.refuse_unset("oidc-client-id", what, "register a client at the provider, and give its id");
        }
        let secret = self.client_secret();
        let trust = self.file("oidc-trust", "give the path of a readable PEM file");
        let session = self.read("oidc-session", &Time { max: MAX_SESSION }).unwrap_or(SESSION);
        let confirm = self.read("oidc-confirm", &Time { max: MAX_CONFIRM }).unwrap_or(CONFIRM);
        let (Ok(place), Some(client_id)) = (place, client_id) else { return };
        let text = |name: &str, default: &str| self.text(name).unwrap_or(default).to_owned();
        self.checked.sign_on = Some(SignOnSettings {
            name: text("oidc-label", &place.host),
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            client_secret: secret,
            trust,
            rules: Rules {
                name_claim: text("oidc-name-claim", "email"),
                groups_claim: text("oidc-groups-claim", "groups"),
                roles,
                domain: place.host,
            },
            session,
            confirm,
            url: None,
        });
    }

    /// Needs `sign_on` before it.
    pub(super) fn url(&mut self) {
        let Some(url) = self.text("url") else { return };
        let place = url.parse::<http::Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
        let is_origin = |uri: &http::Uri| uri.path() == "/" && uri.query().is_none();
        let host = place.filter(is_origin).and_then(|uri| endpoint::Endpoint::parse(uri.host()?).ok());
        let Some(host) = host else {
            let what = format!("--url cannot be {url:?}");
            return self.refuse(&["url"], what, "give scheme, host and port, as in https://trellis.example.org");
        };
        self.checked.hosts.push(host);
        if let Some(sign_on) = &mut self.checked.sign_on {
            sign_on.url = Some(url.trim_end_matches('/').to_owned());
        }
    }

    fn roles(&mut self) -> Vec<(String, Role)> {
        let mut roles = Vec::new();
        for given in self.given.list("oidc-role") {
            // Names of groups have characters of every kind.
            match given.rsplit_once('=').map(|(group, role)| (group, Role::from_name(role))) {
                Some((group, Some(role))) if !group.is_empty() => roles.push((group.to_owned(), role)),
                _ => {
                    let advice = "give a group of the provider and viewer, runner or admin, as in researchers=runner";
                    self.refuse(&["oidc-role"], format!("--oidc-role cannot be {given:?}"), advice);
                }
            }
        }
        if self.given.list("oidc-role").next().is_none() {
            let what = "--oidc-issuer requires --oidc-role, too: without a group nobody may sign in";
            self.refuse_unset("oidc-role", what, "map a group to a role, as in --oidc-role researchers=runner");
        }
        roles
    }

    fn client_secret(&mut self) -> Option<Token> {
        let (_, seen) = self.content("oidc-client-secret-file", "give the path of a readable file with the secret")?;
        Token::parse(&seen.text)
            .map_err(|why| {
                let what = format!("--oidc-client-secret-file: there is no secret in it: {why}");
                self.refuse(
                    &["oidc-client-secret-file"],
                    what,
                    "put the secret of the client into it, and nothing else",
                );
            })
            .ok()
    }
}
