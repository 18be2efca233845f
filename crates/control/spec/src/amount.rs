//! Amounts with units: bytes, processors, durations, shares.

use std::time::Duration;

/// Largest first, so that formatting finds the largest unit that divides the amount.
const BINARY: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const DECIMAL: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000), ("B", 1)];
/// Units of Kubernetes. `G` alone is not accepted elsewhere, because many users mean GiB by it.
const KUBERNETES: [(&str, u64); 9] = [
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("K", 1_000),
    ("k", 1_000),
];
const SECONDS: [(&str, u64); 4] = [("d", 86400), ("h", 3600), ("m", 60), ("s", 1)];
/// Enough for any amount, and without overflow in calculations.
const MAX_DIGITS: usize = 18;

/// `2GiB`, `2Gi`, `500MB`, `1.5 GiB`, or a number of bytes.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let binary = KUBERNETES[..4].iter();
    amount(text, BINARY.iter().chain(&DECIMAL).chain(binary))
}

/// As a Kubernetes quantity: `2Gi`, `500M`.
pub(crate) fn kubernetes_bytes(text: &str) -> Option<u64> {
    amount(text, KUBERNETES.iter())
}

fn amount<'u>(text: &str, mut units: impl Iterator<Item = &'u (&'u str, u64)>) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let unit = if unit.is_empty() { 1 } else { units.find(|(name, _)| *name == unit)?.1 };
    scaled(number, unit)
}

/// A decimal number times a unit, if the product is a whole number.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let sound =
        digits(whole) && (fraction.is_empty() != number.contains('.')) && whole.len() + fraction.len() <= MAX_DIGITS;
    if !sound || (!fraction.is_empty() && !digits(fraction)) {
        return None;
    }
    let all: u128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10u128.pow(fraction.len() as u32);
    let product = all * u128::from(unit);
    product.is_multiple_of(divisor).then(|| u64::try_from(product / divisor).ok()).flatten()
}

/// The shortest exact form.
pub(crate) fn show_bytes(bytes: u64) -> String {
    match BINARY.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// `2`, `0.5` or `500m`: thousandths of a processor.
pub(crate) fn cpu_millis(text: &str) -> Option<u32> {
    let millis = match text.strip_suffix('m') {
        Some(millis) => scaled(millis, 1)?,
        None => scaled(text, 1000)?,
    };
    u32::try_from(millis).ok()
}

pub(crate) fn show_cpu(millis: u32) -> String {
    if millis.is_multiple_of(1000) { (millis / 1000).to_string() } else { format!("{millis}m") }
}

/// `30s`, `2m`, `1 h`, `7d`. A number without a unit is refused, because in many programs it means milliseconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    let (_, seconds) = SECONDS.iter().find(|(name, _)| *name == unit.trim())?;
    scaled(number, *seconds).map(Duration::from_secs)
}

pub(crate) fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match SECONDS.iter().find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", seconds / unit),
        None => "0s".to_owned(),
    }
}

/// `80%` or `0.8`.
pub(crate) fn share(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => plain_number(percent.trim_end()).map(|percent| percent / 100.0),
        None => plain_number(text),
    }
}

/// A finite number in YAML.
pub(crate) fn plain_number(text: &str) -> Option<f64> {
    let begins = text.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 =
        if begins && text.bytes().any(|byte| byte.is_ascii_digit()) { text.parse().ok()? } else { return None };
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1048576", Some(1 << 20)),
            ("64MiB", Some(64 << 20)),
            ("64 MiB", Some(64 << 20)),
            ("2Gi", Some(2 << 30)),
            ("1.5GiB", Some(3 << 29)),
            ("500MB", Some(500_000_000)),
            ("0.5B", None),
            ("2G", None),
            ("64mib", None),
            ("MiB", None),
            ("1.GiB", None),
            ("1.2.3GiB", None),
            (".5GiB", None),
            ("-1", None),
            ("", None),
            ("99999999999TiB", None),
            ("9999999999999999999999999", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        assert_eq!((kubernetes_bytes("2G"), kubernetes_bytes("128Mi")), (Some(2_000_000_000), Some(128 << 20)));
    }

    #[test]
    fn processors_times_and_shares() {
        for (text, expected) in [
            ("2", Some(2000)),
            ("0.5", Some(500)),
            ("500m", Some(500)),
            ("1.0005", None),
            ("m", None),
            ("9999999", None),
        ] {
            assert_eq!(cpu_millis(text), expected, "{text}");
        }
        for (text, expected) in [
            ("30s", Some(30)),
            ("2m", Some(120)),
            ("1 h", Some(3600)),
            ("7d", Some(604_800)),
            ("30", None),
            ("1.5m", None),
        ] {
            assert_eq!(duration(text).map(|found| found.as_secs()), expected, "{text}");
        }
        for (text, expected) in [("80%", Some(0.8)), ("0.25", Some(0.25)), ("1", Some(1.0)), ("inf", None), ("%", None)]
        {
            assert_eq!(share(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for amount in [0, 1, 999, 1000, 1024, 1500, 3 << 30, 1536 << 20] {
            assert_eq!(bytes(&show_bytes(amount)), Some(amount));
            assert_eq!(cpu_millis(&show_cpu(amount as u32 % 100_000)), Some(amount as u32 % 100_000));
            let time = Duration::from_secs(amount);
            assert_eq!(duration(&show_duration(time)), Some(time));
        }
    }
}
