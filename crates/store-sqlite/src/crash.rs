//! Crash points: named places where a test may have the process killed, as by power or by `kill -9`.
//!
//! `TRELLIS_CRASH_AT=name` kills at the first visit, `name:3` at the third. Unset, a visit costs one load.

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
}

/// Dies here if told to.
pub fn point(name: &'static str) {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    debug_assert!(POINTS.contains(&name), "{name} is not in the list");
    let Some(armed) = ARMED.get_or_init(armed_by_environment) else { return };
    if armed.name == name && armed.visits_left.fetch_sub(1, Ordering::Relaxed) == 1 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park(); // The signal ends the process before this returns.
        }
    }
}

fn armed_by_environment() -> Option<Armed> {
    let wish = std::env::var("TRELLIS_CRASH_AT").ok()?;
    let (name, visits) = wish.split_once(':').unwrap_or((&wish, "1"));
    Some(Armed { name: name.to_owned(), visits_left: AtomicU32::new(visits.parse().unwrap_or(1)) })
}
