//! The two dialects of ServerApps.
//!
//! Up to 1.29 a message names its run, and only some messages carry the token (ServerAppIo). From 1.30 every call
//! carries the token of its task in a header, which determines the run, and the fields were renumbered (ServerAppIo to
//! 1.33, Runtime from 1.34, HTTP from 1.35). Handlers get one common form.

use trellis_core::id::{NodeId, RunId};
use trellis_core::run::ServerApp;
use trellis_wire::proto::*;

/// The task type of a run. A run has one task, with the id of the run.
pub const SERVER_APP: &str = "flwr-serverapp";
/// The task type of native runs. SuperExecs that do not request this type never get such a run.
pub const NATIVE_SERVER_APP: &str = "trellis-serverapp";

/// The type in the first dialect: SuperExecs of 1.28 and 1.29 accept no other.
const FIRST_SERVER_APP: &str = "serverapp";

/// The caller of a ServerApp's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// The message names the run, and its sender is trusted without a token (Flower up to 1.27).
    Named,
    /// Authenticated by the token with this hash.
    Token { run: RunId, hash: [u8; 32] },
}

impl Caller {
    /// Returns the run of the call.
    pub fn run(&self, named: u64) -> RunId {
        match self {
            Caller::Named => RunId(named),
            Caller::Token { run, .. } => *run,
        }
    }
}

/// Messages to nodes in either dialect.
pub trait Instructions: prost::Message + Default {
    fn into_parts(self) -> (u64, Vec<Message>, Vec<ObjectTree>);
}

impl Instructions for PushAppMessagesRequest {
    fn into_parts(self) -> (u64, Vec<Message>, Vec<ObjectTree>) {
        (self.run_id, self.messages_list, self.message_object_trees)
    }
}

impl Instructions for PushTaskMessagesRequest {
    fn into_parts(self) -> (u64, Vec<Message>, Vec<ObjectTree>) {
        (0, self.messages_list, self.message_object_trees)
    }
}

/// Converts a run to the first dialect.
pub fn first_run(run: Run) -> Run {
    Run { primary_task_type: FIRST_SERVER_APP.to_owned(), ..run }
}

/// Returns the task type of a run.
pub fn task_type(server_app: ServerApp) -> &'static str {
    match server_app {
        ServerApp::Flower => SERVER_APP,
        ServerApp::Native => NATIVE_SERVER_APP,
    }
}

/// Converts a run to a task for a SuperExec.
pub fn task(run: &Run, server_app: ServerApp) -> Task {
    let status = run.status.clone().unwrap_or_default();
    Task {
        task_id: run.run_id,
        r#type: task_type(server_app).to_owned(),
        run_id: run.run_id,
        status: Some(TaskStatus { status: status.status, sub_status: status.sub_status, details: status.details }),
        pending_at: run.pending_at.clone(),
        starting_at: run.starting_at.clone(),
        running_at: run.running_at.clone(),
        finished_at: run.finished_at.clone(),
        fab_hash: Some(run.fab_hash.clone()),
    }
}

/// Converts the inputs of a ServerApp to those of a task: its context has the SuperLink's node id, and the run id as
/// series.
pub fn task_input(inputs: PullAppInputsResponse) -> PullTaskInputResponse {
    let task_id = inputs.run.as_ref().map_or(0, |run| run.run_id);
    let context =
        inputs.context.map(|context| Context { node_id: NodeId::SUPERLINK.0, series_id: context.run_id, ..context });
    PullTaskInputResponse { context, run: inputs.run, fab: inputs.fab, task_id }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn the_token_determines_the_run() {
        assert_eq!(Caller::Named.run(7), RunId(7));
        assert_eq!(
            Caller::Token { run: RunId(9), hash: [0; 32] }.run(7),
            RunId(9),
            "the run in the message is ignored"
        );
    }

    /// Field 3 is the run's number in one dialect and the first tree in the other.
    #[test]
    fn instructions_of_both_dialects_have_the_same_parts() {
        let trees = vec![ObjectTree { object_id: "ab".to_owned(), children: Vec::new() }];
        let messages = vec![Message::default()];
        let first = PushAppMessagesRequest {
            token: "t".to_owned(),
            messages_list: messages.clone(),
            run_id: 5,
            message_object_trees: trees.clone(),
        };
        let later = PushTaskMessagesRequest { messages_list: messages.clone(), message_object_trees: trees.clone() };
        assert!(
            PushTaskMessagesRequest::decode(first.encode_to_vec().as_slice()).is_err(),
            "the dialects are distinguishable"
        );
        assert_eq!(first.into_parts(), (5, messages.clone(), trees.clone()));
        assert_eq!(later.into_parts(), (0, messages, trees));
    }

    #[test]
    fn a_run_is_a_task_with_its_own_number() {
        let run = Run { run_id: 1 << 63, fab_hash: "f".to_owned(), ..Default::default() };
        let native = task(&run, ServerApp::Native);
        let task = task(&run, ServerApp::Flower);
        assert_eq!((task.task_id, task.run_id, task.r#type.as_str()), (1 << 63, 1 << 63, "flwr-serverapp"));
        assert_eq!((native.task_id, native.r#type.as_str()), (1 << 63, "trellis-serverapp"));
        assert_eq!(first_run(run.clone()).primary_task_type, "serverapp");
        let context = Context { run_id: 1 << 63, ..Default::default() };
        let input = task_input(PullAppInputsResponse { context: Some(context), run: Some(run), fab: None });
        let context = input.context.unwrap();
        assert_eq!((input.task_id, context.node_id, context.series_id), (1 << 63, 1, 1 << 63));
    }
}
