//! Retry budgets: how often a step is repeated, and the delays between the attempts. The planner and every driver use this table;
//! no driver has a budget of its own. Pure.

use crate::Millis;

/// Limits for the attempts of one kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBudget {
    /// `None` if the number of attempts is unlimited.
    pub max_attempts: Option<u32>,
    /// Delay after the first attempt. It doubles with each further attempt, up to `max_delay_ms`.
    pub min_delay_ms: Millis,
    pub max_delay_ms: Millis,
}

/// Orders of the planner to a driver. The planner adds jitter to the delays.
pub(crate) const ORDER: RetryBudget = RetryBudget { max_attempts: None, min_delay_ms: 1_000, max_delay_ms: 300_000 };
/// Restarts of a node. When they are exhausted, the planner replaces the node.
pub(crate) const MAX_RESTARTS: u32 = 3;

/// Budgets for the steps that a driver repeats by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverRetries {
    /// Recoveries of a group of parts that the platform manages as one. When they are exhausted, the parts have failed.
    pub recovery: RetryBudget,
    /// Observations of a site after an error.
    pub observation: RetryBudget,
}

impl DriverRetries {
    pub const DEFAULT: DriverRetries = DriverRetries {
        recovery: RetryBudget { max_attempts: Some(3), min_delay_ms: 30_000, max_delay_ms: 30_000 },
        observation: RetryBudget { max_attempts: None, min_delay_ms: 2_000, max_delay_ms: 60_000 },
    };
}

impl RetryBudget {
    pub fn is_exhausted(&self, attempts: u32) -> bool {
        self.max_attempts.is_some_and(|max| attempts >= max)
    }

    /// Delay until the next attempt, after this many attempts. No attempt needs no delay.
    pub fn delay_ms(&self, attempts: u32) -> Millis {
        const MAX_DOUBLINGS: u32 = 20;
        match attempts {
            0 => 0,
            _ => self.min_delay_ms.saturating_mul(1 << (attempts - 1).min(MAX_DOUBLINGS)).min(self.max_delay_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let DriverRetries { recovery, observation } = DriverRetries::DEFAULT;
        assert_eq!(
            [0, 1, 2, 3, 6, u32::MAX].map(|count| observation.delay_ms(count)),
            [0, 2000, 4000, 8000, 60_000, 60_000]
        );
        assert_eq!([0, 1, 2].map(|count| recovery.delay_ms(count)), [0, 30_000, 30_000]);
        assert_eq!([0, 2, 3].map(|count| recovery.is_exhausted(count)), [false, false, true]);
        assert!(!observation.is_exhausted(u32::MAX));
    }
}
