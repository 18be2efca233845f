//! How fast the content of objects may go, one way. `Bucket` decides; `Throttle` shares one among calls.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The burst after a pause, as the time that it costs.
const BURST: Duration = Duration::from_millis(100);

/// A token bucket in time: callers that take too many bytes wait until the debt is paid.
#[derive(Debug)]
struct Bucket {
    bytes_per_s: f64,
    /// When the debt is paid.
    paid_at: Option<Instant>,
}

impl Bucket {
    fn new(bytes_per_s: u64) -> Bucket {
        Bucket { bytes_per_s: bytes_per_s.max(1) as f64, paid_at: None }
    }

    /// Takes bytes at `now`; returns the wait before they may be sent.
    fn take(&mut self, now: Instant, bytes: usize) -> Duration {
        let full_since = now.checked_sub(BURST).unwrap_or(now);
        let from = self.paid_at.map_or(full_since, |paid_at| paid_at.max(full_since));
        let paid_at = from + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        self.paid_at = Some(paid_at);
        paid_at.saturating_duration_since(now)
    }
}

/// A bucket that all calls of a node take from.
#[derive(Debug)]
pub(super) struct Throttle(Mutex<Bucket>);

impl Throttle {
    pub fn new(bytes_per_s: u64) -> Throttle {
        Throttle(Mutex::new(Bucket::new(bytes_per_s)))
    }

    /// Takes bytes now; returns the wait before they may be sent.
    pub fn take(&self, bytes: usize) -> Duration {
        let now = tokio::time::Instant::now().into_std();
        self.0.lock().expect("no panic while counting").take(now, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_until_they_are_paid_for() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut bucket = Bucket::new(1000);
        for (now_ms, bytes, expected_ms) in [
            (1000, 100, 0),     // within the burst
            (1000, 100, 100),   // the burst is used up
            (1000, 200, 300),   // after the debt of earlier bytes
            (1200, 100, 200),   // later it waits less
            (9000, 100, 0),     // a long pause saves no more than a short one
            (9000, 1000, 1000), // more than fits into a burst
            (9500, 0, 500),
        ] {
            let wait = bucket.take(at(now_ms), bytes).as_secs_f64() * 1e3;
            assert!((wait - f64::from(expected_ms)).abs() < 0.001, "{bytes} at {now_ms}: {wait}");
        }
    }

    #[test]
    fn a_long_time_of_small_pieces_keeps_the_rate() {
        let start = Instant::now();
        let (mut bucket, mut now) = (Bucket::new(10_000), start);
        for _ in 0..1000 {
            now += bucket.take(now, 100);
        }
        let took = (now - start).as_secs_f64();
        assert!((9.8..10.1).contains(&took), "{took}");
    }
}
