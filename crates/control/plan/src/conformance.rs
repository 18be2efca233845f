//! The conformance suites that every driver and every store must pass.
//!
//! The tests of a driver wrap it as a [`Subject`], and run each case of [`driver_cases`] on an empty one, with any async runtime. A
//! case panics if the driver breaks a guarantee of the port. Cases poll on the clock of the subject, with [`TIMEOUT_MS`] as the
//! limit of each wait.

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

/// A driver that has not completed an action after this time has failed.
pub const TIMEOUT_MS: Millis = 120_000;
const POLL_INTERVAL_MS: Millis = 100;

/// An empty driver under test.
pub struct Subject {
    pub driver: Arc<dyn Driver>,
    pub clock: Arc<dyn Clock>,
    /// A site at which the driver can create resources.
    pub site: Name,
    pub desired: MakeDesired,
}

/// The desired state for an id: something cheap that becomes ready. Each number has its own generation.
pub type MakeDesired = Box<dyn Fn(&ResourceId, u32) -> Desired + Send + Sync>;

/// A guarantee of the port: its name, and the test of it.
pub type Case = (&'static str, fn(&Subject) -> Call<'_, ()>);

impl Subject {
    pub(self) fn id(&self, federation: &str, part: Part) -> ResourceId {
        let federation = Name::new(federation).expect("a valid name");
        ResourceId { federation, site: self.site.clone(), part }
    }

    pub(self) fn desired_state(&self, id: &ResourceId, variant: u32) -> Desired {
        let desired = (self.desired)(id, variant);
        assert_eq!(desired.id, *id, "the subject changes the id");
        desired
    }

    pub(self) async fn apply(&self, serial: u64, verb: Verb) -> Outcome {
        self.apply_as(Order { fence: 1, serial }, verb).await
    }

    pub(self) async fn apply_as(&self, order: Order, verb: Verb) -> Outcome {
        self.driver.apply(&Action { order, verb }).await
    }

    /// Applies an action, which must be completed or started.
    pub(self) async fn apply_accepted(&self, serial: u64, verb: Verb) {
        let text = verb.to_string();
        let outcome = self.apply(serial, verb).await;
        assert!(matches!(outcome, Outcome::Done | Outcome::Started), "{text}: {outcome:?}");
    }

    pub(self) async fn observe(&self, id: &ResourceId) -> Presence {
        match self.driver.observe(&id.federation, &id.site).await {
            Observation::Unreachable { why } => panic!("site {} cannot be reached: {why}", id.site),
            Observation::Reached(site) => match site.resources.get(id) {
                Some(presence) => presence.clone(),
                None if site.complete => Presence::Absent,
                None => Presence::Unknown { why: "the observation is not complete".to_owned() },
            },
        }
    }

    /// Polls until the condition holds.
    pub(self) async fn until(&self, id: &ResourceId, what: &str, is_so: impl Fn(&Presence) -> bool) -> Presence {
        let end_ms = self.clock.now_ms() + TIMEOUT_MS;
        loop {
            let presence = self.observe(id).await;
            if is_so(&presence) {
                return presence;
            }
            assert!(self.clock.now_ms() < end_ms, "{id} does not become {what}: {presence:?}");
            self.clock.sleep_until(self.clock.now_ms() + POLL_INTERVAL_MS).await;
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
