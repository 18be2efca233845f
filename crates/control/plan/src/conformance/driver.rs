//! The guarantees of every driver.

use trellis_spec::Name;

use super::{Case, Subject};
use crate::action::{Order, Outcome, Verb};
use crate::observed::{Phase, Presence};
use crate::resource::{Desired, NodeKey, Part, ResourceId};

/// All cases. Each needs a subject of its own.
pub fn driver_cases() -> Vec<Case> {
    vec![
        ("the first observation is empty and complete", |subject| Box::pin(nothing_at_first(subject))),
        ("a created resource is observed at once and becomes ready", |subject| Box::pin(made(subject))),
        ("a coordinator reports its addresses", |subject| Box::pin(addresses(subject))),
        ("a node reports its shard", |subject| Box::pin(shard(subject))),
        ("a repeated create changes nothing", |subject| Box::pin(made_twice(subject))),
        ("a replaced resource has the new generation", |subject| Box::pin(replaced(subject))),
        ("replacing by the same generation changes nothing", |subject| Box::pin(replaced_by_itself(subject))),
        ("a restart starts another instance of the same generation", |subject| Box::pin(restarted(subject))),
        ("a restart of an earlier instance changes nothing", |subject| Box::pin(restarted_once(subject))),
        ("a draining node reports it, and a restart ends the drain", |subject| Box::pin(drained(subject))),
        ("a deleted resource is absent, and deletion is idempotent", |subject| Box::pin(deleted(subject))),
        ("a deleted resource can be created again", |subject| Box::pin(made_after_deletion(subject))),
        ("an earlier action is refused", |subject| Box::pin(earlier_action(subject))),
        ("an earlier controller is refused", |subject| Box::pin(earlier_controller(subject))),
        ("a repeated action is applied once", |subject| Box::pin(repeated(subject))),
        ("federations are separate", |subject| Box::pin(two_federations(subject))),
        ("many resources are created at once", |subject| Box::pin(many(subject))),
    ]
}

fn node(subject: &Subject, index: u32) -> ResourceId {
    let pool = Name::new("pool").expect("a name");
    subject.id("demo", Part::Node(NodeKey { pool, index }))
}

fn coordinator(subject: &Subject) -> ResourceId {
    subject.id("demo", Part::Coordinator)
}

/// Creates a node and waits until it is ready.
async fn ready(subject: &Subject) -> (Desired, Presence) {
    let desired = subject.desired_state(&node(subject, 0), 0);
    subject.apply_accepted(1, Verb::Create(desired.clone())).await;
    let presence = subject.until_ready(&desired).await;
    (desired, presence)
}

fn instance(presence: &Presence) -> u64 {
    presence.facts().map(|facts| facts.instance).unwrap_or_else(|| panic!("it is not present: {presence:?}"))
}

fn restart(desired: &Desired, instance: u64) -> Verb {
    Verb::Restart { id: desired.id.clone(), generation: desired.generation, instance }
}

async fn nothing_at_first(subject: &Subject) {
    assert_eq!(subject.observe(&coordinator(subject)).await, Presence::Absent);
    assert_eq!(subject.observe(&node(subject, 0)).await, Presence::Absent);
}

async fn made(subject: &Subject) {
    let desired = subject.desired_state(&node(subject, 0), 0);
    subject.apply_accepted(1, Verb::Create(desired.clone())).await;
    let presence = subject.observe(&desired.id).await;
    assert_eq!(
        presence.generation(),
        Some(desired.generation),
        "it is observed as soon as it is started: {presence:?}"
    );
    let presence = subject.until_ready(&desired).await;
    assert!(!presence.facts().is_some_and(|facts| facts.draining), "{presence:?}");
}

async fn addresses(subject: &Subject) {
    let desired = subject.desired_state(&coordinator(subject), 0);
    subject.apply_accepted(1, Verb::Create(desired.clone())).await;
    let presence = subject.until_ready(&desired).await;
    let addresses = &presence.facts().expect("it is present").addresses;
    for address in [&addresses.fleet, &addresses.control] {
        let port = address.as_deref().and_then(|address| address.rsplit_once(':')).map(|(_, port)| port.parse::<u16>());
        assert!(matches!(port, Some(Ok(1..))), "nodes and users need an address with a port: {addresses:?}");
    }
}

async fn shard(subject: &Subject) {
    let (desired, presence) = ready(subject).await;
    assert_eq!(presence.facts().and_then(|facts| facts.shard), desired.spec.shard());
}

async fn made_twice(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.apply_accepted(2, Verb::Create(desired.clone())).await;
    assert_eq!(instance(&subject.observe(&desired.id).await), instance(&before), "a running process was disturbed");
}

async fn replaced(subject: &Subject) {
    let (old, before) = ready(subject).await;
    let new = subject.desired_state(&old.id, 1);
    assert_ne!(new.generation, old.generation, "another variant is another generation");
    subject.apply_accepted(2, Verb::Replace(new.clone())).await;
    let after = subject.until_ready(&new).await;
    assert_ne!(instance(&after), instance(&before));
}

async fn replaced_by_itself(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.apply_accepted(2, Verb::Replace(desired.clone())).await;
    assert_eq!(instance(&subject.observe(&desired.id).await), instance(&before), "a running process was disturbed");
}

async fn restarted(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.apply_accepted(2, restart(&desired, instance(&before))).await;
    let is_another = |presence: &Presence| presence.facts().is_some_and(|facts| facts.instance != instance(&before));
    subject.until(&desired.id, "another instance", is_another).await;
    subject.until_ready(&desired).await;
}

async fn restarted_once(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.apply_accepted(2, restart(&desired, instance(&before))).await;
    let after = subject.until_ready(&desired).await;
    subject.apply_accepted(3, restart(&desired, instance(&before))).await;
    let again = subject.until_ready(&desired).await;
    assert_eq!(instance(&again), instance(&after), "the observed instance had ended already");
}

async fn drained(subject: &Subject) {
    if !subject.driver.capabilities().drain {
        return;
    }
    let (desired, _) = ready(subject).await;
    subject.apply_accepted(2, Verb::Drain { id: desired.id.clone() }).await;
    let drains = |presence: &Presence| presence.facts().is_some_and(|facts| facts.draining);
    let drained = subject.until(&desired.id, "draining", drains).await;
    subject.apply_accepted(3, restart(&desired, instance(&drained))).await;
    let serves = |presence: &Presence| presence.facts().is_some_and(|facts| facts.serves());
    subject.until(&desired.id, "ready and not draining", serves).await;
}

async fn deleted(subject: &Subject) {
    let (desired, _) = ready(subject).await;
    subject.apply_accepted(2, Verb::Delete { id: desired.id.clone() }).await;
    let presence = subject.observe(&desired.id).await;
    let goes = presence.facts().is_none_or(|facts| facts.phase == Phase::Stopping);
    assert!(goes, "it is neither stopping nor absent: {presence:?}");
    subject.until_absent(&desired.id).await;
    subject.apply_accepted(3, Verb::Delete { id: desired.id.clone() }).await;
}

async fn made_after_deletion(subject: &Subject) {
    let (desired, _) = ready(subject).await;
    subject.apply_accepted(2, Verb::Delete { id: desired.id.clone() }).await;
    subject.until_absent(&desired.id).await;
    subject.apply_accepted(3, Verb::Create(desired.clone())).await;
    subject.until_ready(&desired).await;
}

async fn earlier_action(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.apply_accepted(5, Verb::Create(desired.clone())).await;
    let outcome = subject.apply(4, Verb::Delete { id: desired.id.clone() }).await;
    assert!(matches!(outcome, Outcome::Refused { .. }), "it is earlier than the last action: {outcome:?}");
    assert_eq!(instance(&subject.observe(&desired.id).await), instance(&before));
}

async fn earlier_controller(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    let later = Order { fence: 2, serial: 2 };
    let outcome = subject.apply_as(later, Verb::Create(desired.clone())).await;
    assert_eq!(outcome, Outcome::Done);
    // The later controller sent no action for the other resource, but it owns the federation.
    let other = subject.desired_state(&node(subject, 1), 0);
    let outcome = subject.apply_as(Order { fence: 1, serial: 9 }, Verb::Create(other.clone())).await;
    assert!(matches!(outcome, Outcome::Refused { .. }), "it is from an earlier controller: {outcome:?}");
    assert_eq!(subject.observe(&other.id).await, Presence::Absent);
    assert_eq!(instance(&subject.observe(&desired.id).await), instance(&before));
}

async fn repeated(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    let verb = restart(&desired, instance(&before));
    subject.apply_accepted(2, verb.clone()).await;
    let after = subject.until_ready(&desired).await;
    subject.apply_accepted(2, verb).await;
    assert_eq!(instance(&subject.until_ready(&desired).await), instance(&after));
}

async fn two_federations(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    let other = ResourceId { federation: Name::new("other").expect("a name"), ..desired.id.clone() };
    assert_eq!(subject.observe(&other).await, Presence::Absent);
    subject.apply_accepted(1, Verb::Delete { id: other }).await;
    assert_eq!(
        instance(&subject.observe(&desired.id).await),
        instance(&before),
        "the part of the same name was changed"
    );
}

async fn many(subject: &Subject) {
    let wanted: Vec<Desired> = (0..3).map(|index| subject.desired_state(&node(subject, index), 0)).collect();
    let make = |(serial, desired): (u64, &Desired)| subject.apply_accepted(serial, Verb::Create(desired.clone()));
    futures_util::future::join_all((1..).zip(&wanted).map(make)).await;
    for desired in &wanted {
        subject.until_ready(desired).await;
    }
}
