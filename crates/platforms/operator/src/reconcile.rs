//! Reconciles one federation: renders the desired objects, compares them with the observed ones, applies differences,
//! and writes the status.
//!
//! A failure with one object stops neither the other objects nor the status.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::Instant;
use trellis_diagnostic::Diagnostic;
use trellis_kube::durability::durability;
use trellis_kube::federation::{Federation, KIND};
use trellis_kube::flower::Programs;
use trellis_kube::object::{self, Cause, Identity, Object, Owner, Verdict, digest, digest_of_live};
use trellis_kube::pod_policy::violations;
use trellis_kube::render::{Durability, Ground, render};
use trellis_kube::status::{self, Failure, StatusInput};
use trellis_kube::upgrade;

use crate::cache::{Key, Seen};
use crate::context::{Context, Findings, Normalized};
use crate::events::EventDraft;
use crate::kinds::{DEPLOYMENT, Kind};
use crate::metrics::State;
use crate::trust::enrol;
use crate::{pods, scaling, trust};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);
/// Interval of reconciles that wait for changes that are not watched.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Reconciles one federation. Returns the delay until the next reconcile, or `None` if the federation was deleted.
pub async fn reconcile(context: &Context, key: &Key) -> Option<Duration> {
    let started = Instant::now();
    let Some(seen) = context.cache.seen(key) else {
        forget(context, key);
        return pods::release(context, key).await;
    };
    let (succeeded, requeue_after) = match Federation::read(&seen.resource) {
        Ok(federation) if federation.deleted => {
            return Some(pods::release(context, key).await.unwrap_or(context.settings.resync));
        }
        Ok(federation) => {
            let mut reconcile = Reconcile {
                context,
                key,
                federation,
                seen,
                failures: Vec::new(),
                waiting: Vec::new(),
                changes: Changes::default(),
                failed: false,
                refused: false,
            };
            reconcile.run().await
        }
        Err(unreadable) => (report_unreadable(context, key, &seen, &unreadable.to_string()).await, None),
    };
    context.metrics.reconcile_ended(started.elapsed(), succeeded);
    Some(match succeeded {
        true => {
            context.failure_counts.lock().expect("the lock is never poisoned").remove(key);
            requeue_after.unwrap_or(context.settings.resync).min(context.settings.resync)
        }
        false => retry_after(context, key),
    })
}

fn forget(context: &Context, key: &Key) {
    context.metrics.set_state(key, None);
    context.activities.forget(key);
    context.failure_counts.lock().expect("the lock is never poisoned").remove(key);
    context.normalized.lock().expect("the lock is never poisoned").retain(|(of, _), _| of != key);
}

fn retry_after(context: &Context, key: &Key) -> Duration {
    let mut failures = context.failure_counts.lock().expect("the lock is never poisoned");
    let count = failures.entry(key.clone()).or_default();
    let wait = FIRST_RETRY.saturating_mul(1 << (*count).min(16));
    *count += 1;
    wait.min(MAX_RETRY_DELAY)
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

async fn report_unreadable(context: &Context, key: &Key, seen: &Seen, why: &str) -> bool {
    let uid = seen.resource["metadata"]["uid"].as_str().unwrap_or_default();
    let event = EventDraft {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: uid.to_owned(),
        kind: KIND,
        is_warning: true,
        reason: "Unreadable".to_owned(),
        note: why.to_owned(),
    };
    let previous = &seen.resource["status"];
    let generation = seen.resource["metadata"]["generation"].as_i64().unwrap_or_default();
    let desired = status::status_of_unreadable(why, generation, previous, &now());
    context.metrics.set_state(key, Some(State::Stalled));
    let Some(change) = status::patch(previous, &desired) else { return true };
    if !context.events.publish(event) {
        context.metrics.event_lost();
    }
    match context.write_status(key, uid, &change).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(federation = %key, %error, "the status could not be written");
            false
        }
    }
}

/// Changes of one reconcile, for events.
#[derive(Default)]
struct Changes {
    created: Vec<Identity>,
    changed: Vec<Identity>,
    repaired: Vec<String>,
    adopted: Vec<Identity>,
    removed: Vec<Identity>,
    recreated: Vec<String>,
}

struct Reconcile<'a> {
    context: &'a Context,
    key: &'a Key,
    federation: Federation,
    seen: Seen,
    failures: Vec<Failure>,
    waiting: Vec<String>,
    changes: Changes,
    /// A call to the API server failed. It is retried with backoff.
    failed: bool,
    /// An object is in the way that only a user can remove.
    refused: bool,
}

/// Outcome for one desired object.
struct ObjectOutcome {
    identity: Identity,
    live: Option<Object>,
    outcome: Outcome,
}

enum Outcome {
    Nothing,
    Applied(Cause),
    Waits(String),
    Deleted(String),
    Refused(Failure),
    Failed(Failure),
}

impl Reconcile<'_> {
    /// Returns whether all steps succeeded, and the delay until the next reconcile.
    async fn run(&mut self) -> (bool, Option<Duration>) {
        let durability = self.durability();
        let release = Programs::of(&self.federation).shown();
        let mut findings = Findings::default();
        let forbidden = violations(&self.federation, &self.context.settings.pod_policy);
        if !forbidden.is_empty() {
            return (self.refuse(&forbidden, durability, release).await, None);
        }
        let sizes = scaling::sizes(self.context, &self.federation, &self.seen).await;
        findings.add(sizes.findings);
        let prepared = trust::prepare(self.context, &self.federation, &self.seen, &sizes.sizes).await;
        findings.add(prepared.findings);
        self.failed = findings.failures.iter().any(|failure| !failure.permanent || failure.about.is_some());
        self.failures.append(&mut findings.failures);
        self.waiting.append(&mut findings.waiting);
        findings.fields.insert("release".to_owned(), release.into());
        // Before the pods: an official SuperNode with an unknown key ends, and restarts with growing delays.
        let enrolled = enrol::in_reconcile(self.context, &self.federation, &self.seen, &prepared.keys).await;
        findings.add(enrolled);
        if prepared.is_complete {
            let ground = Ground {
                durability,
                trust: prepared.trust,
                sizes: sizes.sizes,
                operator_namespace: Some(self.context.settings.own_namespace.clone()),
                ..Ground::default()
            };
            let rendered = render(&self.federation, &ground);
            self.failures.extend(rendered.problems.iter().map(Failure::of_problem));
            let unused = trellis_kube::trust::unused(&self.federation, &self.seen.objects, self.owner());
            let notes: Vec<Diagnostic> = rendered.notes.into_iter().chain(unused).collect();
            findings.conditions.push(status::advice(&notes));
            if rendered.problems.is_empty() {
                self.apply_all(rendered.objects).await;
            }
        }
        let pods = pods::check(self.context, self.key, &self.federation, &self.seen).await;
        self.failures.extend(pods.failures);
        self.changes.recreated.extend(pods.replaced);
        findings.requeue_after = [findings.requeue_after, pods.requeue_after].into_iter().flatten().min();
        self.publish_changes();
        let reported = self.write_status(durability, &findings).await;
        let requeue_after = if self.waiting.is_empty() && !self.refused { None } else { Some(RECHECK_INTERVAL) };
        (reported && !self.failed, [requeue_after, findings.requeue_after].into_iter().flatten().min())
    }

    /// Reports the forbidden fields and changes nothing. Existing objects stay as they are.
    async fn refuse(&mut self, forbidden: &[Diagnostic], durability: Durability, release: String) -> bool {
        self.failures.extend(
            forbidden
                .iter()
                .map(|problem| Failure { reason: "PodForbidden".to_owned(), ..Failure::of_problem(problem) }),
        );
        let mut findings = Findings::default();
        findings.fields.insert("release".to_owned(), release.into());
        self.publish_changes();
        self.write_status(durability, &findings).await
    }

    fn owner(&self) -> Owner<'_> {
        Owner { name: &self.federation.name, uid: &self.federation.uid }
    }

    fn durability(&self) -> Durability {
        let name = self.federation.superlink_name();
        let id = Identity { api_version: "apps/v1".to_owned(), kind: "StatefulSet".to_owned(), name };
        let live = self.seen.objects.get(&id).filter(|object| object.is_of(self.owner()));
        durability(&self.federation, live, self.context.cache.default_storage())
    }

    async fn apply_all(&mut self, desired: Vec<Object>) {
        let held = upgrade::held(&self.federation, &desired, &self.seen.objects);
        self.waiting.extend(held.waits);
        let is_workload = |object: &&Object| {
            let identity = object.identity();
            Kind::find(&identity.api_version, &identity.kind).is_some_and(|kind| kind.is_workload)
        };
        let (mut workloads, others): (Vec<&Object>, Vec<&Object>) = desired.iter().partition(is_workload);
        workloads.retain(|object| !held.back.contains(&object.identity()));
        let mut failed: Vec<String> = held.back.iter().map(|identity| identity.name.clone()).collect();
        for group in [others, workloads] {
            let results = join_all(group.into_iter().map(|object| self.reconcile_object(object))).await;
            for result in results {
                if !matches!(result.outcome, Outcome::Nothing | Outcome::Applied(_)) {
                    failed.push(result.identity.name.clone());
                }
                self.record_outcome(result);
            }
        }
        // The workload of the other kind is deleted once the new one exists; workloads of removed pools are deleted in
        // any case.
        let elsewhere = trellis_kube::trust::kinds(&self.federation);
        let gone: Vec<Object> = object::leftovers(&desired, &self.seen.objects, self.owner(), elsewhere)
            .filter(|object| !failed.contains(&object.identity().name))
            .cloned()
            .collect();
        let namespace = self.federation.namespace.clone();
        let deletions = gone.iter().map(|object| self.context.delete(&namespace, object, false));
        for (object, answer) in gone.iter().zip(join_all(deletions).await) {
            let identity = object.identity();
            match answer {
                Ok(()) => {
                    self.seen.objects.remove(&identity);
                    self.changes.removed.push(identity);
                }
                Err(error) => {
                    self.failed = true;
                    self.failures.push(error.failure(&identity, "deleted"));
                }
            }
        }
    }

    fn record_outcome(&mut self, result: ObjectOutcome) {
        let ObjectOutcome { identity, live, outcome } = result;
        match live {
            Some(live) => drop(self.seen.objects.insert(identity.clone(), live)),
            None if matches!(outcome, Outcome::Deleted(_)) => drop(self.seen.objects.remove(&identity)),
            None => {}
        }
        match outcome {
            Outcome::Nothing => {}
            Outcome::Applied(Cause::New) => self.changes.created.push(identity),
            Outcome::Applied(Cause::Changed) => self.changes.changed.push(identity),
            Outcome::Applied(Cause::Drift(place)) => self.changes.repaired.push(format!("{identity} at {place}")),
            Outcome::Applied(Cause::Adopt) => self.changes.adopted.push(identity),
            Outcome::Waits(what) => self.waiting.push(what),
            Outcome::Deleted(why) => {
                self.changes.recreated.push(format!("{identity}: {why}"));
                self.waiting.push(format!("{identity} to be created again: {why}"));
            }
            Outcome::Refused(failure) => {
                self.refused = true;
                self.failures.push(failure);
            }
            Outcome::Failed(failure) => {
                self.failed = true;
                self.failures.push(failure);
            }
        }
    }

    /// Reconciles one object.
    async fn reconcile_object(&self, desired: &Object) -> ObjectOutcome {
        let identity = desired.identity();
        match self.try_reconcile_object(desired, &identity).await {
            Ok((live, outcome)) => ObjectOutcome { identity, live, outcome },
            Err(error) => {
                let failure = error.failure(&identity, "applied");
                ObjectOutcome { identity, live: None, outcome: Outcome::Failed(failure) }
            }
        }
    }

    async fn try_reconcile_object(
        &self,
        desired: &Object,
        identity: &Identity,
    ) -> Result<(Option<Object>, Outcome), crate::write::WriteError> {
        let (context, namespace) = (self.context, self.federation.namespace.as_str());
        let looked_up;
        let live = match self.seen.objects.get(identity) {
            Some(live) => Some(live),
            // An object of the same name without our labels must not be overwritten.
            None => {
                looked_up = context.look_up(namespace, desired).await?;
                looked_up.as_ref()
            }
        };
        let desired = object::settled(desired.clone(), live);
        let normalized = self.normalized(identity, &desired);
        match object::compare(&desired, live, self.owner(), normalized.as_deref()) {
            Verdict::InSync => Ok((None, Outcome::Nothing)),
            Verdict::Wait(what) => Ok((None, Outcome::Waits(what))),
            Verdict::Refused(refusal) => Ok((
                None,
                Outcome::Refused(Failure {
                    about: Some(identity.clone()),
                    reason: refusal.reason.to_owned(),
                    message: refusal.message,
                    permanent: true,
                }),
            )),
            Verdict::Recreate { why, keep_pods } => {
                let Some(live) = live else { return Ok((None, Outcome::Nothing)) };
                context.delete(namespace, live, keep_pods).await?;
                Ok((None, Outcome::Deleted(why)))
            }
            Verdict::Apply(cause) => {
                if cause == Cause::Adopt {
                    context.take_over(namespace, &desired).await?;
                }
                let live = context.apply(namespace, &desired.marked()).await?;
                self.remember(identity, &desired, &live);
                Ok((Some(live), Outcome::Applied(cause)))
            }
        }
    }

    /// The normalized form of this desired object, if it differs.
    fn normalized(&self, identity: &Identity, desired: &Object) -> Option<String> {
        let normalized = self.context.normalized.lock().expect("the lock is never poisoned");
        let normalized = normalized.get(&(self.key.clone(), identity.clone()))?;
        (normalized.desired == digest(&desired.0)).then(|| normalized.live.clone())
    }

    fn remember(&self, identity: &Identity, desired: &Object, live: &Object) {
        let mut all = self.context.normalized.lock().expect("the lock is never poisoned");
        let place = (self.key.clone(), identity.clone());
        match object::difference(&desired.0, &live.0) {
            Some(at) => {
                tracing::debug!(federation = %self.key, object = %identity, at, "the API server writes it differently");
                all.insert(place, Normalized { desired: digest(&desired.0), live: digest_of_live(live) });
            }
            None => drop(all.remove(&place)),
        }
    }

    fn publish(&self, is_warning: bool, reason: &str, note: String) {
        let event = EventDraft {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: self.federation.uid.clone(),
            kind: KIND,
            is_warning,
            reason: reason.to_owned(),
            note,
        };
        if !self.context.events.publish(event) {
            self.context.metrics.event_lost();
        }
    }

    fn publish_changes(&self) {
        let list = |objects: &[Identity]| objects.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let generation = self.federation.generation;
        let reported = [
            ("Created", list(&self.changes.created)),
            ("Updated", list(&self.changes.changed)),
            ("Adopted", list(&self.changes.adopted)),
            ("Repaired", self.changes.repaired.join(", ")),
            ("Deleted", list(&self.changes.removed)),
            ("Recreated", self.changes.recreated.join(", ")),
        ];
        for (reason, what) in reported.into_iter().filter(|(_, what)| !what.is_empty()) {
            tracing::info!(federation = %self.key, generation, what, "{}", reason.to_lowercase());
            self.publish(false, reason, format!("{what} (generation {generation})"));
        }
        for failure in &self.failures {
            tracing::warn!(federation = %self.key, generation, reason = failure.reason, "{}", failure.message);
            self.publish(true, &failure.reason, failure.message.clone());
        }
    }

    /// Writes the status. Returns whether that succeeded.
    async fn write_status(&self, durability: Durability, findings: &Findings) -> bool {
        let previous = &self.seen.resource["status"];
        let owned: BTreeMap<Identity, Object> = self
            .seen
            .objects
            .iter()
            .filter(|(_, object)| object.is_of(self.owner()))
            .map(|(identity, object)| (identity.clone(), object.clone()))
            .collect();
        let input = StatusInput {
            federation: &self.federation,
            objects: &owned,
            durability,
            failures: &self.failures,
            waiting: &self.waiting,
            conditions: &findings.conditions,
            fields: &findings.fields,
        };
        let desired = status::status(&input, previous, &now());
        self.update_state(previous, &desired, durability);
        let Some(change) = status::patch(previous, &desired) else { return true };
        match self.context.write_status(self.key, &self.federation.uid, &change).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(federation = %self.key, %error, "the status could not be written; tried requeue_after");
                false
            }
        }
    }

    /// Updates the metric, and emits an event when the federation becomes ready.
    fn update_state(&self, previous: &Value, desired: &Value, durability: Durability) {
        let ready = holds(desired, status::READY);
        let state = match () {
            () if holds(desired, status::STALLED) => State::Stalled,
            () if ready && !holds(desired, status::RECONCILING) => State::Ready,
            () => State::Reconciling,
        };
        self.context.metrics.set_state(self.key, Some(state));
        if ready && !holds(previous, status::READY) {
            let supernodes = desired["supernodes"].as_str().unwrap_or_default();
            self.publish(false, "Ready", format!("all components are ready, {supernodes} SuperNodes"));
        }
        let superlink =
            |identity: &&Identity| identity.kind == "StatefulSet" && identity.name == self.federation.superlink_name();
        if durability == Durability::Pod && self.changes.created.iter().any(|identity| superlink(&identity)) {
            let note = "the SuperLink's state is lost with its pod: the cluster has no default StorageClass, and the resource says \
                        nothing else";
            self.publish(true, "StateNotDurable", note.to_owned());
        }
        if self.changes.removed.iter().any(|identity| identity.kind == DEPLOYMENT.kind) {
            let note =
                "an old Deployment of the SuperLink was deleted; the StatefulSet of the same name takes its place";
            self.publish(false, "OldDeploymentRemoved", note.to_owned());
        }
    }
}

fn holds(status: &Value, kind: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|condition| condition["type"] == kind && condition["status"] == "True"))
}
