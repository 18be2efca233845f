//! One look at one federation: what should be, what is, what is to be done about it, and what is told.
//!
//! A failure with one object does not keep the others from being brought to what they should be, nor the status from being told.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::Instant;
use trellis_kube::federation::{Federation, KIND};
use trellis_kube::flower::Programs;
use trellis_kube::ground::durability;
use trellis_kube::object::{self, Cause, Identity, Object, Owner, Verdict, digest, digest_of_live};
use trellis_kube::pod_policy::violations;
use trellis_kube::render::{Durability, Ground, Problem, render};
use trellis_kube::status::{self, Picture, Trouble};
use trellis_kube::upgrade;

use crate::cache::{Key, Seen};
use crate::context::{Context, Findings, Made};
use crate::events::News;
use crate::kinds::{DEPLOYMENT, Kind};
use crate::metrics::State;
use crate::trust::enrol;
use crate::{pods, scaling, trust};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// For what the watches do not show: a stranger's object that goes.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Looks at a federation. Returns when it wants to be looked at again at the latest; `None` if it is gone.
pub async fn pass(context: &Context, key: &Key) -> Option<Duration> {
    let started = Instant::now();
    let Some(seen) = context.cache.seen(key) else {
        forget(context, key);
        return pods::release(context, key).await;
    };
    let (good, again) = match Federation::read(&seen.resource) {
        Ok(federation) if federation.deleted => {
            return Some(pods::release(context, key).await.unwrap_or(context.settings.resync));
        }
        Ok(federation) => {
            let mut pass = Pass {
                context,
                key,
                federation,
                seen,
                troubles: Vec::new(),
                waiting: Vec::new(),
                done: Done::default(),
                failed: false,
                refused: false,
            };
            pass.run().await
        }
        Err(unreadable) => (tell_unreadable(context, key, &seen, &unreadable.to_string()).await, None),
    };
    context.metrics.pass_ended(started.elapsed(), good);
    Some(match good {
        true => {
            context.failures.lock().expect("nobody panics while holding it").remove(key);
            again.unwrap_or(context.settings.resync).min(context.settings.resync)
        }
        false => retry_after(context, key),
    })
}

fn forget(context: &Context, key: &Key) {
    context.metrics.set_state(key, None);
    context.activities.forget(key);
    context.failures.lock().expect("nobody panics while holding it").remove(key);
    context.made.lock().expect("nobody panics while holding it").retain(|(of, _), _| of != key);
}

fn retry_after(context: &Context, key: &Key) -> Duration {
    let mut failures = context.failures.lock().expect("nobody panics while holding it");
    let count = failures.entry(key.clone()).or_default();
    let wait = FIRST_RETRY.saturating_mul(1 << (*count).min(16));
    *count += 1;
    wait.min(LONGEST_RETRY)
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

async fn tell_unreadable(context: &Context, key: &Key, seen: &Seen, why: &str) -> bool {
    let uid = seen.resource["metadata"]["uid"].as_str().unwrap_or_default();
    let news = News {
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
    let wanted = status::status_of_unreadable(why, generation, previous, &now());
    context.metrics.set_state(key, Some(State::Stalled));
    let Some(change) = status::patch(previous, &wanted) else { return true };
    if !context.events.tell(news) {
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

/// What a pass did, for an event.
#[derive(Default)]
struct Done {
    made: Vec<Identity>,
    changed: Vec<Identity>,
    repaired: Vec<String>,
    adopted: Vec<Identity>,
    removed: Vec<Identity>,
    remade: Vec<String>,
}

struct Pass<'a> {
    context: &'a Context,
    key: &'a Key,
    federation: Federation,
    seen: Seen,
    troubles: Vec<Trouble>,
    waiting: Vec<String>,
    done: Done,
    /// The API server said no, or nothing: tried again, later each time.
    failed: bool,
    /// We refuse to do something; only others can change that.
    refused: bool,
}

/// What came of one wanted object.
struct Brought {
    identity: Identity,
    live: Option<Object>,
    what: What,
}

enum What {
    Nothing,
    Applied(Cause),
    Waits(String),
    Deleted(String),
    Refused(Trouble),
    Failed(Trouble),
}

impl Pass<'_> {
    /// Whether all went well, and when to come back at the latest.
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
        self.failed = findings.troubles.iter().any(|trouble| !trouble.lasting || trouble.about.is_some());
        self.troubles.append(&mut findings.troubles);
        self.waiting.append(&mut findings.waiting);
        findings.fields.insert("release".to_owned(), release.into());
        // Before the pods: a node of Flower that is not known yet ends, and is waited for longer and longer.
        let enrolled = enrol::in_pass(self.context, &self.federation, &self.seen, &prepared.keys).await;
        findings.add(enrolled);
        if prepared.is_complete {
            let ground = Ground {
                durability,
                trust: prepared.trust,
                sizes: sizes.sizes,
                operator_namespace: Some(self.context.settings.own_namespace.clone()),
            };
            let rendered = render(&self.federation, &ground);
            self.troubles.extend(rendered.problems.iter().map(Trouble::of_problem));
            let unused = trellis_kube::trust::unused(&self.federation, &self.seen.objects, self.owner());
            let notes: Vec<Problem> = rendered.notes.into_iter().chain(unused).collect();
            findings.conditions.push(status::advice(&notes));
            if rendered.problems.is_empty() {
                self.bring_about(rendered.objects).await;
            }
        }
        let pods = pods::look(self.context, self.key, &self.federation, &self.seen).await;
        self.troubles.extend(pods.troubles);
        self.done.remade.extend(pods.replaced);
        findings.again = [findings.again, pods.again].into_iter().flatten().min();
        self.tell_done();
        let told = self.tell_status(durability, &findings).await;
        let again = if self.waiting.is_empty() && !self.refused { None } else { Some(LOOK_AGAIN) };
        (told && !self.failed, [again, findings.again].into_iter().flatten().min())
    }

    /// Reports the forbidden fields and changes nothing. Existing objects stay as they are.
    async fn refuse(&mut self, forbidden: &[Problem], durability: Durability, release: String) -> bool {
        self.troubles.extend(
            forbidden
                .iter()
                .map(|problem| Trouble { reason: "PodForbidden".to_owned(), ..Trouble::of_problem(problem) }),
        );
        let mut findings = Findings::default();
        findings.fields.insert("release".to_owned(), release.into());
        self.tell_done();
        self.tell_status(durability, &findings).await
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

    async fn bring_about(&mut self, wanted: Vec<Object>) {
        let held = upgrade::held(&self.federation, &wanted, &self.seen.objects);
        self.waiting.extend(held.waits);
        let is_workload = |object: &&Object| {
            let identity = object.identity();
            Kind::find(&identity.api_version, &identity.kind).is_some_and(|kind| kind.is_workload)
        };
        let (mut workloads, others): (Vec<&Object>, Vec<&Object>) = wanted.iter().partition(is_workload);
        workloads.retain(|object| !held.back.contains(&object.identity()));
        let mut failed: Vec<String> = held.back.iter().map(|identity| identity.name.clone()).collect();
        for group in [others, workloads] {
            let results = join_all(group.into_iter().map(|object| self.bring_one(object))).await;
            for result in results {
                if !matches!(result.what, What::Nothing | What::Applied(_)) {
                    failed.push(result.identity.name.clone());
                }
                self.take_in(result);
            }
        }
        // The other kind of a pool goes once the new one is there; a pool that left goes in any case.
        let elsewhere = trellis_kube::trust::kinds(&self.federation);
        let gone: Vec<Object> = object::leftovers(&wanted, &self.seen.objects, self.owner(), elsewhere)
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
                    self.done.removed.push(identity);
                }
                Err(error) => {
                    self.failed = true;
                    self.troubles.push(error.trouble(&identity, "deleted"));
                }
            }
        }
    }

    fn take_in(&mut self, result: Brought) {
        let Brought { identity, live, what } = result;
        match live {
            Some(live) => drop(self.seen.objects.insert(identity.clone(), live)),
            None if matches!(what, What::Deleted(_)) => drop(self.seen.objects.remove(&identity)),
            None => {}
        }
        match what {
            What::Nothing => {}
            What::Applied(Cause::New) => self.done.made.push(identity),
            What::Applied(Cause::Changed) => self.done.changed.push(identity),
            What::Applied(Cause::Drift(place)) => self.done.repaired.push(format!("{identity} at {place}")),
            What::Applied(Cause::Adopt) => self.done.adopted.push(identity),
            What::Waits(what) => self.waiting.push(what),
            What::Deleted(why) => {
                self.done.remade.push(format!("{identity}: {why}"));
                self.waiting.push(format!("{identity} to be made anew: {why}"));
            }
            What::Refused(trouble) => {
                self.refused = true;
                self.troubles.push(trouble);
            }
            What::Failed(trouble) => {
                self.failed = true;
                self.troubles.push(trouble);
            }
        }
    }

    /// Brings one object to what it should be.
    async fn bring_one(&self, wanted: &Object) -> Brought {
        let identity = wanted.identity();
        match self.try_one(wanted, &identity).await {
            Ok((live, what)) => Brought { identity, live, what },
            Err(error) => {
                let trouble = error.trouble(&identity, "applied");
                Brought { identity, live: None, what: What::Failed(trouble) }
            }
        }
    }

    async fn try_one(
        &self,
        wanted: &Object,
        identity: &Identity,
    ) -> Result<(Option<Object>, What), crate::write::WriteError> {
        let (context, namespace) = (self.context, self.federation.namespace.as_str());
        let looked_up;
        let live = match self.seen.objects.get(identity) {
            Some(live) => Some(live),
            // One without our labels has the name perhaps: it must not be overwritten.
            None => {
                looked_up = context.look_up(namespace, wanted).await?;
                looked_up.as_ref()
            }
        };
        let wanted = object::settled(wanted.clone(), live);
        let made = self.made(identity, &wanted);
        match object::compare(&wanted, live, self.owner(), made.as_deref()) {
            Verdict::InSync => Ok((None, What::Nothing)),
            Verdict::Wait(what) => Ok((None, What::Waits(what))),
            Verdict::Refused(refusal) => Ok((
                None,
                What::Refused(Trouble {
                    about: Some(identity.clone()),
                    reason: refusal.reason.to_owned(),
                    message: refusal.message,
                    lasting: true,
                }),
            )),
            Verdict::Recreate { why, keep_pods } => {
                let Some(live) = live else { return Ok((None, What::Nothing)) };
                context.delete(namespace, live, keep_pods).await?;
                Ok((None, What::Deleted(why)))
            }
            Verdict::Apply(cause) => {
                if cause == Cause::Adopt {
                    context.take_over(namespace, &wanted).await?;
                }
                let live = context.apply(namespace, &wanted.marked()).await?;
                self.remember(identity, &wanted, &live);
                Ok((Some(live), What::Applied(cause)))
            }
        }
    }

    /// What the API server made of this very wish, if it was not what we wrote.
    fn made(&self, identity: &Identity, wanted: &Object) -> Option<String> {
        let made = self.context.made.lock().expect("nobody panics while holding it");
        let made = made.get(&(self.key.clone(), identity.clone()))?;
        (made.wanted == digest(&wanted.0)).then(|| made.live.clone())
    }

    fn remember(&self, identity: &Identity, wanted: &Object, live: &Object) {
        let mut all = self.context.made.lock().expect("nobody panics while holding it");
        let place = (self.key.clone(), identity.clone());
        match object::difference(&wanted.0, &live.0) {
            Some(at) => {
                tracing::debug!(federation = %self.key, object = %identity, at, "the API server writes it differently");
                all.insert(place, Made { wanted: digest(&wanted.0), live: digest_of_live(live) });
            }
            None => drop(all.remove(&place)),
        }
    }

    fn tell(&self, is_warning: bool, reason: &str, note: String) {
        let news = News {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: self.federation.uid.clone(),
            kind: KIND,
            is_warning,
            reason: reason.to_owned(),
            note,
        };
        if !self.context.events.tell(news) {
            self.context.metrics.event_lost();
        }
    }

    fn tell_done(&self) {
        let list = |objects: &[Identity]| objects.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let generation = self.federation.generation;
        let told = [
            ("Created", list(&self.done.made)),
            ("Updated", list(&self.done.changed)),
            ("Adopted", list(&self.done.adopted)),
            ("Repaired", self.done.repaired.join(", ")),
            ("Deleted", list(&self.done.removed)),
            ("Recreated", self.done.remade.join(", ")),
        ];
        for (reason, what) in told.into_iter().filter(|(_, what)| !what.is_empty()) {
            tracing::info!(federation = %self.key, generation, what, "{}", reason.to_lowercase());
            self.tell(false, reason, format!("{what} (generation {generation})"));
        }
        for trouble in &self.troubles {
            tracing::warn!(federation = %self.key, generation, reason = trouble.reason, "{}", trouble.message);
            self.tell(true, &trouble.reason, trouble.message.clone());
        }
    }

    /// Returns whether it could be told.
    async fn tell_status(&self, durability: Durability, findings: &Findings) -> bool {
        let previous = &self.seen.resource["status"];
        let owned: BTreeMap<Identity, Object> = self
            .seen
            .objects
            .iter()
            .filter(|(_, object)| object.is_of(self.owner()))
            .map(|(identity, object)| (identity.clone(), object.clone()))
            .collect();
        let picture = Picture {
            federation: &self.federation,
            objects: &owned,
            durability,
            troubles: &self.troubles,
            waiting: &self.waiting,
            conditions: &findings.conditions,
            fields: &findings.fields,
        };
        let wanted = status::status(&picture, previous, &now());
        self.note_state(previous, &wanted, durability);
        let Some(change) = status::patch(previous, &wanted) else { return true };
        match self.context.write_status(self.key, &self.federation.uid, &change).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(federation = %self.key, %error, "the status could not be written; tried again");
                false
            }
        }
    }

    /// For metrics, and an event when it becomes ready.
    fn note_state(&self, previous: &Value, wanted: &Value, durability: Durability) {
        let ready = holds(wanted, status::READY);
        let state = match () {
            () if holds(wanted, status::STALLED) => State::Stalled,
            () if ready && !holds(wanted, status::RECONCILING) => State::Ready,
            () => State::Reconciling,
        };
        self.context.metrics.set_state(self.key, Some(state));
        if ready && !holds(previous, status::READY) {
            let supernodes = wanted["supernodes"].as_str().unwrap_or_default();
            self.tell(false, "Ready", format!("all components are ready, {supernodes} SuperNodes"));
        }
        let superlink =
            |identity: &&Identity| identity.kind == "StatefulSet" && identity.name == self.federation.superlink_name();
        if durability == Durability::Pod && self.done.made.iter().any(|identity| superlink(&identity)) {
            let note = "the SuperLink's state is lost with its pod: the cluster has no default StorageClass, and the resource says \
                        nothing else";
            self.tell(true, "StateNotDurable", note.to_owned());
        }
        if self.done.removed.iter().any(|identity| identity.kind == DEPLOYMENT.kind) {
            let note =
                "an old Deployment of the SuperLink was deleted; the StatefulSet of the same name takes its place";
            self.tell(false, "OldDeploymentRemoved", note.to_owned());
        }
    }
}

fn holds(status: &Value, kind: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|condition| condition["type"] == kind && condition["status"] == "True"))
}
