//! Strategies that need all replies at once: by coordinate or by distance.

use crate::coordinate::{self, Pick};
use crate::error::{AggregateError, Sender};
use crate::frame::Frame;
use crate::krum;
use crate::mean::{check_weight, mean, total_weight};
use crate::model::{Model, State};
use crate::numbers::Numbers;
use crate::server::{Aggregated, Reply};
use crate::source::{ReadError, Source};
use crate::strategy::{Strategy, nodes_needed};

/// All replies of a round, sorted by node id.
pub(crate) struct Batch<'a> {
    replies: Vec<Reply>,
    sources: Vec<Source<'a>>,
    frame: Frame,
}

impl<'a> Batch<'a> {
    pub fn new(replies: &[(Reply, &'a dyn Numbers)], frame: Frame) -> Result<Self, AggregateError> {
        let source = |(reply, numbers): &(Reply, &'a dyn Numbers)| {
            let sender = Sender::Node(reply.node);
            Source::new(*numbers, &frame.input).map_err(|difference| AggregateError::Layout { sender, difference })
        };
        let sources = replies.iter().map(source).collect::<Result<_, _>>()?;
        Ok(Self { replies: replies.iter().map(|(reply, _)| *reply).collect(), sources, frame })
    }

    fn read_error(&self, error: ReadError) -> AggregateError {
        AggregateError::read(error, &self.frame.input, |place| Sender::Node(self.replies[place].node))
    }

    /// Selects values of each coordinate.
    fn pick(&self, pick: Pick) -> Result<Aggregated, AggregateError> {
        let model = coordinate::pick(&self.sources, &self.frame, pick).map_err(|error| self.read_error(error))?;
        Ok(aggregated(model, None))
    }

    /// The indices of the replies that are nearest to the others.
    fn nearest(&self, num_malicious: usize, wanted: usize) -> Result<Vec<usize>, AggregateError> {
        let distances = krum::distances(&self.sources, &self.frame.input).map_err(|error| self.read_error(error))?;
        Ok(krum::nearest(&distances, num_malicious, wanted))
    }

    fn mean_of(&self, chosen: Vec<usize>) -> Result<Aggregated, AggregateError> {
        let mut weighted = Vec::with_capacity(chosen.len());
        for &place in &chosen {
            let Reply { node, weight, .. } = self.replies[place];
            check_weight(weight, Sender::Node(node))?;
            // A single reply is used unchanged, whatever its weight.
            let weight = if chosen.len() == 1 { 1.0 } else { weight };
            weighted.push((weight, self.sources[place].clone()));
        }
        let total = total_weight(weighted.iter().map(|(weight, _)| *weight))?;
        let model = mean(&weighted, total, &self.frame);
        let model = model.map_err(|error| self.read_error(ReadError { reply: chosen[error.reply], ..error }))?;
        Ok(aggregated(model, Some(chosen)))
    }

    fn bulyan(&self, num_malicious: usize) -> Result<Aggregated, AggregateError> {
        let needed = nodes_needed(4, num_malicious);
        let got = self.replies.len();
        if got < needed {
            return Err(AggregateError::TooFew { strategy: "Bulyan", needed, got });
        }
        let chosen = self.nearest(num_malicious, got - 2 * num_malicious)?;
        let sources: Vec<Source> = chosen.iter().map(|&place| self.sources[place].clone()).collect();
        let pick = Pick::NearMedian { wanted: chosen.len() - 2 * num_malicious };
        let model = coordinate::pick(&sources, &self.frame, pick);
        let model = model.map_err(|error| self.read_error(ReadError { reply: chosen[error.reply], ..error }))?;
        Ok(aggregated(model, Some(chosen)))
    }
}

pub(crate) fn aggregate(strategy: &Strategy, kept: &Batch) -> Result<Aggregated, AggregateError> {
    match *strategy {
        Strategy::FedMedian => kept.pick(Pick::Median),
        Strategy::FedTrimmedAvg { beta } => kept.pick(Pick::Trimmed { share: beta }),
        Strategy::Krum { num_malicious } => kept.mean_of(kept.nearest(num_malicious, 1)?),
        Strategy::MultiKrum { num_malicious, num_nodes_to_select } => {
            kept.mean_of(kept.nearest(num_malicious, num_nodes_to_select)?)
        }
        Strategy::Bulyan { num_malicious } => kept.bulyan(num_malicious),
        _ => unreachable!("{} does not need all replies at once", strategy.name()),
    }
}

/// The result of strategies without a state.
fn aggregated(model: Model, chosen: Option<Vec<usize>>) -> Aggregated {
    Aggregated { model, state: State::default(), chosen }
}
