//! Probes a SuperLink: the Fleet API as a node, and the counts of runs and nodes as a user.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use trellis_client::fleet::{Fleet, FleetError, FleetOptions};
use trellis_client::{Error, NodeKey, Security, SuperLink, Target, Timeouts, handshake};
use trellis_core::id::NodeId;
use trellis_wire::call::{ListNodes, RunHistory, WhoAmI};
use trellis_wire::token::Token;

use super::Depth;
use crate::readiness::{Observed, Round};
use crate::recipe::{Calls, Probe};

/// The program is local, but may be slow while it trains.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);
/// Limit of all user calls together.
const CALLS_TIMEOUT: Duration = Duration::from_secs(2);
/// An unregistered node. A SuperLink that rejects it has understood the call.
const UNKNOWN_NODE: NodeId = NodeId(2);
/// Maximum number of pages of a run's history in one probe; the next probe reads on.
const MAX_PAGES: usize = 8;

pub struct Endpoints<'a> {
    pub fleet: SocketAddr,
    pub http: bool,
    pub security: Security,
    pub calls: Option<&'a Calls>,
}

/// `before` is the last observation: the history of a run is read from there.
pub async fn ask(endpoints: &Endpoints<'_>, depth: Depth, key: &Arc<NodeKey>, before: &Observed) -> Observed {
    let target = target(endpoints.fleet, endpoints.security.clone(), None);
    let (answered, handshaken) = tokio::join!(observe(endpoints, before), handshakes(&target));
    let mut observed = answered.clone().unwrap_or_default();
    observed.serving = match depth {
        Depth::Calls if answered.is_some() => handshaken,
        _ => handshaken && serves(target, endpoints.http, key).await,
    };
    if observed.serving { observed } else { Observed::default() }
}

/// Performs a TLS handshake, or connects without TLS.
async fn handshakes(target: &Target) -> bool {
    match tokio::time::timeout(CONNECT_TIMEOUT, handshake(target)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!("the Fleet API does not accept a connection: {error}");
            false
        }
        Err(_) => false,
    }
}

/// Performs a handshake and a call of the Fleet API.
async fn serves(target: Target, http: bool, key: &Arc<NodeKey>) -> bool {
    let options = FleetOptions {
        transport: Some(Probe::transport(http)),
        connect_timeout: CONNECT_TIMEOUT,
        answer_timeout: RESPONSE_TIMEOUT,
        ..FleetOptions::default()
    };
    match Fleet::new(target, Arc::clone(key), options).send_heartbeat(UNKNOWN_NODE, 60.0).await {
        Ok(_) | Err(FleetError::NotKnown { .. } | FleetError::RunOver { .. }) => true,
        Err(FleetError::Refused { is_fault, .. }) => !is_fault,
        Err(FleetError::Unreachable { why, .. } | FleetError::Misdirected { why, .. }) => {
            tracing::debug!("the Fleet API does not answer: {why}");
            false
        }
    }
}

fn target(address: SocketAddr, security: Security, token: Option<Token>) -> Target {
    Target { host: address.ip().to_string(), port: address.port(), security, token }
}

fn client(calls: &Calls, security: Security) -> SuperLink {
    let text = calls.token.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    let token = text.and_then(|text| Token::parse(&text).ok());
    let timeouts = Timeouts { connect: CONNECT_TIMEOUT, answer: CALLS_TIMEOUT, retries: Vec::new() };
    let superlink = SuperLink::new(target(calls.address, security, token)).with_timeouts(timeouts);
    superlink.over(Probe::transport(calls.http))
}

/// Counts runs and nodes; `None` if the SuperLink does not answer.
async fn observe(endpoints: &Endpoints<'_>, before: &Observed) -> Option<Observed> {
    let superlink = client(endpoints.calls?, endpoints.security.clone());
    tokio::time::timeout(CALLS_TIMEOUT, runs(&superlink, before)).await.ok().flatten()
}

async fn runs(superlink: &SuperLink, before: &Observed) -> Option<Observed> {
    let mut observed = Observed::default();
    // An official SuperLink does not implement these calls.
    let ours = match superlink.call(&WhoAmI {}).await {
        Ok(_) => true,
        Err(Error::Refused { status, .. }) => status != 404 && status != 503,
        Err(_) => false,
    };
    let listed = superlink.list_runs(None).await;
    let answered = ours || listed.is_ok();
    if let Ok(runs) = listed {
        let is_over = |run: &trellis_wire::proto::Run| {
            !run.finished_at.is_empty() || run.status.as_ref().is_some_and(|status| status.status == "finished")
        };
        let active: Vec<u64> = runs.iter().filter(|run| !is_over(run)).map(|run| run.run_id).collect();
        observed.runs = u32::try_from(active.len()).ok();
        observed.busy = Some(!active.is_empty());
        if let (true, Some(run)) = (ours, active.first()) {
            observed.round = Some(round(superlink, *run, before.round.as_ref()).await);
        }
    }
    if ours && let Ok(nodes) = superlink.call(&ListNodes {}).await {
        let online = nodes.nodes.iter().filter(|node| node.status == "online").count();
        observed.nodes = u32::try_from(online).ok();
    }
    answered.then_some(observed)
}

#[derive(Deserialize)]
struct Reported {
    round: u64,
}

/// The last completed round of a run.
async fn round(superlink: &SuperLink, run: u64, before: Option<&Round>) -> Round {
    let known = before.filter(|round| round.run == run).map_or(0, |round| round.number);
    let mut round = Round { run, number: known };
    for _ in 0..MAX_PAGES {
        let after_round = Some(round.number).filter(|number| *number > 0);
        let Ok(page) = superlink.call(&RunHistory { run_id: run.to_string(), after_round }).await else { break };
        let last = page.reports.last().and_then(|report| serde_json::from_str::<Reported>(report.get()).ok());
        round.number = last.map_or(round.number, |last| last.round.max(round.number));
        if !page.more {
            break;
        }
    }
    round
}
