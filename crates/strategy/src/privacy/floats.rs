//! Floating-point elements in their bytes, as `f64` and back. One rounding, to the nearest, on the way back.

use trellis_wire::records::{Bf16, Dtype, F16};

pub fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64)
}

/// Replaces `out` by the elements. `bytes` are whole elements of a floating-point type.
pub fn decode(dtype: Dtype, bytes: &[u8], out: &mut Vec<f64>) {
    out.clear();
    match dtype {
        Dtype::F64 => out.extend(elements(bytes).map(f64::from_le_bytes)),
        Dtype::F32 => out.extend(elements(bytes).map(|element| f64::from(f32::from_le_bytes(element)))),
        Dtype::F16 => out.extend(elements(bytes).map(|element| f64::from(F16(u16::from_le_bytes(element)).to_f32()))),
        Dtype::Bf16 => out.extend(elements(bytes).map(|element| f64::from(Bf16(u16::from_le_bytes(element)).to_f32()))),
        other => unreachable!("{} is no floating-point type", other.name()),
    }
}

/// Adds the bytes of the elements to `out`.
pub fn encode(dtype: Dtype, elements: &[f64], out: &mut Vec<u8>) {
    match dtype {
        Dtype::F64 => out.extend(elements.iter().flat_map(|element| element.to_le_bytes())),
        Dtype::F32 => out.extend(elements.iter().flat_map(|&element| (element as f32).to_le_bytes())),
        Dtype::F16 => out.extend(elements.iter().flat_map(|&element| F16::from_f32(element as f32).0.to_le_bytes())),
        Dtype::Bf16 => out.extend(elements.iter().flat_map(|&element| Bf16::from_f32(element as f32).0.to_le_bytes())),
        other => unreachable!("{} is no floating-point type", other.name()),
    }
}

fn elements<const SIZE: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; SIZE]> + '_ {
    bytes.chunks_exact(SIZE).map(|element| element.try_into().expect("cut by size"))
}
