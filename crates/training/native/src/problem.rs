//! What is wrong with settings or data, as told to an operator, and the name that was perhaps meant.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The setting, or the file with line and column.
    pub place: String,
    pub what: String,
    pub advice: String,
}

impl Problem {
    pub fn new(place: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), advice: advice.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (to do: {})", self.place, self.what, self.advice)
    }
}

/// The known name that is nearest to a misspelt one, if any is near.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('_', "-");
    let word = plain(word);
    let by_distance = known.into_iter().map(|name| (edits(&word, &plain(name)), name));
    let (distance, name) = by_distance.min_by_key(|(distance, _)| *distance)?;
    // A third of the letters may be wrong; of short words not even one more than that.
    (distance <= word.chars().count() / 3).then_some(name)
}

/// How many letters must be added, removed or exchanged to make one word of the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let exchanged = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        let known = ["logistic", "mlp", "echo", "batch-size", "lr"];
        for (typed, meant) in [
            ("logistc", Some("logistic")),
            ("Logistic", Some("logistic")),
            ("batch_size", Some("batch-size")),
            ("bach-sise", Some("batch-size")),
            ("mpl", None),
            ("mlpp", Some("mlp")),
            ("ehco", None),
            ("", None),
            ("transformer", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
