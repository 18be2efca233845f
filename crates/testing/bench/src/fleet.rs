//! Simulated nodes: they join a few at a time, then send heartbeats and polls at the official pace.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Failure;
use crate::call::{CallError, Tally};
use crate::node::{Delivery, SimNode};
use crate::pacing::{Backoff, Jitter, POLL_INTERVAL};
use crate::stats::Samples;
use crate::superlink::Addresses;

const JOINING_AT_ONCE: usize = 16;
const JOIN_TRIES: usize = 5;
/// Number of nodes per local address. Over HTTP each node has up to two connections, and a dropped connection blocks
/// its port for a minute. A large fleet on one address would run out of ports.
const NODES_PER_ADDRESS: usize = 500;

/// Connects and registers `count` nodes, a few at a time.
pub async fn join(addresses: &Addresses, count: usize, tally: &Arc<Tally>) -> Result<Vec<Arc<SimNode>>, Failure> {
    let started = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..JOINING_AT_ONCE.min(count) {
        let (addresses, tally, started) = (addresses.clone(), tally.clone(), started.clone());
        workers.spawn(async move {
            let mut nodes = Vec::new();
            loop {
                let index = started.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok::<_, CallError>(nodes);
                }
                nodes.push(Arc::new(join_one(&addresses, home(index), &tally).await?));
            }
        });
    }
    let mut nodes = Vec::with_capacity(count);
    while let Some(joined) = workers.join_next().await {
        nodes.extend(joined??);
    }
    Ok(nodes)
}

/// Returns the local address of a node: 127.0.1.0, 127.0.1.1 and so on.
fn home(index: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(index / NODES_PER_ADDRESS).unwrap_or(u16::MAX).saturating_add(0x100).to_be_bytes();
    Ipv4Addr::new(127, 0, high, low)
}

/// Joins one node with retries: a busy server may drop a connection or refuse a registration, and a real SuperNode is
/// restarted then.
async fn join_one(addresses: &Addresses, home: Ipv4Addr, tally: &Arc<Tally>) -> Result<SimNode, CallError> {
    let mut backoff = Backoff::default();
    let mut tries = 1;
    loop {
        match SimNode::join(addresses, home, tally.clone()).await {
            Err(_) if tries < JOIN_TRIES => {
                tries += 1;
                tokio::time::sleep(backoff.after_unavailable(&mut tally.jitter())).await;
            }
            outcome => return outcome,
        }
    }
}

/// The activity of a fleet since the last reset.
#[derive(Default)]
pub struct Pulse {
    pub polls: AtomicUsize,
    /// Milliseconds per heartbeat.
    pub heartbeats: Mutex<Samples>,
}

impl Pulse {
    pub fn reset(&self) {
        self.polls.store(0, Ordering::Relaxed);
        *self.heartbeats.lock().expect("no panic while counting") = Samples::default();
    }
}

/// Spawns the heartbeats of all nodes; the first ones are spread over `spread`.
pub fn spawn_heartbeats(nodes: &[Arc<SimNode>], spread: Duration, pulse: &Arc<Pulse>, tasks: &mut JoinSet<()>) {
    for node in nodes {
        let (node, pulse, mut jitter) = (node.clone(), pulse.clone(), Jitter::new(node.id));
        tasks.spawn(async move {
            tokio::time::sleep(jitter.duration_below(spread)).await;
            loop {
                let began = Instant::now();
                // The tally counts a failure; the next heartbeat follows.
                let _ = node.heartbeat().await;
                pulse.heartbeats.lock().expect("no panic while counting").add(began.elapsed().as_secs_f64() * 1e3);
                tokio::time::sleep(jitter.heartbeat_pause()).await;
            }
        });
    }
}

/// The idle loop of one node: polls at the official interval until it gets a message.
pub async fn wait_for_message(node: &SimNode, pulse: &Pulse) -> Delivery {
    loop {
        let answer = node.poll().await;
        pulse.polls.fetch_add(1, Ordering::Relaxed);
        if let Ok(Some(delivery)) = answer {
            return delivery;
        }
        // An official SuperNode exits on an error and is restarted; a pause simulates that.
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_fleets_have_many_addresses() {
        assert_eq!(home(0), home(NODES_PER_ADDRESS - 1));
        assert_eq!(home(0), Ipv4Addr::new(127, 0, 1, 0));
        assert_eq!(home(256 * NODES_PER_ADDRESS), Ipv4Addr::new(127, 0, 2, 0));
        assert!(home(usize::MAX).is_loopback());
    }
}
