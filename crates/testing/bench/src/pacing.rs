//! Waits of official components: poll intervals, heartbeat jitter, retry backoff.

use std::time::Duration;

/// Poll interval of a SuperNode without a message and of a ServerApp without replies.
pub const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The interval that a SuperNode announces; it sends a little more often.
pub const HEARTBEAT_INTERVAL_S: f64 = 30.0;
/// Timeout of a heartbeat in an official SuperNode.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

const RETRY_CAP_S: f64 = 20.0;
const OBJECT_RETRY_CAP_S: f64 = 10.0;

/// A small seeded generator (splitmix64): the same seed gives the same waits.
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

    /// Returns a value uniform in `low..high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        low + (high - low) * unit
    }

    pub fn duration_below(&mut self, limit: Duration) -> Duration {
        Duration::from_secs_f64(self.between(0.0, limit.as_secs_f64()))
    }

    /// Returns the official wait between two heartbeats: (30 s - 5 s) x 0.7..0.9.
    pub fn heartbeat_pause(&mut self) -> Duration {
        let room_s = HEARTBEAT_INTERVAL_S - HEARTBEAT_TIMEOUT.as_secs_f64();
        Duration::from_secs_f64(self.between(0.7 * room_s, 0.9 * room_s))
    }
}

/// Exponential backoff from one second.
pub struct Backoff {
    delay_s: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { delay_s: 1.0 }
    }
}

impl Backoff {
    /// Returns the wait after UNAVAILABLE: uniform from zero to the delay.
    pub fn after_unavailable(&mut self, jitter: &mut Jitter) -> Duration {
        let wait_s = jitter.between(0.0, self.delay_s);
        self.delay_s = (self.delay_s * 2.0).min(RETRY_CAP_S);
        Duration::from_secs_f64(wait_s)
    }

    /// Returns the wait for a known object without content: the delay +/- 20 %.
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
    fn heartbeats_stay_in_the_official_window() {
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
