use super::*;

fn after(noise_multiplier: f64, rate: f64, steps: u64) -> Accountant {
    let mut accountant = Accountant::default();
    accountant.record(noise_multiplier, rate, steps);
    accountant
}

/// Computed by integrating the definition with 30 digits (mpmath 1.4) and minimising over the same orders. Google's
/// `dp-accounting` 0.6.0 (`PoissonSampledDpEvent(rate, GaussianDpEvent(noise multiplier))`, with the same default orders)
/// agrees to 8 digits at integer orders, and exceeds these values by at most 0.21 % at fractional ones: it truncates the
/// series earlier.
#[test]
fn epsilons_match_independent_computations() {
    for (noise_multiplier, rate, steps, delta, expected) in [
        (1.0, 1.0, 1, 1e-5, 4.72850706721762),
        (1.0, 1.0, 100, 1e-5, 96.116308425056),
        (0.5, 1.0, 10, 1e-6, 51.7237246501114),
        (4.0, 1.0, 50, 1e-5, 9.2349589916839),
        (1.1, 256.0 / 60000.0, 14100, 1e-5, 2.60034293860283),
        (1.3, 256.0 / 60000.0, 3525, 1e-5, 0.955773952892064),
        (0.7, 256.0 / 60000.0, 10575, 1e-5, 6.32631856192164),
        (1.0, 0.01, 1000, 1e-5, 2.1013652716484),
        (1.0, 0.1, 100, 1e-5, 7.89925500243808),
        (0.6, 0.5, 20, 1e-5, 37.4986201012805),
        (2.0, 0.02, 5000, 1e-6, 3.87262370580643),
        (10.0, 0.3, 100, 1e-5, 1.25723751000902),
        (0.3, 0.001, 100, 1e-5, 14.2360165180776),
        (8.0, 0.9, 30, 1e-5, 2.74766167585918),
        (100.0, 0.01, 10, 1e-5, 0.00355266411672691),
        (1.2, 0.05, 1, 1e-5, 1.08214444953592),
        (0.8, 0.001, 20000, 1e-7, 2.22162849181514),
    ] {
        let epsilon = after(noise_multiplier, rate, steps).epsilon(delta);
        let error = (epsilon - expected).abs() / expected;
        assert!(error < 1e-8, "{noise_multiplier} {rate} {steps}: {epsilon} instead of {expected}");
    }
}

/// The three well-known settings of TensorFlow Privacy's MNIST tutorial, with the conversion of its time (Mironov 2017):
/// 60,000 examples in batches of 256, delta 1e-5.
#[test]
fn published_epsilons() {
    for (noise_multiplier, epochs, published) in [(1.3, 15, 1.19), (1.1, 60, 3.01), (0.7, 45, 7.10)] {
        let rate = 256.0 / 60000.0;
        let spent = after(noise_multiplier, rate, epochs * 60000 / 256).spent;
        let old = |&(order, spent): &(f64, f64)| spent - 1e-5f64.ln() / (order - 1.0);
        let epsilon = spent.iter().map(old).fold(f64::INFINITY, f64::min);
        assert!((epsilon - published).abs() < 0.011, "{noise_multiplier}: {epsilon} instead of {published}");
    }
}

/// Integrates the definition: the mean under N(0, sigma) of (1 - q + q exp((2x - 1) / 2 sigma^2))^order.
#[test]
fn costs_match_the_definition() {
    for sigma in [0.6, 1.0, 3.0] {
        for rate in [0.01, 0.3, 0.9] {
            for order in [1.1, 1.5, 2.0, 2.7, 5.0, 10.3] {
                let density = |x: f64| {
                    let ratio = 1.0 - rate + rate * ((2.0 * x - 1.0) / (2.0 * sigma * sigma)).exp();
                    (-x * x / (2.0 * sigma * sigma)).exp() / (sigma * std::f64::consts::TAU.sqrt()) * ratio.powf(order)
                };
                // Twelve deviations beyond the mass of both components.
                let (from, to) = (-12.0 * sigma, order + 12.0 * sigma);
                let step = (to - from) / 20_000.0;
                let moment: f64 = (0..20_000).map(|i| density(from + f64::from(i) * step) * step).sum();
                let expected = moment.ln() / (order - 1.0);
                let found = cost(order, sigma, rate);
                // For a small cost the moment is near 1, and a sum of 20,000 rounded numbers.
                let rounding = 1e-12 / (order - 1.0);
                assert!(
                    (found - expected).abs() < 1e-8 * expected + rounding,
                    "{sigma} {rate} {order}: {found}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn every_round_costs_and_no_rounds_cost_nothing() {
    let mut accountant = Accountant::default();
    assert_eq!(accountant.epsilon(1e-5), 0.0);
    let mut last = 0.0;
    for step in 1..=5 {
        accountant.record(1.0, 0.1, 1);
        let epsilon = accountant.epsilon(1e-5);
        assert!(epsilon > last);
        assert!((epsilon - after(1.0, 0.1, step).epsilon(1e-5)).abs() < 1e-12);
        last = epsilon;
    }
    assert!(accountant.epsilon(1e-6) > last, "a smaller delta is a larger epsilon");
}

#[test]
fn extreme_parameters() {
    assert_eq!(after(0.0, 0.5, 1).epsilon(1e-5), f64::INFINITY, "no noise, no bound");
    assert_eq!(after(1.0, 0.0, 9).epsilon(1e-5), 0.0, "no client is sampled");
    assert_eq!(after(1e9, 1.0, 1).epsilon(1e-5), 0.0, "the noise dominates");
    let (part, whole) = (after(1.0, 0.999_999, 3).epsilon(1e-5), after(1.0, 1.0, 3).epsilon(1e-5));
    assert!(part <= whole && part > 0.99 * whole, "{part} {whole}");
}

#[test]
fn the_asymptotic_erfc_continues_the_exact_one() {
    let below = LARGE_ERFC.next_down();
    assert!((ln_erfc(below) - ln_erfc(LARGE_ERFC)).abs() < 1e-10);
    // ln erfc(30), to 12 digits, computed with 50-digit arithmetic (mpmath).
    assert!((ln_erfc(30.0) + 903.974_117_110_643_9).abs() < 1e-9);
}
