//! Connects to the SuperLink of a federation: by the name of its Service, with the authority and the administrator
//! token of the federation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use trellis_client::fleet::Transport;
use trellis_client::{Security, SuperLink, Target, Timeouts, Trust};
use trellis_flower::Program;
use trellis_flower::changes::CONTROL_BY_HTTP;
use trellis_flower::launch::gives;
use trellis_kube::federation::{Federation, TlsMode};
use trellis_kube::flower::Programs;
use trellis_kube::render::endpoints;
use trellis_kube::trust::{admin_name, bundle_name, mode};
use trellis_wire::token::Token;

/// The SuperLink is in the same cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
const AUTHORITY: &str = "ca.crt";
const TOKEN: &str = "token";

/// Addresses of SuperLinks for an operator outside of their cluster: `name.namespace.svc:port` to another address.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    given: BTreeMap<String, String>,
    /// Lines of two addresses each. Read at every call, because the addresses may change.
    file: Option<PathBuf>,
}

/// A SuperLink with a client.
#[derive(Debug, Clone)]
pub struct Reached {
    pub superlink: SuperLink,
    /// A SuperLink of Trellis, which reports more than an official one.
    pub is_trellis: bool,
}

/// Why a SuperLink cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    #[error("{0}")]
    Cluster(#[from] kube::Error),
    #[error("its Secret {name} {what}")]
    Secret { name: String, what: String },
    #[error(
        "its certificates are set by arguments, so the operator does not know its authorities: use spec.security.tls"
    )]
    OwnCertificates,
    #[error("{0} is not an address")]
    Address(String),
}

impl Reach {
    pub fn at(given: BTreeMap<String, String>) -> Reach {
        Reach { given, file: None }
    }

    pub fn by_file(file: PathBuf) -> Reach {
        Reach { given: BTreeMap::new(), file: Some(file) }
    }

    /// The address to call instead of one in the cluster.
    fn resolve(&self, address: &str) -> String {
        let lines = self.file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let by_file = lines.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(address)).then(|| words.next().map(str::to_owned)).flatten()
        });
        by_file.or_else(|| self.given.get(address).cloned()).unwrap_or_else(|| address.to_owned())
    }

    /// Connects to the SuperLink of a federation. Secrets are read at each call, because certificates and tokens
    /// change.
    pub async fn superlink(&self, client: &Client, federation: &Federation) -> Result<Reached, Unreachable> {
        let program = Programs::of(federation).superlink;
        let (address, transport) = control(federation, program);
        let called = self.resolve(&address);
        let (host, port) = split(&called).ok_or(Unreachable::Address(called.clone()))?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &federation.namespace);
        let security = match served_by(federation)? {
            None => Security::Plaintext,
            Some(name) => Security::Tls(trust(&secrets, &name).await?),
        };
        let token = match program.is_trellis() {
            true => token(&secrets, &admin_name(federation)).await?,
            false => None,
        };
        let timeouts = Timeouts { connect: CONNECT_TIMEOUT, answer: RESPONSE_TIMEOUT, ..Timeouts::default() };
        let superlink = SuperLink::new(Target { host, port, security, token }).with_timeouts(timeouts).over(transport);
        Ok(Reached { superlink, is_trellis: program.is_trellis() })
    }
}

/// Address and transport of the Control API.
fn control(federation: &Federation, program: Program) -> (String, Transport) {
    let endpoints = endpoints(federation);
    match program {
        Program::Trellis => (endpoints.http.unwrap_or(endpoints.control), Transport::Http),
        program if program.since(CONTROL_BY_HTTP) => (endpoints.control, Transport::Http),
        _ => (endpoints.control, Transport::Grpc),
    }
}

/// The Secret with the authorities; `None`: no TLS.
fn served_by(federation: &Federation) -> Result<Option<String>, Unreachable> {
    let spec = &federation.spec;
    match mode(federation) {
        TlsMode::Off if spec.security.tls.mode.is_none() && gives(&spec.superlink.extra_args, "--ssl-certfile") => {
            Err(Unreachable::OwnCertificates)
        }
        TlsMode::Off => Ok(None),
        TlsMode::Auto | TlsMode::CertManager | TlsMode::Secret => Ok(Some(bundle_name(federation))),
    }
}

async fn trust(secrets: &Api<Secret>, name: &str) -> Result<Trust, Unreachable> {
    let wrong = |what: &str| Unreachable::Secret { name: name.to_owned(), what: what.to_owned() };
    let secret = secrets.get_opt(name).await?.ok_or_else(|| wrong("does not exist yet"))?;
    let text = secret.data.and_then(|mut data| data.remove(AUTHORITY)).ok_or_else(|| wrong("has no ca.crt"))?;
    Trust::pem(&format!("Secret {name}"), &text.0).map_err(|error| wrong(&format!("cannot be used: {error}")))
}

/// A SuperLink without accounts has no such Secret.
async fn token(secrets: &Api<Secret>, name: &str) -> Result<Option<Token>, Unreachable> {
    let wrong = |what: String| Unreachable::Secret { name: name.to_owned(), what };
    let Some(secret) = secrets.get_opt(name).await? else { return Ok(None) };
    let token = secret.data.and_then(|mut data| data.remove(TOKEN)).ok_or_else(|| wrong("has no token".to_owned()))?;
    let token = Token::parse(&String::from_utf8_lossy(&token.0));
    token.map(Some).map_err(|error| wrong(format!("has no usable token: {error}")))
}

/// Host, without brackets, and port.
fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn federation(image: &str, more: serde_json::Value) -> Federation {
        let mut spec = json!({
            "mode": "StatefulSet", "isolationMode": "subprocess",
            "superlink": {"image": image, "service": {"ports": {"extra": 7000, "http": 7001}}},
            "supernodes": {"image": image, "pools": [{"name": "a", "replicas": 1, "images": {}}]},
        });
        spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let resource = json!({"metadata": {"name": "demo", "namespace": "ns", "uid": "u"}, "spec": spec});
        Federation::read(&resource).expect("it can be read")
    }

    #[test]
    fn the_control_api_is_called_where_the_release_has_it() {
        for (image, address, transport) in [
            ("example.org/trellis-superlink:1", "demo-superlink.ns.svc:7001", Transport::Http),
            ("flwr/superlink:1.25.0", "demo-superlink.ns.svc:7000", Transport::Grpc),
            ("flwr/superlink:1.36.0", "demo-superlink.ns.svc:7000", Transport::Grpc),
            ("flwr/superlink:1.37.0", "demo-superlink.ns.svc:7000", Transport::Http),
            ("flwr/superlink:1.42.0", "demo-superlink.ns.svc:7000", Transport::Http),
        ] {
            let federation = federation(image, json!({}));
            let found = control(&federation, Programs::of(&federation).superlink);
            assert_eq!(found, (address.to_owned(), transport), "{image}");
        }
    }

    #[test]
    fn tls_is_trusted_by_the_secret_that_the_federation_is_served_with() {
        let served = |more| served_by(&federation("flwr/superlink:1.42.0", more)).ok();
        assert_eq!(served(json!({})), Some(None));
        assert_eq!(served(json!({"insecure": false})), Some(Some("demo-trust".to_owned())));
        let given = json!({"security": {"tls": {"mode": "secret", "secretName": "mine"}}});
        assert_eq!(served(given), Some(Some("demo-trust".to_owned())));
        assert_eq!(served(json!({"insecure": false, "security": {"tls": {"mode": "off"}}})), Some(None));
    }

    #[test]
    fn an_operator_elsewhere_is_told_where_superlinks_are() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "demo-superlink.ns.svc:9093 127.0.0.1:4711\nother:1 x:2\n").expect("written");
        let reach = Reach::by_file(file.path().to_owned());
        assert_eq!(reach.resolve("demo-superlink.ns.svc:9093"), "127.0.0.1:4711");
        assert_eq!(reach.resolve("demo-superlink.ns.svc:8000"), "demo-superlink.ns.svc:8000");
        assert_eq!(split("[::1]:80"), Some(("::1".to_owned(), 80)));
    }
}
