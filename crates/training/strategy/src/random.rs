//! Random numbers of a run, determined by its seed, a round and a purpose, on every machine and in every version.
//!
//! The generator is ChaCha20: noise for privacy must not be predictable from other noise. This module does not create seeds.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// The source of all random numbers of a run. Anyone who knows it can remove the noise from a model. Unless the user requests
/// repeatable noise, it comes from the operating system, and is stored as a secret or not at all.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl From<[u8; 32]> for Seed {
    fn from(secret: [u8; 32]) -> Self {
        Self(secret)
    }
}

/// A chosen seed, to repeat a run.
impl From<u64> for Seed {
    fn from(number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Self(bytes)
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The purpose of random numbers. Each has its own sequence, so that a change of one does not affect the others.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub enum Purpose {
    SampleTrain = 1,
    SampleEvaluate = 2,
    SampleInit = 3,
    Noise = 4,
    CountNoise = 5,
}

pub struct Random(ChaCha20Rng);

impl Random {
    pub fn new(seed: &Seed, purpose: Purpose, round: u64) -> Self {
        let mut generator = ChaCha20Rng::from_seed(seed.0);
        // A separate stream for each round and purpose; no training has 2^56 rounds.
        generator.set_stream(round << 8 | u64::from(purpose as u8));
        Self(generator)
    }

    /// Uniform in `0..limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        // Rejection sampling: numbers at the upper end would favour small results.
        let fair = u64::MAX - u64::MAX % limit;
        loop {
            let number = self.0.next_u64();
            if number < fair {
                return (number % limit) as usize;
            }
        }
    }

    /// Uniform between 0 and 1, both excluded.
    fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Two independent normally distributed numbers with mean 0 and deviation 1 (Box and Muller). `libm` gives the same bits on
    /// every machine.
    pub fn normals(&mut self) -> [f64; 2] {
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * self.unit());
        [radius * cos, radius * sin]
    }

    /// Moves a random sample of `n` items to the front, in random order.
    pub fn choose<T>(&mut self, items: &mut [T], n: usize) {
        for place in 0..n.min(items.len()) {
            let chosen = place + self.below(items.len() - place);
            items.swap(place, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_chacha20_of_the_seed() {
        // The key stream of RFC 7539, A.1, test vector 1: key, counter and nonce are zero.
        let mut generator = Random(ChaCha20Rng::from_seed([0; 32]));
        assert_eq!(generator.0.next_u64().to_le_bytes(), [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
    }

    #[test]
    fn rounds_purposes_and_seeds_have_their_own_sequences() {
        let first = |seed: u64, purpose, round| Random::new(&seed.into(), purpose, round).below(usize::MAX);
        let all = [
            first(7, Purpose::SampleTrain, 1),
            first(7, Purpose::SampleTrain, 2),
            first(7, Purpose::SampleEvaluate, 1),
            first(8, Purpose::SampleTrain, 1),
        ];
        for (i, number) in all.iter().enumerate() {
            assert!(!all[..i].contains(number));
        }
        assert_eq!(all[0], first(7, Purpose::SampleTrain, 1));
    }

    #[test]
    fn normal_numbers_have_the_expected_moments_and_tails() {
        const PAIRS: usize = 200_000;
        let mut random = Random::new(&7.into(), Purpose::Noise, 1);
        let numbers: Vec<f64> = (0..PAIRS).flat_map(|_| random.normals()).collect();
        let mean = |of: &dyn Fn(f64) -> f64| numbers.iter().map(|&x| of(x)).sum::<f64>() / numbers.len() as f64;
        assert!(mean(&|x| x).abs() < 0.005);
        assert!((mean(&|x| x * x) - 1.0).abs() < 0.01);
        assert!((mean(&|x| x.powi(4)) - 3.0).abs() < 0.06);
        let within = |limit: f64| mean(&|x| f64::from(x.abs() < limit));
        assert!((within(1.0) - 0.682_69).abs() < 0.003 && (within(3.0) - 0.997_30).abs() < 0.000_5);
        let pairs = numbers.chunks(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / PAIRS as f64;
        assert!(pairs.abs() < 0.01, "the numbers of a pair are independent: {pairs}");
    }
}
