//! The elements of arrays, as bytes and as numbers. All arithmetic is in `f64`, and results are rounded once, to nearest with
//! ties to even.
//!
//! `f64` represents every value of these types exactly, except integers beyond 2^53. Booleans count as 0 and 1, so their mean
//! is a majority vote; a tie is false.

use trellis_wire::records::{Bf16, Dtype, F16};

/// An element type of `N` bytes.
pub(crate) trait Element<const N: usize> {
    fn number(bytes: [u8; N]) -> f64;
    fn nearest(number: f64) -> [u8; N];
}

/// Calls a function that is generic over an [`Element`] and its size.
macro_rules! by_dtype {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {{
        use trellis_wire::records::{Bf16, Dtype, F16};
        match $dtype {
            Dtype::Bool => $function::<bool, 1>($($argument),*),
            Dtype::I8 => $function::<i8, 1>($($argument),*),
            Dtype::I16 => $function::<i16, 2>($($argument),*),
            Dtype::I32 => $function::<i32, 4>($($argument),*),
            Dtype::I64 => $function::<i64, 8>($($argument),*),
            Dtype::U8 => $function::<u8, 1>($($argument),*),
            Dtype::U16 => $function::<u16, 2>($($argument),*),
            Dtype::U32 => $function::<u32, 4>($($argument),*),
            Dtype::U64 => $function::<u64, 8>($($argument),*),
            Dtype::F16 => $function::<F16, 2>($($argument),*),
            Dtype::Bf16 => $function::<Bf16, 2>($($argument),*),
            Dtype::F32 => $function::<f32, 4>($($argument),*),
            Dtype::F64 => $function::<f64, 8>($($argument),*),
        }
    }};
}
pub(crate) use by_dtype;

pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64)
}

/// Converts bytes of whole elements to numbers; the counts are equal.
pub(crate) fn widen(dtype: Dtype, bytes: &[u8], numbers: &mut [f64]) {
    by_dtype!(dtype, widen_elements(bytes, numbers))
}

/// Converts numbers to the bytes of the nearest elements; the counts are equal.
pub(crate) fn narrow(dtype: Dtype, numbers: &[f64], bytes: &mut [u8]) {
    by_dtype!(dtype, narrow_elements(numbers, bytes))
}

fn widen_elements<E: Element<N>, const N: usize>(bytes: &[u8], numbers: &mut [f64]) {
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *number = E::number(*bytes);
    }
}

fn narrow_elements<E: Element<N>, const N: usize>(numbers: &[f64], bytes: &mut [u8]) {
    for (number, bytes) in numbers.iter().zip(bytes.as_chunks_mut::<N>().0) {
        *bytes = E::nearest(*number);
    }
}

macro_rules! integers {
    ($($integer:ty)+) => {$(
        impl Element<{ size_of::<$integer>() }> for $integer {
            #[inline(always)]
            fn number(bytes: [u8; size_of::<$integer>()]) -> f64 {
                Self::from_le_bytes(bytes) as f64
            }

            #[inline(always)]
            fn nearest(number: f64) -> [u8; size_of::<$integer>()] {
                (number.round_ties_even() as Self).to_le_bytes()
            }
        }
    )+};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl Element<1> for bool {
    #[inline(always)]
    fn number([byte]: [u8; 1]) -> f64 {
        f64::from(u8::from(byte != 0))
    }

    #[inline(always)]
    fn nearest(number: f64) -> [u8; 1] {
        [u8::from(number > 0.5)]
    }
}

impl Element<8> for f64 {
    #[inline(always)]
    fn number(bytes: [u8; 8]) -> f64 {
        f64::from_le_bytes(bytes)
    }

    #[inline(always)]
    fn nearest(number: f64) -> [u8; 8] {
        number.to_le_bytes()
    }
}

impl Element<4> for f32 {
    #[inline(always)]
    fn number(bytes: [u8; 4]) -> f64 {
        f64::from(f32::from_le_bytes(bytes))
    }

    #[inline(always)]
    fn nearest(number: f64) -> [u8; 4] {
        (number as f32).to_le_bytes()
    }
}

impl Element<2> for F16 {
    #[inline(always)]
    fn number(bytes: [u8; 2]) -> f64 {
        f64::from(F16(u16::from_le_bytes(bytes)).to_f32())
    }

    #[inline(always)]
    fn nearest(number: f64) -> [u8; 2] {
        F16::from_f32(odd_f32(number)).0.to_le_bytes()
    }
}

impl Element<2> for Bf16 {
    #[inline(always)]
    fn number(bytes: [u8; 2]) -> f64 {
        f64::from(Bf16(u16::from_le_bytes(bytes)).to_f32())
    }

    #[inline(always)]
    fn nearest(number: f64) -> [u8; 2] {
        Bf16::from_f32(odd_f32(number)).0.to_le_bytes()
    }
}

/// Rounds to odd: an inexact number becomes the neighbouring `f32` whose last bit is set. Rounding that to 16 bits then gives
/// the same result as rounding once.
#[inline(always)]
fn odd_f32(number: f64) -> f32 {
    let near = number as f32;
    let bits = near.to_bits();
    if f64::from(near) == number || bits & 1 == 1 || number.is_nan() {
        return near;
    }
    let outward = f64::from(near).abs() < number.abs();
    f32::from_bits(if outward { bits + 1 } else { bits - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<E: Element<N>, const N: usize>(number: f64) -> f64 {
        E::number(E::nearest(number))
    }

    #[test]
    fn integers_round_half_to_even_and_stay_in_range() {
        for (number, expected) in [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, 0.0), (-1.5, -2.0), (126.6, 127.0)] {
            assert_eq!(round::<i8, 1>(number), expected, "{number}");
        }
        assert_eq!(round::<i8, 1>(1e9), 127.0);
        assert_eq!(round::<u8, 1>(-3.0), 0.0);
        assert_eq!(u64::from_le_bytes(<u64 as Element<8>>::nearest(f64::INFINITY)), u64::MAX);
    }

    #[test]
    fn booleans_vote() {
        assert_eq!([0.0, 0.5, 0.500001, 1.0].map(round::<bool, 1>), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(<bool as Element<1>>::number([7]), 1.0);
    }

    /// The midpoint between two 16-bit floats, and the nearest `f64` on both sides, which `f32` rounds to the midpoint.
    #[test]
    fn sixteen_bit_floats_are_rounded_once() {
        for bits in (0..0x7bff).step_by(7) {
            let [low, high] = [bits, bits + 1].map(|bits: u16| <F16 as Element<2>>::number(bits.to_le_bytes()));
            let middle = (low + high) / 2.0;
            let even = if bits % 2 == 0 { low } else { high };
            for sign in [1.0, -1.0] {
                assert_eq!(round::<F16, 2>(sign * middle), sign * even, "{bits:04x}");
                assert_eq!(round::<F16, 2>(sign * middle.next_down()), sign * low, "{bits:04x}");
                assert_eq!(round::<F16, 2>(sign * middle.next_up()), sign * high, "{bits:04x}");
            }
        }
        for bits in (0..0x7f7f).step_by(7) {
            let [low, high] = [bits, bits + 1].map(|bits: u16| <Bf16 as Element<2>>::number(bits.to_le_bytes()));
            let middle = (low + high) / 2.0;
            assert_eq!(round::<Bf16, 2>(middle.next_down()), low, "{bits:04x}");
            assert_eq!(round::<Bf16, 2>(middle.next_up()), high, "{bits:04x}");
        }
        assert_eq!(round::<F16, 2>(1e300), f64::INFINITY);
        assert_eq!(round::<Bf16, 2>(-1e300), f64::NEG_INFINITY);
        assert!(round::<F16, 2>(f64::NAN).is_nan());
    }

    #[test]
    fn every_dtype_round_trips() {
        for &dtype in Dtype::ALL {
            let mut bytes = vec![0; 3 * dtype.bytes()];
            narrow(dtype, &[0.0, 1.0, 1.0], &mut bytes);
            let mut numbers = [9.0; 3];
            widen(dtype, &bytes, &mut numbers);
            assert_eq!(numbers, [0.0, 1.0, 1.0], "{dtype:?}");
        }
    }
}
