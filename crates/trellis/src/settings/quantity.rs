//! Checks of amounts: sizes, durations, numbers, and the two durations that keep a connection alive.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::{Checker, size};
use crate::duration;

pub const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(3600);
/// A timeout that is longer than so many intervals would make the interval meaningless.
const TIMEOUT_INTERVALS: u32 = 2;
/// Strict firewalls forget a silent connection after this.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

impl<A> Checker<'_, A> {
    pub fn size(&mut self, name: &str, given: Option<&str>, smallest: u64, largest: u64) -> Option<u64> {
        let given = given?;
        let Some(bytes) = size::parse(given) else {
            self.refuse(&[name], format!("--{name}: {given:?} is not a size"), "write it like 64MiB, 2GiB or 500MB");
            return None;
        };
        if bytes < smallest || bytes > largest {
            let advice = match largest {
                u64::MAX => format!("use at least {}", size::show(smallest)),
                _ => format!("use {} to {}", size::show(smallest), size::show(largest)),
            };
            let side = if bytes < smallest { "small" } else { "large" };
            self.refuse(&[name], format!("--{name}: {given} is too {side}"), advice);
            return None;
        }
        Some(bytes)
    }

    /// At least a second.
    pub fn duration(&mut self, name: &str, given: Option<&str>, longest: Duration) -> Option<Duration> {
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

    /// A number from 1 to `most`.
    pub fn count<N>(&mut self, name: &str, given: Option<&str>, default: N, most: N) -> N
    where
        N: FromStr + PartialOrd + Display + Copy + From<u8>,
    {
        let Some(text) = given else { return default };
        match text.parse() {
            Ok(number) if number >= N::from(1) && number <= most => number,
            _ => {
                let what = format!("--{name}: {text:?} is not a number from 1 to {most}");
                self.refuse(&[name], what, format!("leave it out for {default}"));
                default
            }
        }
    }

    /// Interval and timeout of `--keepalive-interval` and `--keepalive-timeout`, which must fit each other.
    pub fn keepalive(
        &mut self,
        interval: Option<&str>,
        timeout: Option<&str>,
        default: (Duration, Duration),
    ) -> (Duration, Duration) {
        let interval = self.duration("keepalive-interval", interval, LONGEST_KEEPALIVE).unwrap_or(default.0);
        let longest = interval * TIMEOUT_INTERVALS;
        let timeout = self.duration("keepalive-timeout", timeout, LONGEST_KEEPALIVE * TIMEOUT_INTERVALS);
        // Who gives a short interval alone wants no refusal because of the default.
        let timeout = timeout.unwrap_or(default.1.min(longest));

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
        (interval, timeout)
    }
}
