//! Whose programs run, as it is written: `trellis`, `flower`, `flower:1.39`, `flower:1.39.0`.

use std::fmt;

use serde_json::json;

use crate::federation::{FlowerVersion, Runtime};
use crate::kind::{Fault, Scalar};

/// Minor releases with a patch, as of which the last is meant where none is named.
const PATCHED: [(u16, u16); 2] = [(26, 1), (32, 1)];

impl FlowerVersion {
    pub const OLDEST: FlowerVersion = FlowerVersion { minor: 25, patch: 0 };
    pub const NEWEST: FlowerVersion = FlowerVersion { minor: 42, patch: 0 };

    /// Reads `1.39.0`, or `1.39` for its last patch. `None`: not such a version, or none that is known.
    pub fn parse(text: &str) -> Option<FlowerVersion> {
        let number = |text: &str| {
            let sound = !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            sound.then(|| text.parse::<u16>().ok()).flatten()
        };
        let rest = text.strip_prefix("1.")?;
        let (minor, patch) = match rest.split_once('.') {
            Some((minor, patch)) => (number(minor)?, number(patch)?),
            None => {
                let minor = number(rest)?;
                (minor, PATCHED.iter().find(|(known, _)| *known == minor).map_or(0, |(_, patch)| *patch))
            }
        };
        let known = (Self::OLDEST.minor..=Self::NEWEST.minor).contains(&minor);
        known.then_some(FlowerVersion { minor, patch })
    }
}

impl fmt::Display for FlowerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}.{}", self.minor, self.patch)
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runtime::Trellis => f.write_str("trellis"),
            Runtime::Flower(version) => write!(f, "flower:{version}"),
        }
    }
}

/// The kind of the field.
pub(crate) fn runtime() -> Scalar<Runtime> {
    let parse = |text: &str, _: bool| match text.split_once(':') {
        None if text == "trellis" => Ok(Runtime::Trellis),
        None if text == "flower" => Ok(Runtime::Flower(FlowerVersion::NEWEST)),
        Some(("flower", version)) => match FlowerVersion::parse(version) {
            Some(version) => Ok(Runtime::Flower(version)),
            None => {
                let (oldest, newest) = (FlowerVersion::OLDEST.minor, FlowerVersion::NEWEST.minor);
                let what = format!("{version:?} is no release of Flower that is supported");
                Err(Fault::because(what, format!("write flower:1.{oldest} to flower:1.{newest}, also with a patch")))
            }
        },
        _ => Err(Fault::Unfit),
    };
    let words = "trellis, flower, or flower with a release like flower:1.39.0";
    let schema = json!({ "type": "string", "pattern": r"^(trellis|flower(:1\.[0-9]+(\.[0-9]+)?)?)$" });
    Scalar::new(words, "flower:1.39.0", schema, parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            ("1.25", Some("1.25.0")),
            ("1.26", Some("1.26.1")),
            ("1.26.0", Some("1.26.0")),
            ("1.42.0", Some("1.42.0")),
            ("1.24.0", None),
            ("1.43", None),
            ("2.0.0", None),
            ("1.30.0.1", None),
            ("1.30.", None),
            ("1.", None),
            ("1.+30", None),
        ] {
            assert_eq!(FlowerVersion::parse(text).map(|found| found.to_string()).as_deref(), expected, "{text}");
        }
    }
}
