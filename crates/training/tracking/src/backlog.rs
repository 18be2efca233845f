//! Points that a sink has not taken yet: when to try, and what to give up. Pure: time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use crate::point::Point;
use crate::sink::Failure;

/// Ten thousand rounds with forty metrics each, in some 40 MB.
pub const MAX_POINTS: usize = 400_000;
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub struct Backlog {
    points: VecDeque<Point>,
    /// Points that were given in all.
    total: u64,
    delivered: u64,
    /// Why the last try failed; stays after a success, if points were lost by then.
    why: Option<String>,
    failures: u32,
    /// The sink takes nothing any more.
    closed: bool,
}

impl Backlog {
    /// The newest points are given up where there are too many.
    pub fn push(&mut self, points: Vec<Point>) {
        self.total += points.len() as u64;
        let room = if self.closed { 0 } else { MAX_POINTS.saturating_sub(self.points.len()) };
        self.points.extend(points.into_iter().take(room));
    }

    /// The next points, at most so many.
    pub fn next(&mut self, most: usize) -> &[Point] {
        let points = self.points.make_contiguous();
        &points[..points.len().min(most)]
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub fn delivered(&mut self, points: usize) {
        self.points.drain(..points);
        self.delivered += points as u64;
        self.failures = 0;
        if self.delivered == self.total {
            self.why = None;
        }
    }

    /// `tried`: how many points the sink was given.
    pub fn failed(&mut self, failure: Failure, tried: usize) {
        self.failures += 1;
        match &failure {
            Failure::Passing(_) => {}
            // Sent again they would be refused again, and hold up all that follow.
            Failure::Refused(_) => drop(self.points.drain(..tried)),
            Failure::Final(_) => {
                self.points.clear();
                self.closed = true;
            }
        }
        self.why = Some(failure.to_string());
    }

    /// How long to wait before the next try.
    pub fn backoff(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            failures => (FIRST_BACKOFF * 2_u32.saturating_pow(failures.min(16) - 1)).min(MAX_BACKOFF),
        }
    }

    pub fn counts(&self) -> (u64, u64) {
        (self.delivered, self.total)
    }

    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(number: usize) -> Vec<Point> {
        (0..number).map(|step| Point { name: "a".to_owned(), step: step as u64, value: 0.0, at: 0.0 }).collect()
    }

    #[test]
    fn what_fails_waits_longer_each_time() {
        let mut backlog = Backlog::default();
        backlog.push(points(3));
        let mut waits = Vec::new();
        for _ in 0..7 {
            backlog.failed(Failure::Passing("down".to_owned()), 3);
            waits.push(backlog.backoff().as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        assert_eq!(backlog.next(2).len(), 2);
        backlog.delivered(3);
        assert_eq!((backlog.backoff(), backlog.why(), backlog.counts()), (Duration::ZERO, None, (3, 3)));
    }

    #[test]
    fn what_is_refused_does_not_hold_up_the_rest() {
        let mut backlog = Backlog::default();
        backlog.push(points(5));
        backlog.failed(Failure::Refused("bad name".to_owned()), 2);
        backlog.delivered(3);
        assert_eq!((backlog.counts(), backlog.why()), ((3, 5), Some("bad name")));
        backlog.failed(Failure::Final("no permission".to_owned()), 0);
        backlog.push(points(2));
        assert!(backlog.is_empty() && backlog.is_closed());
        assert_eq!(backlog.counts(), (3, 7));
    }

    #[test]
    fn there_is_a_limit() {
        let mut backlog = Backlog::default();
        backlog.push(points(MAX_POINTS + 1));
        backlog.delivered(MAX_POINTS);
        assert_eq!(backlog.counts(), (MAX_POINTS as u64, MAX_POINTS as u64 + 1));
        assert!(backlog.is_empty());
    }
}
