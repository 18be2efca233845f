//! Asks a SuperLink: as nodes do whether it serves them, and as people do what it is at.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use trellis_client::fleet::{Fleet, FleetError, FleetOptions};
use trellis_client::{Error, NodeKey, Patience, Security, SuperLink, Target, handshake};
use trellis_core::id::NodeId;
use trellis_wire::call::{ListNodes, RunHistory, WhoAmI};
use trellis_wire::token::Token;

use super::Depth;
use crate::readiness::{Round, Seen};
use crate::recipe::{Calls, Probe};

/// The program is on this machine; it may be busy with training.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(4);
/// For all that is asked as people do, together.
const CALLS: Duration = Duration::from_secs(2);
/// A node that nobody has: who answers that it does not know it has understood the question.
const NOBODY: NodeId = NodeId(2);
/// Answers in a row that are read of how a run went; the rest is read next time.
const MOST_PAGES: usize = 8;

pub struct Asked<'a> {
    pub fleet: SocketAddr,
    pub http: bool,
    pub security: Security,
    pub calls: Option<&'a Calls>,
}

/// `before` is what was seen last: how a run went is read on from there.
pub async fn ask(asked: &Asked<'_>, depth: Depth, key: &Arc<NodeKey>, before: &Seen) -> Seen {
    let target = target(asked.fleet, asked.security.clone(), None);
    let (answered, shaken) = tokio::join!(counts(asked, before), shakes(&target));
    let mut seen = answered.clone().unwrap_or_default();
    seen.serving = match depth {
        Depth::Calls if answered.is_some() => shaken,
        _ => shaken && serves(target, asked.http, key).await,
    };
    if seen.serving { seen } else { Seen::default() }
}

/// TLS, or a connection where there is none.
async fn shakes(target: &Target) -> bool {
    match tokio::time::timeout(CONNECT, handshake(target)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!("the Fleet API takes no connection: {error}");
            false
        }
        Err(_) => false,
    }
}

/// The Fleet API as nodes use it: handshake and a call.
async fn serves(target: Target, http: bool, key: &Arc<NodeKey>) -> bool {
    let options = FleetOptions {
        transport: Some(Probe::transport(http)),
        connect_timeout: CONNECT,
        answer_timeout: ANSWER,
        ..FleetOptions::default()
    };
    match Fleet::new(target, Arc::clone(key), options).send_heartbeat(NOBODY, 60.0).await {
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

fn caller(calls: &Calls, security: Security) -> SuperLink {
    let said = calls.token.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    let token = said.and_then(|text| Token::parse(&text).ok());
    let patience = Patience { connect: CONNECT, answer: CALLS, retries: Vec::new() };
    let superlink = SuperLink::new(target(calls.address, security, token)).with_patience(patience);
    superlink.over(Probe::transport(calls.http))
}

/// What it is at; `None`: it did not answer.
async fn counts(asked: &Asked<'_>, before: &Seen) -> Option<Seen> {
    let superlink = caller(asked.calls?, asked.security.clone());
    tokio::time::timeout(CALLS, runs(&superlink, before)).await.ok().flatten()
}

async fn runs(superlink: &SuperLink, before: &Seen) -> Option<Seen> {
    let mut seen = Seen::default();
    // An official one knows none of our calls.
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
        let at_work: Vec<u64> = runs.iter().filter(|run| !is_over(run)).map(|run| run.run_id).collect();
        seen.runs = u32::try_from(at_work.len()).ok();
        seen.busy = Some(!at_work.is_empty());
        if let (true, Some(run)) = (ours, at_work.first()) {
            seen.round = Some(round(superlink, *run, before.round.as_ref()).await);
        }
    }
    if ours && let Ok(nodes) = superlink.call(&ListNodes {}).await {
        let online = nodes.nodes.iter().filter(|node| node.status == "online").count();
        seen.nodes = u32::try_from(online).ok();
    }
    answered.then_some(seen)
}

#[derive(Deserialize)]
struct Reported {
    round: u64,
}

/// The round that a run has behind it.
async fn round(superlink: &SuperLink, run: u64, before: Option<&Round>) -> Round {
    let known = before.filter(|round| round.run == run).map_or(0, |round| round.number);
    let mut round = Round { run, number: known };
    for _ in 0..MOST_PAGES {
        let after_round = Some(round.number).filter(|number| *number > 0);
        let Ok(told) = superlink.call(&RunHistory { run_id: run.to_string(), after_round }).await else { break };
        let last = told.reports.last().and_then(|report| serde_json::from_str::<Reported>(report.get()).ok());
        round.number = last.map_or(round.number, |last| last.round.max(round.number));
        if !told.more {
            break;
        }
    }
    round
}
