//! The clock port on tokio: the time of day, timers, and wake-ups.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trellis_clock::now_ms;
use trellis_plan::{Call, Clock, Millis};

pub struct TokioClock {
    /// A notification without a waiter ends the next wait.
    pub wake: Arc<Notify>,
}

impl Clock for TokioClock {
    fn now_ms(&self) -> Millis {
        now_ms()
    }

    fn sleep_until(&self, at_ms: Millis) -> Call<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))))
    }

    fn woken(&self) -> Call<'_, ()> {
        Box::pin(self.wake.notified())
    }
}
