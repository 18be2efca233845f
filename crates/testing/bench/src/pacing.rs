//! How the official components wait: poll intervals, heartbeat jitter, retry backoff. Knows no calls, only times.

use std::time::Duration;

/// A SuperNode that was handed no message, and a ServerApp that misses replies, ask again after this long.
pub const POLL_PAUSE: Duration = Duration::from_secs(3);
/// The interval a SuperNode announces; it sends somewhat more often.
pub const HEARTBEAT_INTERVAL_S: f64 = 30.0;
/// A heartbeat that takes longer counts as failed, as it does for an official SuperNode.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

const RETRY_CAP_S: f64 = 20.0;
const OBJECT_RETRY_CAP_S: f64 = 10.0;

/// A small seeded generator (splitmix64): the same seed gives the same waits in every run.
pub struct Jitter(u64);

impl Jitter {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `low..high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        low + (high - low) * unit
    }

    pub fn duration_below(&mut self, limit: Duration) -> Duration {
        Duration::from_secs_f64(self.between(0.0, limit.as_secs_f64()))
    }

    /// The official wait between two heartbeats: (30 s - 5 s) x 0.7..0.9.
    pub fn heartbeat_pause(&mut self) -> Duration {
        let room_s = HEARTBEAT_INTERVAL_S - HEARTBEAT_TIMEOUT.as_secs_f64();
        Duration::from_secs_f64(self.between(0.7 * room_s, 0.9 * room_s))
    }
}

/// Doubling waits from one second on.
pub struct Backoff {
    delay_s: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { delay_s: 1.0 }
    }
}

impl Backoff {
    /// After UNAVAILABLE: anything between nothing and the delay.
    pub fn after_unavailable(&mut self, jitter: &mut Jitter) -> Duration {
        let wait_s = jitter.between(0.0, self.delay_s);
        self.delay_s = (self.delay_s * 2.0).min(RETRY_CAP_S);
        Duration::from_secs_f64(wait_s)
    }

    /// After "the object is known but not here yet": the delay, give or take a fifth.
    pub fn after_object_missing(&mut self, jitter: &mut Jitter) -> Duration {
        let wait_s = self.delay_s * jitter.between(0.8, 1.2);
        self.delay_s = (self.delay_s * 2.0).min(OBJECT_RETRY_CAP_S);
        Duration::from_secs_f64(wait_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_keep_to_the_official_window() {
        let mut jitter = Jitter::new(1);
        let pauses: Vec<f64> = (0..1000).map(|_| jitter.heartbeat_pause().as_secs_f64()).collect();
        assert!(pauses.iter().all(|s| (17.5..22.5).contains(s)));
        assert!(pauses.iter().any(|s| *s < 18.0) && pauses.iter().any(|s| *s > 22.0));
    }

    #[test]
    fn backoff_doubles_up_to_its_cap() {
        let mut jitter = Jitter::new(2);
        let mut backoff = Backoff::default();
        for limit_s in [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0] {
            assert!(backoff.after_unavailable(&mut jitter).as_secs_f64() <= limit_s);
        }
        let mut backoff = Backoff::default();
        for delay_s in [1.0, 2.0, 4.0, 8.0, 10.0, 10.0] {
            let wait_s = backoff.after_object_missing(&mut jitter).as_secs_f64();
            assert!((0.8 * delay_s..=1.2 * delay_s).contains(&wait_s), "{wait_s} after a delay of {delay_s}");
        }
    }
}
