//! Durations with a unit, as people write them, in whole seconds.

use std::time::Duration;

/// Largest first, so that printing finds the largest unit that divides.
const UNITS_S: [(&str, u64); 4] = [DAY, ("h", 3600), ("m", 60), ("s", 1)];
/// For lifetimes of tokens. Parsed but never printed: settings print hours.
const DAY: (&str, u64) = ("d", 86400);

/// Reads `30s`, `2m`, `1 h`, `90d`. A number without a unit is refused: many programs would mean milliseconds.
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let (_, seconds) = UNITS_S.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.checked_mul(*seconds).map(Duration::from_secs)
}

/// The shortest exact form.
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
    fn printed_durations_can_be_parsed() {
        for (seconds, expected) in [(0, "0s"), (30, "30s"), (60, "1m"), (90, "90s"), (7200, "2h"), (86400, "24h")] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(show(duration), expected);
            assert_eq!(parse(expected), Some(duration));
        }
    }
}
