//! Which release of Flower an image holds ([`image`]), whether programs of two releases work together ([`skew`]), and what its
//! programs are called with ([`arguments`]). Knows nothing of pods.

pub mod arguments;
pub mod image;
pub mod skew;

use std::fmt;

use crate::federation::{Federation, Isolation};
use crate::render::Problem;
pub use image::Image;
pub use skew::Skew;

/// A release of Flower: 1.`minor`. Patches change no arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    pub minor: u32,
}

/// The first and the last release that Trellis was tried with.
pub const TRELLIS_KNOWS: (Release, Release) = (Release::of(25), Release::of(42));
/// Runtime calls of apps are refused from here on unless both sides have the same release.
pub const APPS_COMPARE_RELEASES: Release = Release::of(30);
/// `flower-superexec` can talk TLS from here on.
pub const SUPEREXEC_TLS: Release = Release::of(30);
/// Apps reach a SuperLink by HTTP from here on, at the port of the HTTP API.
pub const APPS_BY_HTTP: Release = Release::of(35);
/// `flwr` reaches a SuperLink by HTTP from here on, and the HTTP API has the certificate of the others.
pub const CONTROL_BY_HTTP: Release = Release::of(37);
/// SuperNodes reach a SuperLink by HTTP from here on; there is one port for all.
pub const FLEET_BY_HTTP: Release = Release::of(40);

impl Release {
    pub const fn of(minor: u32) -> Release {
        Release { minor }
    }

    /// `1.25`, `1.25.0`, `v1.42.0-py3.12-ubuntu24.04`, `1.43.0.dev20261101`.
    pub fn read(text: &str) -> Option<Release> {
        let rest = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        let after = &rest[digits.len()..];
        if !(after.is_empty() || after.starts_with(['.', '-', '_', '+'])) {
            return None;
        }
        Some(Release { minor: digits.parse().ok()? })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

/// What an image holds, as far as its arguments go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Trellis,
    Flower(Release),
    /// It is called as Flower up to 1.34 is, as the other operator does.
    Unknown,
}

impl Program {
    pub fn is_trellis(self) -> bool {
        self == Program::Trellis
    }

    /// A release of Flower's own, `from` or later.
    pub fn since(self, from: Release) -> bool {
        matches!(self, Program::Flower(release) if release >= from)
    }

    /// A release of Flower's own before `end`.
    pub fn before(self, end: Release) -> bool {
        matches!(self, Program::Flower(release) if release < end)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Program::Trellis => f.write_str("Trellis"),
            Program::Flower(release) => write!(f, "Flower {release}"),
            Program::Unknown => f.write_str("unknown"),
        }
    }
}

/// What all images of a federation hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    pub superlink: Program,
    /// Of its sidecar; with process isolation.
    pub superlink_superexec: Option<Program>,
    /// In the order of the resource.
    pub pools: Vec<PoolPrograms>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPrograms {
    pub pool: String,
    pub supernode: Program,
    pub superexec: Option<Program>,
}

impl Programs {
    pub fn of(federation: &Federation) -> Programs {
        let spec = &federation.spec;
        let process = spec.isolation_mode == Isolation::Process;
        let superlink = Image::read(&spec.superlink.image).program(spec);
        let sidecar = |image: Option<&String>, host: Program| {
            let image = image.filter(|image| !image.is_empty() && process)?;
            // An image of one's own apps, beside a program whose release is known, was made for that release.
            Some(match (Image::read(image).superexec(spec), host) {
                (Program::Unknown, Program::Flower(release)) => Program::Flower(release),
                (found, _) => found,
            })
        };
        let pools = spec.supernodes.pools.iter().map(|pool| {
            let image = pool.images.supernode.as_ref().filter(|image| !image.is_empty());
            let supernode = Image::read(image.unwrap_or(&spec.supernodes.image)).program(spec);
            let superexec = sidecar(pool.images.superexec_client_app.as_ref(), supernode);
            PoolPrograms { pool: pool.name.clone(), supernode, superexec }
        });
        Programs {
            superlink,
            superlink_superexec: sidecar(spec.superlink.superexec_image.as_ref(), superlink),
            pools: pools.collect(),
        }
    }

    /// For `.status`: `Flower 1.25`, `Trellis`, `unknown`.
    pub fn shown(&self) -> String {
        self.superlink.to_string()
    }

    /// What cannot work, and what works and must be told.
    pub fn findings(&self, federation: &Federation) -> Findings {
        let mut findings = Findings::default();
        let spec = &federation.spec;
        findings.unknown(self.superlink, "spec.superlink.image", &spec.superlink.image);
        findings.contradiction(federation);
        if let Some(superexec) = self.superlink_superexec {
            let place = "spec.superlink.superexecImage";
            findings.unknown(superexec, place, spec.superlink.superexec_image.as_deref().unwrap_or_default());
            findings.add(place, skew::apps(self.superlink, superexec));
        }
        for (index, (found, pool)) in self.pools.iter().zip(&spec.supernodes.pools).enumerate() {
            let place = format!("spec.supernodes.pools[{index}].images");
            let image = pool.images.supernode.as_ref().filter(|image| !image.is_empty());
            let (image_place, image) = match image {
                Some(image) => (format!("{place}.supernode"), image),
                None => ("spec.supernodes.image".to_owned(), &spec.supernodes.image),
            };
            findings.unknown(found.supernode, &image_place, image);
            findings.add(&image_place, skew::fleet(self.superlink, found.supernode));
            if let Some(superexec) = found.superexec {
                let place = format!("{place}.superexecClientApp");
                findings.unknown(superexec, &place, pool.images.superexec_client_app.as_deref().unwrap_or_default());
                findings.add(&place, skew::apps(found.supernode, superexec));
            }
        }
        findings
    }
}

/// Each once, in the order of the resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub problems: Vec<Problem>,
    pub notes: Vec<Problem>,
}

impl Findings {
    fn unknown(&mut self, program: Program, place: &str, image: &str) {
        if program == Program::Unknown {
            self.note(Problem {
                place: place.to_owned(),
                what: format!("which release of Flower the image {image} holds is not known; it is called as 1.34 is"),
                to_do: "set spec.version to the release, as \"1.42.0\"".to_owned(),
            });
        }
        if program.before(TRELLIS_KNOWS.0) {
            self.note(Problem {
                place: place.to_owned(),
                what: format!(
                    "the image {image} holds {program}, which is older than {}: it may not know arguments that it is given, and end",
                    TRELLIS_KNOWS.0
                ),
                to_do: format!("use an image of {} or later", TRELLIS_KNOWS.0),
            });
        }
    }

    /// `spec.version` says one release, and the tag of an official image another one.
    fn contradiction(&mut self, federation: &Federation) {
        let spec = &federation.spec;
        let Some(version) = spec.version.as_deref() else { return };
        let Some(said) = Release::read(version) else {
            if Image::read(&spec.superlink.image).program(spec) != Program::Trellis {
                self.note(Problem {
                    place: "spec.version".to_owned(),
                    what: format!("{version:?} is no release of Flower"),
                    to_do: "write it as \"1.42.0\", or leave it out".to_owned(),
                });
            }
            return;
        };
        let image = Image::read(&spec.superlink.image);
        if let Some(tagged) = image.official_release().filter(|tagged| *tagged != said) {
            self.note(Problem {
                place: "spec.version".to_owned(),
                what: format!(
                    "it says {said}, and the image {} holds {tagged}: the image counts",
                    spec.superlink.image
                ),
                to_do: format!("set spec.version to \"{tagged}.0\", or leave it out"),
            });
        }
    }

    fn add(&mut self, place: &str, skew: Skew) {
        let problem = |(what, to_do): (String, String)| Problem { place: place.to_owned(), what, to_do };
        match skew {
            Skew::Works => {}
            Skew::Told(what, to_do) => self.note(problem((what, to_do))),
            Skew::CannotWork(what, to_do) => {
                let found = problem((what, to_do));
                if !self.problems.contains(&found) {
                    self.problems.push(found);
                }
            }
        }
    }

    fn note(&mut self, note: Problem) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests;
