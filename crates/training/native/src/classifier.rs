//! The classifiers: logistic regression and a small MLP, on digits or tables.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trellis_wire::proto::Scalar;
use trellis_wire::records::Records;

use crate::app::{AppError, ClientApp, Context, Instruction, MessageKind};
use crate::data::Dataset;
use crate::data::shard::{Division, Partition, Shard, shard};
use crate::exchange::{ARRAYS, CONFIG, METRICS, metrics, receive, send};
use crate::network::Network;
use crate::number::Number;
use crate::training::{Training, train};

/// The query action that returns initial weights.
const INIT: &str = "init";

#[derive(Debug)]
pub struct Classifier {
    network: Network,
    dataset: Dataset,
    division: Division,
    /// Used if the node config has none.
    partition_id: Option<usize>,
    num_partitions: Option<usize>,
    training: Training,
    /// The examples of the partition that was used last; usually it is always the same.
    shard: Mutex<Option<(Partition, Arc<Shard>)>>,
}

impl Classifier {
    pub fn new(
        network: Network,
        dataset: Dataset,
        division: Division,
        (partition_id, num_partitions): (Option<usize>, Option<usize>),
        training: Training,
    ) -> Self {
        Self { network, dataset, division, partition_id, num_partitions, training, shard: Mutex::default() }
    }

    fn train(&self, instruction: &Instruction<'_>, context: &Context) -> Result<Records, AppError> {
        let training = self.training.adjusted(&context.run_config, instruction.records.config(CONFIG))?;
        let mut model = receive(&self.network, instruction.records)?;
        let partition = self.partition(&context.node_config)?;
        let shard = self.shard(partition)?;
        let order = [partition.id as u64, instruction.round.unwrap_or_default()];
        let examples = &shard.train;
        let loss = train(&self.network, &mut model.parameters, examples, &training, &order, instruction.stop)?;
        Ok(Records::default()
            .with(ARRAYS, send(&self.network, &model.names, &model.parameters))
            .with(METRICS, metrics(&[("train_loss", loss)], examples.len())))
    }

    fn evaluate(&self, instruction: &Instruction<'_>, context: &Context) -> Result<Records, AppError> {
        let model = receive(&self.network, instruction.records)?;
        let shard = self.shard(self.partition(&context.node_config)?)?;
        let found = self.network.evaluate(&model.parameters, &shard.test, instruction.stop)?;
        let measured = [("eval_loss", found.loss), ("eval_acc", found.accuracy)];
        Ok(Records::default().with(METRICS, metrics(&measured, shard.test.len())))
    }

    fn init(&self, instruction: &Instruction<'_>, context: &Context) -> Result<Records, AppError> {
        let training = self.training.adjusted(&context.run_config, instruction.records.config(CONFIG))?;
        let names: Vec<String> = self.network.parameters().iter().map(|parameter| parameter.name.to_owned()).collect();
        Ok(Records::default().with(ARRAYS, send(&self.network, &names, &self.network.fresh(training.seed))))
    }

    fn partition(&self, node_config: &BTreeMap<String, Scalar>) -> Result<Partition, AppError> {
        let id = whole_number(node_config, "partition-id")?.or(self.partition_id);
        let of = whole_number(node_config, "num-partitions")?.or(self.num_partitions);
        match (id, of) {
            (None, None) => Ok(Partition { id: 0, of: 1 }),
            (Some(id), Some(of)) if id < of => Ok(Partition { id, of }),
            (Some(id), Some(of)) => {
                let reason =
                    format!("partition-id {id} of the node is not below its num-partitions {of}: count from 0");
                Err(AppError::failed(reason))
            }
            (given, _) => {
                let (given, missing) = match given {
                    Some(_) => ("partition-id", "num-partitions"),
                    None => ("num-partitions", "partition-id"),
                };
                let reason =
                    format!("the node config has {given} but no {missing}: set both, or neither for all the data");
                Err(AppError::failed(reason))
            }
        }
    }

    fn shard(&self, partition: Partition) -> Result<Arc<Shard>, AppError> {
        // The value is always consistent, so a panic of another holder is harmless.
        let mut cached = self.shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, shard)) = cached.as_ref().filter(|(of, _)| *of == partition) {
            return Ok(shard.clone());
        }
        let shard =
            shard(&self.dataset, &self.division, partition).map_err(|error| AppError::failed(error.to_string()))?;
        let shard = Arc::new(shard);
        *cached = Some((partition, shard.clone()));
        Ok(shard)
    }
}

impl ClientApp for Classifier {
    fn handle(&self, instruction: Instruction<'_>, context: &mut Context) -> Result<Records, AppError> {
        match (instruction.kind, instruction.action) {
            (MessageKind::Train, None) => self.train(&instruction, context),
            (MessageKind::Evaluate, None) => self.evaluate(&instruction, context),
            (MessageKind::Query, Some(INIT)) => self.init(&instruction, context),
            (kind, action) => {
                let action = action.map(|action| format!(".{action}")).unwrap_or_default();
                let reason = format!(
                    "this app does not handle {}{action}: it handles train, evaluate, query.init",
                    kind.as_str()
                );
                Err(AppError::failed(reason))
            }
        }
    }
}

fn whole_number(config: &BTreeMap<String, Scalar>, name: &str) -> Result<Option<usize>, AppError> {
    let Some(value) = config.get(name) else {
        return Ok(None);
    };
    let number = Number::from_scalar(value).and_then(Number::as_int).and_then(|int| usize::try_from(int).ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(AppError::failed(format!("{name} in the node config must be a non-negative whole number"))),
    }
}
