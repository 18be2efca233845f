//! A model test: random steps of three nodes and two runs that share objects. After every step the tables must be
//! consistent: see [`invariants`].
//!
//! `PROPTEST_CASES` raises the number of sequences. A failing sequence is minimised and printed.

mod invariants;
mod step;
mod world;

use proptest::prelude::*;

use step::{Step, steps};
use world::World;

/// Sequences in a plain test run, which take some seconds.
const CASES: u32 = 100;
const MAX_STEPS: usize = 120;

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn after_every_step_the_tables_are_consistent(steps in steps(MAX_STEPS)) {
        let mut world = World::new();
        invariants::check(&world)?;
        for step in steps {
            world.take(&step);
            invariants::check(&world).map_err(|why| TestCaseError::fail(format!("after {step:?}: {why}")))?;
        }
        world.finish_all();
        invariants::check(&world)?;
        prop_assert_eq!(world.object_count(), 0, "objects after the end of all runs");
    }
}

/// Checks that a fixed sequence reaches every state of a message.
#[test]
fn the_model_reaches_every_state() {
    use Step::*;
    let mut world = World::new();
    let life = [
        PushMessage { run: 0, node: 0, body: 0 },
        Arrive { pick: 0, many: 100 },
        PushMessage { run: 1, node: 0, body: 0 },
        PushMessage { run: 1, node: 1, body: 1 },
        Arrive { pick: 0, many: 1 },
        Pull { node: 0 },
        Confirm { node: 0, message: 0 },
        PushReply { message: 0, version: 0, body: 2 },
    ];
    let mut seen = std::collections::HashSet::new();
    for step in life.into_iter().chain([Arrive { pick: 0, many: 100 }]) {
        world.take(&step);
        invariants::check(&world).unwrap();
        seen.extend(world.message_states());
    }
    assert_eq!(seen.len(), trellis_core::message::State::ALL.len(), "only {seen:?}");
    world.take(&Collect { run: 0 });
    world.take(&ConfirmReplies { run: 0 });
    invariants::check(&world).unwrap();
    assert_eq!(world.message_states().len(), 2, "the answered message was deleted");
}
