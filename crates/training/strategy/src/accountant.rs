//! The privacy budget that a training has spent: Renyi differential privacy of the sampled Gaussian mechanism (Mironov,
//! Talwar, Zhang 2019), converted to (epsilon, delta) by the bound of Canonne, Kamath, Steinke 2020 (Proposition 12; Balle
//! et al. 2020).
//!
//! Two trainings are neighbours if one client takes part in only one of them. The sampling rate is that of Poisson sampling:
//! each client is sampled independently. Like other libraries, this one accounts a sample of fixed size as a Poisson sample of
//! the same rate. A rate of 1 makes no assumption about the sampling and bounds every case.

/// Fractional orders, in tenths: the best order is large for a small epsilon, and near 1 for a large one.
const TENTHS: std::ops::RangeInclusive<u32> = 11..=109;
/// Integer orders, where fractions no longer matter.
const WHOLE: std::ops::RangeInclusive<u32> = 11..=63;
const LARGE: [u32; 4] = [128, 256, 512, 1024];
/// A series ends when its terms are below this fraction of its sum (natural logarithm).
const NEGLIGIBLE: f64 = -30.0;
/// A bound on the length of a series. The slowest one (order 1.1) ends after some ten thousand terms.
const MAX_TERMS: u32 = 200_000;
/// From here `erfc` is computed by its asymptotic series: soon after, it underflows.
const LARGE_ERFC: f64 = 20.0;

#[derive(Debug, Clone)]
pub struct Accountant {
    /// The Renyi divergence of the recorded rounds at each order.
    spent: Vec<(f64, f64)>,
}

impl Default for Accountant {
    fn default() -> Self {
        let orders = TENTHS.filter(|tenths| tenths % 10 != 0).map(|tenths| f64::from(tenths) / 10.0);
        let orders = orders.chain((2..=10).chain(WHOLE).chain(LARGE).map(f64::from));
        Self { spent: orders.map(|order| (order, 0.0)).collect() }
    }
}

impl Accountant {
    /// Records rounds that sample this fraction of all clients.
    pub fn record(&mut self, noise_multiplier: f64, sampling_rate: f64, rounds: u64) {
        if rounds == 0 {
            return;
        }
        for (order, spent) in &mut self.spent {
            *spent += cost(*order, noise_multiplier, sampling_rate) * rounds as f64;
        }
    }

    /// The epsilon of the recorded rounds at this delta; infinite if no bound holds.
    pub fn epsilon(&self, delta: f64) -> f64 {
        self.spent.iter().map(|&(order, spent)| epsilon(order, spent, delta)).fold(f64::INFINITY, f64::min)
    }
}

/// The Renyi divergence of one step at an order.
fn cost(order: f64, noise_multiplier: f64, rate: f64) -> f64 {
    if rate == 0.0 {
        0.0
    } else if noise_multiplier == 0.0 {
        f64::INFINITY
    } else if rate >= 1.0 {
        order / (2.0 * noise_multiplier * noise_multiplier)
    } else if order.fract() == 0.0 {
        ln_moment_whole(order as u32, noise_multiplier, rate) / (order - 1.0)
    } else {
        ln_moment_fractional(order, noise_multiplier, rate) / (order - 1.0)
    }
}

fn epsilon(order: f64, cost: f64, delta: f64) -> f64 {
    // The distributions are so close that no test distinguishes them with an advantage above delta (Bretagnolle and Huber).
    if delta * delta + libm::expm1(-cost) > 0.0 {
        return 0.0;
    }
    let epsilon = cost + libm::log1p(-1.0 / order) - libm::log(delta * order) / (order - 1.0);
    epsilon.max(0.0)
}

/// The logarithm of the order-th moment of the density ratio: a binomial sum.
fn ln_moment_whole(order: u32, sigma: f64, rate: f64) -> f64 {
    let (ln_rate, ln_rest) = (libm::log(rate), libm::log1p(-rate));
    let mut sum = Sum::default();
    let mut ln_binomial = 0.0;
    for k in 0..=order {
        let (taken, left) = (f64::from(k), f64::from(order - k));
        let gaussian = (taken * taken - taken) / (2.0 * sigma * sigma);
        sum.add(1.0, ln_binomial + taken * ln_rate + left * ln_rest + gaussian);
        ln_binomial += libm::log(left / (taken + 1.0));
    }
    sum.ln()
}

/// The same for fractional orders: two infinite series, one for each side of the point where both components of the mixture
/// are equally likely.
fn ln_moment_fractional(order: f64, sigma: f64, rate: f64) -> f64 {
    let (ln_rate, ln_rest) = (libm::log(rate), libm::log1p(-rate));
    let middle = sigma * sigma * (ln_rest - ln_rate) + 0.5;
    let width = std::f64::consts::SQRT_2 * sigma;
    let half_erfc = |x: f64| ln_erfc(x) - std::f64::consts::LN_2;
    let gaussian = |x: f64| (x * x - x) / (2.0 * sigma * sigma);
    let mut sum = Sum::default();
    let (mut sign, mut ln_binomial) = (1.0, 0.0);
    for i in (0..MAX_TERMS).map(f64::from) {
        let j = order - i;
        let left = ln_binomial + i * ln_rate + j * ln_rest + gaussian(i) + half_erfc((i - middle) / width);
        let right = ln_binomial + j * ln_rate + i * ln_rest + gaussian(j) + half_erfc((middle - j) / width);
        sum.add(sign, left);
        sum.add(sign, right);
        if i > order && left.max(right) < sum.ln() + NEGLIGIBLE {
            break;
        }
        sign *= j.signum();
        ln_binomial += libm::log(j.abs() / (i + 1.0));
    }
    sum.ln()
}

fn ln_erfc(x: f64) -> f64 {
    if x < LARGE_ERFC {
        return libm::log(libm::erfc(x));
    }
    let inverse = 1.0 / (2.0 * x * x);
    let series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)));
    -x * x - libm::log(x * libm::sqrt(std::f64::consts::PI)) + libm::log(series)
}

/// A sum of terms that are given by their logarithms and may overflow or underflow floats.
#[derive(Default)]
struct Sum {
    ln_scale: Option<f64>,
    scaled: f64,
}

impl Sum {
    fn add(&mut self, sign: f64, ln_term: f64) {
        match self.ln_scale {
            Some(scale) if ln_term <= scale => self.scaled += sign * libm::exp(ln_term - scale),
            scale => {
                let shrink = scale.map_or(0.0, |scale| libm::exp(scale - ln_term));
                self.scaled = self.scaled * shrink + sign;
                self.ln_scale = Some(ln_term);
            }
        }
    }

    fn ln(&self) -> f64 {
        self.ln_scale.map_or(f64::NEG_INFINITY, |scale| scale + libm::log(self.scaled))
    }
}

#[cfg(test)]
mod tests;
