//! Lengths of time with a unit, as people write them. Whole seconds are fine enough for connections and tokens.

use std::time::Duration;

/// Largest first, so that printing finds the largest unit that divides.
const UNITS_S: [(&str, u64); 4] = [DAY, ("h", 3600), ("m", 60), ("s", 1)];
/// Read, for the life of tokens, and never shown: settings of connections are told in hours.
const DAY: (&str, u64) = ("d", 86400);

/// Reads `30s`, `2m`, `1 h`, `90d`. A number alone is refused: too many programs mean milliseconds by it.
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let (_, seconds) = UNITS_S.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.checked_mul(*seconds).map(Duration::from_secs)
}

/// The shortest exact way to write it.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match UNITS_S[1..].iter().find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", seconds / unit),
        None => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, expected) in [
            ("0s", Some(0)),
            ("30s", Some(30)),
            ("2m", Some(120)),
            ("1 H", Some(3600)),
            ("90m", Some(5400)),
            ("30d", Some(2592000)),
            ("30", None),
            ("500ms", None),
            ("1.5m", None),
            ("-1s", None),
            ("s", None),
            ("", None),
            ("9999999999999999999h", None),
        ] {
            assert_eq!(parse(text).map(|duration| duration.as_secs()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for (seconds, expected) in [(0, "0s"), (30, "30s"), (60, "1m"), (90, "90s"), (7200, "2h"), (86400, "24h")] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(show(duration), expected);
            assert_eq!(parse(expected), Some(duration));
        }
    }
}
