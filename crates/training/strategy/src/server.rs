//! A strategy with its state: replies of rounds in, models out.

use std::sync::Arc;

use trellis_core::id::NodeId;

use crate::accumulator::{Accumulator, Factors};
use crate::batch::{self, Batch};
use crate::error::{AggregateError, Sender};
use crate::frame::Frame;
use crate::mean::{check_weight, total_weight};
use crate::model::{Layout, Model, State};
use crate::numbers::Numbers;
use crate::optimiser::Rule;
use crate::optimiser_state::OptimiserState;
use crate::source::Source;
use crate::strategy::Strategy;
use crate::trees;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Reproduces Flower's behaviour even if it is a defect: integer arrays become `float64`.
    pub compat: bool,
}

/// The metadata of a reply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reply {
    pub node: NodeId,
    /// The number of examples it was trained on.
    pub weight: f64,
    /// The training loss, for strategies that use it.
    pub loss: Option<f64>,
}

/// A strategy and its state.
#[derive(Debug, Clone)]
pub struct Server {
    strategy: Strategy,
    options: Options,
    state: State,
}

/// The result of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregated {
    pub model: Model,
    pub state: State,
    /// The sorted indices of the used replies, if the strategy selects some.
    pub chosen: Option<Vec<usize>>,
}

impl Server {
    pub fn new(strategy: Strategy, options: Options) -> Self {
        Self { strategy, options, state: State::default() }
    }

    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    pub(crate) fn compat(&self) -> bool {
        self.options.compat
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Resumes from a state, if it matches the strategy and the model. The state before the first round is empty.
    pub fn restore(&mut self, state: State, layout: &Layout) -> Result<(), String> {
        let frame = self.frame(&Arc::new(layout.clone()));
        let rule = Rule::of(&self.strategy, 1);
        OptimiserState::new(&rule, &frame.output, &state)
            .map_err(|error| format!("the state does not belong to {}: {error}", self.strategy.name()))?;
        self.state = state;
        Ok(())
    }

    pub fn begin<'a>(&'a self, model: &'a Model, round: u64) -> Round<'a> {
        Round { server: self, model, round, sums: None, totals: Totals::default(), aborted: false }
    }

    /// Stores the state of a finished round.
    pub fn accept(&mut self, state: State) {
        self.state = state;
    }

    fn frame(&self, layout: &Arc<Layout>) -> Frame {
        if self.options.compat { Frame::widening(layout) } else { Frame::keeping(layout) }
    }

    /// The frame of a round, determined by its first reply. With `compat` the types of the reply are used: after the first round
    /// an integer array is `float64` in the model, but still an integer array for clients.
    fn frame_of(&self, model: &Model, first: &dyn Numbers, sender: Sender) -> Result<Frame, AggregateError> {
        if !self.options.compat {
            return Ok(self.frame(&model.layout));
        }
        let layout = Source::layout_like(first, &model.layout);
        Ok(self.frame(&Arc::new(layout.map_err(|difference| AggregateError::Layout { sender, difference })?)))
    }
}

/// A round in progress.
pub struct Round<'a> {
    server: &'a Server,
    model: &'a Model,
    round: u64,
    sums: Option<Accumulator>,
    totals: Totals,
    aborted: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    weights: f64,
    /// The sum of the factors of optimised arrays.
    factors: f64,
    /// The QFedAvg normaliser.
    slopes: f64,
}

impl Round<'_> {
    /// Adds a reply, which can be dropped afterwards. Replies come sorted by node id. After an error the round continues without
    /// the reply, unless reading failed halfway.
    pub fn fold(&mut self, reply: &Reply, numbers: &dyn Numbers) -> Result<(), AggregateError> {
        let sender = Sender::Node(reply.node);
        if self.aborted {
            return Err(AggregateError::Aborted);
        }
        assert!(self.server.strategy.folds(), "{} does not fold", self.server.strategy.name());
        check_weight(reply.weight, sender)?;
        let factor = Fairness::of(&self.server.strategy, reply)?;
        let sums = match &mut self.sums {
            Some(sums) => sums,
            none => none.insert(Accumulator::new(self.server.frame_of(self.model, numbers, sender)?)),
        };
        let expected = Arc::clone(&sums.frame().input);
        let source =
            Source::new(numbers, &expected).map_err(|difference| AggregateError::Layout { sender, difference })?;
        let read_error = |error| AggregateError::read(error, &expected, |_| sender);
        let (stepped, slope) = match factor {
            None => (reply.weight, 0.0),
            Some(fairness) => {
                let distance = sums.squared_distance(&source, self.model).map_err(read_error)?;
                (fairness.factor, fairness.slope(distance))
            }
        };
        sums.fold(&source, Factors { stepped, averaged: reply.weight }).map_err(|reason| {
            self.aborted = true;
            read_error(reason)
        })?;
        self.totals.weights += reply.weight;
        self.totals.factors += stepped;
        self.totals.slopes += slope;
        Ok(())
    }

    /// The next model. Strategies that fold get no replies here; the others get all of them, sorted by node id.
    pub fn finish(self, kept: &[(Reply, &dyn Numbers)]) -> Result<Aggregated, AggregateError> {
        let server = self.server;
        let mut aggregated = self.aggregate(kept)?;
        // Privacy stores its numbers in the same state.
        aggregated.state.numbers.clone_from(&server.state.numbers);
        Ok(aggregated)
    }

    fn aggregate(self, kept: &[(Reply, &dyn Numbers)]) -> Result<Aggregated, AggregateError> {
        if self.server.strategy.folds() {
            assert!(kept.is_empty(), "{} folds", self.server.strategy.name());
            return self.finish_folded();
        }
        let (reply, first) = kept.first().ok_or(AggregateError::NoReplies)?;
        if self.server.strategy.is_trees() {
            return trees::aggregate(self.server, self.model, kept);
        }
        let frame = self.server.frame_of(self.model, *first, Sender::Node(reply.node))?;
        batch::aggregate(&self.server.strategy, &Batch::new(kept, frame)?)
    }

    fn finish_folded(self) -> Result<Aggregated, AggregateError> {
        if self.aborted {
            return Err(AggregateError::Aborted);
        }
        let sums = self.sums.ok_or(AggregateError::NoReplies)?;
        let averaged = total_weight([self.totals.weights].into_iter())?;
        let (rule, stepped) = match self.server.strategy {
            Strategy::QFedAvg { client_learning_rate, .. } => {
                let scale = 1.0 / (client_learning_rate * self.totals.slopes);
                (Rule::Fair { scale, weights: self.totals.factors }, 1.0)
            }
            ref strategy => (Rule::of(strategy, self.round), averaged),
        };
        let finished = sums.finish(Factors { stepped, averaged }, &rule, self.model, &self.server.state);
        let (model, state) = finished.map_err(AggregateError::State)?;
        Ok(Aggregated { model, state, chosen: None })
    }
}

/// QFedAvg's terms for the loss of a reply.
struct Fairness {
    /// The loss to the power of q.
    factor: f64,
    q: f64,
    /// The loss to the power of q - 1.
    derived: f64,
    /// The inverse of the clients' learning rate.
    lipschitz: f64,
}

/// Added to losses, so that one of 0 has powers.
const LOSS_OFFSET: f64 = 1e-10;

impl Fairness {
    fn of(strategy: &Strategy, reply: &Reply) -> Result<Option<Self>, AggregateError> {
        let Strategy::QFedAvg { client_learning_rate, q } = *strategy else { return Ok(None) };
        let sender = Sender::Node(reply.node);
        let loss = reply.loss.ok_or(AggregateError::NoLoss { sender, strategy: strategy.name() })?;
        if !(loss >= 0.0 && loss.is_finite()) {
            return Err(AggregateError::Loss { sender, loss });
        }
        let power = |exponent| libm::pow(loss + LOSS_OFFSET, exponent);
        Ok(Some(Self { factor: power(q), q, derived: power(q - 1.0), lipschitz: 1.0 / client_learning_rate }))
    }

    /// An upper bound of the fair objective's curvature; `distance` is the squared distance from the model.
    fn slope(&self, distance: f64) -> f64 {
        let Self { factor, q, derived, lipschitz } = self;
        q * derived * lipschitz * lipschitz * distance + lipschitz * factor
    }
}
