//! The partition of examples among nodes. Every example has exactly one owner. Every node that knows the labels, the number
//! of partitions and the seed computes the same owners without communication.

use std::fmt;
use std::str::FromStr;

use crate::random::{Purpose, Random};

/// A smaller partition cannot be split into training and test examples.
pub const MIN_PARTITION_EXAMPLES: usize = 2;

/// How examples are partitioned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scheme {
    /// Randomly, in equal parts.
    Iid,
    /// Each class in shares from a Dirichlet distribution with this parameter. The smaller the parameter, the more the
    /// partitions differ.
    Dirichlet(f64),
    /// Each partition has this number of classes.
    ByLabel(usize),
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "iid, dirichlet:ALPHA with ALPHA above 0 and up to 1000000, or by-label:K".to_owned();
        match text.split_once(':') {
            None if text == "iid" => Ok(Self::Iid),
            Some(("dirichlet", alpha)) => {
                let alpha = alpha.parse().ok().filter(|alpha| *alpha > 0.0 && *alpha <= 1e6);
                alpha.map(Self::Dirichlet).ok_or_else(expected)
            }
            Some(("by-label", labels)) => {
                let labels = labels.parse().ok().filter(|labels| *labels > 0);
                labels.map(Self::ByLabel).ok_or_else(expected)
            }
            _ => Err(expected()),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iid => f.write_str("iid"),
            Self::Dirichlet(alpha) => write!(f, "dirichlet:{alpha}"),
            Self::ByLabel(labels) => write!(f, "by-label:{labels}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    #[error("{examples} examples are too few for {partitions} partitions: each needs {MIN_PARTITION_EXAMPLES}")]
    TooFewExamples { examples: usize, partitions: usize },
    #[error("by-label:{labels} asks for more classes than the data has ({classes})")]
    TooManyLabels { labels: usize, classes: usize },
    #[error(
        "by-label:{labels} with {partitions} partitions leaves out some of the {classes} classes: raise one of the two numbers"
    )]
    ClassesLeftOut { labels: usize, partitions: usize, classes: usize },
    #[error(
        "by-label:{labels} leaves partition {partition} with fewer than {MIN_PARTITION_EXAMPLES} examples: use fewer partitions"
    )]
    TooSmall { labels: usize, partition: usize },
}

/// The partition of each example. `labels` are below `classes`.
pub fn owners(
    labels: &[u32],
    classes: usize,
    partitions: usize,
    scheme: Scheme,
    seed: u64,
) -> Result<Vec<usize>, PartitionError> {
    let needed = partitions.checked_mul(MIN_PARTITION_EXAMPLES);
    if partitions == 0 || needed.is_none_or(|needed| needed > labels.len()) {
        return Err(PartitionError::TooFewExamples { examples: labels.len(), partitions });
    }
    let mut random = Random::new(seed, Purpose::Partition, &[]);
    match scheme {
        Scheme::Iid => Ok(iid(labels.len(), partitions, &mut random)),
        Scheme::Dirichlet(alpha) => Ok(dirichlet(labels, classes, partitions, alpha, &mut random)),
        Scheme::ByLabel(held) => by_label(labels, classes, partitions, held, &mut random),
    }
}

fn iid(examples: usize, partitions: usize, random: &mut Random) -> Vec<usize> {
    let mut owners: Vec<usize> = (0..examples).map(|example| example % partitions).collect();
    random.shuffle(&mut owners);
    owners
}

fn dirichlet(labels: &[u32], classes: usize, partitions: usize, alpha: f64, random: &mut Random) -> Vec<usize> {
    let mut owners = vec![0; labels.len()];
    for members in by_class(labels, classes, random) {
        let shares = dirichlet_shares(partitions, alpha, random);
        let mut end = 0.0;
        let mut first = 0;
        for (partition, share) in shares.iter().enumerate() {
            end += share;
            // The last partition takes the rest: rounding must not leave an example without an owner.
            let last = if partition + 1 == partitions { members.len() } else { (end * members.len() as f64) as usize };
            let last = last.clamp(first, members.len());
            members[first..last].iter().for_each(|&example| owners[example] = partition);
            first = last;
        }
    }
    fill_small_partitions(&mut owners, partitions);
    owners
}

/// Positive numbers whose sum is 1.
fn dirichlet_shares(partitions: usize, alpha: f64, random: &mut Random) -> Vec<f64> {
    let logarithms: Vec<f64> = (0..partitions).map(|_| random.ln_gamma(alpha)).collect();
    let max = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut shares: Vec<f64> = logarithms.iter().map(|logarithm| libm::exp(logarithm - max)).collect();
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}

/// Moves examples from the largest partition to those below the minimum.
fn fill_small_partitions(owners: &mut [usize], partitions: usize) {
    let mut members = vec![Vec::new(); partitions];
    owners.iter().enumerate().for_each(|(example, &owner)| members[owner].push(example));
    for small in 0..partitions {
        while members[small].len() < MIN_PARTITION_EXAMPLES {
            // Ties go to the first partition. The caller has checked that there are enough examples.
            let largest = (0..partitions).rev().max_by_key(|&partition| members[partition].len());
            let example = largest.and_then(|largest| members[largest].pop()).expect("there are enough examples");
            members[small].push(example);
            owners[example] = small;
        }
    }
}

fn by_label(
    labels: &[u32],
    classes: usize,
    partitions: usize,
    held: usize,
    random: &mut Random,
) -> Result<Vec<usize>, PartitionError> {
    if held > classes {
        return Err(PartitionError::TooManyLabels { labels: held, classes });
    }
    if held.saturating_mul(partitions) < classes {
        return Err(PartitionError::ClassesLeftOut { labels: held, partitions, classes });
    }
    // Round robin over a shuffled ring of classes: each partition takes the next ones.
    let mut ring: Vec<usize> = (0..classes).collect();
    random.shuffle(&mut ring);
    let mut holders = vec![Vec::new(); classes];
    for partition in 0..partitions {
        (0..held).for_each(|step| holders[ring[(partition * held + step) % classes]].push(partition));
    }
    let mut owners = vec![0; labels.len()];
    let mut sizes = vec![0; partitions];
    for (members, holders) in by_class(labels, classes, random).iter().zip(&holders) {
        for (turn, &example) in members.iter().enumerate() {
            let partition = holders[turn % holders.len()];
            owners[example] = partition;
            sizes[partition] += 1;
        }
    }
    match sizes.iter().position(|&size| size < MIN_PARTITION_EXAMPLES) {
        Some(partition) => Err(PartitionError::TooSmall { labels: held, partition }),
        None => Ok(owners),
    }
}

/// The examples of each class, in random order.
fn by_class(labels: &[u32], classes: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); classes];
    labels.iter().enumerate().for_each(|(example, &label)| members[label as usize].push(example));
    members.iter_mut().for_each(|members| random.shuffle(members));
    members
}
