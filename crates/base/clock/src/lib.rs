//! The time of day of this machine. Decision code takes the time as an argument; only the edges call these functions.
//!
//! Three units, each with its own readers: Flower and the SuperLink count seconds with a fraction, the control plane
//! counts milliseconds, certificates count whole seconds. A clock that is set before 1970 reads as 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, with a fraction.
pub fn now_s() -> f64 {
    since_1970().as_secs_f64()
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// Whole seconds since 1970.
pub fn now_unix() -> i64 {
    i64::try_from(since_1970().as_secs()).unwrap_or(i64::MAX)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_agree() {
        let (whole, fraction, ms) = (now_unix(), now_s(), now_ms());
        assert!(whole > 0 && whole as f64 <= fraction && fraction - (whole as f64) < 60.0);
        assert!(fraction * 1000.0 - 1.0 <= ms as f64 && (ms as f64) < (fraction + 60.0) * 1000.0);
    }
}
