//! The program that an image holds, by its reference, `spec.runtime` and `spec.version`.

use trellis_flower::{Image, Program, Release};

use crate::federation::{Runtime, Spec};

/// Of a SuperLink or a SuperNode.
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

/// Of a SuperExec: Trellis has none. The tag of an official image has precedence over `spec.version`.
pub fn flower(image: &str, spec: &Spec) -> Program {
    let image = Image::read(image);
    let said = spec.version.as_deref().and_then(Release::read);
    let release = image.official_release().or(said).or_else(|| image.tagged_release());
    release.map_or(Program::Unknown, Program::Flower)
}
