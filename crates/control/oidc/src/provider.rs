//! What a provider answers: its discovery document, tokens, and codes for devices.

use std::fmt::Write as _;

use http::Uri;
use serde::Deserialize;

/// What we ask for, of what the provider offers. `groups` is not standard, and providers refuse unknown scopes.
const SCOPES: [&str; 5] = ["openid", "email", "profile", "groups", "offline_access"];
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Where something is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub secure: bool,
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("it is not a URL with https and a host")]
    Malformed,
    #[error("without TLS a provider can be on this machine only")]
    Plaintext,
}

impl Endpoint {
    pub fn parse(url: &str) -> Result<Endpoint, UrlError> {
        let uri: Uri = url.parse().map_err(|_| UrlError::Malformed)?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlError::Malformed),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(UrlError::Malformed)?;
        let host = host.trim_matches(['[', ']']).to_owned();
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(UrlError::Malformed);
        }
        if !secure && !matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1") {
            return Err(UrlError::Plaintext);
        }
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Endpoint { secure, host, port, path })
    }

    /// The discovery document of an issuer.
    pub fn discovery(issuer: &str) -> Result<Endpoint, UrlError> {
        Endpoint::parse(&format!("{}{DISCOVERY}", issuer.trim_end_matches('/')))
    }
}

/// The discovery document.
#[derive(Debug, Clone, Deserialize)]
pub struct Metadata {
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub jwks_uri: String,
    pub device_authorization_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

impl Metadata {
    pub fn scope(&self) -> String {
        let offered = |scope: &str| scope == "openid" || self.scopes_supported.iter().any(|it| it == scope);
        SCOPES.into_iter().filter(|scope| offered(scope)).collect::<Vec<_>>().join(" ")
    }

    /// The secret of the client belongs into the form, and not into a header.
    pub fn takes_secret_in_form(&self) -> bool {
        self.token_endpoint_auth_methods_supported.iter().any(|method| method == "client_secret_post")
    }

    /// Where the user's browser goes.
    pub fn authorization_url(&self, parameters: &[(&str, &str)]) -> String {
        let mut url = self.authorization_endpoint.clone();
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let separator = if url.contains('?') { '&' } else { '?' };
        // Writing to a String cannot fail.
        let _ = write!(url, "{separator}{query}");
        url
    }
}

/// The answer to a code, a refresh token or a device that was approved.
#[derive(Clone, Deserialize)]
pub struct Tokens {
    pub id_token: Option<String>,
    pub refresh_token: Option<String>,
}

/// Why there are none (RFC 6749, 5.2; RFC 8628, 3.5).
#[derive(Debug, Clone, Deserialize)]
pub struct TokenError {
    pub error: String,
    #[serde(default)]
    pub error_description: String,
}

/// How a user approves a device (RFC 8628, 3.2).
#[derive(Clone, Deserialize)]
pub struct DeviceCode {
    pub device_code: String,
    pub user_code: String,
    pub verification_uri: String,
    pub verification_uri_complete: Option<String>,
    pub expires_in: u64,
    pub interval: Option<u64>,
}
