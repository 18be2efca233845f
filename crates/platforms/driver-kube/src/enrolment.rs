//! Where only known nodes take part: the SuperLink is told of a node's key before its pod starts.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use trellis_client::{NodeKey, Patience, Security, SuperLink, Target, Trust};
use trellis_plan::{NodeSpec, ResourceId};
use trellis_spec::{Runtime, Tls};
use trellis_wire::call::{CreateJoinToken, Join};
use trellis_wire::token::Token;

use crate::home::Home;
use crate::trouble::{Kind, Trouble};

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);
const PRIVATE_FILE: u32 = 0o600;
/// It is used at once.
const TOKEN_SECONDS: f64 = 300.0;

/// Makes a node known. Repeated, it stays the same node.
pub async fn enrol(home: &Home, id: &ResourceId, spec: &NodeSpec, key: &[u8]) -> Result<(), Trouble> {
    let waits = |why: String| Trouble::new(Kind::Refused, format!("its key cannot be made known: {why}"));
    if spec.runtime != Runtime::Trellis {
        let to_do = "leave security.nodeAuth out, or use the runtime trellis";
        let why = format!("an official SuperLink in a cluster takes no keys from the driver (to do: {to_do})");
        return Err(Trouble::new(Kind::Wrong, why));
    }
    let superlink = superlink(home, spec.tls != Tls::Off).map_err(waits)?;
    let key = node_key(key).map_err(waits)?;
    let (name, location) = (id.part.name(), id.site.to_string());
    let refused = |error: trellis_client::Error| waits(error.to_string());
    let token =
        superlink.call(&CreateJoinToken { ttl_s: TOKEN_SECONDS, label: name.clone() }).await.map_err(refused)?;
    let join = Join { token: token.token, public_key: key.public_pem(), name, location };
    superlink.call_as_node(&join, &key).await.map(drop).map_err(refused)
}

/// The SuperLink of a federation, as it was seen last.
pub fn superlink(home: &Home, tls: bool) -> Result<SuperLink, String> {
    let address = std::fs::read_to_string(home.coordinator());
    let address = address.map_err(|_| "the coordinator has not said yet where it is".to_owned())?;
    let (host, port) = address.rsplit_once(':').ok_or_else(|| format!("{address} is no address"))?;
    let port = port.parse().map_err(|_| format!("{address} is no address"))?;
    let security = match tls {
        false => Security::Plaintext,
        true => Security::Tls(Trust::bundle(&home.trust()).map_err(|error| error.to_string())?),
    };
    let token = std::fs::read_to_string(home.admin_token()).ok().and_then(|text| Token::parse(&text).ok());
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let patience = Patience { connect: CONNECT, answer: ANSWER, retries: Vec::new() };
    Ok(SuperLink::new(Target { host, port, security, token }).with_patience(patience))
}

fn node_key(key: &[u8]) -> Result<NodeKey, String> {
    let told = |error: &dyn std::fmt::Display| format!("the key in its Secret cannot be read: {error}");
    let directory = tempfile::tempdir().map_err(|error| told(&error))?;
    let path = directory.path().join("node.key");
    let private = std::fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&path);
    private.and_then(|mut file| file.write_all(key)).map_err(|error| told(&error))?;
    let read = NodeKey::read(&path).map_err(|error| told(&error))?;
    read.ok_or_else(|| "there is no key in its Secret".to_owned())
}
