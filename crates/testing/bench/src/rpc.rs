//! The calls: path on each transport, request and response type.

use std::marker::PhantomData;

use trellis_wire::proto::{
    AcquireTaskRequest, AcquireTaskResponse, ActivateNodeRequest, ActivateNodeResponse, ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse, GetRunRequest, GetRunResponse, ListAppsToLaunchRequest, ListAppsToLaunchResponse,
    ListNodesRequest, ListNodesResponse, PullAppInputsRequest, PullAppInputsResponse, PullAppMessagesRequest,
    PullAppMessagesResponse, PullMessagesRequest, PullMessagesResponse, PullObjectRequest, PullObjectResponse,
    PullTaskInputRequest, PullTaskInputResponse, PullTaskMessagesRequest, PushAppMessagesRequest,
    PushAppMessagesResponse, PushAppOutputsRequest, PushAppOutputsResponse, PushMessagesRequest, PushMessagesResponse,
    PushObjectRequest, PushObjectResponse, PushTaskMessagesRequest, PushTaskOutputRequest, PushTaskOutputResponse,
    RegisterNodeFleetRequest, RegisterNodeFleetResponse, RequestTokenRequest, RequestTokenResponse,
    SendAppHeartbeatRequest, SendAppHeartbeatResponse, SendNodeHeartbeatRequest, SendNodeHeartbeatResponse,
    SendTaskHeartbeatRequest, SendTaskHeartbeatResponse, StartRunRequest, StartRunResponse, UpdateRunStatusRequest,
    UpdateRunStatusResponse,
};

/// A call with request `Q` and response `A`.
pub struct Rpc<Q, A> {
    /// Its path in Flower 1.25.
    pub grpc: &'static str,
    /// Its path in Flower 1.42.
    pub http: &'static str,
    messages: PhantomData<fn(Q) -> A>,
}

/// The path of a call that a transport lacks.
const NOWHERE: &str = "/";

impl<Q, A> Rpc<Q, A> {
    const fn new(grpc: &'static str, http: &'static str) -> Self {
        Self { grpc, http, messages: PhantomData }
    }
}

pub mod control {
    use super::*;

    pub const START_RUN: Rpc<StartRunRequest, StartRunResponse> =
        Rpc::new("/flwr.proto.Control/StartRun", "/v1/control/start-run");
    pub const LIST_NODES: Rpc<ListNodesRequest, ListNodesResponse> =
        Rpc::new("/flwr.proto.Control/ListNodes", "/v1/control/list-nodes");
}

pub mod fleet {
    use super::*;

    pub const REGISTER_NODE: Rpc<RegisterNodeFleetRequest, RegisterNodeFleetResponse> =
        Rpc::new("/flwr.proto.Fleet/RegisterNode", "/v1/fleet/register-node");
    pub const ACTIVATE_NODE: Rpc<ActivateNodeRequest, ActivateNodeResponse> =
        Rpc::new("/flwr.proto.Fleet/ActivateNode", "/v1/fleet/activate-node");
    pub const SEND_NODE_HEARTBEAT: Rpc<SendNodeHeartbeatRequest, SendNodeHeartbeatResponse> =
        Rpc::new("/flwr.proto.Fleet/SendNodeHeartbeat", "/v1/fleet/send-node-heartbeat");
    pub const GET_RUN: Rpc<GetRunRequest, GetRunResponse> = Rpc::new("/flwr.proto.Fleet/GetRun", "/v1/fleet/get-run");
    pub const PULL_MESSAGES: Rpc<PullMessagesRequest, PullMessagesResponse> =
        Rpc::new("/flwr.proto.Fleet/PullMessages", "/v1/fleet/pull-messages");
    pub const PUSH_MESSAGES: Rpc<PushMessagesRequest, PushMessagesResponse> =
        Rpc::new("/flwr.proto.Fleet/PushMessages", "/v1/fleet/push-messages");
    pub const PULL_OBJECT: Rpc<PullObjectRequest, PullObjectResponse> =
        Rpc::new("/flwr.proto.Fleet/PullObject", "/v1/fleet/pull-object");
    pub const PUSH_OBJECT: Rpc<PushObjectRequest, PushObjectResponse> =
        Rpc::new("/flwr.proto.Fleet/PushObject", "/v1/fleet/push-object");
    pub const CONFIRM_MESSAGE_RECEIVED: Rpc<ConfirmMessageReceivedRequest, ConfirmMessageReceivedResponse> =
        Rpc::new("/flwr.proto.Fleet/ConfirmMessageReceived", "/v1/fleet/confirm-message-received");
}

/// Calls of a ServerApp in both versions.
pub mod app {
    use super::*;

    pub const PULL_OBJECT: Rpc<PullObjectRequest, PullObjectResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/PullObject", "/v1/runtime/pull-object");
    pub const PUSH_OBJECT: Rpc<PushObjectRequest, PushObjectResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/PushObject", "/v1/runtime/push-object");
    pub const CONFIRM_MESSAGE_RECEIVED: Rpc<ConfirmMessageReceivedRequest, ConfirmMessageReceivedResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/ConfirmMessageReceived", "/v1/runtime/confirm-message-received");
}

/// Calls of a ServerApp and its SuperExec in Flower 1.25 only.
pub mod server_app_io {
    use super::*;

    pub const LIST_APPS_TO_LAUNCH: Rpc<ListAppsToLaunchRequest, ListAppsToLaunchResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/ListAppsToLaunch", NOWHERE);
    pub const REQUEST_TOKEN: Rpc<RequestTokenRequest, RequestTokenResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/RequestToken", NOWHERE);
    pub const PULL_APP_INPUTS: Rpc<PullAppInputsRequest, PullAppInputsResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/PullAppInputs", NOWHERE);
    pub const SEND_APP_HEARTBEAT: Rpc<SendAppHeartbeatRequest, SendAppHeartbeatResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/SendAppHeartbeat", NOWHERE);
    pub const PUSH_MESSAGES: Rpc<PushAppMessagesRequest, PushAppMessagesResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/PushMessages", NOWHERE);
    pub const PULL_MESSAGES: Rpc<PullAppMessagesRequest, PullAppMessagesResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/PullMessages", NOWHERE);
    pub const PUSH_APP_OUTPUTS: Rpc<PushAppOutputsRequest, PushAppOutputsResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/PushAppOutputs", NOWHERE);
    pub const UPDATE_RUN_STATUS: Rpc<UpdateRunStatusRequest, UpdateRunStatusResponse> =
        Rpc::new("/flwr.proto.ServerAppIo/UpdateRunStatus", NOWHERE);
}

/// Calls of a ServerApp and its SuperExec in Flower 1.42 only.
pub mod runtime {
    use super::*;

    pub const ACQUIRE_TASK: Rpc<AcquireTaskRequest, AcquireTaskResponse> =
        Rpc::new(NOWHERE, "/v1/runtime/acquire-task");
    pub const SEND_TASK_HEARTBEAT: Rpc<SendTaskHeartbeatRequest, SendTaskHeartbeatResponse> =
        Rpc::new(NOWHERE, "/v1/runtime/send-task-heartbeat");
    pub const PULL_TASK_INPUT: Rpc<PullTaskInputRequest, PullTaskInputResponse> =
        Rpc::new(NOWHERE, "/v1/runtime/pull-task-input");
    pub const PUSH_MESSAGES: Rpc<PushTaskMessagesRequest, PushAppMessagesResponse> =
        Rpc::new(NOWHERE, "/v1/runtime/push-messages");
    pub const PULL_MESSAGES: Rpc<PullTaskMessagesRequest, PullAppMessagesResponse> =
        Rpc::new(NOWHERE, "/v1/runtime/pull-messages");
    pub const PUSH_TASK_OUTPUT: Rpc<PushTaskOutputRequest, PushTaskOutputResponse> =
        Rpc::new(NOWHERE, "/v1/runtime/push-task-output");
}
