//! The Control API: calls of the `flwr` command line.

use std::collections::HashMap;
use std::path::{Component, Path};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::sync::mpsc;
use trellis_core::Seconds;
use trellis_core::account::{NOBODY_ID, NOBODY_NAME};
use trellis_core::control::{self, NewNode, Reach};
use trellis_core::id::{NodeId, RunId};
use trellis_core::port::{Fab, Topic, Tx, crash};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::run::{NewRun, Run, ServerApp};
use trellis_digest::sha256_hex;
use trellis_wire::fab::{Config, RUN_MARK, check_path, path_settings};
use trellis_wire::proto::*;

use super::account::{CallerAccount, LastingRight};
use super::random_id;
use crate::config::Isolation;
use crate::convert;
use crate::defaults::{self, Completed};
use crate::dialect::{Client, control as dialect};
use crate::fab::{self, MAX_FAB_BYTES};
use crate::identity::parse_key;
use crate::link::Link;
use crate::watch::Departure;

// The official command line compares these texts exactly.
const RUN_NOT_FOUND: &str = "Run ID not found";
const NO_ARTIFACTS: &str = "ControlServicer initialized without artifact provider";
const KEY_NOT_VALID: &str = "The provided public key is not valid";

/// Maximum log text per message.
const LOG_BYTES: usize = 1 << 20;
/// Interval at which a log stream polls for new lines and rechecks the permission of its reader.
const LOG_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum duration of a log stream; official clients reconnect after a minute.
const LOG_HOLD: Duration = Duration::from_secs(3600);

fn run_not_found() -> Refusal {
    Refusal::new(Kind::NotFound, RUN_NOT_FOUND)
}

pub async fn start_run(
    link: &Link,
    who: &CallerAccount,
    client: &Client,
    request: StartRunRequest,
) -> Result<StartRunResponse, Refusal> {
    if !request.app_spec.is_empty() {
        let text = "This SuperLink does not fetch apps from Flower Hub: give the app's directory to `flwr run`.";
        return Err(Refusal::new(Kind::Precondition, text));
    }
    if !request.federation_options.is_empty() {
        return Err(Refusal::new(Kind::Precondition, dialect::NO_SIMULATION));
    }
    let content = request.fab.map(|fab| fab.content).unwrap_or_default();
    if content.len() > MAX_FAB_BYTES {
        tracing::error!(bytes = content.len(), limit = MAX_FAB_BYTES, "FAB is too large");
        return Ok(StartRunResponse::default());
    }
    if !dialect::is_federation(&request.federation) {
        let text = format!("Federation '{:.100}' does not exist.", request.federation);
        return Err(Refusal::new(Kind::Precondition, text));
    }
    let (content, verifications) = fab::without_signatures(content)?;
    let (metadata, server_app) = fab::metadata(&content)?;
    if server_app == ServerApp::Native && link.trains {
        check_paths(link, who, &fab::config(&content)?)?;
        check_paths(link, who, &request.override_config)?;
    }
    let config = completed(link, &content, request.override_config)?;
    let (changes, mark) = (config.describe(), config.config.get(RUN_MARK).cloned());
    let (id, now) = (RunId(random_id()), link.now());
    let verifications = convert::verifications_in(verifications);
    let fab = Fab { hash: sha256_hex(&content), content, verifications };
    let new = NewRun {
        fab_id: metadata.id(),
        fab_version: metadata.version.clone(),
        fab_hash: fab.hash.clone(),
        override_config: convert::override_config(config.config),
        federation_options: request.federation_options.to_vec(),
        federation: dialect::FIRST_NAME.to_owned(),
        account: who.id.clone(),
        server_app,
    };
    let context = Context { run_id: id.0, state: Some(RecordDict::default()), ..Default::default() }.encode_to_vec();
    let log = changes.clone();
    let started = link.write(move |tx| {
        if let Some(same) = marked(tx, &new, mark.as_ref())? {
            return Ok(same);
        }
        control::start_run(tx, id, new.clone(), &fab, &context, now)?;
        log.as_ref().map_or(Ok(()), |text| tx.append_log(id, now, text))?;
        Ok(id)
    });
    let started = started.await?;
    if started != id {
        tracing::info!(run = started.0, "run already submitted");
        return Ok(run_started(started, client));
    }
    crash::point("run-created");
    tracing::info!(run = id.0, app = metadata.id(), native = server_app == ServerApp::Native, "run created");
    if let Some(changes) = changes {
        tracing::info!(run = id.0, "{}", changes.trim_end().replace('\n', " "));
    }
    Ok(run_started(id, client))
}

fn run_started(id: RunId, client: &Client) -> StartRunResponse {
    StartRunResponse {
        run_id: Some(id.0),
        note: None,
        series_id: Some(id.0),
        federation: dialect::federation_name(client).to_owned(),
    }
}

/// Checks the paths in the settings of a native run on this machine. Refuses paths of runs that the account may not
/// access.
fn check_paths(link: &Link, who: &CallerAccount, config: &Config) -> Result<(), Refusal> {
    for (setting, path) in path_settings(config) {
        check_path(setting, path).map_err(|outside| Refusal::new(Kind::Invalid, outside.to_string()))?;
        let Some(run) = run_of_path(path) else { continue };
        match link.read(|view| view.run(run))? {
            Some(run) => who.check_owner(&run.account)?,
            // The run was removed from the database, so its owner is unknown.
            None => who.check_owner("")?,
        }
    }
    Ok(())
}

/// Returns the run that owns a path in the models directory: `RUN/...` or `RUN@ROUND`.
fn run_of_path(path: &str) -> Option<RunId> {
    let mut names = Path::new(path).components().filter_map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    names.next()?.split('@').next()?.parse().ok().map(RunId)
}

/// Returns the run that this account started with the same mark: the first answer was lost.
fn marked(tx: &dyn Tx, new: &NewRun, mark: Option<&Scalar>) -> Result<Option<RunId>, Refusal> {
    let Some(mark) = mark else { return Ok(None) };
    let is_same = |run: &Run| {
        run.account == new.account && convert::override_config_out(&run.override_config).get(RUN_MARK) == Some(mark)
    };
    Ok(tx.runs()?.iter().find(|run| is_same(run)).map(|run| run.id))
}

/// Adds this SuperLink's defaults to the configuration of a run.
fn completed(link: &Link, content: &[u8], given: Config) -> Result<Completed, Refusal> {
    if link.run_defaults.is_empty() {
        return Ok(Completed { config: given, ..Completed::default() });
    }
    Ok(defaults::complete(given, &fab::config(content)?, &link.run_defaults))
}

pub async fn stop_run(link: &Link, who: &CallerAccount, request: StopRunRequest) -> Result<StopRunResponse, Refusal> {
    let (run, now) = (RunId(request.run_id), link.now());
    link.read(|view| match view.run(run)? {
        Some(run) => who.check_owner(&run.account),
        None => Ok(()),
    })?;
    link.write(move |tx| control::stop_run(tx, run, now)).await?;
    tracing::info!(run = run.0, "run stopped by user");
    Ok(StopRunResponse { success: true })
}

/// Checks that the run exists.
pub fn log_exists(link: &Link, request: &StreamLogsRequest) -> Result<(), Refusal> {
    link.read(|view| view.run(RunId(request.run_id))?.map(drop).ok_or_else(run_not_found))
}

/// Streams the log until the run is finished and all lines are sent, or until the reader loses its permission.
pub async fn stream_logs(
    link: &Link,
    right: &LastingRight,
    request: StreamLogsRequest,
    send: &mpsc::Sender<Result<Bytes, Refusal>>,
) -> Result<(), Refusal> {
    let run = RunId(request.run_id);
    let mut after: Seconds = request.after_timestamp;
    loop {
        // Read the state before the log: the log then contains the last lines of a finished run.
        let found = link
            .room
            .wait(Topic::Log(run), LOG_HOLD, LOG_POLL_INTERVAL, || {
                right.check(link)?;
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
        if send.send(Ok(response.encode_to_vec().into())).await.is_err() {
            return Ok(()); // The reader disconnected.
        }
    }
}

pub async fn list_runs(link: &Link, _: &CallerAccount, request: ListRunsRequest) -> Result<ListRunsResponse, Refusal> {
    let runs = link.read(|view| {
        let mut runs = match request.run_id {
            Some(id) => vec![view.run(RunId(id))?.ok_or_else(run_not_found)?],
            None => view.runs()?,
        };
        if request.limit.is_some() || request.skip.is_some() {
            runs.sort_by(|one, other| other.pending_at.total_cmp(&one.pending_at));
            runs.drain(..runs.len().min(request.skip.unwrap_or(0) as usize));
            runs.truncate(request.limit.unwrap_or(u64::MAX) as usize);
        }
        let mut runs = with_traffic(link, view, runs)?;
        let names: HashMap<_, _> = view.accounts()?.into_iter().map(|account| (account.id, account.name)).collect();
        for run in &mut runs {
            if let Some(name) = names.get(&run.flwr_aid) {
                run.account_name.clone_from(name);
            }
        }
        Ok(runs)
    })?;
    let run_dict = runs.into_iter().map(|run| (run.run_id, run)).collect();
    Ok(ListRunsResponse { run_dict, now: convert::iso_time(link.now()) })
}

fn with_traffic(
    link: &Link,
    view: &dyn trellis_core::port::Read,
    runs: Vec<Run>,
) -> Result<Vec<trellis_wire::proto::Run>, Refusal> {
    let queue = queue(link, view)?;
    runs.iter()
        .map(|run| {
            let (mut traffic, noted) = (view.traffic(run.id)?, link.noted_traffic(run.id));
            traffic.bytes_sent += noted.bytes_sent;
            traffic.bytes_received += noted.bytes_received;
            let mut shown = convert::run_out(run, traffic);
            let position = queue.iter().position(|id| *id == run.id);
            if let (Some(position), Some(status)) = (position, &mut shown.status) {
                let (position, length) = (position + 1, queue.len());
                status.details = format!("Queued for a free ServerApp: position {position} of {length}.");
            }
            Ok(shown)
        })
        .collect()
}

/// Returns the runs that wait for a free ServerApp slot, the next one first.
fn queue(link: &Link, view: &dyn trellis_core::port::Read) -> Result<Vec<RunId>, Refusal> {
    let starts_here = |server_app| match server_app {
        ServerApp::Flower => link.isolation == Isolation::Subprocess,
        ServerApp::Native => link.trains,
    };
    let pending = view.pending_runs()?.into_iter();
    Ok(pending.filter(|(_, server_app)| starts_here(*server_app)).map(|(id, _)| id).collect())
}

pub async fn pull_artifacts(
    _: &Link,
    _: &CallerAccount,
    _: PullArtifactsRequest,
) -> Result<PullArtifactsResponse, Refusal> {
    Err(Refusal::new(Kind::Unimplemented, NO_ARTIFACTS))
}

pub async fn register_node(
    link: &Link,
    who: &CallerAccount,
    request: RegisterNodeRequest,
) -> Result<RegisterNodeResponse, Refusal> {
    if parse_key(&request.public_key).is_none() {
        return Err(Refusal::new(Kind::Precondition, KEY_NOT_VALID));
    }
    let (id, now, who) = (NodeId(random_id()), link.now(), who.clone());
    let new = NewNode {
        key: request.public_key.to_vec(),
        name: request.name.unwrap_or_default(),
        location: request.location.unwrap_or_default(),
    };
    let node = link.write(move |tx| control::register_node(tx, id, (&who.id, &who.name), &new, now)).await?;
    tracing::info!(node = node.0, "node registered by user");
    Ok(RegisterNodeResponse { node_id: Some(node.0) })
}

pub async fn unregister_node(
    link: &Link,
    who: &CallerAccount,
    request: UnregisterNodeRequest,
) -> Result<UnregisterNodeResponse, Refusal> {
    let (node, now, who) = (NodeId(request.node_id), link.now(), who.clone());
    link.write(move |tx| control::unregister_node(tx, node, (&who.id, &who.name), Reach::All, now)).await?;
    link.watch.node_left(node, Departure::Unregistered);
    Ok(UnregisterNodeResponse {})
}

pub async fn list_nodes(link: &Link, _: &CallerAccount, _: ListNodesRequest) -> Result<ListNodesResponse, Refusal> {
    let now = link.now();
    Ok(ListNodesResponse { nodes_info: nodes(link, now)?, now: convert::iso_time(now) })
}

fn nodes(link: &Link, now: Seconds) -> Result<Vec<NodeInfo>, Refusal> {
    Ok(link.read(|view| view.nodes())?.iter().map(|node| convert::node_out(node, now)).collect())
}

pub fn list_federations(client: &Client) -> ListFederationsResponse {
    let federation = Federation { name: dialect::federation_name(client).to_owned(), ..Default::default() };
    ListFederationsResponse { federations: vec![federation] }
}

/// Returns encoded bytes, because the field numbers depend on the client.
pub async fn show_federation(link: &Link, client: &Client, request: ShowFederationRequest) -> Result<Bytes, Refusal> {
    if !dialect::is_federation(&request.federation_name) {
        let text =
            format!("Federation '{:.100}' does not exist or you are not a member of it.", request.federation_name);
        return Err(Refusal::new(Kind::Precondition, text));
    }
    let now = link.now();
    let runs = link.read(|view| {
        let runs = view.runs()?;
        with_traffic(link, view, runs)
    })?;
    let account = Account { id: NOBODY_ID.to_owned(), name: NOBODY_NAME.to_owned() };
    let federation = Federation {
        nodes: nodes(link, now)?,
        runs,
        members: vec![Member { account: Some(account), role: "owner".to_owned() }],
        ..Default::default()
    };
    Ok(dialect::show_federation(client, &request.federation_name, federation, now))
}
