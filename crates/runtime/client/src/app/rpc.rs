//! The calls of a ServerApp and their paths.

use crate::fleet::rpc::{About, Rpc};

macro_rules! rpcs {
    ($($constant:ident = $name:literal $kebab:literal;)*) => {
        $(pub const $constant: &Rpc = &Rpc {
            name: $name,
            grpc: concat!("/flwr.proto.Runtime/", $name),
            http: concat!("/v1/runtime/", $kebab),
            about: About::Run,
        };)*
    };
}

rpcs! {
    PULL_TASK_INPUT = "PullTaskInput" "pull-task-input";
    GET_NODES = "GetNodes" "get-nodes";
    PUSH_MESSAGES = "PushMessages" "push-messages";
    PUSH_OBJECT = "PushObject" "push-object";
    PULL_MESSAGES = "PullMessages" "pull-messages";
    PULL_OBJECT = "PullObject" "pull-object";
    CONFIRM_MESSAGE_RECEIVED = "ConfirmMessageReceived" "confirm-message-received";
    PUSH_LOGS = "PushLogs" "push-logs";
    SEND_TASK_HEARTBEAT = "SendTaskHeartbeat" "send-task-heartbeat";
    PUSH_TASK_OUTPUT = "PushTaskOutput" "push-task-output";
}
