//! Properties of partitions: each example has one owner, and all nodes agree.

use proptest::prelude::*;
use trellis_native::{MIN_PARTITION_EXAMPLES, PartitionError, Scheme, owners};

const CLASSES: usize = 10;

fn scheme() -> impl Strategy<Value = Scheme> {
    prop_oneof![
        Just(Scheme::Iid),
        (-4.0f64..6.0).prop_map(|power| Scheme::Dirichlet(10f64.powf(power))),
        (1..=CLASSES).prop_map(Scheme::ByLabel)
    ]
}

fn labels() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..CLASSES as u32, 0..600)
}

fn sizes(owners: &[usize], partitions: usize) -> Vec<usize> {
    let mut sizes = vec![0; partitions];
    owners.iter().for_each(|&owner| sizes[owner] += 1);
    sizes
}

proptest! {
    #[test]
    fn every_example_has_one_owner(labels in labels(), partitions in 0usize..60, scheme in scheme(), seed: u64) {
        match owners(&labels, CLASSES, partitions, scheme, seed) {
            Ok(found) => {
                // The partitions are disjoint and cover the data.
                prop_assert_eq!(found.len(), labels.len());
                prop_assert!(found.iter().all(|owner| *owner < partitions));
                prop_assert!(sizes(&found, partitions).iter().all(|size| *size >= MIN_PARTITION_EXAMPLES));
                prop_assert_eq!(owners(&labels, CLASSES, partitions, scheme, seed), Ok(found));
            }
            Err(PartitionError::TooFewExamples { .. }) => {
                prop_assert!(partitions == 0 || labels.len() < partitions * MIN_PARTITION_EXAMPLES);
            }
            Err(_) => prop_assert!(matches!(scheme, Scheme::ByLabel(_))),
        }
    }

    #[test]
    fn iid_partitions_are_equally_large(labels in labels(), partitions in 1usize..60, seed: u64) {
        if let Ok(found) = owners(&labels, CLASSES, partitions, Scheme::Iid, seed) {
            let sizes = sizes(&found, partitions);
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }

    #[test]
    fn by_label_gives_each_node_its_classes(partitions in 1usize..50, held in 1..=CLASSES, seed: u64) {
        let labels: Vec<u32> = (0..2000).map(|example| example % CLASSES as u32).collect();
        let found = owners(&labels, CLASSES, partitions, Scheme::ByLabel(held), seed);
        if held * partitions < CLASSES {
            let left_out = PartitionError::ClassesLeftOut { labels: held, partitions, classes: CLASSES };
            prop_assert_eq!(found, Err(left_out));
            return Ok(());
        }
        let found = found.unwrap();
        for partition in 0..partitions {
            let mut classes: Vec<u32> =
                labels.iter().zip(&found).filter(|(_, owner)| **owner == partition).map(|(label, _)| *label).collect();
            classes.sort_unstable();
            classes.dedup();
            prop_assert_eq!(classes.len(), held);
        }
    }

    #[test]
    fn schemes_round_trip_through_text(scheme in scheme()) {
        prop_assert_eq!(scheme.to_string().parse::<Scheme>(), Ok(scheme));
    }
}

#[test]
fn partitions_depend_on_the_seed_and_never_change() {
    let labels: Vec<u32> = (0..40).map(|example| example % CLASSES as u32).collect();
    let of = |scheme: &str, seed| owners(&labels, CLASSES, 4, scheme.parse().unwrap(), seed).unwrap();
    for scheme in ["iid", "dirichlet:0.5", "by-label:3"] {
        assert_ne!(of(scheme, 1), of(scheme, 2), "{scheme}");
    }
    // Nodes of different releases work in one federation: these lists must never change.
    let text = |scheme| of(scheme, 1).iter().map(usize::to_string).collect::<String>();
    assert_eq!(
        ["iid", "dirichlet:0.5", "by-label:3"].map(text),
        [
            "0323101012202002111232001311332132303302",
            "3130231331103130132331312333221333331321",
            "2210310012221031331222103103122210313012"
        ]
    );
}

#[test]
fn a_small_dirichlet_parameter_makes_partitions_differ() {
    let labels: Vec<u32> = (0..5000).map(|example| example % CLASSES as u32).collect();
    let largest_share = |alpha: f64| {
        let found = owners(&labels, CLASSES, 10, Scheme::Dirichlet(alpha), 3).unwrap();
        let share = |partition: usize| {
            let mut counts = [0usize; CLASSES];
            let mine = labels.iter().zip(&found).filter(|(_, owner)| **owner == partition);
            mine.for_each(|(label, _)| counts[*label as usize] += 1);
            *counts.iter().max().unwrap() as f64 / counts.iter().sum::<usize>() as f64
        };
        (0..10).map(share).sum::<f64>() / 10.0
    };
    let (skewed, even) = (largest_share(0.05), largest_share(1000.0));
    assert!(skewed > 0.6 && even < 0.15, "{skewed} {even}");
}

#[test]
fn invalid_schemes_are_refused() {
    for text in [
        "",
        "IID",
        "iid:1",
        "dirichlet",
        "dirichlet:0",
        "dirichlet:-1",
        "dirichlet:nan",
        "dirichlet:inf",
        "by-label:0",
        "by-label:x",
    ] {
        assert!(text.parse::<Scheme>().is_err(), "{text}");
    }
}
