//! Aggregates the replies of one round on a separate thread. They arrive through a channel, in the order of node ids, while
//! others are still in transfer. Differential privacy wraps the strategy if it is enabled.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use trellis_core::id::NodeId;
use trellis_strategy::privacy::{Clipped, update_norm};
use trellis_strategy::{
    AggregateError, Aggregated, InMemory, Model, Numbers, Privacy, Reply, Round, Seed, Sender, Server, State,
};

use crate::error::TrainError;
use crate::spool::Spooled;

/// Replies that queue for the aggregation; more stay in the spool.
const QUEUED_REPLIES: usize = 2;

/// The next reply to aggregate.
pub struct Contribution {
    pub reply: Reply,
    pub numbers: Spooled,
    /// Reported by clients that clip themselves.
    pub was_clipped: bool,
}

enum Command {
    Fold(Box<Contribution>),
    Finish,
}

/// The input of a round.
pub struct RoundInput {
    pub server: Arc<Server>,
    pub model: Arc<Model>,
    pub round: u64,
    pub compat: bool,
    pub privacy: Option<Privacy>,
    /// The state of privacy.
    pub privacy_state: State,
    pub noise: Seed,
}

/// The result of a round.
pub struct RoundResult {
    pub model: Model,
    /// The next state of the strategy.
    pub state: State,
    /// The next state of privacy.
    pub privacy_state: State,
    /// The nodes whose replies were used, if the strategy selects some.
    pub chosen: Option<Vec<NodeId>>,
    /// The norm of the model's change.
    pub update_norm: Option<f64>,
    /// The norms of the nodes' updates.
    pub norms: Vec<(NodeId, f64)>,
}

/// A running aggregation.
pub struct Aggregation {
    commands: mpsc::Sender<Command>,
    work: JoinHandle<Result<Option<RoundResult>, AggregateError>>,
}

impl Aggregation {
    pub fn begin(input: RoundInput) -> Aggregation {
        let (commands, taken) = mpsc::channel(QUEUED_REPLIES);
        Aggregation { commands, work: tokio::task::spawn_blocking(move || aggregate(input, taken)) }
    }

    /// Adds the next reply. Returns `false` if the aggregation has ended; [`Aggregation::finish`] then returns the reason.
    pub async fn fold(&self, contribution: Contribution) -> bool {
        self.commands.send(Command::Fold(Box::new(contribution))).await.is_ok()
    }

    /// Completes the round after the last reply.
    pub async fn finish(self) -> Result<Result<RoundResult, AggregateError>, TrainError> {
        // A failed send means that the thread has ended; its result follows.
        let _ = self.commands.send(Command::Finish).await;
        drop(self.commands);
        let finished = self.work.await.map_err(|error| TrainError::Internal(error.to_string()))?;
        match finished {
            Ok(Some(merged)) => Ok(Ok(merged)),
            Ok(None) => Err(TrainError::Internal("the aggregation ended early".to_owned())),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Cancels the round.
    pub async fn abandon(self) {
        drop(self.commands);
        let _ = self.work.await;
    }
}

/// A reply that is stored until all have arrived.
struct StoredReply {
    reply: Reply,
    numbers: Spooled,
    /// The clipping factor, with privacy on the server.
    factor: Option<f64>,
}

/// A round on its thread.
struct RoundWork<'a> {
    input: &'a RoundInput,
    round: Round<'a>,
    stored: Vec<StoredReply>,
    clipped: Vec<bool>,
    norms: Vec<(NodeId, f64)>,
}

/// `None` if the round was cancelled.
fn aggregate(input: RoundInput, mut commands: mpsc::Receiver<Command>) -> Result<Option<RoundResult>, AggregateError> {
    let round = input.server.begin(&input.model, input.round);
    let mut work = RoundWork { input: &input, round, stored: Vec::new(), clipped: Vec::new(), norms: Vec::new() };
    loop {
        match commands.blocking_recv() {
            Some(Command::Fold(contribution)) => work.fold(*contribution)?,
            Some(Command::Finish) => return work.finish().map(Some),
            None => return Ok(None),
        }
    }
}

impl RoundWork<'_> {
    fn fold(&mut self, contribution: Contribution) -> Result<(), AggregateError> {
        let Contribution { mut reply, numbers, was_clipped } = contribution;
        let RoundInput { server, model, compat, privacy, privacy_state, .. } = self.input;
        let norm = self.norm(reply.node, &numbers)?;
        let mut factor = None;
        if let Some(privacy) = privacy {
            let norm = norm.ok_or_else(|| {
                let difference = "with differential privacy all types must match the model".to_owned();
                AggregateError::Layout { sender: Sender::Node(reply.node), difference }
            })?;
            let clip_factor = privacy.factor(privacy_state, norm);
            reply.weight = privacy.weight(reply.weight, *compat);
            self.clipped.push(was_clipped || clip_factor < 1.0);
            factor = Some(clip_factor);
        }
        match (server.strategy().folds(), factor) {
            (false, factor) => self.stored.push(StoredReply { reply, numbers, factor }),
            (true, None) => self.round.fold(&reply, &numbers)?,
            (true, Some(factor)) => {
                let clipped = Clipped::new(model, &numbers, factor).map_err(|source| unread(reply.node, source))?;
                self.round.fold(&reply, &clipped)?;
            }
        }
        Ok(())
    }

    /// The norm of an update; `None` for trees, and with `compat` for replies with other types than the model.
    fn norm(&mut self, node: NodeId, numbers: &Spooled) -> Result<Option<f64>, AggregateError> {
        let RoundInput { server, model, .. } = self.input;
        if server.strategy().is_trees() || *numbers.layout() != *model.layout {
            return Ok(None);
        }
        let norm = update_norm(model, numbers).map_err(|source| unread(node, source))?;
        self.norms.push((node, norm));
        Ok(Some(norm))
    }

    fn finish(self) -> Result<RoundResult, AggregateError> {
        let RoundWork { input, round, stored, clipped, norms } = self;
        let strategy = input.server.strategy();
        let Aggregated { model, state, chosen } = finish_round(round, &input.model, &stored)?;
        let mut privacy_state = input.privacy_state.clone();
        let model = match &input.privacy {
            Some(privacy) => {
                privacy.finish_round(model, &mut privacy_state, &clipped, input.compat, &input.noise, input.round)
            }
            None => model,
        };
        let model = InMemory(model);
        let has_norm = !strategy.is_trees() && *model.layout() == *input.model.layout;
        let update_norm = has_norm.then(|| update_norm(&input.model, &model).ok()).flatten();
        let node = |place: &usize| stored.get(*place).map(|stored| stored.reply.node);
        let chosen = chosen.map(|places| places.iter().filter_map(node).collect());
        Ok(RoundResult { model: model.0, state, privacy_state, chosen, update_norm, norms })
    }
}

/// `stored` is empty for strategies that fold.
fn finish_round(round: Round<'_>, model: &Model, stored: &[StoredReply]) -> Result<Aggregated, AggregateError> {
    let clipped = stored.iter().map(|stored| clip(model, stored)).collect::<Result<Vec<_>, AggregateError>>()?;
    let read = |(stored, clipped)| -> (Reply, &dyn Numbers) {
        let (stored, clipped): (&StoredReply, &Option<Clipped<'_>>) = (stored, clipped);
        match clipped {
            Some(clipped) => (stored.reply, clipped),
            None => (stored.reply, &stored.numbers),
        }
    };
    let replies: Vec<(Reply, &dyn Numbers)> = stored.iter().zip(&clipped).map(read).collect();
    round.finish(&replies)
}

fn clip<'a>(model: &'a Model, stored: &'a StoredReply) -> Result<Option<Clipped<'a>>, AggregateError> {
    let clipped = stored.factor.map(|factor| Clipped::new(model, &stored.numbers, factor)).transpose();
    clipped.map_err(|source| unread(stored.reply.node, source))
}

fn unread(node: NodeId, source: std::io::Error) -> AggregateError {
    AggregateError::Read { sender: Sender::Node(node), array: "(all)".to_owned(), source }
}

#[cfg(test)]
mod tests;
