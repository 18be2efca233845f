//! Control: the calls of the `flwr` command line.

use std::time::Duration;

use prost::Message as _;
use tokio::sync::mpsc;
use trellis_core::Seconds;
use trellis_core::control::{self, Reach};
use trellis_core::id::{NodeId, RunId};
use trellis_core::port::{Fab, Topic};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::run::{NewRun, Run};
use trellis_store_sqlite::crash;
use trellis_wire::proto::*;

use super::{hex, random_id, sha256};
use crate::convert;
use crate::fab::{self, MAX_FAB_BYTES};
use crate::identity::parse_key;
use crate::link::Link;

/// The one account there is without account authentication, as Flower names it.
pub const ACCOUNT_ID: &str = "<id:none>";
pub const ACCOUNT_NAME: &str = "<name:none>";
/// The one federation there is; the second name is that of later Flower versions.
const FEDERATION: &str = "default";
const FEDERATION_NAMES: [&str; 3] = [FEDERATION, "@none/default", ""];

// Texts that the official command line looks for, to the letter.
const RUN_NOT_FOUND: &str = "Run ID not found";
const NO_ACCOUNT_AUTH: &str = "ControlServicer initialized without account authentication";
const NO_ARTIFACTS: &str = "ControlServicer initialized without artifact provider";
const KEY_NOT_VALID: &str = "The provided public key is not valid";

/// Log text in one answer.
const LOG_BYTES: usize = 1 << 20;
/// A log stream looks by itself this often.
const LOG_GLANCE: Duration = Duration::from_secs(5);
/// A log stream is ended after this; official clients ask again after a minute.
const LOG_HOLD: Duration = Duration::from_secs(3600);

fn run_not_found() -> Refusal {
    Refusal::new(Kind::NotFound, RUN_NOT_FOUND)
}

pub async fn start_run(link: &Link, request: StartRunRequest) -> Result<StartRunResponse, Refusal> {
    if !request.app_spec.is_empty() {
        let text = "This SuperLink does not fetch apps from Flower Hub: give the app's directory to `flwr run`.";
        return Err(Refusal::new(Kind::Precondition, text));
    }
    let content = request.fab.map(|fab| fab.content).unwrap_or_default();
    if content.len() > MAX_FAB_BYTES {
        tracing::error!(bytes = content.len(), limit = MAX_FAB_BYTES, "FAB is too large");
        return Ok(StartRunResponse { run_id: None });
    }
    if !FEDERATION_NAMES.contains(&request.federation.as_str()) {
        let text = format!("Federation '{:.100}' does not exist.", request.federation);
        return Err(Refusal::new(Kind::Precondition, text));
    }
    let metadata = fab::metadata(&content)?;
    let (id, now) = (RunId(random_id()), link.now());
    let fab = Fab { hash: hex(&sha256(&content)), content, verifications: Vec::new() };
    let new = NewRun {
        fab_id: metadata.id.clone(),
        fab_version: metadata.version,
        fab_hash: fab.hash.clone(),
        override_config: convert::override_config(request.override_config),
        federation_options: request.federation_options.unwrap_or_default().encode_to_vec(),
        federation: FEDERATION.to_owned(),
        account: ACCOUNT_ID.to_owned(),
    };
    let context = Context { run_id: id.0, state: Some(RecordDict::default()), ..Default::default() }.encode_to_vec();
    link.write(move |tx| control::start_run(tx, id, new.clone(), &fab, &context, now)).await?;
    crash::point("run-created");
    tracing::info!(run = id.0, app = metadata.id, "run created");
    Ok(StartRunResponse { run_id: Some(id.0) })
}

pub async fn stop_run(link: &Link, request: StopRunRequest) -> Result<StopRunResponse, Refusal> {
    let (run, now) = (RunId(request.run_id), link.now());
    link.write(move |tx| control::stop_run(tx, run, now)).await?;
    tracing::info!(run = run.0, "run stopped by user");
    Ok(StopRunResponse { success: true })
}

/// Sends the log as it grows, until the run is finished and everything was sent.
pub async fn stream_logs(
    link: &Link,
    request: StreamLogsRequest,
    send: &mpsc::Sender<Result<StreamLogsResponse, Refusal>>,
) -> Result<(), Refusal> {
    let run = RunId(request.run_id);
    let mut after: Seconds = request.after_timestamp;
    loop {
        // The state is read before the log: what a finished run still wrote is in the log already.
        let found = link
            .room
            .wait(Topic::Log(run), LOG_HOLD, LOG_GLANCE, || {
                link.read(|view| {
                    let finished = view.run(run)?.ok_or_else(run_not_found)?.state().is_finished();
                    let log = view.log_after(run, after, LOG_BYTES)?;
                    Ok((finished || log.is_some()).then_some(log))
                })
            })
            .await?;
        let Some(Some(log)) = found else { return Ok(()) };
        after = log.latest;
        let response = StreamLogsResponse { log_output: log.text, latest_timestamp: log.latest };
        if send.send(Ok(response)).await.is_err() {
            return Ok(()); // The reader went away.
        }
    }
}

pub async fn list_runs(link: &Link, request: ListRunsRequest) -> Result<ListRunsResponse, Refusal> {
    let runs = link.read(|view| {
        let runs = match request.run_id {
            Some(id) => vec![view.run(RunId(id))?.ok_or_else(run_not_found)?],
            None => view.runs()?,
        };
        with_traffic(link, view, runs)
    })?;
    let run_dict = runs.into_iter().map(|run| (run.run_id, run)).collect();
    Ok(ListRunsResponse { run_dict, now: convert::iso_time(link.now()) })
}

fn with_traffic(
    link: &Link,
    view: &dyn trellis_core::port::Read,
    runs: Vec<Run>,
) -> Result<Vec<trellis_wire::proto::Run>, Refusal> {
    runs.iter()
        .map(|run| {
            let (mut traffic, noted) = (view.traffic(run.id)?, link.noted_traffic(run.id));
            traffic.bytes_sent += noted.bytes_sent;
            traffic.bytes_received += noted.bytes_received;
            Ok(convert::run_out(run, traffic))
        })
        .collect()
}

pub fn get_login_details() -> GetLoginDetailsResponse {
    GetLoginDetailsResponse { authn_type: "noop".to_owned(), ..Default::default() }
}

pub fn get_auth_tokens() -> Refusal {
    Refusal::new(Kind::Unimplemented, NO_ACCOUNT_AUTH)
}

pub fn pull_artifacts() -> Refusal {
    Refusal::new(Kind::Unimplemented, NO_ARTIFACTS)
}

pub async fn register_node(link: &Link, request: RegisterNodeRequest) -> Result<RegisterNodeResponse, Refusal> {
    if parse_key(&request.public_key).is_none() {
        return Err(Refusal::new(Kind::Precondition, KEY_NOT_VALID));
    }
    let (id, now) = (NodeId(random_id()), link.now());
    let new = control::NewNode { key: request.public_key.to_vec(), ..Default::default() };
    let node = link.write(move |tx| control::register_node(tx, id, (ACCOUNT_ID, ACCOUNT_NAME), &new, now)).await?;
    tracing::info!(node = node.0, "node registered by user");
    Ok(RegisterNodeResponse { node_id: Some(node.0) })
}

pub async fn unregister_node(link: &Link, request: UnregisterNodeRequest) -> Result<UnregisterNodeResponse, Refusal> {
    let (node, now) = (NodeId(request.node_id), link.now());
    link.write(move |tx| control::unregister_node(tx, node, (ACCOUNT_ID, ACCOUNT_NAME), Reach::Own, now)).await?;
    tracing::info!(node = node.0, "node unregistered by user");
    Ok(UnregisterNodeResponse {})
}

pub async fn list_nodes(link: &Link) -> Result<ListNodesResponse, Refusal> {
    let now = link.now();
    Ok(ListNodesResponse { nodes_info: nodes(link, now)?, now: convert::iso_time(now) })
}

fn nodes(link: &Link, now: Seconds) -> Result<Vec<NodeInfo>, Refusal> {
    Ok(link.read(|view| view.nodes())?.iter().map(|node| convert::node_out(node, now)).collect())
}

pub fn list_federations() -> ListFederationsResponse {
    let federation = Federation { name: FEDERATION.to_owned(), ..Default::default() };
    ListFederationsResponse { federations: vec![federation] }
}

pub async fn show_federation(link: &Link, request: ShowFederationRequest) -> Result<ShowFederationResponse, Refusal> {
    if !FEDERATION_NAMES.contains(&request.federation_name.as_str()) {
        let text =
            format!("Federation '{:.100}' does not exist or you are not a member of it.", request.federation_name);
        return Err(Refusal::new(Kind::Precondition, text));
    }
    let now = link.now();
    let runs = link.read(|view| {
        let runs = view.runs()?;
        with_traffic(link, view, runs)
    })?;
    let federation = Federation {
        name: FEDERATION.to_owned(),
        member_aids: vec![ACCOUNT_ID.to_owned()],
        nodes: nodes(link, now)?,
        runs,
    };
    Ok(ShowFederationResponse { federation: Some(federation), now: convert::iso_time(now) })
}
