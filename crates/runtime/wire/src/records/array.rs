//! An array as sent: metadata, and its data in the format that the metadata names.

use bytes::Bytes;

use super::npy::{self, NpyError};
use super::tensor::Tensor;

/// The data format of numpy arrays: a `.npy` file.
pub const NUMPY: &str = "numpy.ndarray";

/// Data is kept as bytes; [`Array::tensor`] parses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Python's name of the element type. The data contains the authoritative type.
    pub dtype: String,
    pub shape: Vec<u64>,
    /// The format of the data, usually [`NUMPY`].
    pub stype: String,
    pub data: Bytes,
}

impl Array {
    pub fn tensor(&self) -> Result<Tensor, NpyError> {
        if self.stype != NUMPY {
            return Err(NpyError::OtherForm(self.stype.clone()));
        }
        npy::read(&self.data, &self.dtype)
    }
}

impl From<&Tensor> for Array {
    fn from(tensor: &Tensor) -> Self {
        Self {
            dtype: tensor.dtype().name().to_owned(),
            shape: tensor.shape().iter().map(|&length| length as u64).collect(),
            stype: NUMPY.to_owned(),
            data: npy::write(tensor),
        }
    }
}

impl From<Tensor> for Array {
    fn from(tensor: Tensor) -> Self {
        Self::from(&tensor)
    }
}
