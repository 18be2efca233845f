//! Registers the keys of nodes at the SuperLink before their pods start, for federations that admit known nodes only.

use std::path::Path;
use std::time::Duration;

use trellis_client::{NodeKey, Security, SuperLink, Target, Timeouts, Trust};
use trellis_plan::{NodeSpec, ResourceId};
use trellis_spec::{Runtime, Tls};
use trellis_wire::call::{CreateJoinToken, Join};
use trellis_wire::token::Token;

use crate::client_files::ClientFiles;
use crate::failure::{Failure, FailureKind};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The token is used at once.
const TOKEN_TTL_S: f64 = 300.0;

/// Registers the key of a node. Idempotent.
pub async fn enrol(files: &ClientFiles, id: &ResourceId, spec: &NodeSpec, key: &[u8]) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(FailureKind::Refused, format!("its key cannot be registered: {why}"));
    if spec.runtime != Runtime::Trellis {
        let advice = "remove security.nodeAuth, or use the runtime trellis";
        let why = format!("the driver cannot register keys at an official SuperLink in a cluster (to do: {advice})");
        return Err(Failure::new(FailureKind::Invalid, why));
    }
    let superlink = superlink(files, spec.tls != Tls::Off).map_err(failed)?;
    let key = NodeKey::from_bytes(Path::new("its Secret"), key).map_err(|error| failed(error.to_string()))?;
    let (name, location) = (id.part.name(), id.site.to_string());
    let refused = |error: trellis_client::Error| failed(error.to_string());
    let token = superlink.call(&CreateJoinToken { ttl_s: TOKEN_TTL_S, label: name.clone() }).await.map_err(refused)?;
    let join = Join { token: token.token, public_key: key.public_pem(), name, location };
    superlink.call_as_node(&join, &key).await.map(drop).map_err(refused)
}

/// A client of the SuperLink at its last known address.
pub fn superlink(files: &ClientFiles, tls: bool) -> Result<SuperLink, String> {
    let address = std::fs::read_to_string(files.coordinator());
    let address = address.map_err(|_| "the address of the coordinator is not known yet".to_owned())?;
    let invalid = || format!("{address} is not an address");
    let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
    let port = port.parse().map_err(|_| invalid())?;
    let security = match tls {
        false => Security::Plaintext,
        true => Security::Tls(Trust::bundle(&files.trust()).map_err(|error| error.to_string())?),
    };
    let token = std::fs::read_to_string(files.admin_token()).ok().and_then(|text| Token::parse(&text).ok());
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let timeouts = Timeouts { connect: CONNECT_TIMEOUT, answer: RESPONSE_TIMEOUT, retries: Vec::new() };
    Ok(SuperLink::new(Target { host, port, security, token }).with_timeouts(timeouts))
}
