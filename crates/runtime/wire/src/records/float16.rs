//! The two 16-bit floating-point types, which Rust lacks. For storage only: arithmetic uses `f32`.

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct F16(pub u16);

/// bfloat16: the upper half of an `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bf16(pub u16);

/// 2^-24, the smallest positive number.
const SMALLEST_F16: f32 = 1.0 / 16_777_216.0;
/// Difference of the exponent biases, at the position of the exponent of `f32`.
const REBIAS: u32 = (127 - 15) << 23;
const INFINITE_F16: u16 = 0x7c00;

impl F16 {
    pub fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let rest = u32::from(self.0 & 0x7fff);
        let magnitude = match rest >> 10 {
            0 => (rest as f32 * SMALLEST_F16).to_bits(),
            31 => 0x7f80_0000 | (rest & 0x3ff) << 13,
            _ => (rest << 13) + REBIAS,
        };
        f32::from_bits(sign | magnitude)
    }

    /// Rounds to the nearest value, ties to even.
    pub fn from_f32(number: f32) -> Self {
        let bits = number.to_bits();
        let sign = (bits >> 16) as u16 & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        let rest = if magnitude > 0x7f80_0000 {
            // NaN: keep the upper bits, and set a bit if they are all zero.
            let fraction = (magnitude >> 13) as u16 & 0x3ff;
            INFINITE_F16 | if fraction == 0 { 1 } else { fraction }
        } else if magnitude < 0x3880_0000 {
            // Values below 2^-14 are 2^-24 apart; adding a number whose last place is 2^-24 rounds to them.
            let aligned = f32::from_bits(magnitude) + 0.5;
            (aligned.to_bits() - 0.5f32.to_bits()) as u16
        } else {
            let half_down = 0xfff + (magnitude >> 13 & 1);
            let rounded = (magnitude + half_down).saturating_sub(REBIAS) >> 13;
            rounded.min(u32::from(INFINITE_F16)) as u16
        };
        Self(sign | rest)
    }
}

impl Bf16 {
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Rounds to the nearest value, ties to even.
    pub fn from_f32(number: f32) -> Self {
        let bits = number.to_bits();
        if number.is_nan() {
            return Self((bits >> 16) as u16 | 0x40);
        }
        Self(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_round_trips() {
        for bits in 0..=u16::MAX {
            let there = F16(bits).to_f32();
            assert_eq!(F16::from_f32(there), F16(bits), "{bits:04x} {there}");
            let there = Bf16(bits).to_f32();
            let back = Bf16::from_f32(there);
            assert!(back == Bf16(bits) || there.is_nan() && back.to_f32().is_nan(), "{bits:04x} {there}");
        }
    }

    #[test]
    fn known_halves() {
        for (number, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65519.996, 0x7bff),
            (65520.0, 0x7c00),
            (f32::MAX, 0x7c00),
            (f32::NEG_INFINITY, 0xfc00),
            (6.103_515_6e-5, 0x0400),
            (5.960_464_5e-8, 0x0001),
            (2.980_232_2e-8, 0x0000),
            (2.980_233e-8, 0x0001),
            (0.333_333_34, 0x3555),
            (2049.0, 0x6800),
            (2051.0, 0x6802),
        ] {
            assert_eq!(F16::from_f32(number), F16(bits), "{number}");
        }
    }

    #[test]
    fn rounding_goes_to_the_nearest() {
        for bits in 0..0x7bff {
            let (low, high) = (F16(bits).to_f32(), F16(bits + 1).to_f32());
            let middle = (low + high) / 2.0;
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            assert_eq!(F16::from_f32(middle), F16(even), "{bits:04x}");
            assert_eq!(F16::from_f32(middle.next_down()), F16(bits), "{bits:04x}");
            assert_eq!(F16::from_f32(middle.next_up()), F16(bits + 1), "{bits:04x}");
        }
    }

    #[test]
    fn brain_floats_round_to_the_nearest() {
        for (number, bits) in [(1.0, 0x3f80), (1.003_906_2, 0x3f80), (1.003_907, 0x3f81), (f32::MAX, 0x7f80)] {
            assert_eq!(Bf16::from_f32(number), Bf16(bits), "{number}");
        }
    }
}
