//! A release of Flower as users write it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Series whose last patch is not 0.
const LAST_PATCHES: [(u16, u16); 2] = [(26, 1), (32, 1)];

/// 1.`minor`.`patch`. Patches change no arguments and no calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Release {
    pub minor: u16,
    pub patch: u16,
}

impl Release {
    /// The first and the last release that Trellis supports.
    pub const OLDEST: Release = Release::of(25);
    pub const NEWEST: Release = Release::of(42);
    /// [`Release::NEWEST`] as text.
    pub const NEWEST_TEXT: &str = "1.42.0";

    /// The first release of a series: 1.`minor`.0.
    pub const fn of(minor: u16) -> Release {
        Release { minor, patch: 0 }
    }

    pub fn is_supported(self) -> bool {
        (Self::OLDEST.minor..=Self::NEWEST.minor).contains(&self.minor)
    }

    /// A supported release, written exactly: `1.39.0`, or `1.39` for its last patch.
    pub fn parse(text: &str) -> Option<Release> {
        let rest = text.strip_prefix("1.")?;
        let release = match rest.split_once('.') {
            Some((minor, patch)) => Release { minor: number(minor)?, patch: number(patch)? },
            None => {
                let minor = number(rest)?;
                let patch = LAST_PATCHES.iter().find(|(series, _)| *series == minor).map_or(0, |(_, patch)| *patch);
                Release { minor, patch }
            }
        };
        Some(release).filter(|release| release.is_supported())
    }

    /// Any release at the beginning of a version or a tag: `1.25`, `v1.42.0-py3.12-ubuntu24.04`, `1.43.0.dev20261101`.
    pub fn read(text: &str) -> Option<Release> {
        let rest = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (minor, after) = rest.split_at(end);
        if !(after.is_empty() || after.starts_with(['.', '-', '_', '+'])) {
            return None;
        }
        let patch = after.strip_prefix('.').and_then(|patch| patch.split(|c: char| !c.is_ascii_digit()).next());
        Some(Release { minor: number(minor)?, patch: patch.and_then(number).unwrap_or(0) })
    }

    /// Without the patch: `1.42`.
    pub fn series(self) -> String {
        format!("1.{}", self.minor)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}.{}", self.minor, self.patch)
    }
}

fn number(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_releases_are_written_exactly() {
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
            assert_eq!(Release::parse(text).map(|found| found.to_string()).as_deref(), expected, "{text}");
        }
        assert_eq!(Release::parse(Release::NEWEST_TEXT), Some(Release::NEWEST));
    }

    #[test]
    fn any_release_is_read_from_tags_and_versions() {
        for (text, expected) in [
            ("1.25.0", Some("1.25.0")),
            ("1.25", Some("1.25.0")),
            ("v1.42.0", Some("1.42.0")),
            ("1.42.3-py3.12-ubuntu24.04", Some("1.42.3")),
            ("1.43.0.dev20261101", Some("1.43.0")),
            ("1.100.2", Some("1.100.2")),
            ("1.", None),
            ("1.x", None),
            ("1.25rc1", None),
            ("2.0.0", None),
            ("latest", None),
            ("", None),
            ("11.25", None),
        ] {
            assert_eq!(Release::read(text).map(|found| found.to_string()).as_deref(), expected, "{text}");
        }
    }
}
