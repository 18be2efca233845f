//! Conducts one phase of a round: sends instructions, takes replies in as they come, some at a time, and does what the
//! machine of the phase says. Deadlines are kept here; what a reply is good for is decided elsewhere.

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
use crate::exchange::{Speech, weight};
use crate::receive::{NotReceived, Received, Receiver, Wanted};
use crate::round::{FailureKind, Phase, Rules, Step};
use crate::settings::NonFinite;

/// Replies that are received at once.
const LONG_AT_ONCE: usize = 4;
const SHORT_AT_ONCE: usize = 16;
/// A reply is short up to this.
const SHORT_BYTES: usize = 1 << 20;
/// Replies that are here before their turn take up to so much disk, as long as all replies are needed anyway; the others
/// wait at the SuperLink.
const AHEAD_BYTES: usize = 4 << 30;
/// A SuperLink that answers at once, and with nothing, is asked again after this.
const PAUSE: Duration = Duration::from_millis(500);
/// So many times in a phase the SuperLink is asked for replies, if they come evenly.
const PULLS: usize = 8;

/// What is to be done in a phase.
pub struct Plan<'a> {
    pub speech: Speech,
    pub nodes: &'a [NodeId],
    pub rules: Rules,
    pub timeout: Duration,
    pub content: Content,
    pub address: Address<'a>,
    pub wanted: Wanted,
    /// Of a reply that is wanted.
    pub reply_bytes: usize,
    /// What is needed of a reply beside its arrays and its weight.
    pub needs: Needs,
    pub non_finite: NonFinite,
}

/// Metrics without which a reply is of no use.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    pub loss: Option<String>,
    pub norm_bit: bool,
}

/// What a node told beside its arrays.
#[derive(Debug, Clone)]
pub struct Told {
    pub node: NodeId,
    pub weight: f64,
    pub metrics: MetricRecord,
    /// From the instruction to the reply.
    pub seconds: f64,
}

/// A phase that is over.
pub struct Conducted {
    pub phase: Phase,
    /// Of the replies that count, in the order of node ids.
    pub told: Vec<Told>,
    /// Why there is no result, if there is none.
    pub void: Option<String>,
    pub seconds: f64,
}

/// A reply at the SuperLink.
struct Arrived {
    message: ObjectId,
    tree: proto::ObjectTree,
    /// What it is instead of a reply with content.
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
    /// Replies that wait at the SuperLink to be received.
    arrived: BTreeMap<NodeId, Arrived>,
    receiving: JoinSet<(NodeId, f64, Result<Received, NotReceived>)>,
    /// Replies that are here, and wait for their turn.
    here: BTreeMap<NodeId, (Told, Received)>,
    told: Vec<Told>,
}

/// Conducts a phase. Replies go to the aggregation, where there is one.
pub async fn conduct(
    receiver: &Receiver,
    plan: &Plan<'_>,
    aggregation: Option<&Aggregation>,
) -> Result<Conducted, TrainError> {
    let began = Instant::now();
    let delivered = deliver(&receiver.app, &plan.content, plan.nodes, &plan.address).await?;
    let mut phase = Phase::new(plan.nodes, plan.rules);
    for node in delivered.unreachable {
        phase.fail(node, FailureKind::Unreachable, "the SuperLink does not know it any more");
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
        here: BTreeMap::new(),
        told: Vec::new(),
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
                return Ok(Conducted { phase: self.phase, told: self.told, void, seconds });
            }
            self.receive_more();
            if pulling.is_none() {
                pulling = self.pull();
            }
            tokio::select! {
                pulled = join(&mut pulling) => {
                    pulling = None;
                    self.note(pulled??);
                }
                Some(received) = self.receiving.join_next() => match received {
                    Ok((node, seconds, received)) => self.take(node, seconds, received)?,
                    Err(error) => return Err(TrainError::Broken(error.to_string())),
                },
                () = until(deadline), if !is_late => {
                    is_late = true;
                    self.phase.deadline(self.plan.timeout.as_secs_f64());
                }
            }
        }
    }

    /// Does what the machine says, until it says to wait. `Some`: the phase is over, with or without a result.
    async fn fold(&mut self) -> Result<Option<Option<String>>, TrainError> {
        loop {
            match self.phase.step() {
                Step::Wait => return Ok(None),
                Step::Finish => return Ok(Some(None)),
                Step::Void(why) => return Ok(Some(Some(why))),
                Step::Fold(node) => {
                    let Some((told, received)) = self.here.remove(&node) else { continue };
                    if let (Some(aggregation), Some(numbers)) = (self.aggregation, received.numbers) {
                        let loss = self.plan.needs.loss.as_ref().and_then(|name| scalar(&told.metrics, name));
                        let reply = Reply { node, weight: told.weight, loss };
                        let was_clipped = self.plan.needs.norm_bit && scalar(&told.metrics, NORM_BIT) != Some(0.0);
                        if !aggregation.fold(Contribution { reply, numbers, was_clipped }).await {
                            // It has ended with a fault, which its owner will see.
                            return Ok(Some(None));
                        }
                    }
                    self.told.push(told);
                }
            }
        }
    }

    /// Asks for the replies that are missing; some of them are worth an answer.
    fn pull(&self) -> Option<AbortOnDropHandle<Pulled>> {
        let waiting = self.phase.waiting();
        let ids: Vec<ObjectId> = waiting.iter().filter_map(|node| self.instructions.get(node)).copied().collect();
        if ids.is_empty() {
            return None;
        }
        let enough = (self.phase.needed().min(ids.len()) / PULLS).max(1);
        let (app, enough) = (self.receiver.app.clone(), u32::try_from(enough).unwrap_or(u32::MAX));
        Some(AbortOnDropHandle::new(tokio::spawn(async move { pull(&app, &ids, enough).await })))
    }

    /// Replies are at the SuperLink.
    fn note(&mut self, pulled: Vec<(proto::Message, proto::ObjectTree)>) {
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

    /// Begins to receive what is at the SuperLink, the next in turn first.
    fn receive_more(&mut self) {
        let at_once = if self.plan.reply_bytes <= SHORT_BYTES { SHORT_AT_ONCE } else { LONG_AT_ONCE };
        let may_wait = self.plan.rules.enough >= self.phase.asked();
        while self.receiving.len() < at_once
            && let Some((&node, _)) = self.arrived.first_key_value()
        {
            let ahead = (self.here.len() + self.receiving.len()) * self.plan.reply_bytes;
            if may_wait && ahead > AHEAD_BYTES && !self.phase.is_next(node) {
                return;
            }
            let arrived = self.arrived.remove(&node).expect("it was just seen");
            let (receiver, speech, wanted) = (self.receiver.clone(), self.plan.speech, self.plan.wanted.clone());
            self.receiving.spawn(async move {
                let Arrived { message, tree, error, seconds } = arrived;
                let received = match error {
                    Some(error) => Err(NotReceived::Refused(error)),
                    None => receiver.receive(&tree, speech, &wanted).await,
                };
                // The SuperLink may forget it, whatever it was.
                let confirmed = receiver.app.confirm(message).await;
                let over = match confirmed {
                    Err(error @ AppError::RunOver { .. }) => Some(NotReceived::Trouble(error.into())),
                    _ => None,
                };
                (node, seconds, over.map_or(received, Err))
            });
        }
    }

    /// A reply is here, or will not be.
    fn take(&mut self, node: NodeId, seconds: f64, received: Result<Received, NotReceived>) -> Result<(), TrainError> {
        let fault = match received {
            Ok(received) => match self.fit(node, seconds, &received) {
                Ok(told) => {
                    self.phase.accept(node);
                    self.here.insert(node, (told, received));
                    return Ok(());
                }
                Err(why) => NotReceived::Unfit(why),
            },
            Err(fault) => fault,
        };
        match fault {
            NotReceived::Trouble(error) => return Err(error),
            NotReceived::NotFinite(why) if self.plan.non_finite == NonFinite::Fail => {
                return Err(TrainError::NotFinite { node, why });
            }
            NotReceived::Unfit(why) | NotReceived::NotFinite(why) => {
                self.phase.fail(node, FailureKind::Rejected, why);
            }
            NotReceived::Refused(error) => {
                self.phase.fail(node, FailureKind::of_error(error.code), first_line(&error.reason));
            }
        }
        Ok(())
    }

    /// Whether everything that is needed is in a reply.
    fn fit(&self, node: NodeId, seconds: f64, received: &Received) -> Result<Told, String> {
        let metrics = &received.metrics;
        let weight = weight(metrics, &self.receiver.weighted_by)?;
        if let Some(name) = &self.plan.needs.loss {
            match scalar(metrics, name) {
                Some(loss) if loss >= 0.0 && loss.is_finite() => {}
                Some(loss) => return Err(format!("its {name} is {loss}, and must be a finite number from 0")),
                None => return Err(format!("it has no single number {name:?} among its metrics, which is needed")),
            }
        }
        if self.plan.needs.norm_bit && scalar(metrics, NORM_BIT).is_none() {
            return Err(format!(
                "it does not say by {NORM_BIT:?} whether its update was clipped: the ClientApp needs adaptiveclipping_mod"
            ));
        }
        Ok(Told { node, weight, metrics: metrics.clone(), seconds })
    }
}

type Pulled = Result<Vec<(proto::Message, proto::ObjectTree)>, AppError>;

/// The outcome of a task; without a task, never.
async fn join<T>(task: &mut Option<AbortOnDropHandle<T>>) -> Result<T, TrainError> {
    match task {
        Some(task) => task.await.map_err(|error| TrainError::Broken(error.to_string())),
        None => std::future::pending().await,
    }
}

async fn pull(app: &App, ids: &[ObjectId], enough: u32) -> Pulled {
    let asked = Instant::now();
    let pulled = app.pull_messages(ids, enough).await?;
    if pulled.is_empty() && asked.elapsed() < PAUSE {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(pulled)
}

/// `None`: never.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Reasons may be whole tracebacks; the node's own log has them.
fn first_line(reason: &str) -> String {
    const MAX_CHARS: usize = 300;
    let line = reason.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it gave no reason");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line.to_owned(),
    }
}
