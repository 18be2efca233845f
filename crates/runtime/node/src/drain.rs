//! The drain state of the node. The control socket sets it, and the intake obeys it. It is not persistent: a restarted node takes
//! work.

use std::sync::Arc;

use tokio::sync::watch;

/// Clones share the state.
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

    /// Receives all changes from now on.
    pub fn follow(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Waits for a state.
    pub async fn until(&self, draining: bool) {
        // The sender lives as long as `self`.
        let _ = self.follow().wait_for(|now| *now == draining).await;
    }
}
