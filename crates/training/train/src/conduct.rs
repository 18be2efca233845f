//! Runs one phase of a round: sends instructions, receives replies concurrently, and executes the steps of the phase's state
//! machine ([`crate::round`]). Enforces the deadline; other modules judge replies.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use trellis_client::app::{App, AppError};
use trellis_core::id::{NodeId, ObjectId};
use trellis_strategy::Reply;
use trellis_strategy::metrics::scalar;
use trellis_strategy::privacy::NORM_BIT;
use trellis_wire::object::MetricRecord;
use trellis_wire::proto;

use crate::aggregate::{Aggregation, Contribution};
use crate::content::{Address, Content};
use crate::deliver::deliver;
use crate::error::TrainError;
use crate::exchange::{MessageFormat, weight};
use crate::receive::{Expected, NotReceived, Received, Receiver};
use crate::round::{FailureKind, Phase, Rules, Step};
use crate::settings::NonFinite;

/// Replies that are received concurrently.
const MAX_LONG_TRANSFERS: usize = 4;
const MAX_SHORT_TRANSFERS: usize = 16;
/// The limit of a short reply.
const SHORT_BYTES: usize = 1 << 20;
/// The limit of disk space for replies that arrive before their turn, if all replies are needed anyway. Further replies stay
/// at the SuperLink.
const AHEAD_BYTES: usize = 4 << 30;
/// The delay before the next pull if the SuperLink answered at once without replies.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pulls per phase, if replies arrive evenly.
const PULLS_PER_PHASE: usize = 8;

/// The task of a phase.
pub struct Plan<'a> {
    pub message_format: MessageFormat,
    pub nodes: &'a [NodeId],
    pub rules: Rules,
    pub timeout: Duration,
    pub content: Content,
    pub address: Address<'a>,
    pub expected: Expected,
    /// The expected size of a reply.
    pub reply_bytes: usize,
    /// Metrics that a reply must have in addition to its weight.
    pub needs: Needs,
    pub non_finite: NonFinite,
}

/// Required metrics.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    pub loss: Option<String>,
    pub norm_bit: bool,
}

/// The metrics of a node's reply.
#[derive(Debug, Clone)]
pub struct ReplyMetrics {
    pub node: NodeId,
    pub weight: f64,
    pub metrics: MetricRecord,
    /// The time from the instruction to the reply.
    pub seconds: f64,
}

/// A finished phase.
pub struct Conducted {
    pub phase: Phase,
    /// The accepted replies, sorted by node id.
    pub replies: Vec<ReplyMetrics>,
    /// Why there is no result.
    pub void: Option<String>,
    pub seconds: f64,
}

/// A reply that is available at the SuperLink.
struct Arrived {
    message: ObjectId,
    tree: proto::ObjectTree,
    /// Set instead of content if the node failed.
    error: Option<proto::Error>,
    seconds: f64,
}

struct Conduct<'a> {
    receiver: &'a Receiver,
    plan: &'a Plan<'a>,
    aggregation: Option<&'a Aggregation>,
    phase: Phase,
    began: Instant,
    instructions: HashMap<NodeId, ObjectId>,
    /// Replies at the SuperLink that are not being received yet.
    arrived: BTreeMap<NodeId, Arrived>,
    receiving: JoinSet<(NodeId, f64, Result<Received, NotReceived>)>,
    /// Received replies that wait for their turn.
    accepted: BTreeMap<NodeId, (ReplyMetrics, Received)>,
    replies: Vec<ReplyMetrics>,
}

/// Runs a phase. Accepted replies are passed to the aggregation, if there is one.
pub async fn conduct(
    receiver: &Receiver,
    plan: &Plan<'_>,
    aggregation: Option<&Aggregation>,
) -> Result<Conducted, TrainError> {
    let began = Instant::now();
    let delivered = deliver(&receiver.app, &plan.content, plan.nodes, &plan.address).await?;
    let mut phase = Phase::new(plan.nodes, plan.rules);
    for node in delivered.unreachable {
        phase.fail(node, FailureKind::Unreachable, "the SuperLink no longer knows the node");
    }
    let conduct = Conduct {
        receiver,
        plan,
        aggregation,
        phase,
        began,
        instructions: delivered.instructions.into_iter().map(|(id, node)| (node, id)).collect(),
        arrived: BTreeMap::new(),
        receiving: JoinSet::new(),
        accepted: BTreeMap::new(),
        replies: Vec::new(),
    };
    conduct.run().await
}

impl Conduct<'_> {
    async fn run(mut self) -> Result<Conducted, TrainError> {
        let deadline = self.began.checked_add(self.plan.timeout);
        let mut is_late = false;
        let mut pulling: Option<AbortOnDropHandle<Pulled>> = None;
        loop {
            if let Some(void) = self.fold().await? {
                let seconds = self.began.elapsed().as_secs_f64();
                return Ok(Conducted { phase: self.phase, replies: self.replies, void, seconds });
            }
            self.receive_more();
            if pulling.is_none() {
                pulling = self.pull();
            }
            tokio::select! {
                pulled = join(&mut pulling) => {
                    pulling = None;
                    self.record(pulled??);
                }
                Some(received) = self.receiving.join_next() => match received {
                    Ok((node, seconds, received)) => self.take(node, seconds, received)?,
                    Err(error) => return Err(TrainError::Internal(error.to_string())),
                },
                () = until(deadline), if !is_late => {
                    is_late = true;
                    self.phase.deadline(self.plan.timeout.as_secs_f64());
                }
            }
        }
    }

    /// Executes steps of the state machine until it waits. `Some` ends the phase, with or without a result.
    async fn fold(&mut self) -> Result<Option<Option<String>>, TrainError> {
        loop {
            match self.phase.step() {
                Step::Wait => return Ok(None),
                Step::Finish => return Ok(Some(None)),
                Step::Void(reason) => return Ok(Some(Some(reason))),
                Step::Fold(node) => {
                    let Some((reply_metrics, received)) = self.accepted.remove(&node) else { continue };
                    if let (Some(aggregation), Some(numbers)) = (self.aggregation, received.numbers) {
                        let loss = self.plan.needs.loss.as_ref().and_then(|name| scalar(&reply_metrics.metrics, name));
                        let reply = Reply { node, weight: reply_metrics.weight, loss };
                        let was_clipped =
                            self.plan.needs.norm_bit && scalar(&reply_metrics.metrics, NORM_BIT) != Some(0.0);
                        if !aggregation.fold(Contribution { reply, numbers, was_clipped }).await {
                            // The aggregation has failed; its owner gets the error.
                            return Ok(Some(None));
                        }
                    }
                    self.replies.push(reply_metrics);
                }
            }
        }
    }

    /// Asks for missing replies; the call returns when some are available.
    fn pull(&self) -> Option<AbortOnDropHandle<Pulled>> {
        let waiting = self.phase.waiting();
        let ids: Vec<ObjectId> = waiting.iter().filter_map(|node| self.instructions.get(node)).copied().collect();
        if ids.is_empty() {
            return None;
        }
        let enough = (self.phase.needed().min(ids.len()) / PULLS_PER_PHASE).max(1);
        let (app, enough) = (self.receiver.app.clone(), u32::try_from(enough).unwrap_or(u32::MAX));
        Some(AbortOnDropHandle::new(tokio::spawn(async move { pull(&app, &ids, enough).await })))
    }

    /// Records replies that are available at the SuperLink.
    fn record(&mut self, pulled: Vec<(proto::Message, proto::ObjectTree)>) {
        let seconds = self.began.elapsed().as_secs_f64();
        let nodes: HashMap<String, NodeId> =
            self.instructions.iter().map(|(node, id)| (id.to_string(), *node)).collect();
        for (message, tree) in pulled {
            let metadata = message.metadata.unwrap_or_default();
            let Some(node) = nodes.get(&metadata.reply_to_message_id).copied() else { continue };
            let Ok(id) = tree.object_id.parse() else { continue };
            if self.phase.arrives(node) {
                self.arrived.insert(node, Arrived { message: id, tree, error: message.error, seconds });
            }
        }
    }

    /// Starts transfers of available replies, in the order of turns.
    fn receive_more(&mut self) {
        let at_once = if self.plan.reply_bytes <= SHORT_BYTES { MAX_SHORT_TRANSFERS } else { MAX_LONG_TRANSFERS };
        let may_wait = self.plan.rules.enough >= self.phase.asked();
        while self.receiving.len() < at_once
            && let Some((&node, _)) = self.arrived.first_key_value()
        {
            let ahead = (self.accepted.len() + self.receiving.len()) * self.plan.reply_bytes;
            if may_wait && ahead > AHEAD_BYTES && !self.phase.is_next(node) {
                return;
            }
            let arrived = self.arrived.remove(&node).expect("it is in the map");
            let (receiver, message_format, expected) =
                (self.receiver.clone(), self.plan.message_format, self.plan.expected.clone());
            self.receiving.spawn(async move {
                let Arrived { message, tree, error, seconds } = arrived;
                let received = match error {
                    Some(error) => Err(NotReceived::Refused(error)),
                    None => receiver.receive(&tree, message_format, &expected).await,
                };
                // The SuperLink may drop the reply.
                let confirmed = receiver.app.confirm(message).await;
                let over = match confirmed {
                    Err(error @ AppError::RunOver { .. }) => Some(NotReceived::Failure(error.into())),
                    _ => None,
                };
                (node, seconds, over.map_or(received, Err))
            });
        }
    }

    /// Handles the end of a transfer.
    fn take(&mut self, node: NodeId, seconds: f64, received: Result<Received, NotReceived>) -> Result<(), TrainError> {
        let error = match received {
            Ok(received) => match self.fit(node, seconds, &received) {
                Ok(reply_metrics) => {
                    self.phase.accept(node);
                    self.accepted.insert(node, (reply_metrics, received));
                    return Ok(());
                }
                Err(reason) => NotReceived::Unusable(reason),
            },
            Err(error) => error,
        };
        match error {
            NotReceived::Failure(error) => return Err(error),
            NotReceived::NonFinite(reason) if self.plan.non_finite == NonFinite::Fail => {
                return Err(TrainError::NonFinite { node, reason });
            }
            NotReceived::Unusable(reason) | NotReceived::NonFinite(reason) => {
                self.phase.fail(node, FailureKind::Rejected, reason);
            }
            NotReceived::Refused(error) => {
                self.phase.fail(node, FailureKind::of_error(error.code), first_line(&error.reason));
            }
        }
        Ok(())
    }

    /// Checks whether a reply has all required metrics.
    fn fit(&self, node: NodeId, seconds: f64, received: &Received) -> Result<ReplyMetrics, String> {
        let metrics = &received.metrics;
        let weight = weight(metrics, &self.receiver.weighted_by)?;
        if let Some(name) = &self.plan.needs.loss {
            match scalar(metrics, name) {
                Some(loss) if loss >= 0.0 && loss.is_finite() => {}
                Some(loss) => return Err(format!("its {name} is {loss}; a finite, non-negative number is required")),
                None => return Err(format!("its metrics have no single number {name:?}, which is required")),
            }
        }
        if self.plan.needs.norm_bit && scalar(metrics, NORM_BIT).is_none() {
            return Err(format!(
                "its metric {NORM_BIT:?} is missing, which tells whether its update was clipped: the ClientApp needs adaptiveclipping_mod"
            ));
        }
        Ok(ReplyMetrics { node, weight, metrics: metrics.clone(), seconds })
    }
}

type Pulled = Result<Vec<(proto::Message, proto::ObjectTree)>, AppError>;

/// The result of a task; without a task, pending forever.
async fn join<T>(task: &mut Option<AbortOnDropHandle<T>>) -> Result<T, TrainError> {
    match task {
        Some(task) => task.await.map_err(|error| TrainError::Internal(error.to_string())),
        None => std::future::pending().await,
    }
}

async fn pull(app: &App, ids: &[ObjectId], enough: u32) -> Pulled {
    let asked = Instant::now();
    let pulled = app.pull_messages(ids, enough).await?;
    if pulled.is_empty() && asked.elapsed() < POLL_INTERVAL {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(pulled)
}

/// `None` never elapses.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A reason may be a whole traceback, which is in the log of the node.
fn first_line(reason: &str) -> String {
    const MAX_CHARS: usize = 300;
    let line = reason.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it gave no reason");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line.to_owned(),
    }
}
