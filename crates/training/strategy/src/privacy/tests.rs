use std::sync::Arc;

use proptest::prelude::*;
use trellis_wire::records::{Bf16, Dtype, F16};

use super::*;
use crate::model::{Layout, Slot};
use crate::numbers::{InMemory, Numbers};

fn server_fixed(noise_multiplier: f64, clipping_norm: f64, num_sampled: usize) -> Privacy {
    Privacy::ServerFixed { noise_multiplier, clipping_norm, num_sampled }
}

fn adaptive(noise_multiplier: f64, num_sampled: usize, clipped_count_stddev: Option<f64>) -> Privacy {
    Privacy::ServerAdaptive {
        noise_multiplier,
        num_sampled,
        initial_clipping_norm: Privacy::DEFAULT_INITIAL_CLIPPING_NORM,
        target_clipped_quantile: Privacy::DEFAULT_TARGET_CLIPPED_QUANTILE,
        clip_norm_lr: Privacy::DEFAULT_CLIP_NORM_LR,
        clipped_count_stddev,
    }
}

fn model(arrays: &[(Dtype, Vec<u8>)]) -> Model {
    let slot = |(index, (dtype, bytes)): (usize, &(Dtype, Vec<u8>))| Slot {
        name: index.to_string(),
        dtype: *dtype,
        shape: vec![bytes.len() / dtype.bytes()],
    };
    Model {
        layout: Arc::new(Layout(arrays.iter().enumerate().map(slot).collect())),
        arrays: arrays.iter().map(|(_, bytes)| bytes.clone().into()).collect(),
    }
}

fn f32s(numbers: &[f32]) -> (Dtype, Vec<u8>) {
    (Dtype::F32, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
}

fn i64s(numbers: &[i64]) -> (Dtype, Vec<u8>) {
    (Dtype::I64, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
}

fn halves(numbers: &[f32]) -> (Dtype, Vec<u8>) {
    (Dtype::F16, numbers.iter().flat_map(|&number| F16::from_f32(number).0.to_le_bytes()).collect())
}

fn brains(numbers: &[f32]) -> (Dtype, Vec<u8>) {
    (Dtype::Bf16, numbers.iter().flat_map(|&number| Bf16::from_f32(number).0.to_le_bytes()).collect())
}

fn floats(model: &Model, array: usize) -> Vec<f64> {
    let mut numbers = Vec::new();
    clip::read(model.layout.0[array].dtype, &model.arrays[array], &mut numbers);
    numbers
}

fn read_whole(numbers: &dyn Numbers, array: usize) -> Vec<u8> {
    let mut buffer = Vec::new();
    let bytes = numbers.layout().0[array].bytes();
    numbers.part(array, 0..bytes, &mut buffer).expect("in memory").to_vec()
}

#[test]
fn the_norm_includes_all_float_arrays() {
    let old = model(&[f32s(&[1.0, 2.0]), i64s(&[5]), halves(&[0.5]), brains(&[0.0])]);
    let new = model(&[f32s(&[2.0, 4.0]), i64s(&[500]), halves(&[2.5]), brains(&[-4.0])]);
    assert_eq!(update_norm(&old, &InMemory(new)).unwrap(), 5.0);
}

#[test]
fn a_large_update_is_clipped_and_a_small_one_is_unchanged() {
    let old = model(&[f32s(&[1.0, 1.0]), i64s(&[5])]);
    let new = InMemory(model(&[f32s(&[4.0, 5.0]), i64s(&[6])]));
    let privacy = server_fixed(0.0, 2.5, 1);
    let factor = privacy.factor(&State::default(), update_norm(&old, &new).unwrap());
    assert_eq!(factor, 0.5);
    let clipped = Clipped::new(&old, &new, factor).unwrap();
    assert_eq!(read_whole(&clipped, 0), f32s(&[2.5, 3.0]).1);
    assert_eq!(read_whole(&clipped, 1), i64s(&[5]).1, "integers of replies are ignored");

    let wide = server_fixed(0.0, 5.0, 1);
    assert_eq!(wide.factor(&State::default(), 5.0), 1.0);
    assert_eq!(read_whole(&Clipped::new(&old, &new, 1.0).unwrap(), 0), f32s(&[4.0, 5.0]).1);
}

#[test]
fn an_update_with_a_non_finite_norm_changes_nothing() {
    let huge = (Dtype::F64, f64::MAX.to_le_bytes().to_vec());
    let low = (Dtype::F64, f64::MIN.to_le_bytes().to_vec());
    let (old, new) = (model(&[low]), InMemory(model(&[huge])));
    let factor = server_fixed(0.0, 1.0, 1).factor(&State::default(), update_norm(&old, &new).unwrap());
    assert_eq!(factor, 0.0);
    assert_eq!(floats(&old, 0), [f64::MIN]);
    assert_eq!(read_whole(&Clipped::new(&old, &new, factor).unwrap(), 0), f64::MIN.to_le_bytes());
    assert_eq!(server_fixed(0.0, 1.0, 1).factor(&State::default(), f64::NAN), 0.0);
    assert_eq!(server_fixed(0.0, 1.0, 1).factor(&State::default(), 0.0), 1.0);
}

#[test]
fn arrays_are_matched_by_name_and_integers_of_replies_are_ignored() {
    let mut old = model(&[f32s(&[0.0]), f32s(&[0.0]), (Dtype::F64, 7.5f64.to_le_bytes().to_vec())]);
    let reply = model(&[f32s(&[4.0]), f32s(&[3.0]), i64s(&[9])]);
    Arc::make_mut(&mut old.layout).0.swap(0, 1);
    let reply = InMemory(reply);
    assert_eq!(update_norm(&old, &reply).unwrap(), 5.0);
    let clipped = Clipped::new(&old, &reply, 0.5).unwrap();
    assert_eq!(read_whole(&clipped, 0), f32s(&[1.5]).1);
    assert_eq!(read_whole(&clipped, 2), 7.5f64.to_le_bytes());

    let other = InMemory(model(&[f32s(&[4.0])]));
    assert!(update_norm(&old, &other).unwrap_err().to_string().contains("array '1' is missing"));
}

proptest! {
    /// Reading in any parts gives the same numbers, and no update exceeds the clipping norm.
    #[test]
    fn clipping_bounds_any_update(
        update in prop::collection::vec(-100.0f32..100.0, 1..40_000),
        limit in 0.01f64..50.0,
        cut in 0.0f64..1.0,
    ) {
        let old = model(&[f32s(&vec![0.25; update.len()])]);
        let new = InMemory(model(&[f32s(&update.iter().map(|u| 0.25 + u).collect::<Vec<_>>())]));
        let privacy = server_fixed(0.0, limit, 1);
        let factor = privacy.factor(&State::default(), update_norm(&old, &new).unwrap());
        let clipped = Clipped::new(&old, &new, factor).unwrap();
        let whole = read_whole(&clipped, 0);
        let norm = update_norm(&old, &InMemory(model(&[(Dtype::F32, whole.clone())]))).unwrap();
        // Each element is rounded to f32 once.
        let rounding = 100.0 * f64::from(f32::EPSILON) * (update.len() as f64).sqrt();
        prop_assert!(norm <= limit + rounding, "{norm} > {limit}");

        let middle = (update.len() as f64 * cut) as usize * 4;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let parts = [
            clipped.part(0, 0..middle, &mut left).unwrap(),
            clipped.part(0, middle..whole.len(), &mut right).unwrap(),
        ]
        .concat();
        prop_assert_eq!(parts, whole);
    }
}

#[test]
fn noise_has_the_expected_deviation_and_does_not_change_integers() {
    const N: usize = 100_000;
    let before = model(&[f32s(&vec![10.0; N]), i64s(&[7]), brains(&[0.0; 3])]);
    let privacy = server_fixed(2.0, 1.5, 10);
    let noisy = |seed: u64, round| {
        privacy.finish_round(before.clone(), &mut State::default(), &[true; 10], false, &seed.into(), round)
    };
    let after = noisy(1, 1);
    let noise: Vec<f64> = floats(&after, 0).iter().map(|number| number - 10.0).collect();
    let mean = noise.iter().sum::<f64>() / N as f64;
    let stddev = (noise.iter().map(|x| x * x).sum::<f64>() / N as f64).sqrt();
    assert!(mean.abs() < 0.005 && (stddev - 0.3).abs() < 0.003, "{mean} {stddev}");
    assert_eq!(after.arrays[1], before.arrays[1]);
    assert_ne!(after.arrays[2], before.arrays[2]);
    assert_eq!(after.layout, before.layout);

    assert_eq!(noisy(1, 1), after, "the same seed and round give the same noise");
    assert_ne!(noisy(1, 2), after);
    assert_ne!(noisy(2, 1), after);
}

/// The noise has known bits, so it is the same on all machines and in all versions.
#[test]
fn noise_never_changes() {
    let zeros = model(&[(Dtype::F64, vec![0; 24])]);
    let privacy = server_fixed(1.0, 1.0, 1);
    let noisy = privacy.finish_round(zeros, &mut State::default(), &[false], false, &7.into(), 3);
    let bits: Vec<u64> = floats(&noisy, 0).iter().map(|number| number.to_bits()).collect();
    assert_eq!(bits, [4605187618104934402, 13832163676111757325, 4609279623018937700]);
}

#[test]
fn fewer_replies_than_planned_increase_the_noise() {
    let zeros = model(&[(Dtype::F64, vec![0; 8])]);
    let noise = |replies: usize, compat| {
        let privacy = server_fixed(1.0, 1.0, 10);
        let seed = Seed::from(7);
        floats(&privacy.finish_round(zeros.clone(), &mut State::default(), &vec![false; replies], compat, &seed, 1), 0)
            [0]
    };
    let near = |left: f64, right: f64| (left - right).abs() < 1e-12 * right.abs();
    assert!(near(noise(5, false), 2.0 * noise(10, false)));
    assert!(near(noise(12, false), noise(10, false)));
    assert!(near(noise(5, true), noise(10, false)));
}

#[test]
fn the_clipping_norm_follows_the_updates() {
    let next = |clipped: &[bool], compat| {
        let (privacy, mut state) = (adaptive(0.0, 4, None), State::default());
        privacy.finish_round(Model::default(), &mut state, clipped, compat, &1.into(), 1);
        privacy.clipping_norm(&state)
    };
    let near = |norm: f64, expected: f64| assert!((norm - expected).abs() < 1e-15, "{norm} {expected}");
    near(next(&[true; 4], false), 0.1 * 0.1f64.exp());
    near(next(&[false; 4], false), 0.1 * (-0.1f64).exp());
    near(next(&[true, false, true, false], false), 0.1);
    // With `compat` it moves away from the updates, as in Flower.
    near(next(&[true; 4], true), 0.1 * (-0.1f64).exp());
    near(next(&[false; 4], true), 0.1 * 0.1f64.exp());
}

/// Half of the clients have updates of norm 1, half of norm 3: the clipping norm converges between them, from both sides.
#[test]
fn an_adaptive_clipping_norm_converges_to_the_quantile() {
    for start in [0.01, 100.0] {
        let privacy = Privacy::ServerAdaptive {
            noise_multiplier: 0.0,
            num_sampled: 10,
            initial_clipping_norm: start,
            target_clipped_quantile: 0.5,
            clip_norm_lr: 0.2,
            clipped_count_stddev: None,
        };
        let mut state = State::default();
        for round in 0..200 {
            let limit = privacy.clipping_norm(&state);
            let clipped: Vec<bool> = (0..10).map(|client| limit < if client < 5 { 1.0 } else { 3.0 }).collect();
            privacy.finish_round(Model::default(), &mut state, &clipped, false, &1.into(), round);
        }
        let limit = privacy.clipping_norm(&state);
        assert!((1.0..=3.0).contains(&limit), "from {start} to {limit}");
    }
}

#[test]
fn noise_on_the_count_increases_the_noise_on_the_model() {
    // By hand: 1 / sqrt(1 - 1/(2*5)^2) = 1.00503781525921...
    let privacy = adaptive(1.0, 100, None);
    assert_eq!(privacy.count_stddev(), 5.0);
    assert!((privacy.model_noise_multiplier() - 1.005_037_815_259_21).abs() < 1e-12);
    assert_eq!(privacy.noise_multiplier(), 1.0);
    assert_eq!(adaptive(0.0, 100, None).count_stddev(), 0.0);
    assert_eq!(adaptive(0.0, 100, Some(2.0)).count_stddev(), 2.0);
}

#[test]
fn the_noise_follows_the_clipping_norm_that_was_applied() {
    let zeros = model(&[(Dtype::F64, vec![0; 8])]);
    let privacy = adaptive(1.0, 100, None);
    let noise = |compat| {
        let mut state = State::default();
        let after = privacy.finish_round(zeros.clone(), &mut state, &[true; 100], compat, &1.into(), 1);
        (floats(&after, 0)[0], privacy.clipping_norm(&state))
    };
    let ((ours, _), (flowers, next)) = (noise(false), noise(true));
    assert!((flowers / ours - next / 0.1).abs() < 1e-12);
}

#[test]
fn clients_that_clip_themselves_receive_the_clipping_norm() {
    let state = State { numbers: [(STATE_CLIPPING_NORM.to_string(), 0.7)].into(), ..State::default() };
    let client = Privacy::ClientAdaptive {
        noise_multiplier: 0.0,
        num_sampled: 4,
        initial_clipping_norm: 0.1,
        target_clipped_quantile: 0.5,
        clip_norm_lr: 0.2,
        clipped_count_stddev: None,
    };
    assert_eq!(client.train_config(&State::default()), [("clipping_norm".to_string(), 0.1)]);
    assert_eq!(client.train_config(&state), [("clipping_norm".to_string(), 0.7)]);
    assert_eq!(client.factor(&state, 100.0), 1.0, "clipped already");
    let fixed = Privacy::ClientFixed { noise_multiplier: 0.0, clipping_norm: 3.0, num_sampled: 4 };
    assert_eq!(fixed.train_config(&state), [("clipping_norm".to_string(), 3.0)]);
    assert!(server_fixed(0.0, 1.0, 4).train_config(&state).is_empty());
}

#[test]
fn all_invalid_parameters_are_reported_at_once() {
    assert_eq!(server_fixed(1.0, 1.0, 2).check(), Ok(()));
    assert_eq!(adaptive(1.0, 100, None).check(), Ok(()));
    assert_eq!(server_fixed(-1.0, 0.0, 0).check().unwrap_err().len(), 3);
    assert_eq!(server_fixed(f64::NAN, f64::INFINITY, 1).check().unwrap_err().len(), 2);
    let bad = Privacy::ClientAdaptive {
        noise_multiplier: 1.0,
        num_sampled: 10,
        initial_clipping_norm: 0.1,
        target_clipped_quantile: 1.5,
        clip_norm_lr: 0.0,
        clipped_count_stddev: None,
    };
    let errors = bad.check().unwrap_err();
    assert_eq!(errors.len(), 3);
    assert!(errors[2].contains("less than twice the deviation of the clipped count, 0.5"), "{}", errors[2]);
}
