//! Times (in UTC), ages and lifetimes, as people read and write them.

use std::time::Duration;

use jiff::Timestamp;

use crate::duration;

/// `2026-11-15 09:00:00Z`
pub fn moment(seconds: f64) -> String {
    match Timestamp::from_microsecond((seconds * 1e6) as i64) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => seconds.to_string(),
    }
}

/// Time since `then`, in its largest unit: `42s`, `12m`, `3h`, `5d`.
pub fn age(now: f64, then: f64) -> String {
    let seconds = (now - then).max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// A lifetime: a number with a unit, greater than zero.
pub fn parse_ttl(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("use a number and a unit: 90s, 30m, 12h, 90d".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        assert_eq!(moment(1_763_197_200.75), "2025-11-15 09:00:00Z");
        assert_eq!(moment(0.0), "1970-01-01 00:00:00Z");
        assert_eq!(moment(1e300), format!("{}", 1e300));
    }

    #[test]
    fn ages() {
        for (seconds, expected) in [
            (-5.0, "0s"),
            (59.9, "59s"),
            (60.0, "1m"),
            (3599.0, "59m"),
            (3600.0, "1h"),
            (86399.0, "23h"),
            (86400.0, "1d"),
            (864000.0, "10d"),
        ] {
            assert_eq!(age(1e9 + seconds, 1e9), expected);
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(parse_ttl("90d"), Ok(Duration::from_secs(90 * 86400)));
        for bad in ["0s", "90", "", "1w", "-1h"] {
            assert!(parse_ttl(bad).is_err(), "{bad}");
        }
    }
}
