//! Krum, MultiKrum, Bulyan: compared with straightforward implementations, and against malicious replies.

use proptest::prelude::*;
use trellis_strategy::{Aggregated, Strategy};
use trellis_wire::records::Dtype;

use crate::coordinates::median;
use crate::models::{Dice, numbers, of, replies_of, reply, round};

fn given(strategy: &Strategy, rows: &[Vec<f64>]) -> Aggregated {
    round(strategy, &of(Dtype::F64, &rows[0]), &replies_of(rows)).unwrap()
}

fn squared(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// The definition of the paper, with Flower's minimum of neighbours.
fn nearest(rows: &[Vec<f64>], malicious: usize, wanted: usize) -> Vec<usize> {
    let neighbours = rows.len().saturating_sub(malicious + 2).max(1);
    let mut scores: Vec<(f64, usize)> = (0..rows.len())
        .map(|row| {
            let mut others: Vec<f64> =
                (0..rows.len()).filter(|other| *other != row).map(|other| squared(&rows[row], &rows[other])).collect();
            others.sort_by(f64::total_cmp);
            (others.iter().take(neighbours).sum(), row)
        })
        .collect();
    scores.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let mut chosen: Vec<usize> = scores.into_iter().take(wanted).map(|(_, row)| row).collect();
    chosen.sort();
    chosen
}

fn near_median(column: &[f64], wanted: usize) -> f64 {
    let median = median(column);
    let mut near: Vec<(f64, f64)> = column.iter().map(|number| ((number - median).abs(), *number)).collect();
    near.sort_by(|a, b| a.partial_cmp(b).unwrap());
    near.iter().take(wanted).map(|(_, number)| number).sum::<f64>() / wanted as f64
}

#[test]
fn krum_selects_the_central_reply() {
    let rows = [vec![0.0, 0.0], vec![1.0, 0.0], vec![0.25, 0.25], vec![0.0, 1.0], vec![90.0, -90.0]];
    let krum = given(&Strategy::Krum { num_malicious: 1 }, &rows);
    assert_eq!(krum.chosen, Some(vec![2]));
    assert_eq!(numbers(&krum.model, 0), [0.25, 0.25]);
    let multi = given(&Strategy::MultiKrum { num_malicious: 1, num_nodes_to_select: 3 }, &rows);
    assert_eq!(multi.chosen, Some(vec![0, 1, 2]));
    let all = given(&Strategy::MultiKrum { num_malicious: 1, num_nodes_to_select: 9 }, &rows);
    assert_eq!(all.chosen, Some(vec![0, 1, 2, 3, 4]));
}

#[test]
fn of_equal_replies_the_first_are_selected() {
    let rows = vec![vec![1.0, 2.0]; 7];
    assert_eq!(given(&Strategy::Krum { num_malicious: 2 }, &rows).chosen, Some(vec![0]));
    let multi = Strategy::MultiKrum { num_malicious: 2, num_nodes_to_select: 3 };
    assert_eq!(given(&multi, &rows).chosen, Some(vec![0, 1, 2]));
}

#[test]
fn selected_replies_are_averaged_by_weight() {
    let replies: Vec<_> = [(1.0, 0.0), (3.0, 4.0), (5.0, 1e9)]
        .iter()
        .zip(2..)
        .map(|((weight, number), node)| (reply(node, *weight), of(Dtype::F32, &[*number])))
        .collect();
    let strategy = Strategy::MultiKrum { num_malicious: 0, num_nodes_to_select: 2 };
    let given = round(&strategy, &of(Dtype::F32, &[0.0]), &replies).unwrap();
    assert_eq!(given.chosen, Some(vec![0, 1]));
    assert_eq!(numbers(&given.model, 0), [3.0]);
}

/// A single selected reply is used unchanged, whatever its weight.
#[test]
fn krum_returns_the_selected_reply_unchanged() {
    let replies: Vec<_> = (2..6).map(|node| (reply(node, 0.1), of(Dtype::F64, &[0.1, 1.0 / 3.0]))).collect();
    let given = round(&Strategy::Krum { num_malicious: 0 }, &replies[0].1, &replies).unwrap();
    assert_eq!(given.model, replies[0].1);
}

#[test]
fn robust_strategies_tolerate_malicious_replies() {
    let mut dice = Dice(11);
    let honest = |dice: &mut Dice| (0..50).map(|_| 1.0 + 0.01 * dice.unit()).collect::<Vec<f64>>();
    let garbage = |dice: &mut Dice| (0..50).map(|_| 1e6 * dice.unit()).collect::<Vec<f64>>();
    let rows: Vec<Vec<f64>> =
        (0..11).map(|node| if node % 5 == 1 && node < 10 { garbage(&mut dice) } else { honest(&mut dice) }).collect();
    let worst = |strategy: &Strategy| {
        numbers(&given(strategy, &rows).model, 0)
            .into_iter()
            .fold(0.0f64, |worst, found| worst.max((found - 1.0).abs()))
    };
    for strategy in [
        Strategy::FedMedian,
        Strategy::FedTrimmedAvg { beta: 0.2 },
        Strategy::Krum { num_malicious: 2 },
        Strategy::MultiKrum { num_malicious: 2, num_nodes_to_select: 5 },
        Strategy::Bulyan { num_malicious: 2 },
    ] {
        assert!(worst(&strategy) <= 0.01, "{}: {}", strategy.name(), worst(&strategy));
    }
    assert!(worst(&Strategy::FedAvg) > 1000.0);
}

/// Several spans and threads: distances do not depend on which thread computes them.
#[test]
fn long_arrays_are_compared_completely() {
    let elements = 400_000;
    let mut dice = Dice(3);
    let base: Vec<f64> = (0..elements).map(|_| dice.unit()).collect();
    let replies: Vec<_> = (0..6)
        .map(|node| {
            let mut row = base.clone();
            // They differ in the last elements only.
            row[elements - 1] += f64::from(node) * f64::from(node);
            (reply(node as u64 + 2, 1.0), of(Dtype::F32, &row))
        })
        .collect();
    let strategy = Strategy::MultiKrum { num_malicious: 1, num_nodes_to_select: 4 };
    let given = round(&strategy, &replies[0].1, &replies).unwrap();
    assert_eq!(given.chosen, Some(vec![0, 1, 2, 3]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Few round numbers, so that there are ties and sums are exact.
    #[test]
    fn results_match_straightforward_implementations(seed: u64, malicious in 0usize..3, more in 0usize..6) {
        let mut dice = Dice(seed);
        let count = 4 * malicious + 3 + more;
        let len = dice.below(30) + 1;
        let rows: Vec<Vec<f64>> = (0..count).map(|_| (0..len).map(|_| dice.below(9) as f64 / 8.0).collect()).collect();

        let krum = given(&Strategy::Krum { num_malicious: malicious }, &rows);
        let best = nearest(&rows, malicious, 1);
        prop_assert_eq!(&numbers(&krum.model, 0), &rows[best[0]]);
        prop_assert_eq!(krum.chosen, Some(best));

        let bulyan = given(&Strategy::Bulyan { num_malicious: malicious }, &rows);
        let chosen = nearest(&rows, malicious, count - 2 * malicious);
        for (at, found) in numbers(&bulyan.model, 0).into_iter().enumerate() {
            let column: Vec<f64> = chosen.iter().map(|&row| rows[row][at]).collect();
            prop_assert_eq!(found, near_median(&column, count - 4 * malicious));
        }
        prop_assert_eq!(bulyan.chosen, Some(chosen));
    }
}
