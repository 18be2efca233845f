//! Addresses and trusted authorities of a federation's coordinator. The driver of its site reads them from the VM and writes
//! them to a file; the drivers of all sites read the file. Join tokens also come from the coordinator.

use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use trellis_client::{Security, SuperLink, Target, Timeouts, Trust};
use trellis_files::private;
use trellis_one::keys;
use trellis_plan::ResourceId;
use trellis_wire::call::CreateJoinToken;
use trellis_wire::token::Token;

use crate::home::Home;
use crate::view::VmView;

/// Validity of a join token. A VM may boot slowly before it joins.
const JOIN_SECONDS: f64 = 6.0 * 3600.0;
const CONNECT: std::time::Duration = std::time::Duration::from_secs(5);
const ANSWER: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinator {
    pub fleet: Option<String>,
    pub control: Option<String>,
    pub http: Option<String>,
    /// Base64 of the PEM of all trusted authorities.
    pub trust: Option<String>,
}

impl Coordinator {
    /// `None` if the coordinator has not published its addresses yet.
    pub fn of(vm: &VmView) -> Option<Coordinator> {
        let said = |name: &str| vm.attribute(name).map(str::to_owned);
        Some(Coordinator {
            fleet: Some(said(keys::FL_ENDPOINT)?),
            control: said(keys::TRELLIS_CONTROL),
            http: said(keys::TRELLIS_HTTP),
            trust: said(keys::FL_CA_CERT),
        })
    }

    pub fn read(home: &Home) -> io::Result<Option<Coordinator>> {
        private::read_json(&home.coordinator())
    }

    /// Writes the file for other drivers, and the authorities for users.
    pub fn write(&self, home: &Home) -> io::Result<()> {
        match self.trust.as_ref().and_then(|text| STANDARD.decode(text).ok()) {
            Some(pem) => private::replace(&home.trust(), &pem)?,
            None => private::remove(&home.trust())?,
        }
        private::replace_json(&home.coordinator(), self)
    }

    /// Removes the files of this coordinator.
    pub fn remove(home: &Home) -> io::Result<()> {
        private::remove(&home.coordinator())?;
        private::remove(&home.trust())?;
        private::remove(&home.admin_token())
    }

    /// Requests a join token from the SuperLink.
    pub async fn join_token(&self, home: &Home, id: &ResourceId) -> Result<String, String> {
        let http = self.http.as_deref().ok_or("the coordinator does not publish its HTTP API")?;
        let (host, port) = http.rsplit_once(':').ok_or_else(|| format!("{http} is not an address"))?;
        let port = port.parse().map_err(|_| format!("{http} is not an address"))?;
        let security = match self.trust {
            None => Security::Plaintext,
            Some(_) => Security::Tls(Trust::bundle(&home.trust()).map_err(|error| error.to_string())?),
        };
        let token = read_token(&home.admin_token())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let target = Target { host, port, security, token: Some(token) };
        let timeouts = Timeouts { connect: CONNECT, answer: ANSWER, retries: Vec::new() };
        let call = CreateJoinToken { ttl_s: JOIN_SECONDS, label: id.part.name() };
        let made = SuperLink::new(target).with_timeouts(timeouts).call(&call).await;
        made.map(|made| made.token).map_err(|error| format!("the SuperLink issues no join token: {error}"))
    }
}

fn read_token(path: &Path) -> Result<Token, String> {
    let text = private::read(path).map_err(|error| error.to_string())?.unwrap_or_default();
    Token::parse(&String::from_utf8_lossy(&text)).map_err(|error| format!("{}: {error}", path.display()))
}
