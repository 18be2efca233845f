//! Shard table of a SuperLink without a controller: assigns a shard to each node of the OneFlow service.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use trellis_one::Backoff;

use super::Agent;
use super::join::SUPERNODE;
use crate::shards::Shards;

/// First poll interval for new nodes; it doubles after each poll without one, up to [`MAX_POLL_INTERVAL`]. Nodes wait
/// longer than that for their shard.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct ShardWatch {
    shards: Shards,
    polled: Option<Instant>,
    interval: Duration,
    intervals: Backoff,
}

impl ShardWatch {
    /// Continues with the saved table, if it can be parsed.
    pub fn new(saved: Option<&str>) -> ShardWatch {
        ShardWatch {
            shards: saved.and_then(Shards::parse).unwrap_or_default(),
            polled: None,
            interval: POLL_INTERVAL,
            intervals: Backoff::exponential(POLL_INTERVAL, MAX_POLL_INTERVAL),
        }
    }

    pub fn to_attribute(&self) -> String {
        self.shards.to_attribute()
    }
}

impl Agent {
    /// Updates the table if a poll is due. It stays as it is if OneGate does not answer.
    pub(super) async fn update_shards(&mut self) {
        let Some(client) = self.gate.client() else { return };
        let watch = &mut self.shards;
        if watch.polled.is_some_and(|at| at.elapsed() < watch.interval) {
            return;
        }
        watch.interval = watch.intervals.next().unwrap_or(MAX_POLL_INTERVAL);
        watch.polled = Some(Instant::now());
        let Ok(service) = client.service().await else { return };
        let roles = service.roles.iter().filter(|role| role.name.starts_with(SUPERNODE));
        let nodes: BTreeSet<u64> = roles.flat_map(|role| &role.nodes).map(|node| node.deploy_id.into()).collect();
        watch.shards.follow(&nodes);
        let text = Some(watch.to_attribute());
        if self.memory.shards != text {
            watch.intervals.reset();
            self.memory.shards = text;
            self.save_memory();
        }
    }
}
