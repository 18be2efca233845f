//! Tensors: numbers with a shape, in C order.

use super::float16::{Bf16, F16};

/// The shape does not match the number of values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{values} values do not fill the shape {shape:?}")]
pub struct ShapeMismatch {
    pub shape: Vec<usize>,
    pub values: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    values: Values,
}

impl Tensor {
    pub fn new(shape: Vec<usize>, values: impl Into<Values>) -> Result<Self, ShapeMismatch> {
        let values = values.into();
        match count(&shape) {
            Some(needed) if needed == values.len() => Ok(Self { shape, values }),
            _ => Err(ShapeMismatch { shape, values: values.len() }),
        }
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn values(&self) -> &Values {
        &self.values
    }

    pub fn into_values(self) -> Values {
        self.values
    }

    pub fn dtype(&self) -> Dtype {
        self.values.dtype()
    }
}

/// Returns the number of elements, or `None` on overflow. As in numpy, a zero does not hide an overflow of the other
/// lengths.
pub(super) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().filter(|&&length| length != 0).try_fold(1usize, |product, &length| product.checked_mul(length))?;
    Some(shape.iter().product())
}

macro_rules! element_types {
    ($($name:ident $element:ty, $python:literal, $descr:literal;)+) => {
        /// The type of the elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Dtype {
            $($name,)+
        }

        impl Dtype {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name in Python.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $python,)+ }
            }

            /// The name in a `.npy` file of little-endian data.
            pub const fn descr(self) -> &'static str {
                match self { $(Self::$name => $descr,)+ }
            }

            /// The size of one element.
            pub const fn bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$element>(),)+ }
            }
        }

        #[derive(Debug, Clone, PartialEq)]
        pub enum Values {
            $($name(Vec<$element>),)+
        }

        impl Values {
            pub fn dtype(&self) -> Dtype {
                match self { $(Self::$name(_) => Dtype::$name,)+ }
            }

            pub fn len(&self) -> usize {
                match self { $(Self::$name(values) => values.len(),)+ }
            }

            /// Appends the elements in little-endian order.
            pub fn write_little_endian(&self, out: &mut Vec<u8>) {
                match self { $(Self::$name(values) => write_all(values, out),)+ }
            }

            /// Reads whole elements from `bytes`.
            pub(super) fn read(dtype: Dtype, bytes: &[u8], big_endian: bool) -> Self {
                match dtype { $(Dtype::$name => Self::$name(read_all(bytes, big_endian)),)+ }
            }

            /// Converts from Fortran order to C order.
            pub(super) fn reorder_from_fortran(self, shape: &[usize]) -> Self {
                match self { $(Self::$name(values) => Self::$name(transposed(&values, shape)),)+ }
            }
        }

        $(
            impl From<Vec<$element>> for Values {
                fn from(values: Vec<$element>) -> Self {
                    Self::$name(values)
                }
            }
        )+
    };
}

element_types! {
    Bool bool, "bool", "|b1";
    I8 i8, "int8", "|i1";
    I16 i16, "int16", "<i2";
    I32 i32, "int32", "<i4";
    I64 i64, "int64", "<i8";
    U8 u8, "uint8", "|u1";
    U16 u16, "uint16", "<u2";
    U32 u32, "uint32", "<u4";
    U64 u64, "uint64", "<u8";
    F16 F16, "float16", "<f2";
    // numpy lacks this type: the package that adds it (ml_dtypes) writes two bytes of an opaque type.
    Bf16 Bf16, "bfloat16", "<V2";
    F32 f32, "float32", "<f4";
    F64 f64, "float64", "<f8";
}

impl Values {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Converts floating-point values to `f32`, with rounding. Returns `None` for integers and booleans.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        Some(match self {
            Self::F32(values) => values.clone(),
            Self::F64(values) => values.iter().map(|&value| value as f32).collect(),
            Self::F16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Self::Bf16(values) => values.iter().map(|value| value.to_f32()).collect(),
            _ => return None,
        })
    }
}

/// The bytes of one element.
trait Element: Copy {
    fn from_bytes(bytes: &[u8], big_endian: bool) -> Self;
    fn append(self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Element for $number {
            fn from_bytes(bytes: &[u8], big_endian: bool) -> Self {
                let bytes = bytes.try_into().expect("the caller cuts by size");
                if big_endian { Self::from_be_bytes(bytes) } else { Self::from_le_bytes(bytes) }
            }

            fn append(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )+};
}
numbers!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);

impl Element for bool {
    fn from_bytes(bytes: &[u8], _: bool) -> Self {
        bytes[0] != 0
    }

    fn append(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
}

impl Element for F16 {
    fn from_bytes(bytes: &[u8], big_endian: bool) -> Self {
        Self(u16::from_bytes(bytes, big_endian))
    }

    fn append(self, out: &mut Vec<u8>) {
        self.0.append(out);
    }
}

impl Element for Bf16 {
    fn from_bytes(bytes: &[u8], big_endian: bool) -> Self {
        Self(u16::from_bytes(bytes, big_endian))
    }

    fn append(self, out: &mut Vec<u8>) {
        self.0.append(out);
    }
}

fn write_all<T: Element>(values: &[T], out: &mut Vec<u8>) {
    for &value in values {
        value.append(out);
    }
}

fn read_all<T: Element>(bytes: &[u8], big_endian: bool) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(|element| T::from_bytes(element, big_endian)).collect()
}

fn transposed<T: Copy>(values: &[T], shape: &[usize]) -> Vec<T> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for &length in shape {
        strides.push(stride);
        stride *= length;
    }
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    let mut ordered = Vec::with_capacity(values.len());
    for _ in 0..values.len() {
        ordered.push(values[at]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    ordered
}
