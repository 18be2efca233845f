//! A curve as text: a bar for each round.

const CHARS: usize = 40;
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Long trainings show every n-th round, and the last.
const MAX_BARS: usize = 20;

/// Values from 0 to 1, by round.
pub fn chart(curve: &[(u64, f64)]) -> String {
    let every = curve.len().div_ceil(MAX_BARS).max(1);
    let digits = curve.last().map_or(1, |(round, _)| round.to_string().len());
    let shown = curve.iter().enumerate().filter(|(index, _)| (index + 1) % every == 0 || index + 1 == curve.len());
    shown.map(|(_, (round, value))| format!("  {round:>digits$}  {}  {value:.3}\n", bar(*value))).collect()
}

fn bar(value: f64) -> String {
    // Non-finite values have no bar.
    let eighths = ((value.clamp(0.0, 1.0) * (CHARS * 8) as f64).round() as usize).min(CHARS * 8);
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    let used = bar.chars().count();
    bar + &" ".repeat(CHARS - used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_the_value() {
        let text = chart(&[(9, 0.0), (10, 0.5), (11, 1.0), (12, f64::NAN)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("   9  {}  0.000", " ".repeat(40)));
        assert_eq!(lines[1], format!("  10  {}{}  0.500", "█".repeat(20), " ".repeat(20)));
        assert_eq!(lines[2], format!("  11  {}  1.000", "█".repeat(40)));
        assert_eq!(lines[3], format!("  12  {}  NaN", " ".repeat(40)));
    }

    #[test]
    fn a_long_training_is_thinned_and_its_end_is_shown() {
        let curve: Vec<(u64, f64)> = (1..=101).map(|round| (round, 0.1)).collect();
        let text = chart(&curve);
        assert!(text.lines().count() <= MAX_BARS + 1 && text.trim_end().ends_with("0.100"));
        assert!(text.lines().last().expect("a line").trim_start().starts_with("101"));
    }
}
