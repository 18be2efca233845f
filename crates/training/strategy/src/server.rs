//! A strategy at work: rounds in, models out, and what it remembers between them.

use std::sync::Arc;

use trellis_core::id::NodeId;

use crate::accumulator::{Accumulator, Factors};
use crate::fault::{Fault, Whose};
use crate::frame::Frame;
use crate::kept::{self, Kept};
use crate::mean::{check_weight, total_weight};
use crate::memory::Memory;
use crate::model::{Layout, Model, State};
use crate::numbers::Numbers;
use crate::optimiser::Rule;
use crate::source::Source;
use crate::strategy::Strategy;
use crate::trees;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// As Flower does it also where that is a defect: arrays of integers become `float64`.
    pub compat: bool,
}

/// What is said of a reply beside its arrays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reply {
    pub node: NodeId,
    /// How many examples it was trained on.
    pub weight: f64,
    /// For strategies that go by it.
    pub loss: Option<f64>,
}

/// A strategy and what it remembers.
#[derive(Debug, Clone)]
pub struct Server {
    strategy: Strategy,
    options: Options,
    state: State,
}

/// What a round gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregated {
    pub model: Model,
    pub state: State,
    /// Positions of the replies that were used, in rising order, where the strategy chooses.
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

    /// Goes on from what was remembered, if it fits the strategy and the model. An empty state is that before the first
    /// round.
    pub fn restore(&mut self, state: State, layout: &Layout) -> Result<(), String> {
        let frame = self.frame(&Arc::new(layout.clone()));
        let rule = Rule::of(&self.strategy, 1);
        Memory::new(&rule, &frame.output, &state)
            .map_err(|problem| format!("the state is not one of {}: {problem}", self.strategy.name()))?;
        self.state = state;
        Ok(())
    }

    pub fn begin<'a>(&'a self, model: &'a Model, round: u64) -> Round<'a> {
        Round { server: self, model, round, sums: None, totals: Totals::default(), spoiled: false }
    }

    /// Remembers what a round gave.
    pub fn accept(&mut self, state: State) {
        self.state = state;
    }

    fn frame(&self, layout: &Arc<Layout>) -> Frame {
        if self.options.compat { Frame::widening(layout) } else { Frame::keeping(layout) }
    }

    /// The frame of a round whose first reply this is. In compat its types are taken as they are: what was an integer is
    /// `float64` in the model after the first round, and still an integer to the client.
    fn frame_of(&self, model: &Model, first: &dyn Numbers, whose: Whose) -> Result<Frame, Fault> {
        if !self.options.compat {
            return Ok(self.frame(&model.layout));
        }
        let layout = Source::layout_like(first, &model.layout);
        Ok(self.frame(&Arc::new(layout.map_err(|difference| Fault::Layout { whose, difference })?)))
    }
}

/// A round whose replies come in.
pub struct Round<'a> {
    server: &'a Server,
    model: &'a Model,
    round: u64,
    sums: Option<Accumulator>,
    totals: Totals,
    spoiled: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    weights: f64,
    /// What the sums of stepped arrays were multiplied with.
    factors: f64,
    /// The divisor of QFedAvg's step.
    slopes: f64,
}

impl Round<'_> {
    /// Adds a reply, which is then not needed any more. Replies come in the order of node ids. Of a fault nothing remains,
    /// and the round may go on without the reply; only where reading failed halfway it cannot.
    pub fn fold(&mut self, reply: &Reply, numbers: &dyn Numbers) -> Result<(), Fault> {
        let whose = Whose::Node(reply.node);
        if self.spoiled {
            return Err(Fault::Spoiled);
        }
        assert!(self.server.strategy.folds(), "{} does not fold", self.server.strategy.name());
        check_weight(reply.weight, whose)?;
        let factor = Fairness::of(&self.server.strategy, reply)?;
        let sums = match &mut self.sums {
            Some(sums) => sums,
            none => none.insert(Accumulator::new(self.server.frame_of(self.model, numbers, whose)?)),
        };
        let expected = Arc::clone(&sums.frame().input);
        let source = Source::new(numbers, &expected).map_err(|difference| Fault::Layout { whose, difference })?;
        let unread = |unread| Fault::unread(unread, &expected, |_| whose);
        let (stepped, slope) = match factor {
            None => (reply.weight, 0.0),
            Some(fairness) => {
                let distance = sums.squared_distance(&source, self.model).map_err(unread)?;
                (fairness.factor, fairness.slope(distance))
            }
        };
        sums.fold(&source, Factors { stepped, averaged: reply.weight }).map_err(|reason| {
            self.spoiled = true;
            unread(reason)
        })?;
        self.totals.weights += reply.weight;
        self.totals.factors += stepped;
        self.totals.slopes += slope;
        Ok(())
    }

    /// The next model. Who does not fold hands all replies over here, in the order of node ids; who folds, none.
    pub fn finish(self, kept: &[(Reply, &dyn Numbers)]) -> Result<Aggregated, Fault> {
        let server = self.server;
        let mut aggregated = self.aggregate(kept)?;
        // Those who clip keep theirs in the same state.
        aggregated.state.numbers.clone_from(&server.state.numbers);
        Ok(aggregated)
    }

    fn aggregate(self, kept: &[(Reply, &dyn Numbers)]) -> Result<Aggregated, Fault> {
        if self.server.strategy.folds() {
            assert!(kept.is_empty(), "{} folds", self.server.strategy.name());
            return self.finish_folded();
        }
        let (reply, first) = kept.first().ok_or(Fault::NoReplies)?;
        if self.server.strategy.is_trees() {
            return trees::aggregate(self.server, self.model, kept);
        }
        let frame = self.server.frame_of(self.model, *first, Whose::Node(reply.node))?;
        kept::aggregate(&self.server.strategy, &Kept::new(kept, frame)?)
    }

    fn finish_folded(self) -> Result<Aggregated, Fault> {
        if self.spoiled {
            return Err(Fault::Spoiled);
        }
        let sums = self.sums.ok_or(Fault::NoReplies)?;
        let averaged = total_weight([self.totals.weights].into_iter())?;
        let (rule, stepped) = match self.server.strategy {
            Strategy::QFedAvg { client_learning_rate, .. } => {
                let scale = 1.0 / (client_learning_rate * self.totals.slopes);
                (Rule::Fair { scale, weights: self.totals.factors }, 1.0)
            }
            ref strategy => (Rule::of(strategy, self.round), averaged),
        };
        let finished = sums.finish(Factors { stepped, averaged }, &rule, self.model, &self.server.state);
        let (model, state) = finished.map_err(Fault::State)?;
        Ok(Aggregated { model, state, chosen: None })
    }
}

/// What QFedAvg makes of the loss of a reply.
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
    fn of(strategy: &Strategy, reply: &Reply) -> Result<Option<Self>, Fault> {
        let Strategy::QFedAvg { client_learning_rate, q } = *strategy else { return Ok(None) };
        let whose = Whose::Node(reply.node);
        let loss = reply.loss.ok_or(Fault::NoLoss { whose, strategy: strategy.name() })?;
        if !(loss >= 0.0 && loss.is_finite()) {
            return Err(Fault::Loss { whose, loss });
        }
        let power = |exponent| libm::pow(loss + LOSS_OFFSET, exponent);
        Ok(Some(Self { factor: power(q), q, derived: power(q - 1.0), lipschitz: 1.0 / client_learning_rate }))
    }

    /// How steep the fair objective can be here; `distance` is that from the model, squared.
    fn slope(&self, distance: f64) -> f64 {
        let Self { factor, q, derived, lipschitz } = self;
        q * derived * lipschitz * lipschitz * distance + lipschitz * factor
    }
}
