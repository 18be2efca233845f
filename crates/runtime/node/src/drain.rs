//! Whether the node takes new work. Somebody at its socket says so, the intake heeds it, and nobody writes it down: a node that
//! starts takes work.

use std::sync::Arc;

use tokio::sync::watch;

/// Clones are the same switch.
#[derive(Debug, Clone)]
pub struct Drain {
    draining: Arc<watch::Sender<bool>>,
}

impl Default for Drain {
    fn default() -> Drain {
        Drain { draining: Arc::new(watch::Sender::new(false)) }
    }
}

impl Drain {
    pub fn set(&self, draining: bool) {
        self.draining.send_if_modified(|now| std::mem::replace(now, draining) != draining);
    }

    pub fn is_on(&self) -> bool {
        *self.draining.borrow()
    }

    /// Told of every change from now on.
    pub fn follow(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Waits until it is so.
    pub async fn until(&self, draining: bool) {
        // The sender lives as long as we do.
        let _ = self.follow().wait_for(|now| *now == draining).await;
    }
}
