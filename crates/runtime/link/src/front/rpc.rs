//! The table of all served calls: name, required access, and handler.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

use tokio::sync::mpsc;
use trellis_core::refusal::Refusal;
use trellis_front::http::kebab;
use trellis_front::{Answer, Rest, Transport};
use trellis_wire::proto::{PushAppMessagesRequest, PushTaskMessagesRequest};
use trellis_wire::report::MAX_REPORT_BYTES;

use super::call::Call;
use super::objects::{self, Peer};
use crate::api::{account, app, changes, control, fleet, training, trellis};
use crate::dialect::app::Instructions;
use crate::watch::metrics as label;

/// Maximum size of the message of a call that carries no bulk data.
pub const SMALL_BYTES: u64 = 64 << 10;
/// Maximum size of an announcement of a node's replies: ids of 400,000 objects.
const ANNOUNCEMENT_BYTES: u64 = 32 << 20;
/// Maximum size of an assignment of shards: 100,000 nodes.
const ASSIGNMENT_BYTES: u64 = 4 << 20;
/// Messages that may wait for a slow reader of a log.
const LOG_BACKLOG: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    Control,
    Fleet,
    /// ServerAppIo and Runtime.
    App,
    /// Trellis' own calls.
    Trellis,
}

impl Api {
    pub fn name(self) -> &'static str {
        match self {
            Api::Control => "control",
            Api::Fleet => "fleet",
            Api::App => "runtime",
            Api::Trellis => "trellis",
        }
    }
}

impl Api {
    pub fn label(self) -> label::Api {
        match self {
            Api::Control => label::Api::Control,
            Api::Fleet => label::Api::Fleet,
            Api::App => label::Api::App,
            Api::Trellis => label::Api::Trellis,
        }
    }
}

/// The proof that a sender must give in the headers of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Open,
    /// A signature with the key of the node that the message names.
    Node,
    /// The token of an account with this permission, unless accounts are off.
    Account(Permission),
    /// The token of a ServerApp. Flower up to 1.27 sends none if a SuperExec starts it; then `app_trust` decides.
    App,
    /// The right to start ServerApps: the secret of SuperExecs, or a decision of `app_trust`.
    Launcher,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Grpc,
    Http,
    Both,
}

impl On {
    pub fn has(self, transport: Transport) -> bool {
        match self {
            On::Both => true,
            On::Grpc => transport == Transport::Grpc,
            On::Http => transport == Transport::Http,
        }
    }
}

type Handling = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send>>;

/// A served call.
pub struct Rpc {
    pub api: Api,
    pub name: &'static str,
    pub on: On,
    pub access: Access,
    /// The call may be held: it then waits without work.
    pub held: bool,
    /// The message is an object, which is streamed.
    pub streams_in: bool,
    /// Maximum size of the message; `u64::MAX`: the limit of the configuration.
    pub message_bytes: u64,
    /// Callers with unregistered keys may send it, too.
    pub for_unknown_senders: bool,
    pub handle: fn(Call) -> Handling,
}

impl Rpc {
    const fn new(api: Api, name: &'static str, on: On, access: Access, handle: fn(Call) -> Handling) -> Rpc {
        let (held, streams_in, message_bytes, for_unknown_senders) = (false, false, SMALL_BYTES, false);
        Rpc { api, name, on, access, held, streams_in, message_bytes, for_unknown_senders, handle }
    }

    const fn held(mut self) -> Rpc {
        self.held = true;
        self
    }

    const fn streams_in(mut self) -> Rpc {
        self.streams_in = true;
        self
    }

    const fn at_most(mut self, message_bytes: u64) -> Rpc {
        self.message_bytes = message_bytes;
        self
    }

    const fn large(self) -> Rpc {
        self.at_most(u64::MAX)
    }

    const fn for_unknown_senders(mut self) -> Rpc {
        self.for_unknown_senders = true;
        self
    }

    /// Returns the paths of the call over a transport.
    pub fn paths(&self, transport: Transport) -> Vec<String> {
        if !self.on.has(transport) {
            return Vec::new();
        }
        let services: &[&str] = match (transport, self.api) {
            (Transport::Http, api) => return vec![format!("/v1/{}/{}", api.name(), kebab(self.name))],
            (_, Api::Control) => &["Control"],
            (_, Api::Fleet) => &["Fleet"],
            (_, Api::App) => &["ServerAppIo", "Runtime"],
            (_, Api::Trellis) => &[],
        };
        services.iter().map(|service| format!("/flwr.proto.{service}/{}", self.name)).collect()
    }
}

/// Finds the call of a path, and the path with a static lifetime.
pub fn find(transport: Transport, path: &str) -> Option<(&'static str, &'static Rpc)> {
    type Found = (&'static str, &'static Rpc);
    static PATHS: LazyLock<HashMap<(Transport, &'static str), Found>> = LazyLock::new(|| {
        let mut paths = HashMap::new();
        for transport in [Transport::Grpc, Transport::Http] {
            for rpc in ALL {
                for path in rpc.paths(transport) {
                    let path: &'static str = path.leak();
                    paths.insert((transport, path), (path, rpc));
                }
            }
        }
        paths
    });
    PATHS.get(&(transport, path)).copied()
}

/// A handler of the Fleet API.
macro_rules! fleet {
    ($handler:ident) => {
        |mut call| {
            Box::pin(async move {
                let caller = call.node()?;
                let request = call.read().await?;
                fleet::$handler(&call.link, &caller, request).await.map(|response| Answer::message(&response))
            })
        }
    };
}

/// A handler of the Control API.
macro_rules! control {
    ($handler:ident) => {
        |mut call| {
            Box::pin(async move {
                let who = call.account()?;
                let request = call.read().await?;
                control::$handler(&call.link, &who, request).await.map(|response| Answer::message(&response))
            })
        }
    };
}

/// A handler for ServerApps of either dialect.
macro_rules! app {
    ($handler:ident) => {
        |mut call| {
            Box::pin(async move {
                let caller = call.app()?;
                let request = call.read().await?;
                app::$handler(&call.link, &caller, request).await.map(|response| Answer::message(&response))
            })
        }
    };
}

/// A handler for launchers of ServerApps.
macro_rules! launcher {
    ($handler:ident) => {
        |mut call| {
            Box::pin(async move {
                let request = call.read_signed().await?;
                app::$handler(&call.link, request).await.map(|response| Answer::message(&response))
            })
        }
    };
}

fn push_object(call: Call) -> Handling {
    Box::pin(async move {
        let caller = call.node()?;
        objects::push(&call.link, Peer::Node(caller), call.body).await
    })
}

fn pull_object(call: Call) -> Handling {
    Box::pin(async move {
        let caller = call.node()?;
        objects::pull(&call.link, Peer::Node(caller), call.body).await
    })
}

fn push_app_object(call: Call) -> Handling {
    Box::pin(async move { objects::push(&call.link, Peer::App(call.app()?), call.body).await })
}

fn pull_app_object(call: Call) -> Handling {
    Box::pin(async move { objects::pull(&call.link, Peer::App(call.app()?), call.body).await })
}

fn push_app_messages(mut call: Call) -> Handling {
    Box::pin(async move {
        let caller = call.app()?;
        let (run, messages, trees) = if call.is_task() {
            call.read::<PushTaskMessagesRequest>().await?.into_parts()
        } else {
            call.read::<PushAppMessagesRequest>().await?.into_parts()
        };
        let response = app::push_messages(&call.link, caller.run(run), &messages, &trees).await?;
        Ok(Answer::message(&response))
    })
}

/// Over gRPC an app uses one connection, so its end is a signal. HTTP clients close idle connections.
fn pull_app_inputs(mut call: Call) -> Handling {
    Box::pin(async move {
        let request = call.read().await?;
        let client = call.client.describe(&call.headers);
        let response = app::pull_app_inputs(&call.link, request, client).await?;
        watch_connection(&call, response.run.as_ref().map_or(0, |run| run.run_id));
        Ok(Answer::message(&response))
    })
}

fn pull_task_input(mut call: Call) -> Handling {
    Box::pin(async move {
        let caller = call.app()?;
        let request = call.read().await?;
        let client = call.client.describe(&call.headers);
        let response = app::pull_task_input(&call.link, &caller, request, client).await?;
        if call.client.transport == Transport::Grpc {
            watch_connection(&call, response.task_id);
        }
        Ok(Answer::message(&response))
    })
}

fn watch_connection(call: &Call, run: u64) {
    let (link, closed) = (call.link.clone(), call.connection.closed());
    tokio::spawn(async move {
        closed.await;
        app::hangup(&link, trellis_core::id::RunId(run)).await;
    });
}

fn show_federation(mut call: Call) -> Handling {
    Box::pin(async move {
        let request = call.read().await?;
        let head = control::show_federation(&call.link, &call.client, request).await?;
        Ok(Answer::Message { head, rest: Rest::Nothing })
    })
}

fn list_federations(call: Call) -> Handling {
    Box::pin(async move { Ok(Answer::message(&control::list_federations(&call.client))) })
}

fn start_run(mut call: Call) -> Handling {
    Box::pin(async move {
        let who = call.account()?;
        let request = call.read().await?;
        let response = control::start_run(&call.link, &who, &call.client, request).await?;
        Ok(Answer::message(&response))
    })
}

fn get_login_details(call: Call) -> Handling {
    Box::pin(async move {
        let details = account::get_login_details(&call.link, call.source(), &call.login_page())?;
        Ok(Answer::message(&details))
    })
}

/// A handler of calls without authentication.
macro_rules! open {
    ($handler:ident) => {
        |mut call| {
            Box::pin(async move {
                let request = call.read().await?;
                account::$handler(&call.link, request).await.map(|response| Answer::message(&response))
            })
        }
    };
}

/// A handler of Trellis' own calls.
macro_rules! json {
    ($handler:ident) => {
        |mut call| {
            Box::pin(async move {
                let who = call.account()?;
                let request = call.read_json().await?;
                json(&trellis::$handler(&call.link, &who, request).await?)
            })
        }
    };
}

fn json(response: &impl serde::Serialize) -> Result<Answer, Refusal> {
    match serde_json::to_vec(response) {
        Ok(bytes) => Ok(Answer::Json(bytes.into())),
        Err(error) => Err(Refusal::transient("The answer could not be encoded.", error)),
    }
}

fn join(mut call: Call) -> Handling {
    Box::pin(async move {
        let key = call.node()?.key().clone();
        let request = call.read_json().await?;
        json(&trellis::join(&call.link, &key, request).await?)
    })
}

fn describe_node(mut call: Call) -> Handling {
    Box::pin(async move {
        let caller = call.node()?;
        let request = call.read_json().await?;
        json(&fleet::describe_node(&call.link, &caller, request).await?)
    })
}

fn node_shard(mut call: Call) -> Handling {
    Box::pin(async move {
        let caller = call.node()?;
        let request = call.read_json().await?;
        json(&fleet::node_shard(&call.link, &caller, request).await?)
    })
}

/// Checks the rate before the message is read.
fn push_app_log(mut call: Call) -> Handling {
    Box::pin(async move {
        let caller = call.node()?;
        call.link.app_logs.admit(caller.node(), call.link.now())?;
        let request = call.read_json().await?;
        json(&fleet::push_app_log(&call.link, &caller, request).await?)
    })
}

fn report_training(mut call: Call) -> Handling {
    Box::pin(async move {
        let caller = call.app()?;
        let report = call.body.whole().await?;
        json(&training::report_training(&call.link, &caller, &report).await?)
    })
}

fn run_history(mut call: Call) -> Handling {
    Box::pin(async move {
        let who = call.account()?;
        let request = call.read_json().await?;
        json(&training::run_history(&call.link, &who, request).await?)
    })
}

/// Rechecks the permission at the end of the hold: it may have been revoked meanwhile.
fn watch(mut call: Call) -> Handling {
    Box::pin(async move {
        let (request, right) = (call.read_json().await?, call.lasting_right());
        let changed = changes::watch(&call.link, request).await?;
        right.check(&call.link)?;
        json(&changed)
    })
}

fn stream_logs(mut call: Call) -> Handling {
    Box::pin(async move {
        let (link, right) = (call.link.clone(), call.lasting_right());
        let request = call.read().await?;
        control::log_exists(&link, &request)?;
        let (send, receive) = mpsc::channel(LOG_BACKLOG);
        tokio::spawn(async move {
            let streamed = tokio::select! {
                streamed = control::stream_logs(&link, &right, request, &send) => streamed,
                () = send.closed() => Ok(()),
            };
            if let Err(refusal) = streamed {
                let _ = send.send(Err(refusal)).await;
            }
        });
        Ok(Answer::Stream(receive))
    })
}

use Access::{Account, App, Launcher, Node, Open};
use Api::{App as APP, Control as CONTROL, Fleet as FLEET, Trellis as TRELLIS};
use On::{Both, Grpc, Http};

use trellis_core::account::Permission::{self, Administer, Run, View};

pub static ALL: &[Rpc] = &[
    Rpc::new(CONTROL, "StartRun", Both, Account(Run), start_run).large(),
    Rpc::new(CONTROL, "StopRun", Both, Account(Run), control!(stop_run)),
    Rpc::new(CONTROL, "StreamLogs", Both, Account(View), stream_logs).held(),
    Rpc::new(CONTROL, "ListRuns", Both, Account(View), control!(list_runs)),
    Rpc::new(CONTROL, "ListNodes", Both, Account(View), control!(list_nodes)),
    Rpc::new(CONTROL, "RegisterNode", Both, Account(Administer), control!(register_node)),
    Rpc::new(CONTROL, "UnregisterNode", Both, Account(Administer), control!(unregister_node)),
    Rpc::new(CONTROL, "ListFederations", Both, Account(View), list_federations),
    Rpc::new(CONTROL, "ShowFederation", Both, Account(View), show_federation),
    Rpc::new(CONTROL, "PullArtifacts", Both, Account(View), control!(pull_artifacts)),
    Rpc::new(CONTROL, "GetLoginDetails", Both, Open, get_login_details),
    Rpc::new(CONTROL, "GetAuthTokens", Both, Open, open!(get_auth_tokens)),
    Rpc::new(CONTROL, "RefreshAuthTokens", Http, Open, open!(refresh_auth_tokens)),
    //
    Rpc::new(FLEET, "RegisterNode", Both, Node, fleet!(register_node)).for_unknown_senders(),
    Rpc::new(FLEET, "ActivateNode", Both, Node, fleet!(activate_node)).for_unknown_senders(),
    Rpc::new(FLEET, "DeactivateNode", Both, Node, fleet!(deactivate_node)),
    Rpc::new(FLEET, "UnregisterNode", Both, Node, fleet!(unregister_node)),
    Rpc::new(FLEET, "SendNodeHeartbeat", Both, Node, fleet!(send_node_heartbeat)),
    Rpc::new(FLEET, "PullMessages", Both, Node, fleet!(pull_messages)).held(),
    Rpc::new(FLEET, "PushMessages", Both, Node, fleet!(push_messages)).at_most(ANNOUNCEMENT_BYTES),
    Rpc::new(FLEET, "GetRun", Both, Node, fleet!(get_run)),
    Rpc::new(FLEET, "GetFab", Both, Node, fleet!(get_fab)),
    Rpc::new(FLEET, "PushObject", Both, Node, push_object).streams_in(),
    Rpc::new(FLEET, "PullObject", Both, Node, pull_object),
    Rpc::new(FLEET, "ConfirmMessageReceived", Both, Node, fleet!(confirm_message_received)),
    // Launchers of ServerApps: 1.25 to 1.29, 1.30 to 1.39, 1.39 and later.
    Rpc::new(APP, "ListAppsToLaunch", Grpc, Launcher, launcher!(list_apps_to_launch)).held(),
    Rpc::new(APP, "RequestToken", Grpc, Launcher, launcher!(request_token)),
    Rpc::new(APP, "PullPendingTasks", Both, Launcher, launcher!(pull_pending_tasks)).held(),
    Rpc::new(APP, "ClaimTask", Both, Launcher, launcher!(claim_task)),
    Rpc::new(APP, "AcquireTask", Both, Launcher, launcher!(acquire_task)).held(),
    // ServerApps up to 1.29.
    Rpc::new(APP, "PullAppInputs", Grpc, App, pull_app_inputs),
    Rpc::new(APP, "PushAppOutputs", Grpc, App, app!(push_app_outputs)).large(),
    Rpc::new(APP, "SendAppHeartbeat", Grpc, App, app!(send_app_heartbeat)),
    Rpc::new(APP, "UpdateRunStatus", Grpc, App, app!(update_run_status)),
    Rpc::new(APP, "GetRun", Grpc, App, app!(get_run)),
    Rpc::new(APP, "GetRunStatus", Grpc, App, app!(get_run_status)),
    Rpc::new(APP, "GetFab", Grpc, App, app!(get_fab)),
    // ServerApps from 1.30.
    Rpc::new(APP, "PullTaskInput", Both, App, pull_task_input),
    Rpc::new(APP, "PushTaskOutput", Both, App, app!(push_task_output)).large(),
    Rpc::new(APP, "SendTaskHeartbeat", Both, App, app!(send_task_heartbeat)),
    // All ServerApps.
    Rpc::new(APP, "GetNodes", Both, App, app!(get_nodes)),
    Rpc::new(APP, "PushMessages", Both, App, push_app_messages).large(),
    Rpc::new(APP, "PullMessages", Both, App, app!(pull_messages)).held().large(),
    Rpc::new(APP, "PushLogs", Both, App, app!(push_logs)).large(),
    Rpc::new(APP, "PushObject", Both, App, push_app_object).streams_in(),
    Rpc::new(APP, "PullObject", Both, App, pull_app_object),
    Rpc::new(APP, "ConfirmMessageReceived", Both, App, app!(confirm_message_received)),
    //
    Rpc::new(TRELLIS, "ListNodes", Http, Account(View), json!(list_nodes)),
    Rpc::new(TRELLIS, "RevokeNode", Http, Account(Administer), json!(revoke_node)),
    Rpc::new(TRELLIS, "CreateJoinToken", Http, Account(Administer), json!(create_join_token)),
    Rpc::new(TRELLIS, "Join", Http, Node, join).for_unknown_senders(),
    Rpc::new(TRELLIS, "DescribeNode", Http, Node, describe_node),
    Rpc::new(TRELLIS, "NodeShard", Http, Node, node_shard),
    Rpc::new(TRELLIS, "PushAppLog", Http, Node, push_app_log),
    Rpc::new(TRELLIS, "AssignShards", Http, Account(Administer), json!(assign_shards)).at_most(ASSIGNMENT_BYTES),
    Rpc::new(TRELLIS, "CreateAccount", Http, Account(Administer), json!(create_account)),
    Rpc::new(TRELLIS, "ListAccounts", Http, Account(Administer), json!(list_accounts)),
    Rpc::new(TRELLIS, "SetRole", Http, Account(Administer), json!(set_role)),
    Rpc::new(TRELLIS, "DisableAccount", Http, Account(Administer), json!(disable_account)),
    Rpc::new(TRELLIS, "EnableAccount", Http, Account(Administer), json!(enable_account)),
    Rpc::new(TRELLIS, "CreateToken", Http, Account(Administer), json!(create_token)),
    Rpc::new(TRELLIS, "ListTokens", Http, Account(Administer), json!(list_tokens)),
    Rpc::new(TRELLIS, "RevokeToken", Http, Account(Administer), json!(revoke_token)),
    Rpc::new(TRELLIS, "ListAudit", Http, Account(Administer), json!(list_audit)),
    Rpc::new(TRELLIS, "WhoAmI", Http, Account(View), json!(who_am_i)),
    Rpc::new(TRELLIS, "ApproveLogin", Http, Account(View), json!(approve_login)),
    Rpc::new(TRELLIS, "ApproveIdentity", Http, Account(Administer), json!(approve_identity)),
    Rpc::new(TRELLIS, "ReportTraining", Http, App, report_training).at_most(MAX_REPORT_BYTES as u64),
    Rpc::new(TRELLIS, "RunHistory", Http, Account(View), run_history),
    Rpc::new(TRELLIS, "ReadLog", Http, Account(Administer), json!(read_log)),
    Rpc::new(TRELLIS, "ReadAppLog", Http, Account(View), json!(read_app_log)),
    Rpc::new(TRELLIS, "Watch", Http, Account(View), watch).held(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_flower() {
        let found = |transport, path| find(transport, path).map(|(_, rpc)| (rpc.api, rpc.name));
        assert_eq!(found(Transport::Grpc, "/flwr.proto.Fleet/PullMessages"), Some((Api::Fleet, "PullMessages")));
        assert_eq!(found(Transport::Grpc, "/flwr.proto.ServerAppIo/PullMessages"), Some((Api::App, "PullMessages")));
        assert_eq!(found(Transport::Grpc, "/flwr.proto.Runtime/ClaimTask"), Some((Api::App, "ClaimTask")));
        assert_eq!(found(Transport::Http, "/v1/runtime/acquire-task"), Some((Api::App, "AcquireTask")));
        assert_eq!(found(Transport::Http, "/v1/fleet/send-node-heartbeat"), Some((Api::Fleet, "SendNodeHeartbeat")));
        assert_eq!(found(Transport::Http, "/flwr.proto.Fleet/PullMessages"), None);
        assert_eq!(found(Transport::Http, "/v1/runtime/pull-app-inputs"), None, "gRPC only");
    }

    #[test]
    fn no_two_calls_share_a_path() {
        for transport in [Transport::Grpc, Transport::Http] {
            let mut paths: Vec<_> = ALL.iter().flat_map(|rpc| rpc.paths(transport)).collect();
            let all = paths.len();
            paths.sort();
            paths.dedup();
            assert_eq!(paths.len(), all);
        }
    }
}
