//! Typed values of a run's configuration.

use toml::Value;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar;

/// A description and an advice.
pub type ValueError = (String, String);

/// Parses a value for a key with a default: it must have its type, or be another kind of number.
pub fn like(default: &proto::Scalar, typed: &str) -> Result<proto::Scalar, ValueError> {
    let number = || typed.parse::<i64>().map(Scalar::Sint64).or_else(|_| typed.parse().map(Scalar::Double)).ok();
    let (value, expected) = match &default.scalar {
        Some(Scalar::Bool(_)) => (typed.parse().ok().map(Scalar::Bool), "true or false"),
        Some(Scalar::Sint64(_) | Scalar::Uint64(_)) => (number(), "a number"),
        Some(Scalar::Double(_)) => (typed.parse().ok().map(Scalar::Double), "a number"),
        _ => (Some(Scalar::String(typed.to_owned())), "a text"),
    };
    match value {
        Some(value) => Ok(proto::Scalar { scalar: Some(value) }),
        None => Err((format!("{typed:?} is not {expected}"), format!("give {expected}, as the app has it"))),
    }
}

/// Parses a value for a key without a default: a number, a boolean, otherwise a string.
pub fn plain(typed: &str) -> proto::Scalar {
    let value = match typed.parse::<i64>() {
        Ok(number) => Scalar::Sint64(number),
        Err(_) => match (typed.parse(), typed.parse()) {
            (Ok(truth), _) => Scalar::Bool(truth),
            (_, Ok(number)) => Scalar::Double(number),
            _ => Scalar::String(typed.to_owned()),
        },
    };
    proto::Scalar { scalar: Some(value) }
}

pub fn text(text: &str) -> proto::Scalar {
    proto::Scalar { scalar: Some(Scalar::String(text.to_owned())) }
}

/// The value in a `pyproject.toml`.
pub fn to_toml(value: &proto::Scalar) -> Value {
    match &value.scalar {
        Some(Scalar::Bool(truth)) => Value::Boolean(*truth),
        Some(Scalar::Sint64(number)) => Value::Integer(*number),
        Some(Scalar::Uint64(number)) => Value::Integer(i64::try_from(*number).unwrap_or(i64::MAX)),
        Some(Scalar::Double(number)) => Value::Float(*number),
        Some(Scalar::String(text)) => Value::String(text.clone()),
        Some(Scalar::Bytes(_)) | None => Value::String(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(scalar: Scalar) -> proto::Scalar {
        proto::Scalar { scalar: Some(scalar) }
    }

    #[test]
    fn values_have_the_type_of_the_apps_default() {
        let string = |text: &str| Scalar::String(text.to_owned());
        for (default, typed, expected) in [
            (Scalar::Sint64(3), "10", Some(Scalar::Sint64(10))),
            (Scalar::Sint64(3), "0.5", Some(Scalar::Double(0.5))),
            (Scalar::Sint64(3), "ten", None),
            (Scalar::Double(0.1), "1", Some(Scalar::Double(1.0))),
            (Scalar::Double(0.1), "1e-3", Some(Scalar::Double(1e-3))),
            (Scalar::Double(0.1), "true", None),
            (Scalar::Bool(true), "false", Some(Scalar::Bool(false))),
            (Scalar::Bool(true), "0", None),
            (string(""), "10", Some(string("10"))),
        ] {
            assert_eq!(like(&scalar(default), typed).ok(), expected.map(scalar), "{typed}");
        }
    }

    #[test]
    fn values_without_a_default_have_the_type_of_their_text() {
        for (typed, expected) in [
            ("3", Scalar::Sint64(3)),
            ("0.5", Scalar::Double(0.5)),
            ("true", Scalar::Bool(true)),
            ("dirichlet:0.1", Scalar::String("dirichlet:0.1".to_owned())),
        ] {
            assert_eq!(plain(typed), scalar(expected));
        }
    }
}
