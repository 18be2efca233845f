//! FedMedian and FedTrimmedAvg, which aggregate each coordinate separately.

use std::sync::Arc;

use proptest::prelude::*;
use trellis_strategy::Strategy;
use trellis_wire::records::Dtype;

use crate::models::{Dice, numbers, of, replies_of, reply, round};

fn sorted(column: &[f64]) -> Vec<f64> {
    let mut column = column.to_vec();
    column.sort_by(f64::total_cmp);
    column
}

pub fn median(column: &[f64]) -> f64 {
    let sorted = sorted(column);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

fn trimmed(column: &[f64], share: f64) -> f64 {
    let cut = (share * column.len() as f64) as usize;
    let kept = &sorted(column)[cut..column.len() - cut];
    kept.iter().sum::<f64>() / kept.len() as f64
}

fn coordinates(strategy: &Strategy, rows: &[Vec<f64>]) -> Vec<f64> {
    let given = round(strategy, &of(Dtype::F64, &rows[0]), &replies_of(rows)).unwrap();
    assert_eq!(given.chosen, None);
    numbers(&given.model, 0)
}

#[test]
fn known_values() {
    let rows = [vec![1.0, 10.0], vec![2.0, -10.0], vec![100.0, 0.0], vec![4.0, 6.0]];
    assert_eq!(coordinates(&Strategy::FedMedian, &rows), [3.0, 3.0]);
    assert_eq!(coordinates(&Strategy::FedMedian, &rows[..3]), [2.0, 0.0]);
    assert_eq!(coordinates(&Strategy::FedMedian, &rows[..1]), [1.0, 10.0]);
    assert_eq!(coordinates(&Strategy::FedTrimmedAvg { beta: 0.25 }, &rows), [3.0, 3.0]);
    // A fraction of less than one reply trims none.
    assert_eq!(coordinates(&Strategy::FedTrimmedAvg { beta: 0.2 }, &rows), [26.75, 1.5]);
}

#[test]
fn integers_keep_their_type() {
    let replies = [(reply(2, 1.0), of(Dtype::I16, &[1.0, -3.0])), (reply(3, 1.0), of(Dtype::I16, &[2.0, -4.0]))];
    let given = round(&Strategy::FedMedian, &of(Dtype::I16, &[0.0, 0.0]), &replies).unwrap();
    assert_eq!(numbers(&given.model, 0), [2.0, -4.0]);
}

#[test]
fn weights_do_not_matter() {
    let replies = [(reply(2, 1.0), of(Dtype::F32, &[1.0])), (reply(3, 99.0), of(Dtype::F32, &[2.0]))];
    let given = round(&Strategy::FedMedian, &of(Dtype::F32, &[0.0]), &replies).unwrap();
    assert_eq!(numbers(&given.model, 0), [1.5]);
}

/// Longer than a span, and than a tile of many replies.
#[test]
fn long_arrays_and_many_replies() {
    let elements = 70_001;
    let count = 33;
    let replies: Vec<_> = (0..count)
        .map(|node| {
            let row: Vec<f64> = (0..elements).map(|at| ((at * 7 + node * 13) % 101) as f64).collect();
            (reply(node as u64 + 2, 1.0), of(Dtype::F32, &row))
        })
        .collect();
    let given = round(&Strategy::FedMedian, &replies[0].1, &replies).unwrap();
    let rows: Vec<Vec<f64>> = replies.iter().map(|(_, model)| numbers(model, 0)).collect();
    for (at, found) in numbers(&given.model, 0).into_iter().enumerate() {
        let column: Vec<f64> = rows.iter().map(|row| row[at]).collect();
        assert_eq!(found, median(&column), "{at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_match_sorted_columns(seed: u64, count in 1usize..70, beta in 0.0f64..0.5) {
        let mut dice = Dice(seed);
        let len = dice.below(600) + 1;
        let rows: Vec<Vec<f64>> = (0..count).map(|_| (0..len).map(|_| (dice.unit() * 50.0).round() / 8.0).collect()).collect();
        let medians = coordinates(&Strategy::FedMedian, &rows);
        let means = coordinates(&Strategy::FedTrimmedAvg { beta }, &rows);
        for at in 0..len {
            let column: Vec<f64> = rows.iter().map(|row| row[at]).collect();
            prop_assert_eq!(medians[at], median(&column));
            prop_assert_eq!(means[at], trimmed(&column, beta));
        }
    }

    #[test]
    fn any_layout_is_accepted(seed: u64, count in 1usize..9) {
        let mut dice = Dice(seed);
        let layout = Arc::new(dice.layout(20));
        let replies: Vec<_> = (0..count).map(|node| (reply(node as u64 + 2, 1.0), dice.model(&layout))).collect();
        let given = round(&Strategy::FedMedian, &replies[0].1, &replies).unwrap().model;
        for place in 0..layout.0.len() {
            let rows: Vec<Vec<f64>> = replies.iter().map(|(_, model)| numbers(model, place)).collect();
            for (at, found) in numbers(&given, place).into_iter().enumerate() {
                let column: Vec<f64> = rows.iter().map(|row| row[at]).collect();
                if count % 2 == 1 {
                    prop_assert_eq!(found, median(&column));
                }
                let sorted = sorted(&column);
                prop_assert!(found >= sorted[(count - 1) / 2] && found <= sorted[count / 2]);
            }
        }
    }
}
