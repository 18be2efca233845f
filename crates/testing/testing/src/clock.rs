//! The real clock, for tests.

use std::time::Duration;

use trellis_plan::{Call, Clock, Millis};

pub struct RealClock;

impl Clock for RealClock {
    fn now_ms(&self) -> Millis {
        trellis_clock::now_ms()
    }

    fn sleep_until(&self, at_ms: Millis) -> Call<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(self.now_ms()))))
    }

    fn woken(&self) -> Call<'_, ()> {
        Box::pin(std::future::pending())
    }
}
