//! References of container images, and the release that a tag names.

use crate::Release;

const OFFICIAL_REPOSITORY: &str = "flwr";
const OFFICIAL_PROGRAMS: [&str; 6] = ["superlink", "supernode", "superexec", "serverapp", "clientapp", "base"];
const TRELLIS: &str = "trellis";
/// The tag of a custom image counts as a release of Flower if it is one of these.
const PLAUSIBLE_MINORS: std::ops::RangeInclusive<u16> = 23..=99;

/// The parts of `registry:5000/team/superlink:1.25.0@sha256:…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image<'i> {
    /// With the registry, without tag and digest.
    pub repository: &'i str,
    pub tag: Option<&'i str>,
    pub digest: Option<&'i str>,
}

impl<'i> Image<'i> {
    pub fn read(image: &'i str) -> Image<'i> {
        let (name, digest) = match image.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (image, None),
        };
        // A colon before the last slash belongs to the port of a registry.
        let last = name.rfind('/').map_or(0, |slash| slash + 1);
        match name[last..].find(':') {
            Some(colon) => Image { repository: &name[..last + colon], tag: Some(&name[last + colon + 1..]), digest },
            None => Image { repository: name, tag: None, digest },
        }
    }

    /// The name of the image that Flower publishes with a program: `superlink`, `supernode` or `superexec`.
    pub fn published(program: &str, version: impl std::fmt::Display) -> String {
        format!("{OFFICIAL_REPOSITORY}/{program}:{version}")
    }

    /// An image that Flower publishes, or a copy of it in another registry.
    pub fn is_official(&self) -> bool {
        let mut parts = self.repository.rsplit('/');
        let program = parts.next().unwrap_or_default();
        OFFICIAL_PROGRAMS.contains(&program) && parts.next() == Some(OFFICIAL_REPOSITORY)
    }

    pub fn official_release(&self) -> Option<Release> {
        self.tag.filter(|_| self.is_official()).and_then(Release::read)
    }

    pub fn is_trellis(&self) -> bool {
        let last = self.repository.rsplit('/').next().unwrap_or_default();
        last == TRELLIS || last.starts_with("trellis-")
    }

    /// The release that the tag names, of an official image or a custom one.
    pub fn tagged_release(&self) -> Option<Release> {
        let plausible = |release: &Release| self.is_official() || PLAUSIBLE_MINORS.contains(&release.minor);
        self.tag.and_then(Release::read).filter(plausible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_parts() {
        for (image, repository, tag, digest) in [
            ("flwr/superlink:1.25.0", "flwr/superlink", Some("1.25.0"), None),
            ("superlink", "superlink", None, None),
            ("registry.local:5000/flwr/superlink", "registry.local:5000/flwr/superlink", None, None),
            ("registry.local:5000/flwr/superlink:1.25", "registry.local:5000/flwr/superlink", Some("1.25"), None),
            ("flwr/superlink@sha256:ab", "flwr/superlink", None, Some("sha256:ab")),
            ("flwr/superlink:1.25.0@sha256:ab", "flwr/superlink", Some("1.25.0"), Some("sha256:ab")),
            ("", "", None, None),
        ] {
            assert_eq!(Image::read(image), Image { repository, tag, digest }, "{image}");
        }
    }

    #[test]
    fn tags_name_releases() {
        for (image, official, tagged) in [
            ("flwr/supernode:1.31.0-py3.12", Some("1.31.0"), Some("1.31.0")),
            ("registry:5000/flwr/supernode:1.25", Some("1.25.0"), Some("1.25.0")),
            ("flwr/supernode:1.42.3@sha256:00", Some("1.42.3"), Some("1.42.3")),
            ("flwr/supernode:1.22.0", Some("1.22.0"), Some("1.22.0")),
            ("mine:1.31.0", None, Some("1.31.0")),
            ("mine:1.22.0", None, None),
            ("flwr/supernode", None, None),
            ("registry:5000/supernode", None, None),
            ("mine:latest", None, None),
            ("mine:2.0.0", None, None),
            ("mine:v1", None, None),
        ] {
            let found = Image::read(image);
            let text = |release: Option<Release>| release.map(|release| release.to_string());
            assert_eq!(text(found.official_release()).as_deref(), official, "{image}");
            assert_eq!(text(found.tagged_release()).as_deref(), tagged, "{image}");
        }
    }
}
