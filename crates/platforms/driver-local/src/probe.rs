//! Probes of parts: readiness and status. Every probe has a timeout, so that a part that hangs blocks no other.

mod flower;
mod supernode;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use trellis_client::{Error, Security, SuperLink, Target, Timeouts, Trust};
use trellis_plan::Millis;
use trellis_wire::call::WhoAmI;
use trellis_wire::token::Token;

pub use flower::superlink as flower_superlink;

use crate::recipe::Probe;

/// Parts are on this machine and answer within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Result of a probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    pub is_ready: bool,
    pub busy: Option<bool>,
    pub draining: bool,
    pub version: Option<String>,
    pub runs: Option<u32>,
    pub node_id: Option<String>,
    /// Since when it is ready or not, if it reports that.
    pub since_ms: Option<Millis>,
}

/// What a probe requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Readiness,
    /// Readiness and status.
    All,
}

impl Probe {
    pub async fn run(&self, depth: Depth) -> Report {
        match self {
            Probe::SuperLink { address, tls, trust, token } => {
                let trust = trust.as_deref();
                match superlink(*address, *tls, trust, token) {
                    Some(superlink) => probe_superlink(&superlink, depth).await,
                    None => Report::default(),
                }
            }
            Probe::SuperNode { socket } => supernode::probe(socket).await.unwrap_or_default(),
            Probe::FlowerSuperLink { address, transport, tls, trust, .. } => {
                match flower_superlink(*address, *transport, *tls, trust.as_deref()) {
                    Some(superlink) => flower::probe_superlink(&superlink).await,
                    None => Report::default(),
                }
            }
            Probe::FlowerSuperNode { note } => flower::probe_supernode(note).await,
        }
    }
}

/// `None` if the authorities cannot be read.
pub fn superlink(address: SocketAddr, tls: bool, trust: Option<&Path>, token: &Path) -> Option<SuperLink> {
    let security = match (tls, trust) {
        (false, _) => Security::Plaintext,
        (true, Some(bundle)) => Security::Tls(Trust::bundle(bundle).ok()?),
        (true, None) => Security::Tls(Trust::system().ok()?),
    };
    let token = std::fs::read_to_string(token).ok().and_then(|text| Token::parse(&text).ok());
    let target = Target { host: address.ip().to_string(), port: address.port(), security, token };
    let timeouts = Timeouts { connect: CONNECT_TIMEOUT, answer: RESPONSE_TIMEOUT, retries: Vec::new() };
    Some(SuperLink::new(target).with_timeouts(timeouts))
}

async fn probe_superlink(superlink: &SuperLink, depth: Depth) -> Report {
    let serves = match superlink.call(&WhoAmI {}).await {
        Ok(_) => true,
        // The SuperLink serves, even if it does not accept this token.
        Err(Error::Refused { status, .. }) => status != 503,
        Err(_) => false,
    };
    let mut report = Report { is_ready: serves, ..Report::default() };
    if serves && depth == Depth::All {
        let runs = superlink.list_runs(None).await.ok();
        let unfinished = runs.map(|runs| runs.iter().filter(|run| run.finished_at.is_empty()).count());
        report.runs = unfinished.and_then(|count| u32::try_from(count).ok());
        report.busy = report.runs.map(|runs| runs > 0);
    }
    report
}
