//! The table of calls of apps and SuperExecs: name, required access, handler.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

use trellis_core::refusal::{Kind, Refusal};
use trellis_front::http::kebab;
use trellis_front::{Answer, MessageReader, Transport, decode};

use super::caller::Caller;
use super::{api, objects};

/// The authentication of a call. Handlers enforce it through the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The token of a job. Up to 1.27 calls for objects have none: there the run must have an app that received its inputs with a
    /// token.
    App,
    /// The secret of SuperExecs, if one is configured.
    Launcher,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Grpc,
    Both,
}

type Handling = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send>>;

/// One call.
pub struct Rpc {
    pub name: &'static str,
    pub on: On,
    pub access: Access,
    /// Whether its message is a streamed object.
    pub streams_in: bool,
    pub handle: fn(Caller, MessageReader) -> Handling,
}

impl Rpc {
    const fn new(name: &'static str, on: On, access: Access, handle: fn(Caller, MessageReader) -> Handling) -> Rpc {
        Rpc { name, on, access, streams_in: false, handle }
    }

    const fn streams_in(mut self) -> Rpc {
        self.streams_in = true;
        self
    }

    /// The paths of the call on a transport.
    pub fn paths(&self, transport: Transport) -> Vec<String> {
        match (transport, self.on) {
            (Transport::Grpc, _) => {
                ["ClientAppIo", "Runtime"].map(|service| format!("/flwr.proto.{service}/{}", self.name)).into()
            }
            (Transport::Http, On::Both) => vec![format!("/v1/runtime/{}", kebab(self.name))],
            (Transport::Http, On::Grpc) => Vec::new(),
        }
    }

    /// Flower's code for a refusal in the body of an HTTP answer.
    pub fn flower_code(&self, kind: Kind) -> u16 {
        match (self.name, kind) {
            (_, Kind::Transient) => 1009,
            (_, Kind::Unauthenticated) => 1008,
            ("PushMessages", Kind::Invalid) => 3013,
            (_, Kind::Invalid | Kind::TooLarge) => 1003,
            ("PullTaskInput", _) => 3002,
            _ => 3005,
        }
    }
}

/// Finds the call of a path.
pub fn find(transport: Transport, path: &str) -> Option<&'static Rpc> {
    static PATHS: LazyLock<HashMap<(Transport, String), &'static Rpc>> = LazyLock::new(|| {
        let mut paths = HashMap::new();
        for transport in [Transport::Grpc, Transport::Http] {
            for rpc in ALL {
                paths.extend(rpc.paths(transport).into_iter().map(|path| ((transport, path), rpc)));
            }
        }
        paths
    });
    PATHS.get(&(transport, path.to_owned())).copied()
}

/// A handler for apps.
macro_rules! app {
    ($handler:path) => {
        |caller, body| Box::pin($handler(caller, body))
    };
}

/// A handler for SuperExecs.
macro_rules! launcher {
    ($handler:ident) => {
        |caller, mut body| {
            Box::pin(async move {
                let body = body.whole().await?;
                caller.check_launcher(&body)?;
                let request = decode(body)?;
                Ok(Answer::message(&api::$handler(&caller.server.queue, request).await))
            })
        }
    };
}

use Access::{App, Launcher};
use On::{Both, Grpc};

pub static ALL: &[Rpc] = &[
    // Calls of SuperExecs: 1.25 to 1.29, 1.30 to 1.39, 1.39 and later.
    Rpc::new("ListAppsToLaunch", Grpc, Launcher, launcher!(list_apps_to_launch)),
    Rpc::new("RequestToken", Grpc, Launcher, launcher!(request_token)),
    Rpc::new("GetRun", Grpc, Launcher, launcher!(get_run)),
    Rpc::new("PullPendingTasks", Both, Launcher, launcher!(pull_pending_tasks)),
    Rpc::new("ClaimTask", Both, Launcher, launcher!(claim_task)),
    Rpc::new("AcquireTask", Both, Launcher, launcher!(acquire_task)),
    // Apps of 1.25, and from 1.26 to 1.29.
    Rpc::new("PullClientAppInputs", Grpc, App, app!(api::pull_app_inputs)),
    Rpc::new("PullAppInputs", Grpc, App, app!(api::pull_app_inputs)),
    Rpc::new("PushClientAppOutputs", Grpc, App, app!(api::push_app_outputs)),
    Rpc::new("PushAppOutputs", Grpc, App, app!(api::push_app_outputs)),
    Rpc::new("SendAppHeartbeat", Grpc, App, app!(api::send_app_heartbeat)),
    // Apps from 1.30.
    Rpc::new("PullTaskInput", Both, App, app!(api::pull_task_input)),
    Rpc::new("PushTaskOutput", Both, App, app!(api::push_task_output)),
    Rpc::new("SendTaskHeartbeat", Both, App, app!(api::send_task_heartbeat)),
    // All apps; up to 1.31 in the singular.
    Rpc::new("PullMessage", Grpc, App, app!(api::pull_messages)),
    Rpc::new("PullMessages", Both, App, app!(api::pull_messages)),
    Rpc::new("PushMessage", Grpc, App, app!(api::push_messages)),
    Rpc::new("PushMessages", Both, App, app!(api::push_messages)),
    Rpc::new("ConfirmMessageReceived", Both, App, app!(api::confirm_message_received)),
    Rpc::new("PushLogs", Both, App, app!(api::push_logs)),
    Rpc::new("PushObject", Both, App, app!(objects::push)).streams_in(),
    Rpc::new("PullObject", Both, App, app!(objects::pull)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_those_of_flower() {
        let found = |transport, path| find(transport, path).map(|rpc| rpc.name);
        assert_eq!(found(Transport::Grpc, "/flwr.proto.ClientAppIo/PullMessage"), Some("PullMessage"));
        assert_eq!(found(Transport::Grpc, "/flwr.proto.Runtime/PullTaskInput"), Some("PullTaskInput"));
        assert_eq!(found(Transport::Http, "/v1/runtime/acquire-task"), Some("AcquireTask"));
        assert_eq!(found(Transport::Http, "/v1/runtime/pull-app-inputs"), None, "gRPC only");
        assert_eq!(found(Transport::Grpc, "/flwr.proto.ServerAppIo/PullMessages"), None);
    }

    #[test]
    fn every_refusal_has_a_code_of_the_runtime_api() {
        for rpc in ALL {
            for kind in Kind::ALL {
                let code = rpc.flower_code(kind);
                assert!((1001..=1010).contains(&code) || (3001..=3016).contains(&code), "{} {kind:?}", rpc.name);
            }
        }
    }
}
