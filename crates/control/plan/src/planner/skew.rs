//! Versions that do not go together, found before and after things run; and what official Flower cannot promise.

use trellis_flower::{Image, Program, Skew, skew};
use trellis_spec::{Federation, Pool, Runtime};

use super::view::View;
use super::{Step, blueprint};
use crate::report::Weight;

/// Why nodes of the pool cannot connect to the coordinator, known before they are created.
pub(super) fn hindrance(federation: &Federation, pool: &Pool) -> Option<String> {
    match with_coordinator(federation, pool) {
        Skew::CannotWork(what, advice) => Some(format!("{what}: {advice}")),
        Skew::Works | Skew::Differs(..) => None,
    }
}

pub(super) fn tell(view: &View<'_>) -> Step {
    let mut step = Step::default();
    for promise in view.federation.promises_lost() {
        step.tell(Weight::Note, "federation", format!("with official Flower: {promise}"));
    }
    for pool in &view.federation.pools {
        let about = format!("pool {}", pool.name);
        if let Skew::Differs(what, advice) = with_coordinator(view.federation, pool) {
            step.tell(Weight::Note, &about, format!("{what}: {advice}"));
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

fn with_coordinator(federation: &Federation, pool: &Pool) -> Skew {
    let program = |image: Option<&str>| program(image, &federation.runtime);
    skew::fleet(program(federation.coordinator.image.as_deref()), program(pool.image.as_deref()))
}

/// An image that names no release holds the programs of the runtime.
fn program(image: Option<&str>, runtime: &Runtime) -> Program {
    let tagged = image.map(Image::read).filter(|image| !image.is_trellis()).and_then(|image| image.tagged_release());
    tagged.map_or_else(|| runtime.program(), Program::Flower)
}
