//! An array as it travels: a description, and its data in the form that the description names.

use bytes::Bytes;

use super::npy::{self, NpyError};
use super::tensor::Tensor;

/// The form of data that numpy arrays have: a `.npy` file.
pub const NUMPY: &str = "numpy.ndarray";

/// Data that is only passed on keeps its bytes, whatever they are; [`Array::tensor`] reads them as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// What Python calls the type of the elements; said again, and in earnest, within the data.
    pub dtype: String,
    pub shape: Vec<u64>,
    /// The form of the data, [`NUMPY`] as a rule.
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
