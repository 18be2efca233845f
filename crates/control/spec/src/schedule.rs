//! Schedules: the five fields of cron, in UTC.
//!
//! Minute, hour, day of the month, month, day of the week. Ambiguous schedules are refused: both kinds of days at once, and 7 for
//! Sunday.

use std::fmt;

use serde::{Deserialize, Serialize};

const MINUTE_MS: u64 = 60_000;
const DAY_MINUTES: u64 = 24 * 60;
/// Includes a 29th of February in any case.
const MOST_DAYS: u64 = 8 * 366;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const MINUTE: Field = Field { what: "minute", least: 0, most: 59, names: &[] };
const HOUR: Field = Field { what: "hour", least: 0, most: 23, names: &[] };
const DAY: Field = Field { what: "day of the month", least: 1, most: 31, names: &[] };
const MONTH: Field = Field { what: "month", least: 1, most: 12, names: &MONTHS };
const WEEKDAY: Field = Field { what: "day of the week", least: 0, most: 6, names: &WEEKDAYS };
const FIELDS: [&Field; 5] = [&MINUTE, &HOUR, &DAY, &MONTH, &WEEKDAY];

/// Bit sets of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Schedule {
    fields: [u64; 5],
}

struct Field {
    what: &'static str,
    least: u32,
    most: u32,
    /// Names of the numbers from `least`.
    names: &'static [&'static str],
}

impl Schedule {
    /// `Err`: what is wrong.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        if words.len() != FIELDS.len() {
            let count = words.len();
            return Err(format!(
                "it has {count} fields instead of five: minute, hour, day of the month, month, day of the week"
            ));
        }
        let mut fields = [0; 5];
        for ((set, field), word) in fields.iter_mut().zip(FIELDS).zip(words) {
            *set = field.parse(word)?;
        }
        let schedule = Schedule { fields };
        if !schedule.has_all(2) && !schedule.has_all(4) {
            return Err(
                "it has days of the month and days of the week, which programs interpret differently".to_owned()
            );
        }
        match schedule.next_after(0) {
            Some(_) => Ok(schedule),
            None => Err("no such day exists".to_owned()),
        }
    }

    /// The last due time up to `now_ms`.
    pub fn last_until(&self, now_ms: u64) -> Option<u64> {
        let now = now_ms / MINUTE_MS;
        let (today, of_day) = (now / DAY_MINUTES, now % DAY_MINUTES);
        let days =
            (0..=MOST_DAYS.min(today)).map(|back| (today - back, if back == 0 { of_day } else { DAY_MINUTES - 1 }));
        let mut due = days.filter(|(day, _)| self.has_day(*day)).filter_map(|(day, most)| {
            let minute = (0..=most).rev().find(|minute| self.has_minute(*minute))?;
            Some((day * DAY_MINUTES + minute) * MINUTE_MS)
        });
        due.next()
    }

    /// The first due time after `now_ms`.
    pub fn next_after(&self, now_ms: u64) -> Option<u64> {
        let first = now_ms / MINUTE_MS + 1;
        let (today, of_day) = (first / DAY_MINUTES, first % DAY_MINUTES);
        let days = (0..=MOST_DAYS).map(|on| (today + on, if on == 0 { of_day } else { 0 }));
        let mut due = days.filter(|(day, _)| self.has_day(*day)).filter_map(|(day, least)| {
            let minute = (least..DAY_MINUTES).find(|minute| self.has_minute(*minute))?;
            Some((day * DAY_MINUTES + minute) * MINUTE_MS)
        });
        due.next()
    }

    fn has(&self, field: usize, number: u64) -> bool {
        self.fields[field] >> number & 1 == 1
    }

    fn has_all(&self, field: usize) -> bool {
        self.fields[field] == FIELDS[field].all()
    }

    fn has_minute(&self, of_day: u64) -> bool {
        self.has(1, of_day / 60) && self.has(0, of_day % 60)
    }

    /// `day` since 1970, which began on a Thursday.
    fn has_day(&self, day: u64) -> bool {
        let (month, of_month) = date(day);
        self.has(2, of_month) && self.has(3, month) && self.has(4, (day + 4) % 7)
    }
}

/// Month and day of the month of a day since 1970.
fn date(day: u64) -> (u64, u64) {
    // In years that begin in March, the leap day is the last day; 400 years have 146,097 days.
    let since = day + 719_468;
    let of_era = since % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    (if month < 10 { month + 3 } else { month - 9 }, of_month)
}

impl Field {
    fn all(&self) -> u64 {
        (self.least..=self.most).fold(0, |set, number| set | 1 << number)
    }

    fn parse(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |set, item| Ok(set | self.item(item)?))
    }

    /// `*`, `3`, `1-5`, each with an optional step.
    fn item(&self, text: &str) -> Result<u64, String> {
        let wrong = || format!("`{text}` is not a {}: expected {} to {}, or *", self.what, self.least, self.most);
        let (range, step) = text.split_once('/').map_or((text, None), |(range, step)| (range, Some(step)));
        let step: u32 = step.map_or(Ok(1), |step| plain(step).filter(|step| *step > 0).ok_or_else(wrong))?;
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (self.least, self.most),
            (_, Some((first, last))) => (self.number(first).ok_or_else(wrong)?, self.number(last).ok_or_else(wrong)?),
            (one, None) => {
                let one = self.number(one).filter(|_| step == 1).ok_or_else(wrong)?;
                (one, one)
            }
        };
        if first > last {
            return Err(format!("`{text}` is a reversed range"));
        }
        Ok((first..=last).step_by(step as usize).fold(0, |set, number| set | 1 << number))
    }

    fn number(&self, text: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let number = match named {
            Some(index) => self.least + u32::try_from(index).ok()?,
            None => plain(text)?,
        };
        (self.least..=self.most).contains(&number).then_some(number)
    }

    fn show(&self, set: u64) -> String {
        if set == self.all() {
            return "*".to_owned();
        }
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for number in (self.least..=self.most).filter(|number| set >> number & 1 == 1) {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => parts.push((number, number)),
            }
        }
        let part =
            |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        parts.into_iter().map(part).collect::<Vec<_>>().join(",")
    }
}

fn plain(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// With numbers only, which every cron accepts.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = FIELDS.iter().zip(self.fields).map(|(field, set)| field.show(set)).collect();
        f.write_str(&words.join(" "))
    }
}

impl From<Schedule> for String {
    fn from(schedule: Schedule) -> String {
        schedule.to_string()
    }
}

impl TryFrom<String> for Schedule {
    type Error = String;

    fn try_from(text: String) -> Result<Schedule, String> {
        Schedule::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR_MS: u64 = 60 * MINUTE_MS;
    const DAY_MS: u64 = 24 * HOUR_MS;
    /// 2024-02-29, a Thursday.
    const LEAP_DAY_MS: u64 = 19_782 * DAY_MS;

    #[test]
    fn what_is_written_in_many_ways_is_shown_in_one() {
        for (text, expected) in [
            ("0 9 * * mon-fri", "0 9 * * 1-5"),
            ("*/15 0 1,15 JAN,jul *", "0,15,30,45 0 1,15 1,7 *"),
            ("0-59  8-18/5 * * *", "* 8,13,18 * * *"),
            ("0 0 29 2 *", "0 0 29 2 *"),
        ] {
            assert_eq!(Schedule::parse(text).map(|found| found.to_string()), Ok(expected.to_owned()), "{text}");
        }
        for text in [
            "",
            "0 9 * *",
            "0 9 * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "0 9 1 * mon",
            "5-1 * * * *",
            "*/0 * * * *",
            "3/2 * * * *",
            "a * * * *",
            "+1 * * * *",
            "@daily",
            "0 0 30 2 *",
            "1,,2 * * * *",
        ] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn it_is_due_when_the_calendar_says_so() {
        let noon_ms = LEAP_DAY_MS + 12 * HOUR_MS;
        for (text, last, next) in [
            ("0 9 * * mon-fri", LEAP_DAY_MS + 9 * HOUR_MS, LEAP_DAY_MS + 33 * HOUR_MS),
            ("0 18 * * *", LEAP_DAY_MS - 6 * HOUR_MS, LEAP_DAY_MS + 18 * HOUR_MS),
            ("0 12 * * *", noon_ms, noon_ms + DAY_MS),
            ("0 0 * * sat", LEAP_DAY_MS - 5 * DAY_MS, LEAP_DAY_MS + 2 * DAY_MS),
            ("0 0 29 feb *", LEAP_DAY_MS, LEAP_DAY_MS + (4 * 365 + 1) * DAY_MS),
            (
                "30 11 1 3 *",
                LEAP_DAY_MS - 365 * DAY_MS + 11 * HOUR_MS + 30 * MINUTE_MS,
                LEAP_DAY_MS + 35 * HOUR_MS + 30 * MINUTE_MS,
            ),
        ] {
            let schedule = Schedule::parse(text).expect("it is sound");
            assert_eq!(
                (schedule.last_until(noon_ms), schedule.next_after(noon_ms)),
                (Some(last), Some(next)),
                "{text}"
            );
        }
        let yearly = Schedule::parse("0 0 1 7 *").expect("it is sound");
        assert_eq!(yearly.last_until(DAY_MS), None, "there was none yet");
    }

    proptest! {
        #[test]
        fn last_and_next_meet(text in "[0-9]|[1-5][0-9]", hour in 0u32..24, day in 0u32..7, now_ms in 0u64..5_000_000_000_000) {
            let schedule = Schedule::parse(&format!("{text} {hour} * * {day}")).map_err(TestCaseError::fail)?;
            let next_ms = schedule.next_after(now_ms).expect("every week");
            prop_assert!(next_ms > now_ms && next_ms <= now_ms + 7 * DAY_MS);
            prop_assert_eq!(schedule.last_until(next_ms), Some(next_ms));
            prop_assert_eq!(schedule.last_until(next_ms - 1), next_ms.checked_sub(7 * DAY_MS));
            prop_assert_eq!(Schedule::parse(&schedule.to_string()), Ok(schedule));
        }
    }
}
