//! The bundled digits; `data/README.md` names their source.

use super::{Dataset, Rows};

const PACKED: &[u8] = include_bytes!("../../data/digits.bin");
/// The label, then the pixels.
const ROW_BYTES: usize = 41;
const PIXELS: usize = 64;
const PIXEL_BITS: usize = 5;
/// The value of a black pixel.
const BLACK: f32 = 16.0;

pub fn digits() -> Dataset {
    Dataset {
        classes: (0..10).map(|digit| digit.to_string()).collect(),
        features: PIXELS,
        labels: PACKED.chunks_exact(ROW_BYTES).map(|row| u32::from(row[0])).collect(),
        rows: Rows::Digits,
    }
}

/// Appends the pixels of an image, scaled to 0..=1. The format fixes the range, so no statistics are needed.
pub fn append(index: usize, numbers: &mut Vec<f32>) {
    let row = &PACKED[index * ROW_BYTES..(index + 1) * ROW_BYTES];
    // Eight pixels of five bits are five bytes.
    for five in row[1..].chunks_exact(PIXEL_BITS) {
        let bits = five.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        numbers.extend((0..8).map(|pixel| (bits >> (PIXEL_BITS * pixel) & 31) as f32 / BLACK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_are_bundled() {
        let digits = digits();
        assert_eq!(digits.len() * ROW_BYTES, PACKED.len());
        let mut counts = [0; 10];
        digits.labels.iter().for_each(|label| counts[*label as usize] += 1);
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        let all = digits.select(&(0..digits.len()).collect::<Vec<_>>());
        assert_eq!(all.numbers().iter().sum::<f32>() * BLACK, 561_718.0);
        // The first image, a zero, as scikit-learn prints it.
        let first: Vec<f32> = all.numbers()[..16].iter().map(|pixel| pixel * BLACK).collect();
        assert_eq!(first, [0., 0., 5., 13., 9., 1., 0., 0., 0., 0., 13., 15., 10., 15., 5., 0.]);
    }
}
