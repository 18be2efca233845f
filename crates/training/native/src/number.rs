//! Numbers as they occur in settings, in configurations of nodes and runs, and in records.

use trellis_wire::object::ConfigValue;
use trellis_wire::proto::{Scalar, scalar};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        text.parse().map(Self::Int).ok().or_else(|| text.parse().map(Self::Float).ok())
    }

    /// Strings that contain a number count as numbers: environments and command lines have only strings.
    pub fn from_scalar(scalar: &Scalar) -> Option<Self> {
        match scalar.scalar.as_ref()? {
            scalar::Scalar::Double(number) => Some(Self::Float(*number)),
            scalar::Scalar::Uint64(number) => Some(Self::Int((*number).into())),
            scalar::Scalar::Sint64(number) => Some(Self::Int((*number).into())),
            scalar::Scalar::String(text) => Self::parse(text),
            scalar::Scalar::Bool(_) | scalar::Scalar::Bytes(_) => None,
        }
    }

    pub fn from_config(value: &ConfigValue) -> Option<Self> {
        match value {
            ConfigValue::Double(number) => Some(Self::Float(*number)),
            ConfigValue::Uint64(number) => Some(Self::Int((*number).into())),
            ConfigValue::Sint64(number) => Some(Self::Int((*number).into())),
            ConfigValue::String(text) => Self::parse(text),
            _ => None,
        }
    }

    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    /// The value as an integer; floats without a fraction count.
    pub fn as_int(self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(number),
            Self::Float(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => Some(number as i128),
            Self::Float(_) => None,
        }
    }
}
