//! A sorting network, which sorts many columns at once with vector instructions: Batcher's merge exchange (Knuth, The Art of
//! Computer Programming 5.2.2, algorithm M).

pub(crate) struct Network {
    /// The compare-exchange pairs in order; the lower row gets the lower number.
    pairs: Vec<(usize, usize)>,
}

impl Network {
    pub fn new(rows: usize) -> Self {
        let mut pairs = Vec::new();
        let top = rows.next_power_of_two() / 2;
        let mut p = top;
        while p > 0 {
            let (mut q, mut r, mut d) = (top, 0, p);
            loop {
                pairs.extend((0..rows.saturating_sub(d)).filter(|i| i & p == r).map(|i| (i, i + d)));
                if q == p {
                    break;
                }
                (d, q, r) = (q - p, q / 2, p);
            }
            p /= 2;
        }
        Self { pairs }
    }

    /// Sorts each column; `width` is the length of a row.
    pub fn sort(&self, numbers: &mut [f64], width: usize) {
        for &(low, high) in &self.pairs {
            let (head, tail) = numbers.split_at_mut(high * width);
            let low = &mut head[low * width..][..width];
            let high = &mut tail[..width];
            for (low, high) in low.iter_mut().zip(high) {
                let (a, b) = (*low, *high);
                *low = if b < a { b } else { a };
                *high = if b < a { a } else { b };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The zero-one principle: a network that sorts all columns of zeros and ones sorts everything.
    #[test]
    fn every_pattern_of_few_rows_is_sorted() {
        for rows in 0..=12usize {
            let width = 1 << rows;
            let mut numbers: Vec<f64> =
                (0..rows).flat_map(|row| (0..width).map(move |column| (column >> row & 1) as f64)).collect();
            Network::new(rows).sort(&mut numbers, width);
            for column in 0..width {
                let sorted: Vec<f64> = (0..rows).map(|row| numbers[row * width + column]).collect();
                assert!(sorted.is_sorted(), "{rows} {column:b}");
                assert_eq!(sorted.iter().sum::<f64>(), f64::from(column.count_ones()));
            }
        }
    }
}
