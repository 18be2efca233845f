//! Squared Euclidean distances, summed in an order that is the same on all machines.

/// Parallel partial sums, enough to keep the widest vector units busy.
const LANES: usize = 8;

/// The lengths are equal.
pub(crate) fn squared(a: &[f64], b: &[f64]) -> f64 {
    let (a_lanes, a_rest) = a.as_chunks::<LANES>();
    let (b_lanes, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for lane in 0..LANES {
            let difference = a[lane] - b[lane];
            sums[lane] += difference * difference;
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| (a - b) * (a - b)).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::squared;

    #[test]
    fn of_any_length() {
        for len in 0..40 {
            let a: Vec<f64> = (0..len).map(f64::from).collect();
            let b: Vec<f64> = (0..len).map(|number| f64::from(number) + 3.0).collect();
            assert_eq!(squared(&a, &b), 9.0 * f64::from(len));
        }
    }
}
