//! Checks of how connections are kept alive.

use std::time::Duration;

use trellis_link::config::Keepalive;

use super::Checker;
use crate::superlink::duration;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(3600);
const LONGEST_IDLE: Duration = Duration::from_secs(24 * 3600);
/// A timeout that is longer than so many intervals would make the interval meaningless.
const TIMEOUT_INTERVALS: u32 = 2;
/// Strict firewalls forget a silent connection after this.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

impl Checker<'_> {
    pub(super) fn keepalive(&mut self) -> Keepalive {
        let args = &self.raw.args.connections;
        let default = Keepalive::default();
        let given = args.keepalive_interval.as_deref();
        let interval = self.duration("keepalive-interval", given, LONGEST_KEEPALIVE).unwrap_or(default.interval);
        let longest = interval * TIMEOUT_INTERVALS;
        let given = args.keepalive_timeout.as_deref();
        let timeout = self.duration("keepalive-timeout", given, LONGEST_KEEPALIVE * TIMEOUT_INTERVALS);
        // Who gives a short interval alone wants no refusal because of the default.
        let timeout = timeout.unwrap_or(default.timeout.min(longest));
        let idle = self.duration("idle-timeout", args.idle_timeout.as_deref(), LONGEST_IDLE).unwrap_or(default.idle);

        let pair = format!(
            "--keepalive-interval {} and --keepalive-timeout {}",
            duration::show(interval),
            duration::show(timeout)
        );
        if timeout > longest {
            let what = format!("{pair} do not fit: a dead connection would be waited for through several pings");
            let advice = format!("use a timeout of at most {}, or a longer interval", duration::show(longest));
            self.refuse(&["keepalive-interval", "keepalive-timeout"], what, advice);
        } else if interval + timeout >= FORGOTTEN_AFTER {
            let limit_s = FORGOTTEN_AFTER.as_secs();
            self.warn(format!(
                "{pair} are {limit_s} s or more together: strict firewalls forget a connection that is silent for \
                 {limit_s} s, and what is sent on it then is lost"
            ));
        }
        Keepalive { interval, timeout, idle }
    }

    fn duration(&mut self, name: &str, given: Option<&str>, longest: Duration) -> Option<Duration> {
        let given = given?;
        let Some(found) = duration::parse(given) else {
            self.refuse(&[name], format!("--{name}: {given:?} is not a duration"), "write it like 30s, 2m or 1h");
            return None;
        };
        if found < SHORTEST || found > longest {
            let side = if found < SHORTEST { "short" } else { "long" };
            let advice = format!("use {} to {}", duration::show(SHORTEST), duration::show(longest));
            self.refuse(&[name], format!("--{name}: {given} is too {side}"), advice);
            return None;
        }
        Some(found)
    }
}
