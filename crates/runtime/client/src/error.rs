//! Why a call has no good answer. Each kind asks something else of the caller; what to type is not known here.

use std::io;
use std::time::Duration;

use tokio_rustls::rustls::{self, CertificateError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the name {host} cannot be looked up")]
    Lookup { host: String, source: io::Error },

    #[error("no connection to {endpoint}")]
    Connect { endpoint: String, source: io::Error },

    /// It speaks TLS, and it is not the SuperLink that was meant.
    #[error("{endpoint} is not trusted: {why}")]
    Distrusted { endpoint: String, why: Distrust },

    /// TLS was spoken, and what came back was none.
    #[error("{endpoint} does not answer with TLS")]
    NotTls { endpoint: String },

    #[error("TLS with {endpoint} failed")]
    Tls { endpoint: String, source: io::Error },

    /// No TLS was spoken, and what came back was no HTTP. A server that expects TLS looks like this.
    #[error("{endpoint} does not answer with HTTP")]
    NotHttp { endpoint: String, source: hyper::Error },

    #[error("the connection to {endpoint} broke before there was an answer")]
    Broken { endpoint: String, source: hyper::Error },

    #[error("{endpoint} did not {step} within {} s", limit.as_secs_f64())]
    TooSlow { endpoint: String, step: &'static str, limit: Duration },

    /// The SuperLink understood and said no; `detail` is its text.
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

    /// Whatever answered does not know the call: it is no SuperLink of ours, or an older one.
    pub fn is_unknown_call(&self) -> bool {
        matches!(self, Error::Refused { status: 404, .. } | Error::Unexpected { status: 404, .. })
    }
}

impl Distrust {
    /// `name` is what the SuperLink was called by, `trusted` where the believed authorities come from.
    pub(crate) fn new(error: CertificateError, name: &str, trusted: &str) -> Distrust {
        use CertificateError as E;
        match error {
            // An authority that was made anew keeps its name: then the signature does not fit, and that is all to see.
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

/// `DnsName("link.example.org")` is how rustls tells a name; people read `link.example.org`.
fn plain(name: &str) -> String {
    let inside = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inside.trim_matches('"').to_owned()
}

/// What rustls found wrong, out of the error that its handshake ended with.
pub(crate) fn tls_cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
