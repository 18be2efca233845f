//! Finds NaN and infinities. One of them in one reply would ruin the aggregated model.

use trellis_wire::records::Dtype;

/// Elements between two checks of the result: a loop without an early exit can be vectorised.
const STRIDE: usize = 1024;

/// The index of the first NaN or infinity. Integers and booleans have none.
pub fn first_non_finite(dtype: Dtype, bytes: &[u8]) -> Option<usize> {
    match dtype {
        Dtype::F16 => find(bytes, |bytes| u16::from_le_bytes(bytes) & 0x7c00 == 0x7c00),
        Dtype::Bf16 => find(bytes, |bytes| u16::from_le_bytes(bytes) & 0x7f80 == 0x7f80),
        Dtype::F32 => find(bytes, |bytes| u32::from_le_bytes(bytes) & 0x7f80_0000 == 0x7f80_0000),
        Dtype::F64 => find(bytes, |bytes| !f64::from_le_bytes(bytes).is_finite()),
        _ => None,
    }
}

fn find<const N: usize>(bytes: &[u8], bad: impl Fn([u8; N]) -> bool) -> Option<usize> {
    let elements = bytes.as_chunks::<N>().0;
    for (stride, chunk) in elements.chunks(STRIDE).enumerate() {
        if chunk.iter().fold(false, |any, bytes| any | bad(*bytes)) {
            let within = chunk.iter().position(|bytes| bad(*bytes))?;
            return Some(stride * STRIDE + within);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::narrow;

    #[test]
    fn the_first_non_finite_element_is_found() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64] {
            let mut numbers = vec![1.5; 3000];
            let mut bytes = vec![0; numbers.len() * dtype.bytes()];
            for (place, bad) in [(2999, f64::NAN), (1024, f64::INFINITY), (1023, f64::NEG_INFINITY), (0, f64::NAN)] {
                narrow(dtype, &numbers, &mut bytes);
                assert_ne!(first_non_finite(dtype, &bytes), Some(place), "{dtype:?}");
                numbers[place] = bad;
                narrow(dtype, &numbers, &mut bytes);
                assert_eq!(first_non_finite(dtype, &bytes), Some(place), "{dtype:?} {bad}");
            }
        }
    }

    #[test]
    fn extreme_finite_numbers_are_finite() {
        assert_eq!(
            first_non_finite(
                Dtype::F32,
                &[f32::MAX, -f32::MAX, f32::MIN_POSITIVE, 1e-45, -0.0].map(f32::to_le_bytes).concat()
            ),
            None
        );
        assert_eq!(first_non_finite(Dtype::F64, &[f64::MAX, -f64::MAX, 5e-324].map(f64::to_le_bytes).concat()), None);
        assert_eq!(first_non_finite(Dtype::I32, &[0xff; 8]), None);
        assert_eq!(first_non_finite(Dtype::F32, &[]), None);
    }
}
