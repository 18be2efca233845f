//! Sizes in bytes with a unit, as people write them.

/// Largest first, so that printing finds the largest unit that divides.
const BINARY: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const DECIMAL: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000), ("B", 1)];

/// Reads `64MiB`, `64 MiB`, `500MB` or a plain number of bytes; the case of the unit does not matter.
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim();
    let known = BINARY.iter().chain(&DECIMAL).find(|(name, _)| name.eq_ignore_ascii_case(unit));
    match known {
        Some((_, bytes)) => number.checked_mul(*bytes),
        None => unit.is_empty().then_some(number),
    }
}

/// The shortest exact form.
pub fn show(bytes: u64) -> String {
    match BINARY.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Rounded, in the largest unit that fits: `1.5 GiB`.
pub fn rounded(bytes: u64) -> String {
    match BINARY.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
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
            ("64 mib", Some(64 << 20)),
            ("2GiB", Some(2 << 30)),
            ("500MB", Some(500_000_000)),
            ("12B", Some(12)),
            ("1kB", Some(1000)),
            ("64M", None),
            ("MiB", None),
            ("-1", None),
            ("1.5GiB", None),
            ("", None),
            ("99999999999TiB", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn printed_sizes_can_be_parsed() {
        for (bytes, expected) in
            [(0, "0"), (1023, "1023"), (1 << 10, "1KiB"), (3 << 30, "3GiB"), (1536 << 20, "1536MiB")]
        {
            assert_eq!(show(bytes), expected);
            assert_eq!(parse(&show(bytes)), Some(bytes));
        }
    }

    #[test]
    fn amounts() {
        for (bytes, expected) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (5 << 40, "5.0 TiB")]
        {
            assert_eq!(rounded(bytes), expected);
        }
    }
}
