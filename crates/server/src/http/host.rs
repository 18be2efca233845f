//! Under which names the server is called. A page elsewhere can have its own name resolve to this machine (DNS rebinding);
//! its calls come with that name, and are refused.

use std::net::IpAddr;

use http::header::HOST;
use http::request::Parts;
use trellis_pki::Endpoint;

use super::fault::{Fault, Kind};

#[derive(Debug, Clone)]
pub struct Hosts {
    /// `None`: any. Who listens on a network without saying a name may be called by any.
    names: Option<Vec<Endpoint>>,
}

impl Hosts {
    pub fn new(listen: IpAddr, names: &[Endpoint]) -> Hosts {
        if !listen.is_loopback() && names.is_empty() {
            return Hosts { names: None };
        }
        let own = Endpoint::localhost().into_iter().chain((!listen.is_unspecified()).then_some(Endpoint::Ip(listen)));
        Hosts { names: Some(own.chain(names.iter().cloned()).collect()) }
    }

    pub fn check(&self, parts: &Parts) -> Result<(), Fault> {
        let Some(names) = &self.names else { return Ok(()) };
        // HTTP/2 has it in the address of the request.
        let authority = parts.uri.authority().map(|authority| authority.as_str());
        let header = || parts.headers.get(HOST).and_then(|value| value.to_str().ok());
        let Some(host) = authority.or_else(header) else {
            return Err(Fault::new(
                Kind::MALFORMED,
                "The request does not say which host it is for: send a Host header.",
            ));
        };
        match Endpoint::parse(host) {
            Ok(endpoint) if names.contains(&endpoint) => Ok(()),
            _ => {
                let told = format!(
                    "The server is not called {host:?}. Call it localhost, or start it with this name among its hosts."
                );
                Err(Fault::new(Kind::WRONG_HOST, told))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(hosts: &Hosts, host: &str) -> bool {
        let request = http::Request::get("/").header(HOST, host).body(()).unwrap();
        hosts.check(&request.into_parts().0).is_ok()
    }

    #[test]
    fn on_loopback_only_names_of_this_machine_are_good() {
        let hosts = Hosts::new("127.0.0.1".parse().unwrap(), &[Endpoint::parse("trellis.example").unwrap()]);
        for good in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "trellis.example:9", "LocalHost"] {
            assert!(allowed(&hosts, good), "{good}");
        }
        for bad in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example:80", ""] {
            assert!(!allowed(&hosts, bad), "{bad}");
        }
        let without = http::Request::get("/").body(()).unwrap();
        assert!(hosts.check(&without.into_parts().0).is_err());
    }

    #[test]
    fn on_a_network_names_matter_once_some_are_said() {
        let any = Hosts::new("0.0.0.0".parse().unwrap(), &[]);
        assert!(allowed(&any, "whatever.example"));
        let named = Hosts::new("0.0.0.0".parse().unwrap(), &[Endpoint::parse("lab.example").unwrap()]);
        assert!(allowed(&named, "lab.example") && allowed(&named, "localhost") && !allowed(&named, "other.example"));
    }
}
