//! FedAvg and the mean: exact cases, equal bits of both implementations, and their accuracy.

use std::sync::Arc;

use proptest::prelude::*;
use trellis_strategy::mean::weighted_mean;
use trellis_strategy::{InMemory, Layout, Model, Numbers, Options, Reply, Server, Slot, Strategy};
use trellis_wire::records::Dtype;

use crate::models::{Dice, array, model, numbers, of, play, reply, round};

fn mean(model: &Model, replies: &[(Reply, Model)]) -> Model {
    round(&Strategy::FedAvg, model, replies).unwrap().model
}

fn block_major(replies: &[(Reply, Model)], layout: &Arc<Layout>) -> Model {
    let kept: Vec<(f64, InMemory)> =
        replies.iter().map(|(reply, model)| (reply.weight, InMemory(model.clone()))).collect();
    let weighted: Vec<(f64, &dyn Numbers)> =
        kept.iter().map(|(weight, numbers)| (*weight, numbers as &dyn Numbers)).collect();
    weighted_mean(&weighted, layout).unwrap()
}

#[test]
fn replies_are_weighted_by_examples() {
    let start = model([array("w", Dtype::F32, &[0.0, 0.0]), array("steps", Dtype::I64, &[0.0])]);
    let one = |w: [f64; 2], steps| model([array("w", Dtype::F32, &w), array("steps", Dtype::I64, &[steps])]);
    let replies = [(reply(2, 1.0), one([1.0, -4.0], 10.0)), (reply(3, 3.0), one([5.0, 4.0], 11.0))];
    let next = mean(&start, &replies);
    assert_eq!(next.layout, start.layout);
    assert_eq!(numbers(&next, 0), [4.0, 2.0]);
    // (10 + 3 * 11) / 4 = 10.75
    assert_eq!(numbers(&next, 1), [11.0]);
}

#[test]
fn integers_are_rounded_half_to_even_and_booleans_vote() {
    let start = model([array("n", Dtype::U8, &[0.0; 3]), array("mask", Dtype::Bool, &[0.0; 3])]);
    let one = |n: [f64; 3], mask: [f64; 3]| model([array("n", Dtype::U8, &n), array("mask", Dtype::Bool, &mask)]);
    let replies = [
        (reply(2, 1.0), one([0.0, 1.0, 255.0], [0.0, 1.0, 1.0])),
        (reply(3, 1.0), one([1.0, 2.0, 255.0], [0.0, 0.0, 1.0])),
    ];
    let next = mean(&start, &replies);
    assert_eq!(numbers(&next, 0), [0.0, 2.0, 255.0]);
    assert_eq!(numbers(&next, 1), [0.0, 0.0, 1.0]);
}

#[test]
fn with_compat_integers_become_float64_and_clients_may_still_send_integers() {
    let server = Server::new(Strategy::FedAvg, Options { compat: true });
    let start = model([array("w", Dtype::F32, &[0.0]), array("n", Dtype::I64, &[0.0])]);
    let one = |w, n| model([array("w", Dtype::F32, &[w]), array("n", Dtype::I64, &[n])]);
    let replies = [(reply(2, 1.0), one(1.0, 1.0)), (reply(3, 1.0), one(2.0, 2.0))];
    let first = play(&server, 1, &start, &replies).unwrap().model;
    assert_eq!(first.layout.0[1].dtype, Dtype::F64);
    assert_eq!((numbers(&first, 0), numbers(&first, 1)), (vec![1.5], vec![1.5]));
    let second = play(&server, 2, &first, &replies).unwrap().model;
    assert_eq!(second, first);
}

#[test]
fn a_reply_of_weight_0_has_no_influence() {
    let replies = [(reply(2, 0.0), of(Dtype::F32, &[1e30])), (reply(3, 2.0), of(Dtype::F32, &[3.0]))];
    assert_eq!(numbers(&mean(&of(Dtype::F32, &[0.0]), &replies), 0), [3.0]);
}

#[test]
fn extreme_values_are_preserved() {
    let same = |dtype, number: f64| {
        let replies: Vec<_> = (2..9).map(|node| (reply(node, 3.0 * node as f64), of(dtype, &[number]))).collect();
        let found = numbers(&mean(&of(dtype, &[0.0]), &replies), 0)[0];
        assert_eq!(found.to_bits(), number.to_bits(), "{dtype:?} {number}");
    };
    for number in [f32::MAX, -f32::MAX, f32::MIN_POSITIVE, 1e-45, 0.0, -0.0, f32::INFINITY].map(f64::from) {
        same(Dtype::F32, number);
    }
    same(Dtype::F16, 65504.0);
    same(Dtype::Bf16, f64::from(f32::from_bits(0x7f7f_0000)));
    same(Dtype::I64, -9_007_199_254_740_992.0 / 1024.0);
    let far = [(reply(2, 1e100), of(Dtype::F64, &[1e200])), (reply(3, 1e100), of(Dtype::F64, &[-1e200]))];
    assert_eq!(numbers(&mean(&of(Dtype::F64, &[0.0]), &far), 0), [0.0]);
}

#[test]
fn both_implementations_give_the_same_bits_for_large_arrays() {
    // More than one span, more than one thread, and an incomplete last span.
    let elements = 3_000_001;
    let slots =
        [("a", Dtype::F32, elements), ("b", Dtype::F16, 70_000), ("c", Dtype::I32, 65_536), ("d", Dtype::F64, 1)];
    let slot = |(name, dtype, elements): (&str, Dtype, usize)| Slot { name: name.into(), dtype, shape: vec![elements] };
    let layout = Arc::new(Layout(slots.map(slot).to_vec()));
    let mut dice = Dice(5);
    let mut sent = || {
        let bytes = |slot: &Slot| (0..slot.bytes()).map(|at| if at % 4 == 3 { 63 } else { at as u8 }).collect();
        let mut model = Model { layout: Arc::clone(&layout), arrays: layout.0.iter().map(bytes).collect() };
        let noise: Vec<u8> = model.arrays[0].chunks(4).flat_map(|_| (dice.unit() as f32).to_le_bytes()).collect();
        model.arrays[0] = noise.into();
        model
    };
    let replies: Vec<_> = (2..5).map(|node| (reply(node, node as f64), sent())).collect();
    let folded = mean(&replies[0].1, &replies);
    assert_eq!(folded, block_major(&replies, &layout));
    let at = 2_999_999;
    let exact: f64 = replies.iter().map(|(reply, model)| reply.weight * numbers(model, 0)[at]).sum::<f64>() / 9.0;
    assert_eq!(numbers(&folded, 0)[at], f64::from(exact as f32));
}

/// The sum of products with compensated rounding errors.
fn careful_mean(weights: &[f64], numbers: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for (weight, number) in weights.iter().zip(numbers) {
        let product = weight * number;
        let next = sum + product;
        let kept = next - sum;
        lost += (sum - (next - kept)) + (product - kept);
        sum = next;
    }
    (sum + lost) / weights.iter().sum::<f64>()
}

fn weight(dice: &mut Dice) -> f64 {
    match dice.below(8) {
        0 => 0.0,
        1 => 1e15,
        2 => dice.unit().abs(),
        _ => (dice.below(10_000) + 1) as f64,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_implementations_give_the_same_accurate_bits(seed: u64) {
        let mut dice = Dice(seed);
        let layout = Arc::new(dice.layout(40));
        let count = dice.below(10) + 1;
        let mut replies: Vec<(Reply, Model)> =
            (0..count).map(|node| (reply(node as u64 + 2, weight(&mut dice)), dice.model(&layout))).collect();
        replies[0].0.weight += 1.0;
        let sent: Vec<(Reply, Model)> = replies.iter().map(|(reply, model)| (*reply, dice.shuffled(model))).collect();

        let folded = mean(&dice.model(&layout), &sent);
        prop_assert_eq!(&folded, &block_major(&sent, &layout));

        let weights: Vec<f64> = replies.iter().map(|(reply, _)| reply.weight).collect();
        for (place, slot) in layout.0.iter().enumerate() {
            let rows: Vec<Vec<f64>> = replies.iter().map(|(_, model)| numbers(model, place)).collect();
            for (at, found) in numbers(&folded, place).into_iter().enumerate() {
                let column: Vec<f64> = rows.iter().map(|row| row[at]).collect();
                near(slot.dtype, found, careful_mean(&weights, &column), &column)?;
            }
        }
    }
}

/// Allows rounding to the type, and what `f64` loses if terms cancel.
fn near(dtype: Dtype, found: f64, truth: f64, column: &[f64]) -> Result<(), TestCaseError> {
    let largest = column.iter().fold(0.0f64, |largest, number| largest.max(number.abs()));
    let step = match dtype {
        Dtype::F64 => 0.0,
        Dtype::F32 => (truth.abs() * 2f64.powi(-24)).max(2f64.powi(-150)),
        Dtype::F16 => (truth.abs() * 2f64.powi(-11)).max(2f64.powi(-25)),
        Dtype::Bf16 => (truth.abs() * 2f64.powi(-8)).max(2f64.powi(-134)),
        _ => 0.5,
    };
    let lost = largest * column.len() as f64 * 2f64.powi(-52);
    prop_assert!((found - truth).abs() <= step + lost, "{dtype:?}: {found} is not {truth} of {column:?}");
    let low = column.iter().copied().fold(f64::INFINITY, f64::min);
    let high = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // For large integers the lost part may decide how a half is rounded.
    let slack = if dtype.name().contains("float") { lost } else { (2.0 * lost).floor() };
    prop_assert!(found >= low - slack && found <= high + slack, "{dtype:?}: {found} is outside of {column:?}");
    Ok(())
}
