//! The times of retries. Pure: time and randomness are arguments.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// The maximum wait doubles with each retry, from `first` to `cap`. Each wait is a random fraction of it, so that many nodes
    /// do not reconnect at the same moment.
    Exponential {
        first: Duration,
        cap: Duration,
    },
    Fixed(Duration),
}

/// The retries since the first failure.
#[derive(Debug, Clone)]
pub struct Schedule {
    backoff: Backoff,
    max_retries: Option<u64>,
    max_wait: Option<Duration>,
    retries: u64,
    failing_since: Option<Instant>,
}

impl Schedule {
    /// `max_retries`: retries after the first failure; `max_wait`: time since then. `None`: unlimited.
    pub fn new(backoff: Backoff, max_retries: Option<u64>, max_wait: Option<Duration>) -> Schedule {
        Schedule { backoff, max_retries, max_wait, retries: 0, failing_since: None }
    }

    /// Records a failure at `now`. Returns the wait before the next retry, or `None` to give up. `random` is between 0 and 1.
    pub fn next(&mut self, now: Instant, random: f64) -> Option<Duration> {
        let waited = now.saturating_duration_since(*self.failing_since.get_or_insert(now));
        let left = match self.max_wait {
            Some(most) if waited >= most => return None,
            Some(most) => most - waited,
            None => Duration::MAX,
        };
        if self.max_retries.is_some_and(|most| self.retries >= most) {
            return None;
        }
        let wait = match self.backoff {
            Backoff::Exponential { first, cap } => {
                doubled(first, self.retries).min(cap).mul_f64(random.clamp(0.0, 1.0))
            }
            Backoff::Fixed(wait) => wait,
        };
        self.retries += 1;
        // The last retry happens when the time is up, not before.
        Some(wait.min(left))
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.retries = 0;
        self.failing_since = None;
    }
}

fn doubled(first: Duration, times: u64) -> Duration {
    let factor = u32::try_from(times).ok().and_then(|times| 1u32.checked_shl(times)).unwrap_or(u32::MAX);
    first.saturating_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPONENTIAL: Backoff = Backoff::Exponential { first: Duration::from_secs(1), cap: Duration::from_secs(20) };
    const FIXED: Backoff = Backoff::Fixed(Duration::from_secs(3));

    /// Each try fails at once.
    fn waits(mut schedule: Schedule, random: f64, tries: usize) -> Vec<Option<f64>> {
        let mut now = Instant::now();
        let mut next = || {
            let wait = schedule.next(now, random)?;
            now += wait;
            Some(wait.as_secs_f64())
        };
        (0..tries).map(|_| next()).collect()
    }

    #[test]
    fn waits_by_setting() {
        let some = |waits: &[f64]| waits.iter().copied().map(Some).collect::<Vec<_>>();
        let until = |waits: &[f64]| [some(waits), vec![None, None]].concat();
        let s = Duration::from_secs;
        for (name, schedule, random, expected) in [
            ("doubled to the cap", Schedule::new(EXPONENTIAL, None, None), 1.0, some(&[1., 2., 4., 8., 16., 20., 20.])),
            ("full jitter", Schedule::new(EXPONENTIAL, None, None), 0.25, some(&[0.25, 0.5, 1., 2., 4., 5.])),
            ("no wait by chance", Schedule::new(EXPONENTIAL, None, None), 0.0, some(&[0., 0., 0.])),
            ("chance out of range", Schedule::new(EXPONENTIAL, None, None), 7.0, some(&[1., 2.])),
            ("always the same", Schedule::new(FIXED, None, None), 0.5, some(&[3., 3., 3.])),
            ("two retries", Schedule::new(FIXED, Some(2), None), 1.0, until(&[3., 3.])),
            ("none", Schedule::new(FIXED, Some(0), None), 1.0, until(&[])),
            ("ten seconds", Schedule::new(FIXED, None, Some(s(10))), 1.0, until(&[3., 3., 3., 1.])),
            ("no time", Schedule::new(FIXED, None, Some(s(0))), 1.0, until(&[])),
            ("whichever is first", Schedule::new(EXPONENTIAL, Some(9), Some(s(4))), 1.0, until(&[1., 2., 1.])),
        ] {
            assert_eq!(waits(schedule, random, expected.len()), expected, "{name}");
        }
    }

    #[test]
    fn success_begins_anew() {
        let mut schedule = Schedule::new(EXPONENTIAL, Some(2), Some(Duration::from_secs(60)));
        let start = Instant::now();
        let later = start + Duration::from_secs(100);
        assert!(schedule.next(start, 1.0).is_some());
        schedule.reset();
        assert_eq!(schedule.next(later, 1.0), Some(Duration::from_secs(1)));
        assert_eq!(schedule.next(later, 1.0), Some(Duration::from_secs(2)));
        assert_eq!(schedule.next(later, 1.0), None);
    }

    #[test]
    fn a_link_that_is_down_for_a_year_overflows_nothing() {
        let mut schedule = Schedule::new(EXPONENTIAL, None, None);
        schedule.retries = u64::MAX - 1;
        assert_eq!(schedule.next(Instant::now(), 1.0), Some(Duration::from_secs(20)));
    }
}
