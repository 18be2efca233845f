//! What every driver promises.

use trellis_spec::Name;

use super::{Case, Subject};
use crate::action::{Order, Outcome, Verb};
use crate::observed::{Phase, Presence};
use crate::resource::{Desired, NodeKey, Part, ResourceId};

/// All cases. Each needs a subject of its own.
pub fn driver_cases() -> Vec<Case> {
    vec![
        ("nothing is there at first, and that is certain", |subject| Box::pin(nothing_at_first(subject))),
        ("what is made is seen at once and becomes ready", |subject| Box::pin(made(subject))),
        ("a coordinator says where it is reached", |subject| Box::pin(addresses(subject))),
        ("a node says which shard it has", |subject| Box::pin(shard(subject))),
        ("making again what is there changes nothing", |subject| Box::pin(made_twice(subject))),
        ("what is replaced is of the new generation", |subject| Box::pin(replaced(subject))),
        ("replacing by what is there changes nothing", |subject| Box::pin(replaced_by_itself(subject))),
        ("a restart is another instance of the same", |subject| Box::pin(restarted(subject))),
        ("an instance that is gone is not restarted", |subject| Box::pin(restarted_once(subject))),
        ("who drains says so, and a restart ends it", |subject| Box::pin(drained(subject))),
        ("what is deleted is gone, and may be deleted again", |subject| Box::pin(deleted(subject))),
        ("what was deleted can be made again", |subject| Box::pin(made_after_deletion(subject))),
        ("an earlier action is refused", |subject| Box::pin(earlier_action(subject))),
        ("an earlier controller is refused", |subject| Box::pin(earlier_controller(subject))),
        ("a repeated action is done once", |subject| Box::pin(repeated(subject))),
        ("federations do not see each other", |subject| Box::pin(two_federations(subject))),
        ("many are made at once", |subject| Box::pin(many(subject))),
    ]
}

fn node(subject: &Subject, index: u32) -> ResourceId {
    let pool = Name::new("pool").expect("a name");
    subject.id("demo", Part::Node(NodeKey { pool, index }))
}

fn coordinator(subject: &Subject) -> ResourceId {
    subject.id("demo", Part::Coordinator)
}

/// A node that is ready.
async fn ready(subject: &Subject) -> (Desired, Presence) {
    let desired = subject.want(&node(subject, 0), 0);
    subject.make(1, Verb::Create(desired.clone())).await;
    let presence = subject.until_ready(&desired).await;
    (desired, presence)
}

fn instance(presence: &Presence) -> u64 {
    presence.facts().map(|facts| facts.instance).unwrap_or_else(|| panic!("it is not there: {presence:?}"))
}

fn restart(desired: &Desired, instance: u64) -> Verb {
    Verb::Restart { id: desired.id.clone(), generation: desired.generation, instance }
}

async fn nothing_at_first(subject: &Subject) {
    assert_eq!(subject.see(&coordinator(subject)).await, Presence::Absent);
    assert_eq!(subject.see(&node(subject, 0)).await, Presence::Absent);
}

async fn made(subject: &Subject) {
    let desired = subject.want(&node(subject, 0), 0);
    subject.make(1, Verb::Create(desired.clone())).await;
    let presence = subject.see(&desired.id).await;
    assert_eq!(presence.generation(), Some(desired.generation), "it is seen as soon as it is begun: {presence:?}");
    let presence = subject.until_ready(&desired).await;
    assert!(!presence.facts().is_some_and(|facts| facts.draining), "{presence:?}");
}

async fn addresses(subject: &Subject) {
    let desired = subject.want(&coordinator(subject), 0);
    subject.make(1, Verb::Create(desired.clone())).await;
    let presence = subject.until_ready(&desired).await;
    let addresses = &presence.facts().expect("it is there").addresses;
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
    subject.make(2, Verb::Create(desired.clone())).await;
    assert_eq!(instance(&subject.see(&desired.id).await), instance(&before), "what runs is not disturbed");
}

async fn replaced(subject: &Subject) {
    let (old, before) = ready(subject).await;
    let new = subject.want(&old.id, 1);
    assert_ne!(new.generation, old.generation, "another variant is another generation");
    subject.make(2, Verb::Replace(new.clone())).await;
    let after = subject.until_ready(&new).await;
    assert_ne!(instance(&after), instance(&before));
}

async fn replaced_by_itself(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.make(2, Verb::Replace(desired.clone())).await;
    assert_eq!(instance(&subject.see(&desired.id).await), instance(&before), "what runs is not disturbed");
}

async fn restarted(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.make(2, restart(&desired, instance(&before))).await;
    let is_another = |presence: &Presence| presence.facts().is_some_and(|facts| facts.instance != instance(&before));
    subject.until(&desired.id, "another instance", is_another).await;
    subject.until_ready(&desired).await;
}

async fn restarted_once(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.make(2, restart(&desired, instance(&before))).await;
    let after = subject.until_ready(&desired).await;
    subject.make(3, restart(&desired, instance(&before))).await;
    let again = subject.until_ready(&desired).await;
    assert_eq!(instance(&again), instance(&after), "the one that was to be restarted is gone");
}

async fn drained(subject: &Subject) {
    if !subject.driver.capabilities().drain {
        return;
    }
    let (desired, _) = ready(subject).await;
    subject.make(2, Verb::Drain { id: desired.id.clone() }).await;
    let drains = |presence: &Presence| presence.facts().is_some_and(|facts| facts.draining);
    let drained = subject.until(&desired.id, "draining", drains).await;
    subject.make(3, restart(&desired, instance(&drained))).await;
    let serves = |presence: &Presence| presence.facts().is_some_and(|facts| facts.serves());
    subject.until(&desired.id, "at work again", serves).await;
}

async fn deleted(subject: &Subject) {
    let (desired, _) = ready(subject).await;
    subject.make(2, Verb::Delete { id: desired.id.clone() }).await;
    let presence = subject.see(&desired.id).await;
    let goes = presence.facts().is_none_or(|facts| facts.phase == Phase::Stopping);
    assert!(goes, "it is seen to stop, or gone: {presence:?}");
    subject.until_absent(&desired.id).await;
    subject.make(3, Verb::Delete { id: desired.id.clone() }).await;
}

async fn made_after_deletion(subject: &Subject) {
    let (desired, _) = ready(subject).await;
    subject.make(2, Verb::Delete { id: desired.id.clone() }).await;
    subject.until_absent(&desired.id).await;
    subject.make(3, Verb::Create(desired.clone())).await;
    subject.until_ready(&desired).await;
}

async fn earlier_action(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    subject.make(5, Verb::Create(desired.clone())).await;
    let outcome = subject.apply(4, Verb::Delete { id: desired.id.clone() }).await;
    assert!(matches!(outcome, Outcome::Refused { .. }), "it was under way too long: {outcome:?}");
    assert_eq!(instance(&subject.see(&desired.id).await), instance(&before));
}

async fn earlier_controller(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    let later = Order { fence: 2, serial: 2 };
    let outcome = subject.apply_as(later, Verb::Create(desired.clone())).await;
    assert_eq!(outcome, Outcome::Done);
    // The later controller said nothing of the other resource, but it owns the federation.
    let other = subject.want(&node(subject, 1), 0);
    let outcome = subject.apply_as(Order { fence: 1, serial: 9 }, Verb::Create(other.clone())).await;
    assert!(matches!(outcome, Outcome::Refused { .. }), "another controller took over: {outcome:?}");
    assert_eq!(subject.see(&other.id).await, Presence::Absent);
    assert_eq!(instance(&subject.see(&desired.id).await), instance(&before));
}

async fn repeated(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    let verb = restart(&desired, instance(&before));
    subject.make(2, verb.clone()).await;
    let after = subject.until_ready(&desired).await;
    subject.make(2, verb).await;
    assert_eq!(instance(&subject.until_ready(&desired).await), instance(&after));
}

async fn two_federations(subject: &Subject) {
    let (desired, before) = ready(subject).await;
    let other = ResourceId { federation: Name::new("other").expect("a name"), ..desired.id.clone() };
    assert_eq!(subject.see(&other).await, Presence::Absent);
    subject.make(1, Verb::Delete { id: other }).await;
    assert_eq!(instance(&subject.see(&desired.id).await), instance(&before), "the namesake is left alone");
}

async fn many(subject: &Subject) {
    let wanted: Vec<Desired> = (0..3).map(|index| subject.want(&node(subject, index), 0)).collect();
    let make = |(serial, desired): (u64, &Desired)| subject.make(serial, Verb::Create(desired.clone()));
    futures_util::future::join_all((1..).zip(&wanted).map(make)).await;
    for desired in &wanted {
        subject.until_ready(desired).await;
    }
}
