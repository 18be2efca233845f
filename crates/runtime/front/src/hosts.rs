//! Checks of the Host and Origin headers of a request.
//!
//! A web page can make its own name resolve to an address that only its visitor can reach (DNS rebinding). Its requests
//! then have that name as Host. A page can also call the address directly; its requests then have a foreign Origin.
//! Both
//! are refused. IP addresses are accepted: a page has an IP address as its Host only if this port served the page.

use std::fmt;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Request, StatusCode, Uri, Version};
use trellis_pki::Endpoint;

use crate::grpc::is_grpc;
use crate::tls::TlsSettings;

/// Names with these suffixes cannot be registered publicly, so no foreign page has such a name. They belong to this
/// machine, a cluster or a private network.
const PRIVATE_SUFFIXES: [&str; 4] = [".localhost", ".internal", ".svc", ".cluster.local"];
/// Maximum length of a refused name in an error message.
const MAX_NAME_CHARS: usize = 100;

/// The accepted names of a port. IP addresses, names without a dot, and private names are always accepted.
#[derive(Clone, Default)]
pub struct Hosts {
    names: Vec<Endpoint>,
    /// Names of the certificate are accepted, too. The certificate may be replaced at run time.
    tls: Option<TlsSettings>,
}

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostError {
    NoHost,
    Host(String),
    Origin(String),
}

impl Hosts {
    pub fn new(names: Vec<Endpoint>, tls: Option<TlsSettings>) -> Hosts {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Hosts { names: names.into_iter().chain(Endpoint::parse(machine.trim())).collect(), tls }
    }

    pub fn uses_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Checks that a request addresses this port and does not come from a foreign web page.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), HostError> {
        self.check_head(request.version(), request.uri(), request.headers())
    }

    pub fn check_head(&self, version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), HostError> {
        // Browsers use HTTP/2 only over TLS, where the certificate proves the name, and cannot send gRPC over it.
        if version == Version::HTTP_2 && is_grpc(headers) {
            return Ok(());
        }
        // HTTP/2 carries the host in the URI of the request.
        let header = || headers.get(HOST).and_then(|value| value.to_str().ok());
        let host = uri.authority().map(|authority| authority.as_str()).or_else(header).ok_or(HostError::NoHost)?;
        if !self.has(host) {
            return Err(HostError::Host(truncated(host)));
        }
        match headers.get(ORIGIN) {
            Some(origin) if !origin.to_str().is_ok_and(|origin| is_of(origin, host)) => {
                Err(HostError::Origin(truncated(&String::from_utf8_lossy(origin.as_bytes()))))
            }
            _ => Ok(()),
        }
    }

    fn has(&self, host: &str) -> bool {
        match Endpoint::parse(host) {
            Ok(Endpoint::Ip(_)) => true,
            Ok(Endpoint::Name(name)) => {
                !name.contains('.')
                    || PRIVATE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
                    || self.names.contains(&Endpoint::Name(name.clone()))
                    || self.tls.as_ref().is_some_and(|tls| tls.covers(&name))
            }
            Err(_) => false,
        }
    }
}

/// Checks that the origin has the same host. The scheme may differ if a proxy terminates TLS.
fn is_of(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let plain = |authority: &str| authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase();
    plain(authority) == plain(host)
}

fn truncated(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).collect()
}

impl HostError {
    pub fn status(&self) -> StatusCode {
        match self {
            HostError::NoHost => StatusCode::BAD_REQUEST,
            HostError::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            HostError::Origin(_) => StatusCode::FORBIDDEN,
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::NoHost => f.write_str("The request names no host: send a Host header."),
            HostError::Host(host) => {
                write!(
                    f,
                    "This server has no host name {host:?}. Use its IP address, or add the name to its allowed hosts."
                )
            }
            HostError::Origin(origin) => write!(f, "Pages of {origin:?} may not call this server."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &Hosts, host: &str, origin: Option<&str>) -> Result<(), HostError> {
        let mut request = Request::post("/").header(HOST, host);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        hosts.check(&request.body(()).unwrap())
    }

    #[test]
    fn names_that_no_page_can_have_are_accepted_by_default() {
        let hosts = Hosts::new(vec![Endpoint::parse("trellis.example").unwrap()], None);
        for good in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:1",
            "10.0.0.1",
            "[::1]:8080",
            "superlink:8000",
            "fl-superlink.team.svc:8000",
            "fl-superlink-0.fl-superlink.team.svc.cluster.local",
            "trellis.example:9",
            "Trellis.Example.",
        ] {
            assert_eq!(check(&hosts, good, None), Ok(()), "{good}");
        }
        for bad in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "a b", "x.svc.evil.org"]
        {
            assert_eq!(check(&hosts, bad, None), Err(HostError::Host(bad.to_owned())), "{bad}");
        }
        let without = Request::get("/").body(()).unwrap();
        assert_eq!(hosts.check(&without), Err(HostError::NoHost));
    }

    #[test]
    fn a_page_may_call_only_the_host_that_served_it() {
        let hosts = Hosts::default();
        for (host, origin, good) in [
            ("localhost:8000", "http://localhost:8000", true),
            ("localhost:8000", "https://LOCALHOST:8000", true),
            ("10.0.0.1", "http://10.0.0.1:80", true),
            ("10.0.0.1:443", "https://10.0.0.1", true),
            ("localhost:8000", "http://localhost:8001", false),
            ("localhost:8000", "http://localhost", false),
            ("localhost:8000", "https://evil.example", false),
            ("localhost:8000", "null", false),
            ("localhost:8000", "file://localhost:8000", false),
        ] {
            assert_eq!(check(&hosts, host, Some(origin)).is_ok(), good, "{origin} to {host}");
        }
    }

    #[test]
    fn grpc_is_checked_if_a_browser_could_send_it() {
        let hosts = Hosts::default();
        for (version, judged) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
            let request = Request::post("http://evil.example/flwr.proto.Control/StartRun")
                .version(version)
                .header("content-type", "application/grpc");
            assert_eq!(hosts.check(&request.body(()).unwrap()).is_err(), judged, "{version:?}");
        }
    }
}
