//! Lengths of time with a unit, as people write them: `10y`, `30d`, `12h`.

use std::fmt;

use serde::{Deserialize, Serialize};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// Largest first, so that printing finds the largest unit that fits. A year has 365 days.
const UNITS: [(char, i64); 6] = [('y', 365 * DAY), ('w', 7 * DAY), ('d', DAY), ('h', HOUR), ('m', 60), ('s', 1)];
/// Beyond it the calendar of certificates ends.
const MAX_S: i64 = 1000 * 365 * DAY;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span {
    seconds: i64,
}

impl Span {
    pub const fn hours(hours: i64) -> Span {
        Span { seconds: hours * HOUR }
    }

    pub const fn days(days: i64) -> Span {
        Span { seconds: days * DAY }
    }

    pub const fn years(years: i64) -> Span {
        Span { seconds: years * 365 * DAY }
    }

    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Reads a whole number and one of the units y, w, d, h, m, s.
    pub fn parse(text: &str) -> Option<Span> {
        let (number, unit) = text.trim().split_at_checked(text.trim().len().checked_sub(1)?)?;
        let (_, unit_s) = UNITS.iter().find(|(name, _)| unit == name.to_string())?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let seconds = number.parse::<i64>().ok()?.checked_mul(*unit_s)?;
        (seconds <= MAX_S).then_some(Span { seconds })
    }
}

/// Exact if one unit is enough.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.seconds != 0 && self.seconds % unit == 0) {
            Some((name, unit)) => write!(f, "{}{name}", self.seconds / unit),
            None => write!(f, "{}s", self.seconds),
        }
    }
}

/// How long that is, roughly, for people: `29 days`, `5 hours`.
pub fn roughly(seconds: i64) -> String {
    let words = [("year", 365 * DAY, 2), ("day", DAY, 2), ("hour", HOUR, 2), ("minute", 60, 1), ("second", 1, 0)];
    let seconds = seconds.max(0);
    for (word, unit, least) in words {
        let count = seconds / unit;
        if count >= least {
            return format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (text, expected) in [
            ("10y", Some(10 * 365 * DAY)),
            ("30d", Some(30 * DAY)),
            ("2w", Some(14 * DAY)),
            ("12h", Some(12 * HOUR)),
            ("90m", Some(5400)),
            ("7s", Some(7)),
            (" 1d ", Some(DAY)),
            ("0d", Some(0)),
            ("30", None),
            ("d", None),
            ("", None),
            ("-1d", None),
            ("+1d", None),
            ("1.5d", None),
            ("30D", None),
            ("1é", None),
            ("99999y", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(Span::parse(text).map(Span::seconds), expected, "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for text in ["10y", "30d", "2w", "36h", "90m", "61s", "0s"] {
            let span = Span::parse(text).expect(text);
            assert_eq!((span.to_string().as_str(), Span::parse(&span.to_string())), (text, Some(span)));
        }
    }

    #[test]
    fn rough_lengths() {
        for (seconds, expected) in [
            (-5, "0 seconds"),
            (1, "1 second"),
            (60, "1 minute"),
            (2 * HOUR, "2 hours"),
            (HOUR, "60 minutes"),
            (29 * DAY + 5, "29 days"),
            (9 * 365 * DAY, "9 years"),
        ] {
            assert_eq!(roughly(seconds), expected);
        }
    }
}
