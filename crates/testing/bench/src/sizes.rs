//! Default sizes and durations. The total time must stay affordable, and the original is slow: over HTTP it needs three
//! minutes for a round of 1,000 nodes.

use crate::client::Transport;

#[derive(Clone, Copy)]
pub struct Sizes {
    pub warm_up_s: u64,
    pub request_s: u64,
    pub idle_nodes: &'static [usize],
    pub idle_s: u64,
    pub round_nodes: &'static [usize],
    pub round_limit_s: u64,
    pub model_mb: usize,
    /// Maximum number of nodes for the original in memory.
    pub memory_max_nodes: usize,
}

const GRPC: Sizes = Sizes {
    warm_up_s: 3,
    request_s: 15,
    idle_nodes: &[100, 1000, 10_000],
    idle_s: 45,
    round_nodes: &[10, 100, 1000],
    round_limit_s: 90,
    model_mb: 100,
    memory_max_nodes: 10_000,
};

/// Idle fleets: longer than 28 s, after which every held poll was answered and repeated.
const HTTP: Sizes = Sizes {
    request_s: 10,
    idle_nodes: &[100, 10_000],
    idle_s: 30,
    round_nodes: &[100, 1000],
    round_limit_s: 180,
    memory_max_nodes: 1000,
    ..GRPC
};

impl Sizes {
    pub fn of(transport: Transport, quick: bool) -> Self {
        let full = match transport {
            Transport::Grpc => GRPC,
            Transport::Http => HTTP,
        };
        if !quick {
            return full;
        }
        let round_nodes: &[usize] = match transport {
            Transport::Grpc => &[10, 100],
            Transport::Http => &[10],
        };
        Self { warm_up_s: 1, request_s: 4, idle_nodes: &[100], idle_s: 20, round_nodes, model_mb: 20, ..full }
    }
}
