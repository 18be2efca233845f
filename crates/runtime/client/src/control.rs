//! Flower's Control API over HTTP or gRPC: starts and follows runs, lists nodes; and the calls of SuperExecs that take runs.
//! Does not interpret the content of a run.

use std::collections::HashMap;

use prost::Message as _;
use trellis_wire::proto;

use crate::error::Error;
use crate::fleet::Transport;
use crate::pieces::{Broken, Pieces};
use crate::superlink::SuperLink;
use trellis_wire::token::Token;

/// The name of the default federation in releases up to 1.25, which require one.
const OLD_FEDERATION: &str = "default";

/// One call, as either transport has it.
#[derive(Debug)]
pub(crate) struct Rpc {
    pub name: &'static str,
    pub http: &'static str,
    pub grpc: &'static str,
}

macro_rules! rpcs {
    ($($constant:ident = $service:literal $name:literal $api:literal $kebab:literal;)*) => {
        $(const $constant: &Rpc = &Rpc {
            name: $kebab,
            http: concat!("/v1/", $api, "/", $kebab),
            grpc: concat!("/flwr.proto.", $service, "/", $name),
        };)*
    };
}

rpcs! {
    START_RUN = "Control" "StartRun" "control" "start-run";
    STOP_RUN = "Control" "StopRun" "control" "stop-run";
    LIST_RUNS = "Control" "ListRuns" "control" "list-runs";
    STREAM_LOGS = "Control" "StreamLogs" "control" "stream-logs";
    LIST_NODES = "Control" "ListNodes" "control" "list-nodes";
    REGISTER_NODE = "Control" "RegisterNode" "control" "register-node";
    UNREGISTER_NODE = "Control" "UnregisterNode" "control" "unregister-node";
    LIST_FEDERATIONS = "Control" "ListFederations" "control" "list-federations";
    ACQUIRE_TASK = "Runtime" "AcquireTask" "runtime" "acquire-task";
}

impl SuperLink {
    /// Starts a run, and returns its id. The values override the configuration of the app.
    pub async fn start_run(&self, fab: proto::Fab, values: HashMap<String, proto::Scalar>) -> Result<u64, Error> {
        let question = proto::StartRunRequest {
            fab: Some(fab),
            override_config: values.into_iter().collect(),
            federation: self.usual_federation().await?,
            ..Default::default()
        };
        let answer: proto::StartRunResponse = self.flower(START_RUN, &question).await?;
        answer.run_id.ok_or_else(|| self.refusal(START_RUN, "it started no run; its log says why".to_owned()))
    }

    /// The federation to name for a run. Only old releases need a name; they have gRPC only.
    async fn usual_federation(&self) -> Result<String, Error> {
        if self.transport() == Transport::Http {
            return Ok(String::new());
        }
        let question = proto::ListFederationsRequest {};
        let answer: proto::ListFederationsResponse = self.flower(LIST_FEDERATIONS, &question).await?;
        let is_old = answer.federations.iter().any(|federation| federation.name == OLD_FEDERATION);
        Ok(if is_old { OLD_FEDERATION.to_owned() } else { String::new() })
    }

    /// Stops a run that is not over yet.
    pub async fn stop_run(&self, run: u64) -> Result<(), Error> {
        let answer: proto::StopRunResponse = self.flower(STOP_RUN, &proto::StopRunRequest { run_id: run }).await?;
        match answer.success {
            true => Ok(()),
            false => Err(self.refusal(STOP_RUN, format!("run {run} could not be stopped"))),
        }
    }

    fn refusal(&self, rpc: &Rpc, detail: String) -> Error {
        Error::Refused { endpoint: self.endpoint(), call: rpc.name, status: 200, detail }
    }

    /// The run with this id, or all of them.
    pub async fn list_runs(&self, run: Option<u64>) -> Result<Vec<proto::Run>, Error> {
        let question = proto::ListRunsRequest { run_id: run, ..Default::default() };
        let answer: proto::ListRunsResponse = self.flower(LIST_RUNS, &question).await?;
        Ok(answer.run_dict.into_values().collect())
    }

    /// All nodes, including unregistered ones, as Flower reports them. [`crate::ListNodes`] has more fields.
    pub async fn list_nodes(&self) -> Result<Vec<proto::NodeInfo>, Error> {
        let answer: proto::ListNodesResponse = self.flower(LIST_NODES, &proto::ListNodesRequest {}).await?;
        Ok(answer.nodes_info)
    }

    /// Registers a node's key (PEM), and returns the id of the node.
    pub async fn register_node(&self, public_key: &str) -> Result<u64, Error> {
        let public_key = public_key.as_bytes().to_vec();
        let question = proto::RegisterNodeRequest { public_key: public_key.into(), ..Default::default() };
        let answer: proto::RegisterNodeResponse = self.flower(REGISTER_NODE, &question).await?;
        answer.node_id.ok_or_else(|| self.refusal(REGISTER_NODE, "it gave the node no id; its log says why".to_owned()))
    }

    /// Unregisters a node for good: its key cannot be registered again.
    pub async fn unregister_node(&self, node: u64) -> Result<(), Error> {
        let question = proto::UnregisterNodeRequest { node_id: node };
        self.flower::<proto::UnregisterNodeResponse>(UNREGISTER_NODE, &question).await.map(drop)
    }

    /// Takes a pending run with this kind of ServerApp. The SuperLink holds the call for a while.
    pub async fn acquire_task(&self, kind: &str) -> Result<Option<AcquiredTask>, Error> {
        let kinds = vec![kind.to_owned()];
        let question = proto::AcquireTaskRequest { supported_task_types: kinds, ..Default::default() };
        let answer: proto::AcquireTaskResponse = self.flower(ACQUIRE_TASK, &question).await?;
        Ok(answer
            .task
            .zip(Token::parse(&answer.token).ok())
            .map(|(task, token)| AcquiredTask { run: task.run_id, token }))
    }

    /// Follows the log of a run, from after a moment on (0: from the beginning).
    pub async fn stream_logs(&self, run: u64, after: f64) -> Result<LogStream, Error> {
        let question = proto::StreamLogsRequest { run_id: run, after_timestamp: after };
        let pieces = self.flower_stream(STREAM_LOGS, &question).await?;
        Ok(LogStream { superlink: self.clone(), pieces })
    }
}

/// A run that this caller executes.
#[derive(Debug, Clone)]
pub struct AcquiredTask {
    pub run: u64,
    /// With which its ServerApp proves itself.
    pub token: Token,
}

/// The log of a run as it grows. The stream ends with the run, or earlier, and is then requested again.
pub struct LogStream {
    superlink: SuperLink,
    pieces: Pieces,
}

/// A piece of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogPart {
    pub text: String,
    /// The position after the last line, for the next request.
    pub latest: f64,
}

impl LogStream {
    /// The next part; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<LogPart>, Error> {
        let broken = |why| self.superlink.broken(STREAM_LOGS.name, why);
        let Some(piece) = self.pieces.next().await.map_err(broken)? else { return Ok(None) };
        let part = proto::StreamLogsResponse::decode(piece.as_ref());
        let part = part.map_err(|error| broken(Broken::Strange(error.to_string())))?;
        Ok(Some(LogPart { text: part.log_output, latest: part.latest_timestamp }))
    }
}
