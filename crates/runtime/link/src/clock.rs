//! A clock that never goes back within one process.

use std::sync::atomic::{AtomicU64, Ordering};

use trellis_clock::now_s;
use trellis_core::Seconds;

/// Stands still while the system clock is behind the latest returned time.
#[derive(Default)]
pub struct Clock {
    /// The bits of the latest returned time. Positive floats have the order of their bits.
    latest: AtomicU64,
}

impl Clock {
    pub fn now(&self) -> Seconds {
        self.show(now_s())
    }

    fn show(&self, system: Seconds) -> Seconds {
        let bits = system.max(0.0).to_bits();
        f64::from_bits(self.latest.fetch_max(bits, Ordering::Relaxed).max(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let clock = Clock::default();
        assert_eq!(clock.show(100.0), 100.0);
        assert_eq!(clock.show(40.0), 100.0);
        assert_eq!(clock.show(-1.0), 100.0);
        assert_eq!(clock.show(100.5), 100.5);
    }
}
