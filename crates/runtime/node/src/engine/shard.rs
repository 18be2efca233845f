//! The node's part of the data. A node without configured partition asks its SuperLink, where a control plane may assign
//! shards. Only Trellis SuperLinks support this call, so nothing depends on an answer.

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
/// The poll interval and the maximum number of polls while the control plane does not know the node yet.
const PENDING_PAUSE: Duration = Duration::from_millis(500);
const PENDING_TRIES: u32 = 40;

#[derive(Default)]
pub struct AssignedShard {
    /// The SuperLink has no such call.
    is_unsupported: AtomicBool,
    /// The last assigned shard and total, used while the SuperLink does not know them.
    last: Mutex<Option<(u32, u32)>>,
}

impl AssignedShard {
    fn update(&self, answer: NodeShard) -> Option<(u32, u32)> {
        let mut last = self.last.lock().expect("no holder panics");
        // Without a total no control plane assigns shards, or it has not done so since a restart.
        if let Some(total) = answer.total {
            *last = answer.shard.map(|shard| (shard, total));
        }
        *last
    }
}

/// Whether the SuperLink assigns the node's shard.
fn is_assigned(config: &Config) -> bool {
    !config.node_config.contains_key(PARTITION_ID)
}

/// Announces that the node works with an assigned shard.
pub async fn announce(engine: &Engine, node: NodeId) {
    // A new SuperLink may support the call.
    engine.assigned_shard.is_unsupported.store(false, Ordering::Relaxed);
    if is_assigned(&engine.config) {
        tokio::select! {
            () = engine.stop.cancelled() => {}
            _ = ask(engine, node, None) => {}
        }
    }
}

/// The node's configuration, including its shard in this run.
pub async fn node_config(engine: &Engine, node: NodeId, run: RunId) -> BTreeMap<String, proto::Scalar> {
    let mut settings = engine.config.node_config.clone();
    if is_assigned(&engine.config)
        && let Some((shard, total)) = ask(engine, node, Some(run)).await
    {
        for (key, value) in [(PARTITION_ID, shard), (NUM_PARTITIONS, total)] {
            let value = proto::Scalar { scalar: Some(Scalar::Sint64(value.into())) };
            settings.entry(key.to_owned()).or_insert(value);
        }
    }
    settings
}

/// Polls until the control plane knows the node, with a limit.
async fn ask(engine: &Engine, node: NodeId, run: Option<RunId>) -> Option<(u32, u32)> {
    let assigned = &engine.assigned_shard;
    let asked = AskShard { node_id: node.to_string(), run_id: run.map(|run| run.to_string()) };
    for _ in 0..PENDING_TRIES {
        if assigned.is_unsupported.load(Ordering::Relaxed) {
            break;
        }
        match engine.link.fleet().node_shard(&asked).await {
            // Without a run, knowing the node is enough.
            Ok(answer) if !answer.pending || run.is_none() => return assigned.update(answer),
            Ok(_) => engine.pause(PENDING_PAUSE).await?,
            Err(error) if error.is_unknown_call() || matches!(error, CallError::NotHttp { .. }) => {
                tracing::debug!(%node, %error, "the SuperLink assigns no shards");
                assigned.is_unsupported.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(%node, %error, "the shard of the node is unknown; the last assigned one is used");
                break;
            }
        }
    }
    assigned.update(NodeShard::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_shard_is_used_until_the_superlink_assigns_another() {
        let assigned = AssignedShard::default();
        let answer = |shard, total| NodeShard { shard, total, pending: false };
        assert_eq!(assigned.update(answer(None, None)), None);
        assert_eq!(assigned.update(answer(Some(2), Some(5))), Some((2, 5)));
        assert_eq!(assigned.update(answer(None, None)), Some((2, 5)), "the SuperLink has forgotten it");
        assert_eq!(assigned.update(answer(None, Some(5))), None, "the node has none");
    }
}
