//! Kubernetes quantities: `500m`, `1Gi`, `1e3`.

use serde_json::Value;

const NANO_DIGITS: usize = 9;

/// In billionths. `None`: not a quantity, or too large.
pub fn read(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => parse(&number.to_string()),
        _ => None,
    }
}

fn parse(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let nano = decimal(digits)?;
    let binary = |power: u32| nano.checked_mul(1i128.checked_shl(10 * power)?);
    let ten = |power: i32| match u32::try_from(power) {
        Ok(power) => nano.checked_mul(10i128.checked_pow(power)?),
        Err(_) => Some(nano / 10i128.checked_pow(power.unsigned_abs())?),
    };
    match suffix {
        "" => Some(nano),
        "n" => ten(-9),
        "u" => ten(-6),
        "m" => ten(-3),
        "k" => ten(3),
        "M" => ten(6),
        "G" => ten(9),
        "T" => ten(12),
        "P" => ten(15),
        "E" => ten(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => ten(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    }
}

fn decimal(text: &str) -> Option<i128> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > NANO_DIGITS {
        return None;
    }
    let number: i128 = format!("{whole}{fraction}{}", "0".repeat(NANO_DIGITS - fraction.len())).parse().ok()?;
    Some(sign * number)
}
