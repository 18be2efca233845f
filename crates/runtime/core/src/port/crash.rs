//! Crash points: named places where a test can kill the process. They are part of the port: each store visits its own
//! points, and tests know all names.
//!
//! An unarmed point costs one atomic load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// All crash points, in the order of a run.
pub const POINTS: &[&str] = &[
    "before-commit",
    "after-commit",
    "node-registered",
    "node-activated",
    "run-created",
    "run-claimed",
    "app-spawned",
    "inputs-pulled",
    "messages-announced",
    "file-written",
    "file-placed",
    "object-stored",
    "instruction-delivered",
    "instruction-confirmed",
    "reply-announced",
    "replies-collected",
    "reply-confirmed",
    "file-unlink",
    "logs-pushed",
    "outputs-pushed",
    "run-finished",
];

struct Armed {
    name: String,
    visits_left: AtomicU32,
    kill: fn(),
}

static ARMED: OnceLock<Armed> = OnceLock::new();

/// Arms a point: `kill` is called at the first visit of the point `name`, or at the third for `name:3`. Only the first
/// call has an effect.
pub fn arm(point: &str, kill: fn()) {
    let (name, visits) = point.split_once(':').unwrap_or((point, "1"));
    let visits_left = AtomicU32::new(visits.parse().unwrap_or(1));
    let _ = ARMED.set(Armed { name: name.to_owned(), visits_left, kill });
}

/// Calls `kill` if this point is armed and due.
pub fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list");
    let Some(armed) = ARMED.get() else { return };
    if armed.name == name && armed.visits_left.fetch_sub(1, Ordering::Relaxed) == 1 {
        (armed.kill)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_armed_point_kills_at_the_given_visit() {
        static KILLS: AtomicU32 = AtomicU32::new(0);
        arm("file-written:2", || {
            KILLS.fetch_add(1, Ordering::Relaxed);
        });
        for (visited, kills) in [("file-written", 0), ("file-placed", 0), ("file-written", 1), ("file-written", 1)] {
            point(visited);
            assert_eq!(KILLS.load(Ordering::Relaxed), kills);
        }
    }
}
