//! Scheduled policies: cron with five fields, in UTC.

use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: BTreeSet<u32>,
    hours: BTreeSet<u32>,
    days: BTreeSet<u32>,
    months: BTreeSet<u32>,
    weekdays: BTreeSet<u32>,
}

const SHORT: [(&str, &str); 5] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
];

impl Cron {
    pub fn parse(text: &str) -> Result<Cron, String> {
        let text = SHORT.iter().find(|(short, _)| *short == text.trim()).map_or(text, |(_, long)| long);
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!("five fields are needed, not {}", fields.len()));
        };
        let mut weekdays = field(weekdays, 0, 7)?;
        if weekdays.remove(&7) {
            weekdays.insert(0);
        }
        Ok(Cron {
            minutes: field(minutes, 0, 59)?,
            hours: field(hours, 0, 23)?,
            days: field(days, 1, 31)?,
            months: field(months, 1, 12)?,
            weekdays,
        })
    }

    /// Whether it fires in the minute that starts at `epoch_s`.
    pub fn fires(&self, epoch_s: u64) -> bool {
        let (days, seconds) = (epoch_s / 86_400, epoch_s % 86_400);
        let (month, day) = month_and_day(days);
        self.minutes.contains(&((seconds / 60 % 60) as u32))
            && self.hours.contains(&((seconds / 3600) as u32))
            && self.days.contains(&day)
            && self.months.contains(&month)
            // 1 January 1970 was a Thursday.
            && self.weekdays.contains(&(((days + 4) % 7) as u32))
    }

    /// Whether it fires after `since_s` and until `now_s`; checks at most one day.
    pub fn fired(&self, since_s: u64, now_s: u64) -> bool {
        let first = since_s.max(now_s.saturating_sub(86_400)) / 60 + 1;
        (first..=now_s / 60).any(|minute| self.fires(minute * 60))
    }
}

fn field(text: &str, least: u32, most: u32) -> Result<BTreeSet<u32>, String> {
    let mut values = BTreeSet::new();
    for part in text.split(',') {
        let (range, step) = part.split_once('/').map_or((part, "1"), |(range, step)| (range, step));
        let wrong = || format!("{part:?} is not understood");
        let step: u32 = step.parse().map_err(|_| wrong())?;
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((from, to)) => (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?),
            None => {
                let value = range.parse().map_err(|_| wrong())?;
                (value, value)
            }
        };
        if from < least || to > most || from > to || step == 0 {
            return Err(wrong());
        }
        values.extend((from..=to).step_by(step as usize));
    }
    Ok(values)
}

fn month_and_day(days: u64) -> (u32, u32) {
    // Eras of 400 years start on 1 March, so that the leap day comes last.
    let z = days + 719_468;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fires_when_it_should() {
        // 2026-11-16 08:30:00 UTC, a Monday.
        let now = 1_794_817_800;
        for (text, wanted) in [
            ("30 8 * * *", Some(true)),
            ("30 8 16 11 *", Some(true)),
            ("30 8 * * 1", Some(true)),
            ("30 8 * * 2", Some(false)),
            ("*/15 8-9 * * 1-5", Some(true)),
            ("31 8 * * *", Some(false)),
            ("60 8 * * *", None),
            ("L 8 * * *", None),
            ("@daily", Some(false)),
            ("* * * *", None),
        ] {
            assert_eq!(Cron::parse(text).ok().map(|cron| cron.fires(now)), wanted, "{text}");
        }
        let cron = Cron::parse("30 8 * * *").expect("good");
        assert!(cron.fired(now - 60, now) && cron.fired(now - 3600, now + 3600) && !cron.fired(now, now + 3600));
    }
}
