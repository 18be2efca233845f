//! Differential privacy around a strategy: updates are clipped, noise is added to the aggregate, and the clipping norm may
//! adapt to the updates (Andrew et al., "Differentially Private Learning with Adaptive Clipping").
//!
//! It protects whether a client took part in a round, as far as the model reveals it; metrics are not protected. The noise is
//! calibrated for a plain mean of clipped updates, in which all clients have the same weight ([`Privacy::weight`]), over at
//! least the planned number of replies.
//!
//! Flower's wrappers differ in four points, which `compat` reproduces: the clipping norm shrinks while most updates are
//! clipped and grows while few are; the noise follows the clipping norm of the next round instead of the one that was applied;
//! clients are weighted by their examples; the noise is not increased if fewer clients answer. Only the first point preserves
//! the guarantee.

mod clip;

use bytes::Bytes;

pub use clip::{Clipped, update_norm};

use crate::element::{is_float, narrow};
use crate::model::{Model, State};
use crate::random::{Purpose, Random, Seed};

/// The key of the clipping norm in the `config` record of instructions to clients that clip themselves, as in Flower's mods.
pub const CLIPPING_NORM: &str = "clipping_norm";
/// The metric by which such clients report whether they clipped, if the clipping norm is adaptive.
pub const NORM_BIT: &str = "norm_bit";
/// The key of the clipping norm among the numbers of [`State`].
const STATE_CLIPPING_NORM: &str = "dp-clipping-norm";
/// The standard deviation of the noise on the clipped count, as a fraction of the sampled clients (recommended by Andrew et al.).
const COUNT_STDDEV_SHARE: f64 = 1.0 / 20.0;
/// Elements that are processed at once; two blocks of `f64` fit into the L1 cache of any machine.
const BLOCK_ELEMENTS: usize = 8192;

/// Where updates are clipped, and whether the clipping norm adapts. `num_sampled` is the number of clients in a round.
#[derive(Debug, Clone, PartialEq)]
pub enum Privacy {
    ServerFixed {
        noise_multiplier: f64,
        clipping_norm: f64,
        num_sampled: usize,
    },
    ServerAdaptive {
        noise_multiplier: f64,
        num_sampled: usize,
        initial_clipping_norm: f64,
        target_clipped_quantile: f64,
        clip_norm_lr: f64,
        clipped_count_stddev: Option<f64>,
    },
    ClientFixed {
        noise_multiplier: f64,
        clipping_norm: f64,
        num_sampled: usize,
    },
    ClientAdaptive {
        noise_multiplier: f64,
        num_sampled: usize,
        initial_clipping_norm: f64,
        target_clipped_quantile: f64,
        clip_norm_lr: f64,
        clipped_count_stddev: Option<f64>,
    },
}

/// The parameters of an adaptive clipping norm.
struct Adaptive {
    target_clipped_quantile: f64,
    clip_norm_lr: f64,
    clipped_count_stddev: Option<f64>,
}

impl Privacy {
    pub const DEFAULT_INITIAL_CLIPPING_NORM: f64 = 0.1;
    pub const DEFAULT_TARGET_CLIPPED_QUANTILE: f64 = 0.5;
    pub const DEFAULT_CLIP_NORM_LR: f64 = 0.2;

    /// Validates the parameters; returns all errors.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        let mut must = |holds: bool, what: String| {
            if !holds {
                errors.push(what);
            }
        };
        let (z, norm, nodes) = (self.noise_multiplier(), self.first_norm(), self.num_sampled());
        must(z >= 0.0 && z.is_finite(), format!("the noise multiplier is {z}: it must be 0 or more"));
        must(norm > 0.0 && norm.is_finite(), format!("the clipping norm is {norm}: it must be more than 0"));
        must(nodes > 0, "no clients are sampled: privacy needs at least 1 in each round".into());
        if let Some(adaptive) = self.adaptive() {
            let Adaptive { target_clipped_quantile: quantile, clip_norm_lr: rate, .. } = adaptive;
            must((0.0..=1.0).contains(&quantile), format!("the target quantile is {quantile}: it must be 0 to 1"));
            must(rate > 0.0 && rate.is_finite(), format!("the clipping norm's rate is {rate}: it must be more than 0"));
            let stddev = self.count_stddev();
            must(
                stddev >= 0.0 && stddev.is_finite(),
                format!("the deviation of the clipped count is {stddev}: it must be 0 or more"),
            );
            must(
                !(z > 0.0 && stddev >= 0.0 && z >= 2.0 * stddev),
                format!(
                    "the noise multiplier is {z}, and must be less than twice the deviation of the clipped count, \
                     {stddev} (a twentieth of the sampled clients, where nothing else is set): raise that deviation, \
                     sample more clients, or take a smaller noise multiplier"
                ),
            );
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Entries for the `config` record of each training instruction.
    pub fn train_config(&self, state: &State) -> Vec<(String, f64)> {
        if self.clips_here() { Vec::new() } else { vec![(CLIPPING_NORM.into(), self.clipping_norm(state))] }
    }

    /// Whether the server clips replies; otherwise clients do.
    pub fn clips_here(&self) -> bool {
        matches!(self, Self::ServerFixed { .. } | Self::ServerAdaptive { .. })
    }

    /// Whether every reply must have the metric [`NORM_BIT`].
    pub fn needs_norm_bit(&self) -> bool {
        matches!(self, Self::ClientAdaptive { .. })
    }

    /// Whether a round with a failed client is not aggregated, because the noise is calibrated for all selected clients.
    pub fn skips_round_on_failure(&self) -> bool {
        true
    }

    /// The weight of a reply: 1 for all, as the noise requires, unless `compat`.
    pub fn weight(&self, num_examples: f64, compat: bool) -> f64 {
        if compat { num_examples } else { 1.0 }
    }

    /// The current clipping norm.
    pub fn clipping_norm(&self, state: &State) -> f64 {
        match state.numbers.get(STATE_CLIPPING_NORM) {
            Some(&norm) if self.adaptive().is_some() => norm,
            _ => self.first_norm(),
        }
    }

    /// The factor for [`Clipped`], from the norm of an update ([`update_norm`]). Below 1 the update is clipped.
    pub fn factor(&self, state: &State, norm: f64) -> f64 {
        let limit = self.clipping_norm(state);
        if !self.clips_here() || norm <= limit {
            1.0
        } else if norm.is_finite() {
            limit / norm
        } else {
            0.0
        }
    }

    /// Completes a round after the aggregation: adds noise to the model, and computes the next clipping norm.
    ///
    /// `clipped` tells for each aggregated reply whether it was clipped. The same seed and round give the same noise. So a round
    /// that is repeated with other replies needs another seed: the difference of both results would have no noise.
    pub fn finish_round(
        &self,
        model: Model,
        state: &mut State,
        clipped: &[bool],
        compat: bool,
        seed: &Seed,
        round: u64,
    ) -> Model {
        let limit_of_updates = self.clipping_norm(state);
        if let Some(adaptive) = self.adaptive() {
            let next = limit_of_updates * libm::exp(self.step(&adaptive, clipped, compat, seed, round));
            state.numbers.insert(STATE_CLIPPING_NORM.into(), next);
        }
        let (limit, replies) = if compat {
            (self.clipping_norm(state), self.num_sampled())
        } else {
            (limit_of_updates, self.num_sampled().min(clipped.len()).max(1))
        };
        let stddev = self.model_noise_multiplier() * limit / replies as f64;
        with_noise(model, stddev, Random::new(seed, Purpose::Noise, round))
    }

    /// The change of the logarithm of the clipping norm.
    fn step(&self, adaptive: &Adaptive, clipped: &[bool], compat: bool, seed: &Seed, round: u64) -> f64 {
        let count = clipped.iter().filter(|&&clipped| clipped).count() as f64;
        let [noise, _] = Random::new(seed, Purpose::CountNoise, round).normals();
        let share = (count + noise * self.count_stddev()) / clipped.len().max(1) as f64;
        let step = adaptive.clip_norm_lr * (share - adaptive.target_clipped_quantile);
        if compat { -step } else { step }
    }

    /// The noise multiplier of the model if the clipped count is noised too, so that both together give the requested privacy.
    fn model_noise_multiplier(&self) -> f64 {
        let z = self.noise_multiplier();
        if self.adaptive().is_none() || z == 0.0 {
            return z;
        }
        let count = 2.0 * self.count_stddev();
        1.0 / libm::sqrt(1.0 / (z * z) - 1.0 / (count * count))
    }

    /// The standard deviation of the noise on the clipped count.
    fn count_stddev(&self) -> f64 {
        match self.adaptive() {
            None => 0.0,
            Some(Adaptive { clipped_count_stddev: Some(stddev), .. }) => stddev,
            Some(_) if self.noise_multiplier() == 0.0 => 0.0,
            Some(_) => self.num_sampled() as f64 * COUNT_STDDEV_SHARE,
        }
    }

    /// The requested multiplier, for [`crate::Accountant`].
    pub fn noise_multiplier(&self) -> f64 {
        let (Self::ServerFixed { noise_multiplier, .. }
        | Self::ServerAdaptive { noise_multiplier, .. }
        | Self::ClientFixed { noise_multiplier, .. }
        | Self::ClientAdaptive { noise_multiplier, .. }) = self;
        *noise_multiplier
    }

    pub fn num_sampled(&self) -> usize {
        let (Self::ServerFixed { num_sampled, .. }
        | Self::ServerAdaptive { num_sampled, .. }
        | Self::ClientFixed { num_sampled, .. }
        | Self::ClientAdaptive { num_sampled, .. }) = self;
        *num_sampled
    }

    fn first_norm(&self) -> f64 {
        let (Self::ServerFixed { clipping_norm: norm, .. }
        | Self::ClientFixed { clipping_norm: norm, .. }
        | Self::ServerAdaptive { initial_clipping_norm: norm, .. }
        | Self::ClientAdaptive { initial_clipping_norm: norm, .. }) = self;
        *norm
    }

    fn adaptive(&self) -> Option<Adaptive> {
        match *self {
            Self::ServerAdaptive { target_clipped_quantile, clip_norm_lr, clipped_count_stddev, .. }
            | Self::ClientAdaptive { target_clipped_quantile, clip_norm_lr, clipped_count_stddev, .. } => {
                Some(Adaptive { target_clipped_quantile, clip_norm_lr, clipped_count_stddev })
            }
            Self::ServerFixed { .. } | Self::ClientFixed { .. } => None,
        }
    }
}

/// Adds noise to each floating-point element, in `f64`, rounded once.
fn with_noise(mut model: Model, stddev: f64, mut random: Random) -> Model {
    if stddev == 0.0 {
        return model;
    }
    let mut numbers = Vec::new();
    for (slot, array) in model.layout.0.iter().zip(&mut model.arrays).filter(|(slot, _)| is_float(slot.dtype)) {
        let mut noisy = vec![0; array.len()];
        let block_bytes = BLOCK_ELEMENTS * slot.dtype.bytes();
        for (block, noisy) in array.chunks(block_bytes).zip(noisy.chunks_mut(block_bytes)) {
            clip::read(slot.dtype, block, &mut numbers);
            for pair in numbers.chunks_mut(2) {
                for (number, noise) in pair.iter_mut().zip(random.normals()) {
                    *number += noise * stddev;
                }
            }
            narrow(slot.dtype, &numbers, noisy);
        }
        *array = Bytes::from(noisy);
    }
    model
}

#[cfg(test)]
mod tests;
