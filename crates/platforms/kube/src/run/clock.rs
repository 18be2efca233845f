//! Times of a `FederationRun`: seconds since 1970 in memory, RFC 3339 in the resource. Does not read the clock.

use jiff::Timestamp;
use trellis_spec::Schedule;

/// Seconds since 1970 of an RFC 3339 time.
pub fn seconds(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// Formats as RFC 3339.
pub fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// The last scheduled time up to now.
pub(super) fn last_due(schedule: &Schedule, now: i64) -> Option<i64> {
    schedule.last_until(millis(now)).map(whole_seconds)
}

/// The first scheduled time after now.
pub(super) fn next_due(schedule: &Schedule, now: i64) -> Option<i64> {
    schedule.next_after(millis(now)).map(whole_seconds)
}

fn millis(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)
}

fn whole_seconds(millis: u64) -> i64 {
    i64::try_from(millis / 1000).unwrap_or(i64::MAX)
}
