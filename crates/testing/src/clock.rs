//! The time of the machine, for tests of what runs in it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trellis_plan::{Call, Clock, Millis};

pub struct RealClock;

impl Clock for RealClock {
    fn now_ms(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        Millis::try_from(since.as_millis()).expect("before the end of time")
    }

    fn sleep_until(&self, at_ms: Millis) -> Call<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(self.now_ms()))))
    }

    fn woken(&self) -> Call<'_, ()> {
        Box::pin(std::future::pending())
    }
}
