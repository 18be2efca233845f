//! Versions that do not go together, found before and after things run; and what official Flower cannot promise.

use trellis_spec::{Federation, FlowerVersion, Pool, Runtime};

use super::view::View;
use super::{Step, blueprint};
use crate::report::Weight;

/// From this minor on, official peers refuse those of another minor.
const FIRST_STRICT_MINOR: u16 = 30;
/// What our coordinator serves.
const SERVED_MINORS: std::ops::RangeInclusive<u16> = 25..=42;

/// Why nodes of the pool would be refused by the coordinator, which is certain before they are made.
pub(super) fn hindrance(federation: &Federation, pool: &Pool) -> Option<String> {
    let coordinator = coordinator_version(federation)?;
    let node = pool.image.as_deref().and_then(version_of_image)?;
    let refused = node.minor != coordinator.minor && node.minor.min(coordinator.minor) >= FIRST_STRICT_MINOR;
    refused.then(|| {
        format!(
            "its image has Flower {}, which a SuperLink of {} refuses: use the same minor version",
            text(node),
            text(coordinator)
        )
    })
}

pub(super) fn tell(view: &View<'_>) -> Step {
    let mut step = Step::default();
    for promise in view.federation.promises_lost() {
        step.tell(Weight::Note, "federation", format!("with official Flower: {promise}"));
    }
    for pool in &view.federation.pools {
        let about = format!("pool {}", pool.name);
        if let Some(note) = note(view.federation, pool).filter(|_| hindrance(view.federation, pool).is_none()) {
            step.tell(Weight::Note, &about, note);
        }
        if blueprint::numbers_itself(pool) {
            let text = "sets partition-id itself: that its shards are those of nobody else is its own affair";
            step.tell(Weight::Note, &about, text);
        }
    }
    tell_of_running(view, &mut step);
    step
}

/// What runs as it is wanted, and is of another version than the coordinator all the same.
fn tell_of_running(view: &View<'_>, step: &mut Step) {
    let Some(coordinator) = view.coordinator.sighting.facts().and_then(|facts| facts.version.as_deref()) else {
        return;
    };
    let mut crowd = super::crowd::Crowd::default();
    for node in view.nodes.iter().filter(|node| node.is_updated() && view.coordinator.is_updated()) {
        let version = node.sighting.facts().and_then(|facts| facts.version.as_deref());
        if let Some(version) = version.filter(|version| *version != coordinator) {
            crowd.tell(Weight::Note, &node.key, format!("runs {version}, and the coordinator {coordinator}"));
        }
    }
    crowd.into_step(step);
}

fn note(federation: &Federation, pool: &Pool) -> Option<String> {
    let node = pool.image.as_deref().and_then(version_of_image)?;
    match coordinator_version(federation) {
        None => (!SERVED_MINORS.contains(&node.minor)).then(|| {
            let (first, last) = (SERVED_MINORS.start(), SERVED_MINORS.end());
            format!("its image has Flower {}, and the coordinator is tried with 1.{first} to 1.{last}", text(node))
        }),
        Some(coordinator) if node.minor > coordinator.minor => Some(format!(
            "its image has Flower {}, newer than the SuperLink's {}: upgrade the runtime first",
            text(node),
            text(coordinator)
        )),
        Some(coordinator) if node.minor < coordinator.minor => Some(format!(
            "its image has Flower {}, older than the SuperLink's {}: the image must follow",
            text(node),
            text(coordinator)
        )),
        Some(_) => None,
    }
}

/// `None`: ours, which serves all of them.
fn coordinator_version(federation: &Federation) -> Option<FlowerVersion> {
    match &federation.runtime {
        Runtime::Trellis => None,
        Runtime::Flower(version) => {
            let image = federation.coordinator.image.as_deref().and_then(version_of_image);
            Some(image.unwrap_or(*version))
        }
    }
}

/// The version that an image's tag begins with: `flwr/supernode:1.31.0-py3.12`.
fn version_of_image(image: &str) -> Option<FlowerVersion> {
    let name = image.rsplit_once('/').map_or(image, |(_, name)| name);
    let (_, tag) = name.split('@').next()?.split_once(':')?;
    let mut numbers = tag.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u16>);
    match (numbers.next()?, numbers.next()?, numbers.next()) {
        (Ok(1), Ok(minor), patch) => Some(FlowerVersion { minor, patch: patch.and_then(Result::ok).unwrap_or(0) }),
        _ => None,
    }
}

fn text(version: FlowerVersion) -> String {
    format!("1.{}.{}", version.minor, version.patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_images() {
        let version = |minor, patch| Some(FlowerVersion { minor, patch });
        assert_eq!(version_of_image("flwr/supernode:1.31.0-py3.12"), version(31, 0));
        assert_eq!(version_of_image("registry:5000/flwr/supernode:1.25"), version(25, 0));
        assert_eq!(version_of_image("flwr/supernode:1.42.3@sha256:00"), version(42, 3));
        for none in ["flwr/supernode", "registry:5000/supernode", "mine:latest", "mine:2.0.0", "mine:v1"] {
            assert_eq!(version_of_image(none), None, "{none}");
        }
    }
}
