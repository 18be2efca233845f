//! Which part of the data the node has. A node whose settings do not say so asks its SuperLink, where a control plane may
//! assign shards. Only SuperLinks of Trellis understand the question, so nothing depends on an answer.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trellis_client::Error as CallError;
use trellis_core::id::{NodeId, RunId};
use trellis_wire::call::{AskShard, NodeShard};
use trellis_wire::proto::{self, scalar::Scalar};

use super::Engine;
use crate::config::Config;

const PARTITION_ID: &str = "partition-id";
const NUM_PARTITIONS: &str = "num-partitions";
/// Between two questions of a node that the control plane does not know yet, and how often it asks.
const PENDING_PAUSE: Duration = Duration::from_millis(500);
const PENDING_TRIES: u32 = 40;

#[derive(Default)]
pub struct ToldShard {
    /// The SuperLink has no such call.
    is_not_understood: AtomicBool,
    /// Shard and total, as last told: they count while the SuperLink cannot say.
    last: Mutex<Option<(u32, u32)>>,
}

impl ToldShard {
    fn take(&self, told: NodeShard) -> Option<(u32, u32)> {
        let mut last = self.last.lock().expect("no holder panics");
        // Without a total no control plane assigns shards, or it has not done so since a restart.
        if let Some(total) = told.total {
            *last = told.shard.map(|shard| (shard, total));
        }
        *last
    }
}

/// Whether the shard of the node is for others to say.
fn asks(config: &Config) -> bool {
    !config.node_config.contains_key(PARTITION_ID)
}

/// Lets the SuperLink know that the node works with an assigned shard.
pub async fn announce(engine: &Engine, node: NodeId) {
    // Another SuperLink may understand.
    engine.told_shard.is_not_understood.store(false, Ordering::Relaxed);
    if asks(&engine.config) {
        tokio::select! {
            () = engine.stop.cancelled() => {}
            _ = ask(engine, node, None) => {}
        }
    }
}

/// The node's settings, with its shard in this run.
pub async fn node_config(engine: &Engine, node: NodeId, run: RunId) -> BTreeMap<String, proto::Scalar> {
    let mut settings = engine.config.node_config.clone();
    if asks(&engine.config)
        && let Some((shard, total)) = ask(engine, node, Some(run)).await
    {
        for (key, value) in [(PARTITION_ID, shard), (NUM_PARTITIONS, total)] {
            let value = proto::Scalar { scalar: Some(Scalar::Sint64(value.into())) };
            settings.entry(key.to_owned()).or_insert(value);
        }
    }
    settings
}

/// Asks until the control plane knows the node, or for long enough.
async fn ask(engine: &Engine, node: NodeId, run: Option<RunId>) -> Option<(u32, u32)> {
    let told = &engine.told_shard;
    let asked = AskShard { node_id: node.to_string(), run_id: run.map(|run| run.to_string()) };
    for _ in 0..PENDING_TRIES {
        if told.is_not_understood.load(Ordering::Relaxed) {
            break;
        }
        match engine.link.fleet().node_shard(&asked).await {
            // Without a run, to be known is enough.
            Ok(answer) if !answer.pending || run.is_none() => return told.take(answer),
            Ok(_) => engine.pause(PENDING_PAUSE).await?,
            Err(error) if error.is_unknown_call() || matches!(error, CallError::NotHttp { .. }) => {
                tracing::debug!(%node, %error, "the SuperLink assigns no shards");
                told.is_not_understood.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(%node, %error, "the shard of the node is not known, or as last told");
                break;
            }
        }
    }
    told.take(NodeShard::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_shard_counts_until_the_superlink_says_otherwise() {
        let told = ToldShard::default();
        let answer = |shard, total| NodeShard { shard, total, pending: false };
        assert_eq!(told.take(answer(None, None)), None);
        assert_eq!(told.take(answer(Some(2), Some(5))), Some((2, 5)));
        assert_eq!(told.take(answer(None, None)), Some((2, 5)), "the SuperLink has forgotten");
        assert_eq!(told.take(answer(None, Some(5))), None, "there is none for the node");
    }
}
