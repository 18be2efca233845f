//! The server's optimiser step: how the mean of the replies changes the model. Only floating-point arrays are optimised.
//!
//! Reddi et al., "Adaptive Federated Optimization"; Hsu et al., "Measuring the Effects of Non-Identical Data Distribution";
//! Li et al., "Fair Resource Allocation in Federated Learning". Details follow Flower.

use crate::strategy::Strategy;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    /// The mean is the next model.
    Replace,
    /// Gradient descent; the gradient is the difference between the model and the mean.
    Descend { rate: f64, momentum: f64 },
    /// Adaptive learning rates per coordinate.
    Adapt { rate: f64, beta_1: f64, tau: f64, second: Second },
    /// The sum is divided by the QFedAvg normaliser instead of by `weights`.
    Fair { scale: f64, weights: f64 },
}

/// How the second moment follows the squared steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Second {
    Adagrad,
    Adam { beta_2: f64 },
    Yogi { beta_2: f64 },
}

impl Rule {
    /// The rule of a strategy in a round. That of QFedAvg depends on the replies.
    pub fn of(strategy: &Strategy, round: u64) -> Self {
        match *strategy {
            // As in Flower: with both parameters at their defaults the mean is used unchanged.
            Strategy::FedAvgM { server_learning_rate: rate, server_momentum: momentum }
                if rate != 1.0 || momentum != 0.0 =>
            {
                Self::Descend { rate, momentum }
            }
            Strategy::FedAdagrad { eta, tau } => Self::Adapt { rate: eta, beta_1: 0.0, tau, second: Second::Adagrad },
            Strategy::FedAdam { eta, beta_1, beta_2, tau } => {
                // As in Flower: the round number plus one, which is one more than the steps taken.
                let unbiased = |beta: f64| 1.0 - libm::pow(beta, round as f64 + 1.0);
                let rate = eta * unbiased(beta_2).sqrt() / unbiased(beta_1);
                Self::Adapt { rate, beta_1, tau, second: Second::Adam { beta_2 } }
            }
            Strategy::FedYogi { eta, beta_1, beta_2, tau } => {
                Self::Adapt { rate: eta, beta_1, tau, second: Second::Yogi { beta_2 } }
            }
            _ => Self::Replace,
        }
    }

    /// The names of the state's models. Their initial value is 0.
    pub fn state_names(&self) -> &'static [&'static str] {
        match self {
            Self::Replace | Self::Fair { .. } => &[],
            Self::Descend { momentum, .. } if *momentum == 0.0 => &[],
            Self::Descend { .. } => &["momentum"],
            Self::Adapt { .. } => &["m", "v"],
        }
    }

    /// Replaces the mean by the next model. `state` has one slice per name.
    pub fn step(&self, mean: &mut [f64], model: &[f64], state: &mut [Vec<f64>]) {
        match (*self, state) {
            (Self::Replace, _) => {}
            (Self::Descend { rate, momentum }, [velocity]) => {
                for ((mean, model), velocity) in mean.iter_mut().zip(model).zip(velocity) {
                    *velocity = momentum * *velocity + (model - *mean);
                    *mean = model - rate * *velocity;
                }
            }
            (Self::Descend { rate, .. }, _) => {
                for (mean, model) in mean.iter_mut().zip(model) {
                    *mean = model - rate * (model - *mean);
                }
            }
            (Self::Adapt { rate, beta_1, tau, second }, [m, v]) => {
                for (((mean, model), m), v) in mean.iter_mut().zip(model).zip(m).zip(v) {
                    let delta = *mean - model;
                    *m = beta_1 * *m + (1.0 - beta_1) * delta;
                    *v = second.next(*v, delta * delta);
                    *mean = model + rate * *m / (v.sqrt() + tau);
                }
            }
            (Self::Fair { scale, weights }, _) => {
                for (sum, model) in mean.iter_mut().zip(model) {
                    *sum = model - scale * (weights * model - *sum);
                }
            }
            (Self::Adapt { .. }, state) => unreachable!("{} models in a state of two", state.len()),
        }
    }
}

impl Second {
    #[inline(always)]
    fn next(self, v: f64, square: f64) -> f64 {
        match self {
            Self::Adagrad => v + square,
            Self::Adam { beta_2 } => beta_2 * v + (1.0 - beta_2) * square,
            // f64::signum(0.0) is 1, but a step of 0 has no sign.
            Self::Yogi { .. } if v == square => v,
            Self::Yogi { beta_2 } => v - (1.0 - beta_2) * square * (v - square).signum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One coordinate through several rounds: the model after each, and the state at the end.
    fn rounds(strategy: Strategy, start: f64, means: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut model = start;
        let mut state = vec![vec![0.0]; Rule::of(&strategy, 1).state_names().len()];
        let after = means.iter().zip(1..).map(|(mean, round)| {
            let mut next = [*mean];
            Rule::of(&strategy, round).step(&mut next, &[model], &mut state);
            model = next[0];
            model
        });
        (after.collect(), state.into_iter().map(|numbers| numbers[0]).collect())
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-14 * expected.abs().max(1.0), "{found} is not {expected}");
        }
    }

    #[test]
    fn momentum() {
        let strategy = Strategy::FedAvgM { server_learning_rate: 0.5, server_momentum: 0.9 };
        // g = 1 - 0 = 1, w = 1 - .5 = .5; g = .5 - 0, m = .9 + .5 = 1.4, w = .5 - .7 = -.2
        let (models, state) = rounds(strategy, 1.0, &[0.0, 0.0]);
        assert_near(&models, &[0.5, -0.2]);
        assert_near(&state, &[1.4]);
        let (models, state) =
            rounds(Strategy::FedAvgM { server_learning_rate: 0.25, server_momentum: 0.0 }, 1.0, &[0.0, 0.0]);
        assert_near(&models, &[0.75, 0.5625]);
        assert!(state.is_empty());
        let plain = Strategy::FedAvgM { server_learning_rate: 1.0, server_momentum: 0.0 };
        assert_eq!(Rule::of(&plain, 1), Rule::Replace);
    }

    #[test]
    fn adagrad() {
        // d = 2, v = 4, w = 0 + .1 * 2 / (2 + .5) = .08; d = 1.08 - .08 = 1, v = 5
        let (models, state) = rounds(Strategy::FedAdagrad { eta: 0.1, tau: 0.5 }, 0.0, &[2.0, 1.08]);
        assert_near(&models, &[0.08, 0.08 + 0.1 / (5f64.sqrt() + 0.5)]);
        assert_near(&state, &[1.0, 5.0]);
    }

    #[test]
    fn adam_corrects_its_rate_by_the_round_number_plus_one() {
        let strategy = Strategy::FedAdam { eta: 0.1, beta_1: 0.5, beta_2: 0.75, tau: 1.0 };
        // d = 2: m = 1, v = 1; rate = .1 * sqrt(1 - 9/16) / (1 - 1/4)
        let rate = 0.1 * (7.0f64 / 16.0).sqrt() / 0.75;
        let first = 1.0 + rate / 2.0;
        // d = 4: m = .5 + 2 = 2.5, v = .75 + 4 = 4.75; rate = .1 * sqrt(1 - 27/64) / (1 - 1/8)
        let rate = 0.1 * (37.0f64 / 64.0).sqrt() / 0.875;
        let (models, state) = rounds(strategy, 1.0, &[3.0, first + 4.0]);
        assert_near(&models, &[first, first + rate * 2.5 / (4.75f64.sqrt() + 1.0)]);
        assert_near(&state, &[2.5, 4.75]);
    }

    #[test]
    fn yogi_moves_its_second_moment_by_a_fraction_of_the_square() {
        let strategy = Strategy::FedYogi { eta: 0.1, beta_1: 0.0, beta_2: 0.75, tau: 1.0 };
        // d = 2: v = 0 + 1 = 1, w = .1 * 2 / 2; d = .5: v = 1 - .25 * .25
        let (models, state) = rounds(strategy.clone(), 0.0, &[2.0, 0.6]);
        assert_near(&models, &[0.1, 0.1 + 0.05 / (0.9375f64.sqrt() + 1.0)]);
        assert_near(&state, &[0.5, 0.9375]);
        // d = 1 and v = 1: v does not change
        let (_, state) = rounds(strategy, 0.0, &[2.0, 1.1]);
        assert_near(&state, &[1.0, 1.0]);
    }
}
