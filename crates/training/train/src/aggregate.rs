//! The replies of one round become the next model, on a thread of its own: they come through a channel, in the order of node
//! ids, while others are still on their way. Around the strategy stands differential privacy, where it was asked for.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use trellis_core::id::NodeId;
use trellis_strategy::privacy::{Clipped, update_norm};
use trellis_strategy::{
    Aggregated, Fault, InMemory, Model, Numbers, Privacy, Reply, Round, Seed, Server, State, Whose,
};

use crate::error::TrainError;
use crate::spool::Spooled;

/// Replies that wait for the aggregation; more wait where they came to.
const WAITING: usize = 2;

/// A reply whose turn it is.
pub struct Contribution {
    pub reply: Reply,
    pub numbers: Spooled,
    /// What a client that clips by itself says of it.
    pub was_clipped: bool,
}

enum Order {
    Fold(Box<Contribution>),
    Finish,
}

/// What a round begins with.
pub struct Begin {
    pub server: Arc<Server>,
    pub model: Arc<Model>,
    pub round: u64,
    pub compat: bool,
    pub privacy: Option<Privacy>,
    /// What privacy remembers.
    pub memory: State,
    pub noise: Seed,
}

/// What came of a round.
pub struct Merged {
    pub model: Model,
    /// What the strategy is to remember.
    pub state: State,
    /// What privacy is to remember.
    pub memory: State,
    /// Whose replies were taken, where the strategy chooses.
    pub chosen: Option<Vec<NodeId>>,
    /// Of the change of the model.
    pub update_norm: Option<f64>,
    /// Of the change that each reply brought.
    pub norms: Vec<(NodeId, f64)>,
}

/// An aggregation at work.
pub struct Aggregation {
    orders: mpsc::Sender<Order>,
    work: JoinHandle<Result<Option<Merged>, Fault>>,
}

impl Aggregation {
    pub fn begin(begin: Begin) -> Aggregation {
        let (orders, taken) = mpsc::channel(WAITING);
        Aggregation { orders, work: tokio::task::spawn_blocking(move || aggregate(begin, taken)) }
    }

    /// Hands over the next reply. `false`: the aggregation has ended, and [`Aggregation::finish`] tells why.
    pub async fn fold(&self, contribution: Contribution) -> bool {
        self.orders.send(Order::Fold(Box::new(contribution))).await.is_ok()
    }

    /// There are no more replies.
    pub async fn finish(self) -> Result<Result<Merged, Fault>, TrainError> {
        // Where nobody takes it any more, the work has ended already.
        let _ = self.orders.send(Order::Finish).await;
        drop(self.orders);
        let finished = self.work.await.map_err(|error| TrainError::Broken(error.to_string()))?;
        match finished {
            Ok(Some(merged)) => Ok(Ok(merged)),
            Ok(None) => Err(TrainError::Broken("the aggregation ended before its end".to_owned())),
            Err(fault) => Ok(Err(fault)),
        }
    }

    /// The round is given up.
    pub async fn abandon(self) {
        drop(self.orders);
        let _ = self.work.await;
    }
}

/// A reply that is needed until all are here.
struct Kept {
    reply: Reply,
    numbers: Spooled,
    /// How much of its change counts, where privacy limits it.
    factor: Option<f64>,
}

/// A round on its thread.
struct Work<'a> {
    begin: &'a Begin,
    round: Round<'a>,
    kept: Vec<Kept>,
    clipped: Vec<bool>,
    norms: Vec<(NodeId, f64)>,
}

/// `None`: it was given up.
fn aggregate(begin: Begin, mut orders: mpsc::Receiver<Order>) -> Result<Option<Merged>, Fault> {
    let round = begin.server.begin(&begin.model, begin.round);
    let mut work = Work { begin: &begin, round, kept: Vec::new(), clipped: Vec::new(), norms: Vec::new() };
    loop {
        match orders.blocking_recv() {
            Some(Order::Fold(contribution)) => work.fold(*contribution)?,
            Some(Order::Finish) => return work.finish().map(Some),
            None => return Ok(None),
        }
    }
}

impl Work<'_> {
    fn fold(&mut self, contribution: Contribution) -> Result<(), Fault> {
        let Contribution { mut reply, numbers, was_clipped } = contribution;
        let Begin { server, model, compat, privacy, memory, .. } = self.begin;
        let norm = self.norm(reply.node, &numbers)?;
        let mut factor = None;
        if let Some(privacy) = privacy {
            let norm = norm.ok_or_else(|| {
                let difference = "with differential privacy all types must be those of the model".to_owned();
                Fault::Layout { whose: Whose::Node(reply.node), difference }
            })?;
            let pulled_back = privacy.factor(memory, norm);
            reply.weight = privacy.weight(reply.weight, *compat);
            self.clipped.push(was_clipped || pulled_back < 1.0);
            factor = Some(pulled_back);
        }
        match (server.strategy().folds(), factor) {
            (false, factor) => self.kept.push(Kept { reply, numbers, factor }),
            (true, None) => self.round.fold(&reply, &numbers)?,
            (true, Some(factor)) => {
                let clipped = Clipped::new(model, &numbers, factor).map_err(|source| unread(reply.node, source))?;
                self.round.fold(&reply, &clipped)?;
            }
        }
        Ok(())
    }

    /// How far a reply is from the model; `None` for trees, and in compat for replies of other types than the model has.
    fn norm(&mut self, node: NodeId, numbers: &Spooled) -> Result<Option<f64>, Fault> {
        let Begin { server, model, .. } = self.begin;
        if server.strategy().is_trees() || *numbers.layout() != *model.layout {
            return Ok(None);
        }
        let norm = update_norm(model, numbers).map_err(|source| unread(node, source))?;
        self.norms.push((node, norm));
        Ok(Some(norm))
    }

    fn finish(self) -> Result<Merged, Fault> {
        let Work { begin, round, kept, clipped, norms } = self;
        let strategy = begin.server.strategy();
        let Aggregated { model, state, chosen } = finish_round(round, &begin.model, &kept)?;
        let mut memory = begin.memory.clone();
        let model = match &begin.privacy {
            Some(privacy) => privacy.after(model, &mut memory, &clipped, begin.compat, &begin.noise, begin.round),
            None => model,
        };
        let model = InMemory(model);
        let has_norm = !strategy.is_trees() && *model.layout() == *begin.model.layout;
        let update_norm = has_norm.then(|| update_norm(&begin.model, &model).ok()).flatten();
        let node = |place: &usize| kept.get(*place).map(|kept| kept.reply.node);
        let chosen = chosen.map(|places| places.iter().filter_map(node).collect());
        Ok(Merged { model: model.0, state, memory, chosen, update_norm, norms })
    }
}

/// For strategies that fold, nothing was kept.
fn finish_round(round: Round<'_>, model: &Model, kept: &[Kept]) -> Result<Aggregated, Fault> {
    let clipped = kept.iter().map(|kept| clip(model, kept)).collect::<Result<Vec<_>, Fault>>()?;
    let read = |(kept, clipped)| -> (Reply, &dyn Numbers) {
        let (kept, clipped): (&Kept, &Option<Clipped<'_>>) = (kept, clipped);
        match clipped {
            Some(clipped) => (kept.reply, clipped),
            None => (kept.reply, &kept.numbers),
        }
    };
    let replies: Vec<(Reply, &dyn Numbers)> = kept.iter().zip(&clipped).map(read).collect();
    round.finish(&replies)
}

fn clip<'a>(model: &'a Model, kept: &'a Kept) -> Result<Option<Clipped<'a>>, Fault> {
    let clipped = kept.factor.map(|factor| Clipped::new(model, &kept.numbers, factor)).transpose();
    clipped.map_err(|source| unread(kept.reply.node, source))
}

fn unread(node: NodeId, source: std::io::Error) -> Fault {
    Fault::Read { whose: Whose::Node(node), array: "(all)".to_owned(), source }
}

#[cfg(test)]
mod tests;
