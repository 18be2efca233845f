//! Deterministic random numbers: nodes compute their part of the data without communication, so a seed must give the same
//! numbers with every version of a library and on every platform.
//!
//! The generator is xoshiro256++ (Blackman and Vigna), seeded by SplitMix64. It is not cryptographically secure.

/// The purpose of random numbers. Each has its own sequence, so that a change of one does not affect the others.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub enum Purpose {
    Partition = 1,
    Split = 2,
    Weights = 3,
    Order = 4,
}

#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

impl Random {
    /// The sequence of a seed for a purpose; `details` separate sequences with the same purpose.
    pub fn new(seed: u64, purpose: Purpose, details: &[u64]) -> Self {
        let mut state = seed;
        for word in std::iter::once(purpose as u64).chain(details.iter().copied()) {
            state = split_mix(&mut state) ^ word;
        }
        Self(std::array::from_fn(|_| split_mix(&mut state)))
    }

    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Uniform in `0..limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        // Rejection sampling: numbers at the upper end would favour small results.
        let fair = u64::MAX - u64::MAX % limit;
        loop {
            let number = self.next();
            if number < fair {
                return (number % limit) as usize;
            }
        }
    }

    /// Uniform between 0 and 1, both excluded.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Normally distributed with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(std::f64::consts::TAU * angle)
    }

    /// The logarithm of a gamma-distributed number (Marsaglia and Tsang). With a small shape the number itself often underflows.
    pub fn ln_gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            return self.ln_gamma(shape + 1.0) + libm::log(self.unit()) / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            if libm::log(self.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return libm::log(d * v);
            }
        }
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_matches_the_reference() {
        // The first numbers of the reference implementation for the state 1, 2, 3, 4.
        let mut random = Random([1, 2, 3, 4]);
        let numbers: Vec<u64> = (0..4).map(|_| random.next()).collect();
        assert_eq!(numbers, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn moments() {
        let mut random = Random::new(7, Purpose::Weights, &[]);
        let mean = |mut draw: Box<dyn FnMut() -> f64>| (0..40_000).map(|_| draw()).sum::<f64>() / 40_000.0;
        let mut other = random.clone();
        assert!(mean(Box::new(move || other.normal())).abs() < 0.02);
        let mut other = random.clone();
        assert!((mean(Box::new(move || other.normal().powi(2))) - 1.0).abs() < 0.03);
        for shape in [0.3, 1.0, 4.5] {
            let mut other = random.clone();
            let average = mean(Box::new(move || other.ln_gamma(shape).exp()));
            assert!((average - shape).abs() < 0.05 * shape.max(1.0), "{shape}: {average}");
        }
        assert!((0..1000).map(|_| random.below(3)).all(|number| number < 3));
    }

    #[test]
    fn purposes_and_details_have_their_own_sequences() {
        let first = |purpose, details: &[u64]| Random::new(1, purpose, details).next();
        let all = [
            first(Purpose::Split, &[]),
            first(Purpose::Split, &[0]),
            first(Purpose::Split, &[1]),
            first(Purpose::Order, &[]),
        ];
        for (i, number) in all.iter().enumerate() {
            assert!(!all[..i].contains(number));
        }
    }
}
