//! The program in an image, from its reference, `spec.runtime` and `spec.version`.

use trellis_flower::{Image, Program, Release};

use crate::federation::{Runtime, Spec};

/// The program of a SuperLink or SuperNode image.
pub fn program(image: &str, spec: &Spec) -> Program {
    let read = Image::read(image);
    let trellis = match spec.runtime {
        _ if read.official_release().is_some() => false,
        Some(Runtime::Trellis) => !read.is_official(),
        Some(Runtime::Flower) => false,
        None => read.is_trellis(),
    };
    if trellis { Program::Trellis } else { flower(image, spec) }
}

/// The program of a SuperExec image, which is never of Trellis. The tag of an official image has precedence over
/// `spec.version`.
pub fn flower(image: &str, spec: &Spec) -> Program {
    let image = Image::read(image);
    let said = spec.version.as_deref().and_then(Release::read);
    let release = image.official_release().or(said).or_else(|| image.tagged_release());
    release.map_or(Program::Unknown, Program::Flower)
}
