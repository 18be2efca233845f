//! The SuperLink as a ServerApp calls it: typed calls over HTTP, in the dialect of tasks (Flower 1.35 and later). A ServerApp
//! outlives the SuperLink that started it, so calls are retried until the SuperLink answers or the run has ended.
//!
//! Does not interpret the answers.

mod error;
mod rpc;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use tokio::sync::watch;
use trellis_core::id::{NodeId, ObjectId};
use trellis_wire::call::Done;
use trellis_wire::object::object_id;
use trellis_wire::proto;
use trellis_wire::report::TrainingReport;
use trellis_wire::token::Token;

pub use self::error::AppError;
use self::error::Failure;
use crate::fleet::line::Lines;
use crate::fleet::retry::{Backoff, Schedule};
use crate::fleet::rpc::Rpc;
use crate::fleet::{FleetOptions, Question, Reply, Transport};
use crate::{SuperLink, Target, Timeouts};

const TASK_TOKEN: &str = "flwr-task-token";
/// The release whose Runtime API is used.
const FLOWER_VERSION: &str = trellis_flower::Release::NEWEST_TEXT;

/// Retry delays while the SuperLink is unreachable: a restart may take a second only, and the app is idle meanwhile.
const RETRY: Backoff = Backoff::Exponential { first: Duration::from_millis(200), cap: Duration::from_secs(5) };
/// Times that a SuperLink may break over a call before that counts as a refusal.
const MAX_FAULTS: u32 = 3;
/// Retry delay for an announced object that is not stored yet.
const NOT_HERE_PAUSE: Duration = Duration::from_millis(200);

/// The SuperLink of a ServerApp. Clones share everything.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    lines: Lines,
    /// For our own calls.
    superlink: SuperLink,
    headers: HeaderMap,
    /// A SuperLink has answered at least once.
    was_answered: AtomicBool,
    away: watch::Sender<Option<String>>,
}

/// The tries of one call.
struct Tries {
    schedule: Schedule,
    faults: u32,
}

impl Tries {
    fn new() -> Tries {
        Tries { schedule: Schedule::new(RETRY, None, None), faults: 0 }
    }
}

/// The input of a ServerApp.
#[derive(Debug, Clone)]
pub struct TaskInput {
    pub context: proto::Context,
    pub run: proto::Run,
    pub fab: proto::Fab,
    pub task_id: u64,
}

/// Instructions that the SuperLink has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// In the order of the messages; `None` if the node is offline, and the message was dropped.
    pub ids: Vec<Option<ObjectId>>,
    /// Objects to push, children before parents.
    pub missing: Vec<ObjectId>,
    /// To be named with each of them.
    pub session: String,
}

/// How a ServerApp ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    Failed,
}

impl Outcome {
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
        }
    }
}

impl App {
    /// `token` is that of the task; the token of the target is for accounts, and not used.
    pub fn new(target: Target, token: Token) -> App {
        let options = FleetOptions { transport: Some(Transport::Http), ..FleetOptions::default() };
        App {
            inner: Arc::new(Inner {
                lines: Lines::new(target.clone(), options),
                superlink: SuperLink::new(target)
                    .with_timeouts(Timeouts { retries: Vec::new(), ..Timeouts::default() }),
                headers: headers(&token),
                was_answered: AtomicBool::new(false),
                away: watch::Sender::new(None),
            }),
        }
    }

    /// `host:port` of the SuperLink.
    pub fn endpoint(&self) -> String {
        self.inner.lines.target.endpoint()
    }

    /// Why the SuperLink does not answer; `None` if the last call was answered.
    pub fn away(&self) -> watch::Receiver<Option<String>> {
        self.inner.away.subscribe()
    }

    /// The run is running with this.
    pub async fn pull_task_input(&self) -> Result<TaskInput, AppError> {
        let input: proto::PullTaskInputResponse =
            self.call(rpc::PULL_TASK_INPUT, &proto::PullTaskInputRequest {}).await?;
        let proto::PullTaskInputResponse { context: Some(context), run: Some(run), fab: Some(fab), task_id } = input
        else {
            return Err(self.refused(rpc::PULL_TASK_INPUT, "the answer lacks the context, the run or the app"));
        };
        Ok(TaskInput { context, run, fab, task_id })
    }

    /// The nodes that are online, in the order of their ids.
    pub async fn get_nodes(&self) -> Result<Vec<NodeId>, AppError> {
        let response: proto::GetNodesResponse = self.call(rpc::GET_NODES, &proto::GetTaskNodesRequest {}).await?;
        let mut nodes: Vec<NodeId> = response.nodes.iter().map(|node| NodeId(node.node_id)).collect();
        nodes.sort_unstable();
        Ok(nodes)
    }

    /// Announces instructions. Each has its tree, at the same position.
    pub async fn push_messages(
        &self,
        messages: Vec<proto::Message>,
        trees: Vec<proto::ObjectTree>,
    ) -> Result<Announced, AppError> {
        let request = proto::PushTaskMessagesRequest { messages_list: messages, message_object_trees: trees };
        let response: proto::PushAppMessagesResponse = self.call(rpc::PUSH_MESSAGES, &request).await?;
        let unreadable = |_| self.refused(rpc::PUSH_MESSAGES, "the answer names objects in an unknown way");
        let id = |id: &String| if id.is_empty() { Ok(None) } else { id.parse().map(Some) };
        Ok(Announced {
            ids: response.message_ids.iter().map(id).collect::<Result<_, _>>().map_err(unreadable)?,
            missing: response
                .objects_to_push
                .iter()
                .map(|id| id.parse())
                .collect::<Result<_, _>>()
                .map_err(unreadable)?,
            session: response.session_id,
        })
    }

    /// Brings an object. `false`: it was not announced, or no longer is.
    pub async fn push_object(&self, id: ObjectId, content: Bytes, session: &str) -> Result<bool, AppError> {
        let request = proto::PushObjectRequest {
            node: Some(here()),
            object_id: id.to_string(),
            session_id: session.to_owned(),
            ..Default::default()
        };
        let question = || Question::with_object(rpc::PUSH_OBJECT, &request, content.clone());
        let response: proto::PushObjectResponse = self.insist(question, self.timeouts()).await?;
        Ok(response.stored)
    }

    /// Pulls the replies to instructions. The SuperLink holds the call until `enough` of them are ready or failed (0: all), or
    /// for a while; then it returns the ready ones.
    pub async fn pull_messages(
        &self,
        ids: &[ObjectId],
        enough: u32,
    ) -> Result<Vec<(proto::Message, proto::ObjectTree)>, AppError> {
        let message_ids = ids.iter().map(ObjectId::to_string).collect();
        let request = proto::PullTaskMessagesRequest { message_ids, enough };
        let question = || Question::new(rpc::PULL_MESSAGES, &request);
        let silence = self.inner.lines.options.hold_timeout;
        let response: proto::PullAppMessagesResponse = self.insist(question, silence).await?;
        if response.messages_list.len() != response.message_object_trees.len() {
            return Err(self.refused(rpc::PULL_MESSAGES, "the answer has not one tree for each message"));
        }
        Ok(response.messages_list.into_iter().zip(response.message_object_trees).collect())
    }

    /// Pulls an object, and verifies its digest.
    pub async fn pull_object(&self, id: ObjectId) -> Result<Bytes, AppError> {
        let request = proto::PullObjectRequest { node: Some(here()), object_id: id.to_string(), ..Default::default() };
        let question = || Question::for_object(rpc::PULL_OBJECT, &request);
        let mut schedule = Schedule::new(RETRY, None, None);
        loop {
            let response: proto::PullObjectResponse = self.insist(question, self.timeouts()).await?;
            if !response.object_found {
                return Err(self.refused(rpc::PULL_OBJECT, &format!("the object {id} is not there any more")));
            }
            if !response.object_available {
                tokio::time::sleep(NOT_HERE_PAUSE).await;
                continue;
            }
            if object_id(&response.object_content) == id {
                return Ok(response.object_content);
            }
            // Damaged on the way: once more.
            tokio::time::sleep(schedule.next(Instant::now(), random()).unwrap_or_default()).await;
        }
    }

    /// Confirms a reply and all its objects: the SuperLink may delete both.
    pub async fn confirm(&self, message: ObjectId) -> Result<(), AppError> {
        let request = proto::ConfirmMessageReceivedRequest {
            node: Some(here()),
            run_id: 0,
            message_object_id: message.to_string(),
        };
        let done = self.call::<proto::ConfirmMessageReceivedResponse>(rpc::CONFIRM_MESSAGE_RECEIVED, &request);
        done.await.map(drop)
    }

    /// Adds to the log of the run, as it is.
    pub async fn push_logs(&self, text: String) -> Result<(), AppError> {
        let request = proto::PushLogsRequest { node: Some(here()), run_id: 0, logs: vec![text] };
        self.call::<proto::PushLogsResponse>(rpc::PUSH_LOGS, &request).await.map(drop)
    }

    /// Sends a heartbeat.
    pub async fn heartbeat(&self) -> Result<(), AppError> {
        let response: proto::SendTaskHeartbeatResponse =
            self.call(rpc::SEND_TASK_HEARTBEAT, &proto::SendTaskHeartbeatRequest {}).await?;
        if response.success {
            return Ok(());
        }
        let (endpoint, call) = (self.endpoint(), rpc::SEND_TASK_HEARTBEAT.name);
        Err(AppError::RunOver { endpoint, call, why: "the heartbeat does not count any more".to_owned() })
    }

    /// The app's last word: the run is over with it.
    pub async fn push_task_output(
        &self,
        context: proto::Context,
        outcome: Outcome,
        details: &str,
    ) -> Result<(), AppError> {
        let request = proto::PushTaskOutputRequest {
            context: Some(context),
            sub_status: outcome.name().to_owned(),
            details: details.to_owned(),
            clientapp_runtime: None,
        };
        self.call::<proto::PushTaskOutputResponse>(rpc::PUSH_TASK_OUTPUT, &request).await.map(drop)
    }

    /// Reports the progress of the training. SuperLinks without this call refuse it.
    pub async fn report_training(&self, report: &TrainingReport) -> Result<(), AppError> {
        let mut tries = Tries::new();
        loop {
            match self.inner.superlink.call_with(report, &self.inner.headers).await {
                Ok(Done {}) => {
                    self.note_answer();
                    return Ok(());
                }
                Err(error) => self.after(error.into(), &mut tries).await?,
            }
        }
    }

    async fn call<A: prost::Message + Default>(
        &self,
        rpc: &'static Rpc,
        request: &impl prost::Message,
    ) -> Result<A, AppError> {
        self.insist(|| Question::new(rpc, request), self.timeouts()).await
    }

    fn timeouts(&self) -> Duration {
        self.inner.lines.options.answer_timeout
    }

    /// Retries a call until it is answered.
    async fn insist<A: prost::Message + Default>(
        &self,
        question: impl Fn() -> Question<'static>,
        silence: Duration,
    ) -> Result<A, AppError> {
        let mut tries = Tries::new();
        loop {
            match self.once(&question(), silence).await {
                Ok(answer) => {
                    self.note_answer();
                    return Ok(answer);
                }
                Err(failure) => self.after(failure, &mut tries).await?,
            }
        }
    }

    async fn once<A: prost::Message + Default>(
        &self,
        question: &Question<'_>,
        silence: Duration,
    ) -> Result<A, Failure> {
        let (endpoint, call) = (self.endpoint(), question.rpc.name);
        match self.inner.lines.reply(question, silence, |_| self.inner.headers.clone()).await {
            Ok(Reply::Message(bytes)) => A::decode(bytes).map_err(|error| {
                let why = format!("the answer cannot be read: {error}");
                Failure::Fault(AppError::Refused { endpoint, call, why })
            }),
            Ok(Reply::Refused(refusal)) => Err(Failure::of_refusal(refusal, endpoint, call)),
            Err(trouble) => Err(Failure::from(trouble.to_error(endpoint, call))),
        }
    }

    /// Waits for the next retry, if there is one.
    async fn after(&self, failure: Failure, tries: &mut Tries) -> Result<(), AppError> {
        let why = match failure {
            Failure::Final(error) => {
                self.note_answer();
                return Err(error);
            }
            Failure::Fault(error) if tries.faults >= MAX_FAULTS => return Err(error),
            Failure::Fault(error) => {
                tries.faults += 1;
                error.to_string()
            }
            // An endpoint that never was a SuperLink is a wrong address; otherwise another program may have its port for a while.
            Failure::Misdirected(error) if !self.inner.was_answered.load(Ordering::Relaxed) => return Err(error),
            Failure::Misdirected(error) => error.to_string(),
            Failure::Away(why) => why,
        };
        self.inner.away.send_if_modified(|away| away.is_none() && away.replace(why).is_none());
        tokio::time::sleep(tries.schedule.next(Instant::now(), random()).unwrap_or_default()).await;
        Ok(())
    }

    fn note_answer(&self) {
        self.inner.was_answered.store(true, Ordering::Relaxed);
        self.inner.away.send_if_modified(|away| away.take().is_some());
    }

    fn refused(&self, rpc: &Rpc, why: &str) -> AppError {
        AppError::Refused { endpoint: self.endpoint(), call: rpc.name, why: why.to_owned() }
    }
}

/// ServerApps send and receive as the SuperLink itself.
fn here() -> proto::Node {
    proto::Node { node_id: NodeId::SUPERLINK.0 }
}

fn headers(token: &Token) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("flwr-package-name", HeaderValue::from_static("flwr"));
    headers.insert("flwr-package-version", HeaderValue::from_static(FLOWER_VERSION));
    headers.insert("flwr-component-name", HeaderValue::from_static("flwr-serverapp"));
    headers.insert("user-agent", HeaderValue::from_static(concat!("trellis/", env!("CARGO_PKG_VERSION"))));
    headers.insert(TASK_TOKEN, secret(token));
    headers
}

fn secret(token: &Token) -> HeaderValue {
    let mut value = HeaderValue::try_from(token.reveal()).expect("tokens are printable");
    value.set_sensitive(true);
    value
}

/// Between 0 and 1.
fn random() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness the waits are the shortest: unpleasant, and no reason to stop.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}
