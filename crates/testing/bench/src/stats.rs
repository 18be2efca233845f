//! Percentiles and medians of samples.

/// Unordered samples; the first percentile sorts them.
#[derive(Default, Clone)]
pub struct Samples {
    values: Vec<f64>,
    sorted: bool,
}

impl Samples {
    pub fn add(&mut self, value: f64) {
        self.values.push(value);
        self.sorted = false;
    }

    pub fn merge(&mut self, other: Samples) {
        self.values.extend(other.values);
        self.sorted = false;
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn median(&mut self) -> Option<f64> {
        self.percentile(50.0)
    }

    /// Returns the smallest sample that at least `percent` of all samples do not exceed (nearest rank).
    pub fn percentile(&mut self, percent: f64) -> Option<f64> {
        if !self.sorted {
            self.values.sort_by(f64::total_cmp);
            self.sorted = true;
        }
        let rank = (percent / 100.0 * self.values.len() as f64).ceil() as usize;
        self.values.get(rank.max(1) - 1).copied()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self { values: values.into_iter().collect(), sorted: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut samples: Samples = (1..=100).rev().map(f64::from).collect();
        assert_eq!(samples.percentile(0.0), Some(1.0));
        assert_eq!(samples.percentile(50.0), Some(50.0));
        assert_eq!(samples.percentile(99.0), Some(99.0));
        assert_eq!(samples.percentile(100.0), Some(100.0));
        samples.add(1000.0);
        assert_eq!(samples.percentile(100.0), Some(1000.0));
    }

    #[test]
    fn few_samples_and_none() {
        assert_eq!(Samples::default().percentile(99.0), None);
        let mut two: Samples = [4.0, 2.0].into_iter().collect();
        assert_eq!((two.median(), two.percentile(99.0)), (Some(2.0), Some(4.0)));
    }
}
