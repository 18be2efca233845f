//! The suites that every driver and every store must pass, whatever they are made of.
//!
//! A driver's own tests wrap it as a [`Subject`] and run each case of [`driver_cases`] on an empty one, on whatever
//! runtime they like. A case panics where the driver breaks the port's word. Cases wait for events, by the subject's
//! clock, with [`PATIENCE_MS`] as the end of a test that hangs.

mod driver;
pub mod specs;
mod store;

use std::sync::Arc;

use trellis_spec::Name;

use crate::Millis;
use crate::action::{Action, Order, Outcome, Verb};
use crate::clock::Clock;
use crate::driver::{Call, Driver};
use crate::observed::{Observation, Phase, Presence};
use crate::resource::{Desired, Part, ResourceId};

pub use driver::driver_cases;
pub use store::{StoreCase, StoreSubject, store_cases};

/// A driver that has not come to what it was asked for after this long has failed.
pub const PATIENCE_MS: Millis = 120_000;
/// Between two looks.
const LOOK_MS: Millis = 100;

/// A driver under test, with nothing made yet.
pub struct Subject {
    pub driver: Arc<dyn Driver>,
    pub clock: Arc<dyn Clock>,
    /// A site where the driver can make things.
    pub site: Name,
    pub desired: MakeDesired,
}

/// What the driver is to make under an id: something cheap that becomes ready. Another number, another generation.
pub type MakeDesired = Box<dyn Fn(&ResourceId, u32) -> Desired + Send + Sync>;

/// One promise of the port: what it says, and how it is put to the test.
pub type Case = (&'static str, fn(&Subject) -> Call<'_, ()>);

impl Subject {
    pub(self) fn id(&self, federation: &str, part: Part) -> ResourceId {
        let federation = Name::new(federation).expect("the suite's names are names");
        ResourceId { federation, site: self.site.clone(), part }
    }

    pub(self) fn want(&self, id: &ResourceId, variant: u32) -> Desired {
        let desired = (self.desired)(id, variant);
        assert_eq!(desired.id, *id, "the subject makes what it was asked for");
        desired
    }

    pub(self) async fn apply(&self, serial: u64, verb: Verb) -> Outcome {
        self.apply_as(Order { fence: 1, serial }, verb).await
    }

    pub(self) async fn apply_as(&self, order: Order, verb: Verb) -> Outcome {
        self.driver.apply(&Action { order, verb }).await
    }

    /// Asks for something that must be done, or begun.
    pub(self) async fn make(&self, serial: u64, verb: Verb) {
        let text = verb.to_string();
        let outcome = self.apply(serial, verb).await;
        assert!(matches!(outcome, Outcome::Done | Outcome::Started), "{text}: {outcome:?}");
    }

    pub(self) async fn see(&self, id: &ResourceId) -> Presence {
        match self.driver.observe(&id.federation, &id.site).await {
            Observation::Unreachable { why } => panic!("site {} cannot be reached: {why}", id.site),
            Observation::Reached(seen) => match seen.resources.get(id) {
                Some(presence) => presence.clone(),
                None if seen.complete => Presence::Absent,
                None => Presence::Unknown { why: "the observation is not complete".to_owned() },
            },
        }
    }

    /// Looks until it is so.
    pub(self) async fn until(&self, id: &ResourceId, what: &str, is_so: impl Fn(&Presence) -> bool) -> Presence {
        let end_ms = self.clock.now_ms() + PATIENCE_MS;
        loop {
            let presence = self.see(id).await;
            if is_so(&presence) {
                return presence;
            }
            assert!(self.clock.now_ms() < end_ms, "{id} does not become {what}: {presence:?}");
            self.clock.sleep_until(self.clock.now_ms() + LOOK_MS).await;
        }
    }

    pub(self) async fn until_ready(&self, desired: &Desired) -> Presence {
        let is_ready = |presence: &Presence| {
            let phase = presence.facts().map(|facts| &facts.phase);
            assert!(!matches!(phase, Some(Phase::Failed { .. })), "{}: {presence:?}", desired.id);
            phase == Some(&Phase::Ready) && presence.generation() == Some(desired.generation)
        };
        self.until(&desired.id, "ready", is_ready).await
    }

    pub(self) async fn until_absent(&self, id: &ResourceId) {
        self.until(id, "absent", |presence| *presence == Presence::Absent).await;
    }
}
