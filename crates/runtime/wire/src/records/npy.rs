//! The `.npy` format of numpy: a header that is a Python literal, then the elements.
//!
//! Writes version 1.0, byte for byte as numpy 2. Reads all numeric arrays that numpy writes: any version, little- and
//! big-endian, C and Fortran order. Does not read pickled objects.

use bytes::Bytes;

use super::tensor::{Dtype, Tensor, Values, count};
use crate::object::MAX_ARRAY_DIMENSIONS;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The data starts at a multiple of this.
const ALIGNMENT: usize = 64;
/// numpy reserves space for the first length of the shape to grow to so many digits.
const GROWTH_DIGITS: usize = 21;

/// Why the data of an array is not numeric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NpyError {
    #[error("the data is of the form {0:?}, and only numpy.ndarray can be read")]
    OtherForm(String),
    #[error("the data is not a .npy file: {0}")]
    Form(&'static str),
    #[error(
        "elements of the type {0} cannot be read; known are bool, int8 to uint64, float16, bfloat16, float32, float64"
    )]
    Type(String),
    #[error("the shape needs {needed} bytes of data, and there are {present}")]
    Length { needed: usize, present: usize },
}

pub(super) fn write(tensor: &Tensor) -> Bytes {
    let mut file = header(tensor.dtype(), tensor.shape());
    file.reserve_exact(tensor.values().len() * tensor.dtype().bytes());
    tensor.values().write_little_endian(&mut file);
    file.into()
}

/// Returns the `.npy` header of little-endian data in C order.
pub fn header(dtype: Dtype, shape: &[usize]) -> Vec<u8> {
    let descr = dtype.descr();
    let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
    let tuple = match &lengths[..] {
        [one] => format!("({one},)"),
        all => format!("({})", all.join(", ")),
    };
    let growth = lengths.first().map_or(0, |length| GROWTH_DIGITS - length.len());
    let literal = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple}, }}{:growth$}", "");
    // Magic, version, two bytes of length, the literal, a newline. numpy pads with a whole block instead of none.
    let unpadded = MAGIC.len() + 4 + literal.len() + 1;
    let padding = ALIGNMENT - unpadded % ALIGNMENT;
    let length = u16::try_from(literal.len() + padding + 1).expect("64 dimensions fit");
    let mut file = Vec::with_capacity(unpadded + padding);
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&[1, 0]);
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(literal.as_bytes());
    file.resize(file.len() + padding, b' ');
    file.push(b'\n');
    file
}

/// The parsed header of a `.npy` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHead {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub big_endian: bool,
    /// Fortran order.
    pub fortran_order: bool,
    /// Offset of the elements in bytes.
    pub data_offset: usize,
    /// Size of all elements in bytes.
    pub data_bytes: usize,
}

impl NpyHead {
    /// Parses the start of a file. Returns `None` if it ends within the header. `dtype` is the array's own metadata:
    /// the only way to recognise bfloat16.
    pub fn read(beginning: &[u8], dtype: &str) -> Result<Option<Self>, NpyError> {
        let Some((literal, data_offset)) = split(beginning)? else { return Ok(None) };
        let Literal { descr, fortran_order, shape } =
            Literal::parse(literal).ok_or(NpyError::Form("its header is not what numpy writes"))?;
        let Some((dtype, big_endian)) = known_type(&descr, dtype) else { return Err(NpyError::Type(descr)) };
        let data_bytes = count(&shape).and_then(|count| count.checked_mul(dtype.bytes()));
        let data_bytes = data_bytes.ok_or(NpyError::Form("no machine can hold its shape"))?;
        Ok(Some(Self { dtype, shape, big_endian, fortran_order, data_offset, data_bytes }))
    }

    /// Returns whether the elements have the memory layout of this program: little-endian, C order.
    pub fn is_plain(&self) -> bool {
        let turns = self.shape.iter().filter(|&&length| length > 1).count() > 1;
        let is_swapped = self.big_endian && self.dtype.bytes() > 1;
        !(is_swapped || self.fortran_order && turns)
    }
}

pub(super) fn read(file: &[u8], dtype: &str) -> Result<Tensor, NpyError> {
    let head = NpyHead::read(file, dtype)?.ok_or(NpyError::Form("it ends within its header"))?;
    let data = &file[head.data_offset..];
    if head.data_bytes != data.len() {
        return Err(NpyError::Length { needed: head.data_bytes, present: data.len() });
    }
    let mut values = Values::read(head.dtype, data, head.big_endian);
    if head.fortran_order {
        values = values.reorder_from_fortran(&head.shape);
    }
    Ok(Tensor::new(head.shape, values).expect("the length was checked"))
}

/// Returns the header's literal and the offset of the elements, or `None` if the header is incomplete.
fn split(file: &[u8]) -> Result<Option<(&str, usize)>, NpyError> {
    if !file.starts_with(&MAGIC[..file.len().min(MAGIC.len())]) {
        return Err(NpyError::Form("it does not begin like one"));
    }
    let Some(rest) = file.get(MAGIC.len() + 2..) else { return Ok(None) };
    let length = match file[MAGIC.len()] {
        1 => rest.first_chunk::<2>().map(|length| (usize::from(u16::from_le_bytes(*length)), 2)),
        2 | 3 => rest.first_chunk::<4>().map(|length| (u32::from_le_bytes(*length) as usize, 4)),
        _ => return Err(NpyError::Form("its version is not known")),
    };
    let Some((length, digits)) = length else { return Ok(None) };
    let Some(literal) = rest[digits..].get(..length) else { return Ok(None) };
    let literal = str::from_utf8(literal).map_err(|_| NpyError::Form("its header is not text"))?;
    Ok(Some((literal, MAGIC.len() + 2 + digits + length)))
}

fn known_type(descr: &str, array_dtype: &str) -> Option<(Dtype, bool)> {
    let (order, kind) = descr.split_at_checked(1)?;
    let dtype = Dtype::ALL.iter().copied().find(|dtype| &dtype.descr()[1..] == kind)?;
    if dtype == Dtype::Bf16 && array_dtype != Dtype::Bf16.name() {
        return None;
    }
    match order {
        "<" | "|" => Some((dtype, false)),
        ">" => Some((dtype, true)),
        _ => None,
    }
}

struct Literal {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Literal {
    /// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, with keys in any order.
    fn parse(literal: &str) -> Option<Self> {
        let mut rest = literal.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                "descr" => {
                    let (text, after) = quoted(value)?;
                    descr = Some(text.to_owned());
                    after
                }
                "fortran_order" => {
                    fortran_order = Some(value.starts_with("True"));
                    value.strip_prefix("True").or_else(|| value.strip_prefix("False"))?
                }
                "shape" => {
                    let (inside, after) = value.strip_prefix('(')?.split_once(')')?;
                    shape = Some(lengths(inside)?);
                    after
                }
                _ => return None,
            };
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        Some(Self { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    text[1..].split_once(quote)
}

fn lengths(inside: &str) -> Option<Vec<usize>> {
    let inside = inside.trim();
    let inside = inside.strip_suffix(',').unwrap_or(inside);
    if inside.is_empty() {
        return Some(Vec::new());
    }
    // Old numpy on Python 2 wrote long integers as `3L`.
    let length = |text: &str| text.trim().trim_end_matches('L').parse().ok();
    let lengths: Option<Vec<usize>> = inside.split(',').map(length).collect();
    lengths.filter(|lengths| lengths.len() <= MAX_ARRAY_DIMENSIONS)
}
