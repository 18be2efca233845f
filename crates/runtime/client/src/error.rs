//! Errors of a call, by what the caller can do about them. Knows no flags.

use std::io;
use std::time::Duration;

use tokio_rustls::rustls::{self, CertificateError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the name {host} cannot be resolved")]
    Lookup { host: String, source: io::Error },

    #[error("no connection to {endpoint}")]
    Connect { endpoint: String, source: io::Error },

    /// It uses TLS, but is not the expected SuperLink.
    #[error("{endpoint} is not trusted: {why}")]
    Distrusted { endpoint: String, why: Distrust },

    /// The answer to a TLS handshake was not TLS.
    #[error("{endpoint} does not answer with TLS")]
    NotTls { endpoint: String },

    #[error("TLS with {endpoint} failed")]
    Tls { endpoint: String, source: io::Error },

    /// The answer without TLS was not HTTP, as from a server that expects TLS.
    #[error("{endpoint} does not answer with HTTP")]
    NotHttp { endpoint: String, source: hyper::Error },

    #[error("the connection to {endpoint} broke before there was an answer")]
    Broken { endpoint: String, source: hyper::Error },

    #[error("{endpoint} did not {step} within {} s", limit.as_secs_f64())]
    TooSlow { endpoint: String, step: &'static str, limit: Duration },

    /// The SuperLink refused the call; `detail` is its text.
    #[error("{endpoint} refused {call}: {detail}")]
    Refused { endpoint: String, call: &'static str, status: u16, detail: String },

    /// Something answered, but not as a SuperLink does.
    #[error("{endpoint} answered {call} in an unknown way (status {status}): {what}")]
    Unexpected { endpoint: String, call: &'static str, status: u16, what: String },
}

/// Why a certificate is not believed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Distrust {
    #[error("no authority of {trusted} has signed its certificate")]
    UnknownAuthority { trusted: String },
    #[error("its certificate is not for {name}, but for {}", list(covers))]
    OtherName { name: String, covers: Vec<String> },
    #[error("its certificate has expired")]
    Expired,
    #[error("its certificate is not valid yet")]
    NotYetValid,
    #[error("{0}")]
    Other(CertificateError),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") }
}

impl Error {
    /// Whether the same call may succeed later, without anything being changed by its caller.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Connect { .. } | Error::Broken { .. } | Error::TooSlow { .. } => true,
            Error::Refused { status, .. } => *status == 503,
            _ => false,
        }
    }

    /// The endpoint does not have the call: it is not our SuperLink, or an older one.
    pub fn is_unknown_call(&self) -> bool {
        matches!(self, Error::Refused { status: 404, .. } | Error::Unexpected { status: 404, .. })
    }
}

impl Distrust {
    /// `name` is the name that was called, `trusted` the origin of the trusted authorities.
    pub(crate) fn new(error: CertificateError, name: &str, trusted: &str) -> Distrust {
        use CertificateError as E;
        match error {
            // A new authority with the same name: only the signature differs.
            E::UnknownIssuer | E::BadSignature => Distrust::UnknownAuthority { trusted: trusted.to_owned() },
            E::NotValidForNameContext { presented, .. } => {
                Distrust::OtherName { name: name.to_owned(), covers: presented.iter().map(|it| plain(it)).collect() }
            }
            E::NotValidForName => Distrust::OtherName { name: name.to_owned(), covers: Vec::new() },
            E::Expired | E::ExpiredContext { .. } => Distrust::Expired,
            E::NotValidYet | E::NotValidYetContext { .. } => Distrust::NotYetValid,
            other => Distrust::Other(other),
        }
    }
}

/// Extracts the name from the rustls notation `DnsName("link.example.org")`.
fn plain(name: &str) -> String {
    let inside = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inside.trim_matches('"').to_owned()
}

/// The error of rustls behind the error of a handshake.
pub(crate) fn tls_cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
