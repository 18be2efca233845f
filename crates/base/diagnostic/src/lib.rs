//! Diagnostics: what is wrong with an input, where, and what to do about it. A reader of input collects all diagnostics and reports
//! them together. Also the only search for the name that a misspelt one was probably meant to be.

use std::error::Error;
use std::fmt;
use std::path::Path;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The input cannot be used.
    Error,
    /// The input can be used, but it may not do what its author expects.
    Warning,
}

/// One finding. `P` is the place: a file, a flag, a field, or a type that formats as one. A place that formats as the empty text stands
/// for the input as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic<P = String> {
    pub severity: Severity,
    pub place: P,
    pub what: String,
    /// Empty if there is nothing to advise.
    pub advice: String,
}

impl<P> Diagnostic<P> {
    pub fn error(place: impl Into<P>, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Error, place: place.into(), what: what.into(), advice: advice.into() }
    }

    pub fn warning(place: impl Into<P>, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(place, what, advice) }
    }
}

impl Diagnostic {
    pub fn in_file(path: &Path, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::error(path.display().to_string(), what, advice)
    }
}

impl<P: fmt::Display> Diagnostic<P> {
    /// The place and what is wrong there, without the advice.
    pub fn finding(&self) -> String {
        match self.place.to_string().as_str() {
            "" => self.what.clone(),
            place => format!("{place}: {}", self.what),
        }
    }
}

/// One line, for a log.
impl<P: fmt::Display> fmt::Display for Diagnostic<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.finding())?;
        match self.advice.as_str() {
            "" => Ok(()),
            advice => write!(f, " (to do: {advice})"),
        }
    }
}

/// All diagnostics of one input, as the error of its reader. One line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics<P = String>(pub Vec<Diagnostic<P>>);

impl<P> From<Vec<Diagnostic<P>>> for Diagnostics<P> {
    fn from(diagnostics: Vec<Diagnostic<P>>) -> Self {
        Self(diagnostics)
    }
}

impl<P: fmt::Display> fmt::Display for Diagnostics<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.0, "\n"))
    }
}

impl<P: fmt::Debug + fmt::Display> Error for Diagnostics<P> {}

/// The diagnostics as text, with `separator` between them.
pub fn joined<P: fmt::Display>(diagnostics: &[Diagnostic<P>], separator: &str) -> String {
    diagnostics.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join(separator)
}

/// The diagnostics as a numbered list, one paragraph each.
pub fn numbered<P: fmt::Display>(diagnostics: &[Diagnostic<P>]) -> String {
    let paragraph = |(index, Diagnostic { severity, place, what, advice }): (usize, &Diagnostic<P>)| {
        let kind = if *severity == Severity::Warning { "(warning) " } else { "" };
        format!("\n{:>3}. {kind}{what}\n     where: {place}\n     to do: {advice}\n", index + 1)
    };
    diagnostics.iter().enumerate().map(paragraph).collect()
}

/// `did you mean count?`, or the known names, introduced by `intro`.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone, intro: &str) -> String {
    did_you_mean(word, known.clone())
        .unwrap_or_else(|| format!("{intro} {}", known.into_iter().collect::<Vec<_>>().join(", ")))
}

/// `did you mean count?`, if one of the known names is close to `word`.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|meant| format!("did you mean {meant}?"))
}

/// The known name that is closest to a misspelt one, if any is close. Case and separators do not count.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |text: &str| text.replace(['-', '_', ' '], "").to_lowercase();
    let word = letters(word);
    let by_distance = known.into_iter().map(|name| (strsim::osa_distance(&word, &letters(name)), name));
    let (distance, name) = by_distance.min_by_key(|(distance, _)| *distance)?;
    // At most a third of the letters may differ.
    (distance * 3 <= word.chars().count()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_found_and_distant_ones_are_not() {
        let known = ["count", "nodeConfig", "image", "gpu", "extraArgs", "logistic", "mlp", "echo", "batch-size", "lr"];
        for (typed, meant) in [
            ("cuont", Some("count")),
            ("counts", Some("count")),
            ("node_config", Some("nodeConfig")),
            ("nodeconfig", Some("nodeConfig")),
            ("extra-arg", Some("extraArgs")),
            ("gup", Some("gpu")),
            ("cpu", Some("gpu")),
            ("logistc", Some("logistic")),
            ("Logistic", Some("logistic")),
            ("batch_size", Some("batch-size")),
            ("bach-sise", Some("batch-size")),
            ("mpl", Some("mlp")),
            ("mlpp", Some("mlp")),
            ("replicas", None),
            ("transformer", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }

    #[test]
    fn empty_places_and_advice_leave_no_trace() {
        let whole = Diagnostic::<String>::error("", "it is empty", "");
        let field = Diagnostic::<String>::warning("lr", "it is high", "lower it");
        assert_eq!(field.finding(), "lr: it is high");
        assert_eq!(Diagnostics(vec![whole, field]).to_string(), "it is empty\nlr: it is high (to do: lower it)");
    }
}
