//! The clock port on tokio: the time of day, timers, and a bell.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use trellis_plan::{Call, Clock, Millis};

pub struct TokioClock {
    /// Rung by whoever knows that another look is worth it. One ring that nobody heard is kept.
    pub bell: Arc<Notify>,
}

impl Clock for TokioClock {
    fn now_ms(&self) -> Millis {
        now_ms()
    }

    fn sleep_until(&self, at_ms: Millis) -> Call<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))))
    }

    fn woken(&self) -> Call<'_, ()> {
        Box::pin(self.bell.notified())
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}
