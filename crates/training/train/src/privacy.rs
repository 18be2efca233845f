//! The privacy budget of a training. Pure: the counts of rounds are numbers in the training's state, so checkpoints contain
//! them.
//!
//! Rounds are counted by sample. A round that selected all online nodes has no amplification by sampling; any other round is
//! amplified by its sampling rate. All selected nodes count, whether or not their reply was used.

use std::collections::BTreeMap;

use trellis_strategy::Accountant;

use crate::settings::Dp;

/// The key of rounds that selected all nodes, and the prefix of the keys of other samples: `dp-rounds:3/10`.
pub const ALL_NODES: &str = "dp-rounds";

/// The sample of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub asked: usize,
    pub online: usize,
}

impl Sample {
    fn key(self) -> String {
        match self.asked >= self.online {
            true => ALL_NODES.to_owned(),
            false => format!("{ALL_NODES}:{}/{}", self.asked, self.online),
        }
    }
}

/// Counts a round whose noise is in the model.
pub fn count(numbers: &mut BTreeMap<String, f64>, sample: Sample) {
    *numbers.entry(sample.key()).or_default() += 1.0;
}

/// The epsilon of the counted rounds.
pub fn epsilon(numbers: &BTreeMap<String, f64>, dp: &Dp) -> f64 {
    let mut accountant = Accountant::default();
    for (rate, rounds) in numbers.iter().filter_map(|(key, rounds)| Some((sampling_rate(key)?, *rounds))) {
        accountant.record(dp.noise_multiplier(), rate, rounds as u64);
    }
    accountant.epsilon(dp.delta)
}

/// Why a further round with this sample would exceed the budget; `None` if it would not, or if there is no budget.
pub fn exceeds_budget(numbers: &BTreeMap<String, f64>, dp: &Dp, sample: Sample) -> Option<String> {
    let limit = dp.max_epsilon?;
    let mut after = numbers.clone();
    count(&mut after, sample);
    let (spent, next) = (epsilon(numbers, dp), epsilon(&after, dp));
    (next > limit).then(|| {
        format!("the privacy budget allows no further round: epsilon is {spent:.3}, the next round would make it {next:.3}, dp-max-epsilon is {limit}")
    })
}

fn sampling_rate(key: &str) -> Option<f64> {
    if key == ALL_NODES {
        return Some(1.0);
    }
    let (asked, online) = key.strip_prefix(ALL_NODES)?.strip_prefix(':')?.split_once('/')?;
    let (asked, online): (f64, f64) = (asked.parse().ok()?, online.parse().ok()?);
    Some(asked / online)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Sample = Sample { asked: 10, online: 10 };

    fn dp(max_epsilon: Option<f64>) -> Dp {
        Dp::for_tests(1.0, 1e-5, max_epsilon)
    }

    /// Google's `dp-accounting` 0.6.0 gives 9.650708, 4.224294 and 30.126631 for these rounds.
    #[test]
    fn samples_are_amplified_by_their_rate() {
        for (rounds, expected) in [
            (vec![(Sample { asked: 2, online: 10 }, 10), (Sample { asked: 4, online: 8 }, 5)], 9.650_708),
            (vec![(Sample { asked: 1, online: 10 }, 20)], 4.224_294),
            (vec![(ALL, 20)], 30.126_631),
        ] {
            let mut numbers = BTreeMap::from([("dp-clipping-norm".to_owned(), 0.1)]);
            for (sample, times) in &rounds {
                (0..*times).for_each(|_| count(&mut numbers, *sample));
            }
            let epsilon = epsilon(&numbers, &dp(None));
            assert!((epsilon - expected).abs() < 0.01 * expected, "{rounds:?}: {epsilon} instead of {expected}");
        }
    }

    /// A checkpoint of an older version counts all its rounds without amplification.
    #[test]
    fn counts_of_older_checkpoints_are_read() {
        let older = BTreeMap::from([(ALL_NODES.to_owned(), 3.0)]);
        let mut same = BTreeMap::new();
        (0..3).for_each(|_| count(&mut same, ALL));
        assert_eq!(older, same);
    }

    #[test]
    fn a_round_beyond_the_budget_is_refused_with_the_figures() {
        let (mut numbers, sample) = (BTreeMap::new(), Sample { asked: 2, online: 10 });
        let budget = dp(Some(6.0));
        let mut rounds = 0;
        let reason = loop {
            if let Some(reason) = exceeds_budget(&numbers, &budget, sample) {
                break reason;
            }
            count(&mut numbers, sample);
            rounds += 1;
        };
        assert!(rounds > 1 && epsilon(&numbers, &budget) <= 6.0, "{rounds} rounds");
        assert!(reason.ends_with("dp-max-epsilon is 6"), "{reason}");
        assert_eq!(exceeds_budget(&numbers, &dp(None), ALL), None);
    }
}
