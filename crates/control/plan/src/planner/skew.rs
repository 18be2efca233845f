//! Version skew between nodes and coordinator, before and after they run; and guarantees that official Flower does not give.

use trellis_flower::{Image, Program, Skew, skew};
use trellis_spec::{Federation, Pool, Runtime};

use super::view::View;
use super::{Step, blueprint};
use crate::report::Weight;

/// Why nodes of the pool cannot connect to the coordinator, known before they are created.
pub(super) fn blocker(federation: &Federation, pool: &Pool) -> Option<String> {
    match with_coordinator(federation, pool) {
        Skew::CannotWork(what, advice) => Some(format!("{what}: {advice}")),
        Skew::Works | Skew::Differs(..) => None,
    }
}

pub(super) fn report(view: &View<'_>) -> Step {
    let mut step = Step::default();
    for promise in view.federation.promises_lost() {
        step.report(Weight::Note, "federation", format!("with official Flower: {promise}"));
    }
    for pool in &view.federation.pools {
        let about = format!("pool {}", pool.name);
        if let Skew::Differs(what, advice) = with_coordinator(view.federation, pool) {
            step.report(Weight::Note, &about, format!("{what}: {advice}"));
        }
        if blueprint::sets_partition_id(pool) {
            let text = "sets partition-id itself: the document must give each node its own shard";
            step.report(Weight::Note, &about, text);
        }
    }
    report_running(view, &mut step);
    step
}

/// Reports up-to-date nodes that run another version than the coordinator.
fn report_running(view: &View<'_>, step: &mut Step) {
    let Some(coordinator) = view.coordinator.presence.facts().and_then(|facts| facts.version.as_deref()) else {
        return;
    };
    let mut grouped = super::grouped::GroupedReport::default();
    for node in view.nodes.iter().filter(|node| node.is_updated() && view.coordinator.is_updated()) {
        let version = node.presence.facts().and_then(|facts| facts.version.as_deref());
        if let Some(version) = version.filter(|version| *version != coordinator) {
            grouped.add(Weight::Note, &node.key, format!("runs {version}, and the coordinator runs {coordinator}"));
        }
    }
    grouped.into_step(step);
}

fn with_coordinator(federation: &Federation, pool: &Pool) -> Skew {
    let program = |image: Option<&str>| program(image, &federation.runtime);
    skew::fleet(program(federation.coordinator.image.as_deref()), program(pool.image.as_deref()))
}

/// If the tag of an image names no release, the image holds the programs of the runtime.
fn program(image: Option<&str>, runtime: &Runtime) -> Program {
    let tagged = image.map(Image::read).filter(|image| !image.is_trellis()).and_then(|image| image.tagged_release());
    tagged.map_or_else(|| runtime.program(), Program::Flower)
}
