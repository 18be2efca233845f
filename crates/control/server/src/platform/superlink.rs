//! The SuperLink of a federation: its address, its client, and the meaning of its errors.

use std::path::PathBuf;
use std::time::Duration;

use trellis_api::Connection;
use trellis_client::fleet::Transport;
use trellis_client::{Error, Security, SuperLink, Target, Timeouts, Trust};
use trellis_spec::{Runtime, Tls};
use trellis_wire::token::Token;

use super::Refusal;
use super::sites::Sites;
use super::view::View;

/// From this release on, Flower's own SuperLinks serve the Control API over HTTP; before, over gRPC.
const FIRST_HTTP_MINOR: u16 = 37;
/// Short, because a caller waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything that is needed to call a SuperLink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    address: String,
    /// One of ours, which has more calls than Flower's own.
    pub is_ours: bool,
    transport: Transport,
    plaintext: bool,
    /// `None`: the authorities of the system.
    trust: Option<PathBuf>,
    /// The file with the token of its first administrator, if it requires accounts.
    token: Option<PathBuf>,
}

impl Endpoint {
    /// `None`: it does not serve, or cannot be called from here.
    pub fn of(sites: &Sites, view: &View) -> Option<Endpoint> {
        view.coordinator().filter(|coordinator| coordinator.phase == "ready")?;
        let federation = view.federation.as_deref()?;
        let (address, transport) = address(view)?;
        Some(Endpoint {
            address,
            is_ours: federation.runtime == Runtime::Trellis,
            transport,
            plaintext: federation.security.tls == Tls::Off,
            trust: sites.trust_path(federation),
            token: sites.token_path(federation),
        })
    }

    pub fn superlink(&self) -> Result<SuperLink, Refusal> {
        let broken =
            |what: String| Refusal::Broken(format!("the SuperLink at {} cannot be called: {what}", self.address));
        let (host, port) = split(&self.address).ok_or_else(|| broken("it has no port".to_owned()))?;
        let security = match (&self.trust, self.plaintext) {
            (_, true) => Security::Plaintext,
            (Some(path), false) => Security::Tls(Trust::bundle(path).map_err(|error| broken(error.to_string()))?),
            (None, false) => Security::Tls(Trust::system().map_err(|error| broken(error.to_string()))?),
        };
        // A SuperLink without accounts writes no token.
        let token = self.token.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let token = token.and_then(|text| Token::parse(&text).ok());
        let timeouts = Timeouts { connect: CONNECT_TIMEOUT, answer: ANSWER_TIMEOUT, ..Timeouts::default() };
        Ok(SuperLink::new(Target { host, port, security, token }).with_timeouts(timeouts).over(self.transport))
    }
}

/// The last observed address for calls about runs, and its transport.
pub fn address(view: &View) -> Option<(String, Transport)> {
    let addresses = &view.coordinator()?.addresses;
    match view.federation.as_deref()?.runtime {
        Runtime::Flower(version) if version.minor < FIRST_HTTP_MINOR => {
            Some((addresses.control.clone()?, Transport::Grpc))
        }
        Runtime::Flower(_) | Runtime::Trellis => Some((addresses.http.clone()?, Transport::Http)),
    }
}

/// Host, without brackets, and port.
fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port.parse().ok()?))
}

/// The SuperLink of a federation, or why it cannot be called now.
pub fn superlink(sites: &Sites, view: &View) -> Result<SuperLink, Refusal> {
    match Endpoint::of(sites, view) {
        Some(endpoint) => endpoint.superlink(),
        None => Err(not_serving(view)),
    }
}

fn not_serving(view: &View) -> Refusal {
    let (name, message) = (&view.name, &view.summary.message);
    match view.coordinator() {
        Some(coordinator) if coordinator.phase == "ready" => Refusal::Refused(format!(
            "the SuperLink of {name} has no HTTP API, so that its runs cannot be listed or changed from here"
        )),
        Some(coordinator) if !coordinator.phase.is_empty() => {
            Refusal::NotNow(format!("the coordinator of {name} is {}: {message}", coordinator.phase))
        }
        _ => Refusal::NotNow(format!("the coordinator of {name} does not exist yet: {message}")),
    }
}

/// The meaning of a failed call for our caller.
pub fn refusal(error: &Error) -> Refusal {
    match error {
        Error::Refused { detail, status, .. } if *status != 503 => Refusal::Refused(detail.clone()),
        error if error.may_pass() => Refusal::NotNow(format!("the SuperLink does not answer: {error}")),
        error => Refusal::Broken(format!("the SuperLink cannot be called: {error}")),
    }
}

/// The same port under the name that the document advertises.
fn advertised_at(address: &str, host: &str) -> String {
    match split(address) {
        Some((_, port)) if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        Some((_, port)) => format!("{host}:{port}"),
        None => address.to_owned(),
    }
}

/// Connection of users to a federation.
pub async fn connection(sites: &Sites, view: &View) -> Result<Connection, Refusal> {
    let name = &view.name;
    let coordinator = view.coordinator().filter(|coordinator| coordinator.addresses != Default::default());
    let (Some(coordinator), Some(federation)) = (coordinator, &view.federation) else { return Err(not_serving(view)) };
    let insecure = federation.security.tls == Tls::Off;
    let path = sites.trust_path(federation).filter(|_| !insecure);
    let root_certificates = match &path {
        Some(path) => Some(tokio::fs::read_to_string(path).await.map_err(|error| {
            Refusal::Broken(format!("the authorities of {name} in {} cannot be read: {error}", path.display()))
        })?),
        None => None,
    };
    let addresses = &coordinator.addresses;
    let advertised = federation.coordinator.endpoints.advertise.first();
    let reached = |address: &Option<String>| match (address, advertised) {
        (Some(address), Some(host)) => Some(advertised_at(address, host)),
        (address, _) => address.clone(),
    };
    Ok(Connection {
        control: reached(&addresses.control),
        http: reached(&addresses.http),
        fleet: reached(&addresses.fleet),
        insecure,
        root_certificates,
        root_certificates_path: path.map(|path| path.display().to_string()),
        token_path: sites.token_path(federation).map(|path| path.display().to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_reach_the_advertised_name() {
        for (address, host, expected) in [
            ("127.0.0.1:9093", "link.example.org", "link.example.org:9093"),
            ("[::1]:80", "2001:db8::1", "[2001:db8::1]:80"),
            ("0.0.0.0:80", "[2001:db8::1]", "[2001:db8::1]:80"),
            ("without-a-port", "link.example.org", "without-a-port"),
        ] {
            assert_eq!(advertised_at(address, host), expected);
        }
    }

    #[test]
    fn addresses_are_host_and_port() {
        for (address, expected) in [
            ("127.0.0.1:9093", Some(("127.0.0.1", 9093))),
            ("[::1]:80", Some(("::1", 80))),
            ("link.example", None),
            ("link.example:https", None),
        ] {
            assert_eq!(split(address), expected.map(|(host, port)| (host.to_owned(), port)), "{address}");
        }
    }
}
