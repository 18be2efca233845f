//! The examples of one node: its partition of the data, split into training and test.

use super::partition::{PartitionError, Scheme, owners};
use super::{Dataset, Examples};
use crate::random::{Purpose, Random};

/// One of `of` partitions, counted from 0. Partition 0 of 1 is the whole data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    pub id: usize,
    pub of: usize,
}

/// How the data is divided between and within nodes. Must be the same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Division {
    pub scheme: Scheme,
    pub seed: u64,
    /// The share of its examples that a node reserves for testing.
    pub test_fraction: f64,
    /// Whether features are standardised (mean 0, deviation 1) by the statistics of the node's own training examples.
    pub standardise: bool,
}

#[derive(Debug)]
pub struct Shard {
    pub train: Examples,
    pub test: Examples,
}

pub fn shard(dataset: &Dataset, division: &Division, partition: Partition) -> Result<Shard, PartitionError> {
    let Division { scheme, seed, test_fraction, standardise } = *division;
    let mut mine: Vec<usize> = match partition.of {
        // A single partition is the whole data set, with every scheme.
        1 => (0..dataset.len()).collect(),
        of => {
            let owners = owners(&dataset.labels, dataset.classes.len(), of, scheme, seed)?;
            (0..dataset.len()).filter(|&example| owners[example] == partition.id).collect()
        }
    };
    let mut random = Random::new(seed, Purpose::Split, &[partition.id as u64, partition.of as u64]);
    random.shuffle(&mut mine);
    // A partition has at least two examples, so both parts get one.
    let tested = ((mine.len() as f64 * test_fraction) as usize).clamp(1, mine.len() - 1);
    let (test, train) = mine.split_at(tested);
    let mut shard = Shard { train: dataset.select(train), test: dataset.select(test) };
    if standardise {
        let statistics = Statistics::of(&shard.train);
        statistics.apply(&mut shard.train);
        statistics.apply(&mut shard.test);
    }
    Ok(shard)
}

/// Mean and deviation of each feature.
struct Statistics {
    means: Vec<f64>,
    deviations: Vec<f64>,
}

impl Statistics {
    fn of(examples: &Examples) -> Self {
        let count = examples.len() as f64;
        let features = examples.features;
        let mut means = vec![0.0; features];
        for row in examples.numbers.chunks_exact(features) {
            means.iter_mut().zip(row).for_each(|(mean, number)| *mean += f64::from(*number) / count);
        }
        let mut variances = vec![0.0; features];
        for row in examples.numbers.chunks_exact(features) {
            for (variance, (number, mean)) in variances.iter_mut().zip(row.iter().zip(&means)) {
                *variance += (f64::from(*number) - mean) * (f64::from(*number) - mean) / count;
            }
        }
        // A constant feature has the deviation 0; dividing by 1 leaves it at 0.
        let deviation = |variance: &f64| if *variance > 0.0 { libm::sqrt(*variance) } else { 1.0 };
        let deviations = variances.iter().map(deviation).collect();
        Self { means, deviations }
    }

    fn apply(&self, examples: &mut Examples) {
        for row in examples.numbers.chunks_exact_mut(examples.features) {
            for (number, (mean, deviation)) in row.iter_mut().zip(self.means.iter().zip(&self.deviations)) {
                *number = ((f64::from(*number) - mean) / deviation) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::digits::digits;
    use super::*;

    const DIVISION: Division = Division { scheme: Scheme::Iid, seed: 0, test_fraction: 0.2, standardise: false };

    #[test]
    fn partitions_cover_the_data() {
        let digits = digits();
        for scheme in [Scheme::Iid, Scheme::Dirichlet(0.3), Scheme::ByLabel(2)] {
            let division = Division { scheme, ..DIVISION };
            let shards = (0..7).map(|id| shard(&digits, &division, Partition { id, of: 7 }).unwrap());
            let sizes: Vec<(usize, usize)> = shards.map(|shard| (shard.train.len(), shard.test.len())).collect();
            let total: usize = sizes.iter().map(|(train, test)| train + test).sum();
            assert_eq!(total, digits.len(), "{scheme}");
            assert!(sizes.iter().all(|(train, test)| *train > 0 && *test > 0), "{sizes:?}");
        }
    }

    #[test]
    fn statistics_come_from_the_training_examples_only() {
        let shard = shard(&digits(), &Division { standardise: true, ..DIVISION }, Partition { id: 0, of: 1 }).unwrap();
        let column = |examples: &Examples, feature: usize| -> Vec<f64> {
            examples.numbers().chunks_exact(64).map(|row| f64::from(row[feature])).collect()
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let train = column(&shard.train, 20);
        assert!(mean(&train).abs() < 1e-6);
        assert!((mean(&train.iter().map(|value| value * value).collect::<Vec<_>>()) - 1.0).abs() < 1e-5);
        assert!(mean(&column(&shard.test, 20)).abs() > 1e-4, "test examples do not contribute");
        // The upper left pixel is always white.
        assert!(column(&shard.train, 0).iter().all(|value| *value == 0.0));
    }
}
