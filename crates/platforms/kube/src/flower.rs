//! The programs in the images of a federation ([`image`]), and whether they work together. Knows nothing about pods.

pub(crate) mod image;

use trellis_flower::{Image, Isolation, Program, Release, Skew, skew};

use crate::federation::Federation;
use trellis_diagnostic::Diagnostic;

/// Programs of all images of a federation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    pub superlink: Program,
    /// The SuperExec of the SuperLink, with process isolation.
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
        let superlink = image::program(&spec.superlink.image, spec);
        let sidecar = |image: Option<&String>, host: Program| {
            let image = image.filter(|image| !image.is_empty() && process)?;
            // An image with a user's apps, beside a program of a known release, was built for that release.
            Some(match (image::flower(image, spec), host) {
                (Program::Unknown, Program::Flower(release)) => Program::Flower(release),
                (found, _) => found,
            })
        };
        let pools = spec.supernodes.pools.iter().map(|pool| {
            let image = pool.images.supernode.as_ref().filter(|image| !image.is_empty());
            let supernode = image::program(image.unwrap_or(&spec.supernodes.image), spec);
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

    /// Problems and advice.
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

/// Findings without duplicates, in the order of the resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub problems: Vec<Diagnostic>,
    pub notes: Vec<Diagnostic>,
}

impl Findings {
    fn unknown(&mut self, program: Program, place: &str, image: &str) {
        if program == Program::Unknown {
            self.note(Diagnostic::warning(
                place,
                format!("which release of Flower the image {image} holds is not known; it is called as 1.34 is"),
                format!("set spec.version to the release, as \"{}\"", Release::NEWEST),
            ));
        }
        if program.before(Release::OLDEST) {
            let oldest = Release::OLDEST.series();
            self.note(Diagnostic::warning(place, format!(
                    "the image {image} holds {program}, which is older than {oldest}: it may not know arguments that it is given, and end"
                ), format!("use an image of {oldest} or later")));
        }
    }

    /// `spec.version` and the tag of an official image disagree.
    fn contradiction(&mut self, federation: &Federation) {
        let spec = &federation.spec;
        let Some(version) = spec.version.as_deref() else { return };
        let Some(said) = Release::read(version) else {
            if image::program(&spec.superlink.image, spec) != Program::Trellis {
                self.note(Diagnostic::warning(
                    "spec.version",
                    format!("{version:?} is not a release of Flower"),
                    format!("write it as \"{}\", or leave it out", Release::NEWEST),
                ));
            }
            return;
        };
        let image = Image::read(&spec.superlink.image);
        if let Some(tagged) = image.official_release().filter(|tagged| tagged.minor != said.minor) {
            let (said, tagged) = (said.series(), tagged.series());
            self.note(Diagnostic::warning(
                "spec.version",
                format!(
                    "it says {said}, and the image {} holds {tagged}: the image takes precedence",
                    spec.superlink.image
                ),
                format!("set spec.version to \"{tagged}.0\", or leave it out"),
            ));
        }
    }

    fn add(&mut self, place: &str, skew: Skew) {
        match skew {
            Skew::Works => {}
            Skew::Differs(what, to_do) => self.note(Diagnostic::warning(place, what, to_do)),
            Skew::CannotWork(what, to_do) => {
                let found = Diagnostic::error(place, what, to_do);
                if !self.problems.contains(&found) {
                    self.problems.push(found);
                }
            }
        }
    }

    fn note(&mut self, note: Diagnostic) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests;
