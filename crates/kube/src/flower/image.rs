//! The name of an image, and what it says about what is in it.

use super::{Program, Release};
use crate::federation::{Runtime, Spec};

const OFFICIAL_REPOSITORY: &str = "flwr";
const OFFICIAL_PROGRAMS: [&str; 6] = ["superlink", "supernode", "superexec", "serverapp", "clientapp", "base"];
const TRELLIS: &str = "trellis";
/// A tag of somebody's own image counts as a release of Flower within these.
const PLAUSIBLE_MINORS: std::ops::RangeInclusive<u32> = 23..=99;

/// `registry:5000/some/where/superlink:1.25.0@sha256:…`, taken apart.
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
        // A colon before the last slash is that of a registry's port.
        let last = name.rfind('/').map_or(0, |slash| slash + 1);
        match name[last..].find(':') {
            Some(colon) => Image { repository: &name[..last + colon], tag: Some(&name[last + colon + 1..]), digest },
            None => Image { repository: name, tag: None, digest },
        }
    }

    fn last_part(&self) -> &'i str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }

    /// One of those that Flower publishes, wherever it was copied to.
    fn is_official(&self) -> bool {
        let mut parts = self.repository.rsplit('/');
        let program = parts.next().unwrap_or_default();
        OFFICIAL_PROGRAMS.contains(&program) && parts.next() == Some(OFFICIAL_REPOSITORY)
    }

    pub fn official_release(&self) -> Option<Release> {
        self.tag.filter(|_| self.is_official()).and_then(Release::read)
    }

    fn is_trellis(&self) -> bool {
        self.last_part() == TRELLIS || self.last_part().starts_with("trellis-")
    }

    fn plausible_release(&self) -> Option<Release> {
        self.tag.and_then(Release::read).filter(|release| PLAUSIBLE_MINORS.contains(&release.minor))
    }

    /// Of a SuperLink or a SuperNode.
    pub fn program(&self, spec: &Spec) -> Program {
        if let Some(release) = self.official_release() {
            return Program::Flower(release);
        }
        let trellis = match spec.runtime {
            Some(Runtime::Trellis) => !self.is_official(),
            Some(Runtime::Flower) => false,
            None => self.is_trellis(),
        };
        if trellis { Program::Trellis } else { self.flower(spec) }
    }

    /// Of a SuperExec, which Trellis has none of.
    pub fn superexec(&self, spec: &Spec) -> Program {
        self.flower(spec)
    }

    fn flower(&self, spec: &Spec) -> Program {
        let said = spec.version.as_deref().and_then(Release::read);
        let release = self.official_release().or(said).or_else(|| self.plausible_release());
        release.map_or(Program::Unknown, Program::Flower)
    }
}
