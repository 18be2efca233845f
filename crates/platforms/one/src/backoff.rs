//! Delays between attempts. Pure: the caller waits.

use std::time::Duration;

/// An endless iterator of delays. Use `take` to limit the number of attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    next: Duration,
    first: Duration,
    max: Duration,
    grows: bool,
}

impl Backoff {
    /// Each delay is twice the one before, up to `max`.
    pub fn exponential(first: Duration, max: Duration) -> Backoff {
        let first = first.min(max);
        Backoff { next: first, first, max, grows: true }
    }

    pub fn fixed(pause: Duration) -> Backoff {
        Backoff { next: pause, first: pause, max: pause, grows: false }
    }

    /// Starts again with the first delay, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        if self.grows {
            self.next = pause.saturating_mul(2).min(self.max);
        }
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(backoff: &mut Backoff, count: usize) -> Vec<u64> {
        backoff.take(count).map(|pause| pause.as_secs()).collect()
    }

    #[test]
    fn pauses_grow_to_the_longest_and_begin_again_after_a_success() {
        let mut growing = Backoff::exponential(Duration::from_secs(2), Duration::from_secs(10));
        assert_eq!(seconds(&mut growing, 5), [2, 4, 8, 10, 10]);
        growing.reset();
        assert_eq!(seconds(&mut growing, 2), [2, 4]);
        assert_eq!(seconds(&mut Backoff::fixed(Duration::from_secs(7)), 3), [7, 7, 7]);
        let wrong_way_round = &mut Backoff::exponential(Duration::from_secs(9), Duration::from_secs(3));
        assert_eq!(seconds(wrong_way_round, 2), [3, 3]);
    }
}
