//! Crash points: named places where a test may have the process killed, as by power or by `kill -9`. They are part of the
//! port: each store has those that concern it, and a test knows them all by name.
//!
//! The program arms one of them; otherwise a visit costs one load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// All crash points, in the order in which a run meets them.
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

/// Has `kill` called at the first visit of the point `name`; `name:3`: at the third. Once per process.
pub fn arm(point: &str, kill: fn()) {
    let (name, visits) = point.split_once(':').unwrap_or((point, "1"));
    let visits_left = AtomicU32::new(visits.parse().unwrap_or(1));
    let _ = ARMED.set(Armed { name: name.to_owned(), visits_left, kill });
}

/// Dies here if this point is armed.
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
    fn an_armed_point_kills_at_the_visit_that_was_named() {
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
