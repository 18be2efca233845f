//! What is done about a `FederationRun`.

/// Runs of one schedule that may be under way at once.
pub const MOST_ACTIVE: usize = 5;

/// Seconds since 1970 of an RFC 3339 time.
pub fn seconds(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// As RFC 3339.
pub fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}
