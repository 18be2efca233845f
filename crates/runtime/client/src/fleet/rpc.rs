//! The calls of the Fleet API: their names on the wire and their properties.

/// One call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rpc {
    pub name: &'static str,
    pub grpc: &'static str,
    pub http: &'static str,
    pub about: About,
}

/// The subject of a call, which decides the meaning of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// Registers the key.
    Registration,
    /// Activates the node.
    Activation,
    Node,
    /// May be refused because the run is over.
    Run,
}

macro_rules! rpcs {
    ($($constant:ident = $name:literal $kebab:literal $about:ident;)*) => {
        $(pub(super) const $constant: &Rpc = &Rpc {
            name: $name,
            grpc: concat!("/flwr.proto.Fleet/", $name),
            http: concat!("/v1/fleet/", $kebab),
            about: About::$about,
        };)*
    };
}

rpcs! {
    REGISTER_NODE = "RegisterNode" "register-node" Registration;
    ACTIVATE_NODE = "ActivateNode" "activate-node" Activation;
    DEACTIVATE_NODE = "DeactivateNode" "deactivate-node" Node;
    UNREGISTER_NODE = "UnregisterNode" "unregister-node" Node;
    SEND_NODE_HEARTBEAT = "SendNodeHeartbeat" "send-node-heartbeat" Node;
    PULL_MESSAGES = "PullMessages" "pull-messages" Node;
    PUSH_MESSAGES = "PushMessages" "push-messages" Run;
    GET_RUN = "GetRun" "get-run" Run;
    GET_FAB = "GetFab" "get-fab" Run;
    PUSH_OBJECT = "PushObject" "push-object" Run;
    PULL_OBJECT = "PullObject" "pull-object" Run;
    CONFIRM_MESSAGE_RECEIVED = "ConfirmMessageReceived" "confirm-message-received" Run;
}
