//! Interval and timeout of keepalive pings: their check. The rows are in the table of each program.

use std::time::Duration;

use trellis_terminal::duration;

use super::Checker;
use super::kind::Time;

const MAX_KEEPALIVE: Duration = Duration::from_secs(3600);
/// A longer timeout would cover several pings and so make the interval meaningless.
const TIMEOUT_INTERVALS: u32 = 2;
/// Strict firewalls forget a silent connection after this.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

impl<C> Checker<'_, C> {
    /// Interval and timeout of `--keepalive-interval` and `--keepalive-timeout`, which must fit each other.
    pub fn keepalive(&mut self, default: (Duration, Duration)) -> (Duration, Duration) {
        let interval = self.read("keepalive-interval", &Time { max: MAX_KEEPALIVE }).unwrap_or(default.0);
        let longest = interval * TIMEOUT_INTERVALS;
        let timeout = self.read("keepalive-timeout", &Time { max: MAX_KEEPALIVE * TIMEOUT_INTERVALS });
        // A short interval alone must not contradict the default timeout.
        let timeout = timeout.unwrap_or(default.1.min(longest));

        let pair = format!(
            "--keepalive-interval {} and --keepalive-timeout {}",
            duration::show(interval),
            duration::show(timeout)
        );
        if timeout > longest {
            let what = format!("{pair} do not fit: a dead connection would stay open through several pings");
            let advice = format!("use a timeout of at most {}, or a longer interval", duration::show(longest));
            self.refuse(&["keepalive-interval", "keepalive-timeout"], what, advice);
        } else if interval + timeout >= FORGOTTEN_AFTER {
            let limit_s = FORGOTTEN_AFTER.as_secs();
            self.warn(format!(
                "{pair} are {limit_s} s or more together: strict firewalls forget a connection that is silent for \
                 {limit_s} s, and what is sent on it then is lost"
            ));
        }
        (interval, timeout)
    }
}
