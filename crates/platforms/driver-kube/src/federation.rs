//! One federation at one site: executes orders, observes all parts, and completes what was started.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trellis_clock::now_ms;
use trellis_kube::render::Trust;
use trellis_plan::{
    Action, Capacity, Desired, Observation, ObservedSite, Outcome, ResourceId, Spec, TrustElsewhere, Verb,
};
use trellis_spec::{Name, Persistence, Runtime, Tls};

use crate::client_files::ClientFiles;
use crate::cluster::{Cluster, EVENT, POD, SERVICE, STATEFUL_SET, STORAGE_CLASS};
use crate::enrolment;
use crate::failure::{Failure, FailureKind};
use crate::manifests::{Manifests, has_same_claims, manifests, merged, owned, scaled_to_zero};
use crate::names::{self, ObjectNames};
use crate::observation::{addresses, observed_parts, service_host};
use crate::orders::{self, StoredOrders};
use crate::record::{Record, Transition};
use crate::resource::{Context, resource};
use crate::snapshot::{Snapshot, is_ready, is_stopping, record};
use crate::superlink::{self, SuperLinkReport};
use crate::trust::{self, Owner};

/// Attempts to write a workload that others write too, such as the controller of StatefulSets.
const MAX_ATTEMPTS: u32 = 8;
/// Interval of checks for certificates that are due.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval of queries to a SuperLink that does not respond.
const SUPERLINK_RETRY_INTERVAL: Duration = Duration::from_secs(30);
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub struct FederationAtSite {
    pub federation: Name,
    pub site: Name,
    pub cluster: Arc<Cluster>,
    pub files: ClientFiles,
    pub trust: TrustElsewhere,
    pub memory: Arc<Memory>,
}

/// State between calls. It is rebuilt from the cluster after a restart.
#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Why parts have no pod yet.
    failures: BTreeMap<ResourceId, String>,
    /// The last observation had a part whose creation is incomplete.
    is_incomplete: bool,
    is_maintaining: bool,
    maintained_at: Option<Instant>,
    has_client_files: bool,
    /// Last time that the SuperLink did not respond.
    superlink_failed_at: Option<Instant>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether maintenance is due. The caller ends it with [`Memory::end_maintenance`].
    pub fn start_maintenance(&self) -> bool {
        let mut state = self.lock();
        let due = state.maintained_at.is_none_or(|at| at.elapsed() >= MAINTENANCE_INTERVAL);
        let starts = !state.is_maintaining && (state.is_incomplete || due);
        state.is_maintaining |= starts;
        starts
    }

    fn end_maintenance(&self) {
        let mut state = self.lock();
        state.is_maintaining = false;
        state.maintained_at = Some(Instant::now());
    }

    fn record_failure(&self, id: &ResourceId, failure: Option<&Failure>) {
        let mut state = self.lock();
        match failure {
            Some(failure) => drop(state.failures.insert(id.clone(), failure.why.clone())),
            None => drop(state.failures.remove(id)),
        }
    }
}

impl FederationAtSite {
    pub async fn observe(&self) -> Observation {
        match self.snapshot().await {
            Err(Failure { why, .. }) => Observation::Unreachable { why },
            Ok(snapshot) => {
                self.update_memory(&snapshot).await;
                let mut resources: BTreeMap<_, _> =
                    observed_parts(&snapshot, &self.cluster.site, now_ms()).into_iter().collect();
                if let Some(report) = self.query_superlink(&snapshot).await {
                    resources.iter_mut().for_each(|(id, presence)| report.add_to(id, presence));
                }
                let seen =
                    ObservedSite { resources, complete: true, capacity: Capacity::default(), sizes: BTreeMap::new() };
                Observation::Reached(seen)
            }
        }
    }

    /// The report of a Trellis SuperLink that responds.
    async fn query_superlink(&self, snapshot: &Snapshot) -> Option<SuperLinkReport> {
        let records = snapshot.workloads.values().filter_map(|workload| record(workload)?.ok());
        let specs = records.map(|record| match record.desired.spec {
            Spec::Coordinator(spec) => (spec.runtime, spec.tls),
            Spec::Node(spec) => (spec.runtime, spec.tls),
        });
        let (_, tls) = specs.into_iter().find(|(runtime, _)| *runtime == Runtime::Trellis)?;
        if self.memory.lock().superlink_failed_at.is_some_and(|at| at.elapsed() < SUPERLINK_RETRY_INTERVAL) {
            return None;
        }
        let report = superlink::query(&self.files, tls != Tls::Off).await;
        self.memory.lock().superlink_failed_at = report.is_none().then(Instant::now);
        report
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let (cluster, selector) = (&self.cluster, names::selector(&self.federation, &self.site));
        let (workloads, pods, service) = futures_util::try_join!(
            cluster.list(STATEFUL_SET, &selector, ""),
            cluster.list(POD, &selector, ""),
            self.service(),
        )?;
        let mut snapshot = Snapshot::new(&self.federation, &self.site, workloads, pods, service);
        let waits = |(id, workload): (&ResourceId, &Value)| {
            let pods = snapshot.pods.get(id).map_or(&[][..], Vec::as_slice);
            !is_stopping(workload) && !pods.iter().any(is_ready)
        };
        if snapshot.workloads.iter().any(waits) {
            snapshot.warnings = self.warnings().await;
        }
        let state = self.memory.lock();
        let failures = state.failures.iter().map(|(id, why)| (ObjectNames::of(id).workload(), why.clone()));
        snapshot.warnings.extend(failures);
        Ok(snapshot)
    }

    /// The Service of the coordinator, if the coordinator is at this site.
    async fn service(&self) -> Result<Option<Value>, Failure> {
        let service = self.cluster.get(SERVICE, &names::coordinator(&self.federation)).await?;
        Ok(service.filter(|service| {
            let labels = &service["metadata"]["labels"];
            labels[names::FEDERATION] == self.federation.as_str() && labels[names::SITE] == self.site.as_str()
        }))
    }

    /// The last warning about each object. Empty without the permission to list events.
    async fn warnings(&self) -> BTreeMap<String, String> {
        let mut events = self.cluster.list(EVENT, "", "type=Warning").await.unwrap_or_default();
        let time = |event: &Value| {
            let times =
                ["lastTimestamp", "eventTime"].map(|field| event[field].as_str().unwrap_or_default().to_owned());
            times.into_iter().max()
        };
        events.sort_by_key(time);
        let text = |event: &Value| {
            let name = event["involvedObject"]["name"].as_str()?.to_owned();
            let said = format!("{}: {}", event["reason"].as_str()?, event["message"].as_str()?);
            Some((name, said))
        };
        events.iter().filter_map(text).collect()
    }

    async fn update_memory(&self, snapshot: &Snapshot) {
        let coordinator = ResourceId::coordinator(&self.federation, &self.site);
        let workload = snapshot.workloads.get(&coordinator).filter(|workload| !is_stopping(workload));
        let is_unfinished =
            snapshot.workloads.values().any(|workload| !is_stopping(workload) && workload["spec"]["replicas"] == 0);
        let lacks_service = workload.is_some() && snapshot.service.is_none();
        let has_client_files = {
            let mut state = self.memory.lock();
            state.is_incomplete = is_unfinished || lacks_service;
            state.has_client_files
        };
        let Some((_, service)) = workload.zip(snapshot.service.as_ref()) else { return };
        if let Some(address) = addresses(service, &self.cluster.site, None).http {
            let _ = self.files.write(&self.files.coordinator(), address.as_bytes());
        }
        if !has_client_files && trust::restore_client_files(&self.cluster, &self.files, &coordinator).await.is_ok() {
            self.memory.lock().has_client_files = true;
        }
    }

    /// Executes an order. The order is stored in the cluster before anything else changes.
    pub async fn apply(&self, action: &Action) -> Result<Outcome, Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let stored = match orders::admit(&self.cluster, action).await? {
                Ok(stored) => stored,
                Err(refused) => return Ok(refused),
            };
            let id = action.id();
            let live = self.cluster.get(STATEFUL_SET, &ObjectNames::of(id).workload()).await?;
            let result = match live {
                Some(live) if !has_labels(&live, id) => self.foreign(action, &live),
                Some(live) => self.update(action, live).await,
                None => self.create(action, &stored).await,
            };
            match result {
                Err(Failure { kind: FailureKind::Conflict, .. }) => {}
                result => return result,
            }
        }
        Ok(Outcome::Refused { why: "other processes write its StatefulSet all the time".to_owned(), retry: true })
    }

    /// A workload that the driver did not create is never changed.
    fn foreign(&self, action: &Action, live: &Value) -> Result<Outcome, Failure> {
        match action.verb {
            Verb::Delete { .. } | Verb::Drain { .. } => Ok(Outcome::Done),
            _ => {
                let name = live["metadata"]["name"].as_str().unwrap_or_default();
                let to_do = "rename the federation, or use another namespace";
                let why = format!("StatefulSet {name} exists and was not created by this driver (to do: {to_do})");
                Ok(Outcome::Refused { why, retry: true })
            }
        }
    }

    async fn update(&self, action: &Action, live: Value) -> Result<Outcome, Failure> {
        let known = match record(&live) {
            Some(Ok(record)) => record,
            Some(Err(why)) => return Ok(Outcome::Failed { why }),
            None => return self.foreign(action, &live),
        };
        match known.apply(action, is_stopping(&live), now_ms()) {
            Err(refused) => Ok(refused),
            Ok(Transition::Deleted) => self.delete(action, &live).await,
            Ok(Transition::Recorded(record)) => {
                let mut updated = live.clone();
                updated["metadata"]["annotations"][names::RECORD] = json!(record.text());
                let live = if record == known { live } else { self.cluster.replace(&updated).await? };
                match live["spec"]["replicas"] == 0 {
                    true => self.start(&record, &live).await,
                    false => Ok(Outcome::Done),
                }
            }
            Ok(Transition::Restarted(record)) => self.restart(&record, &live).await,
        }
    }

    async fn restart(&self, record: &Record, live: &Value) -> Result<Outcome, Failure> {
        let Manifests { workload, .. } = match self.manifests(record, None).await? {
            Ok(manifests) => manifests,
            Err(why) => return Ok(Outcome::Refused { why, retry: false }),
        };
        if has_same_claims(live, &workload) {
            return self.start(record, live).await;
        }
        // The planner creates it again once it is absent.
        orders::record_deletion(&self.cluster, record.id(), record.order).await?;
        self.cluster.delete(live).await?;
        Ok(Outcome::Started)
    }

    async fn delete(&self, action: &Action, live: &Value) -> Result<Outcome, Failure> {
        let id = action.id();
        orders::record_deletion(&self.cluster, id, action.order).await?;
        self.memory.record_failure(id, None);
        if is_stopping(live) {
            return Ok(Outcome::Started);
        }
        let selector = names::selector(&self.federation, &self.site);
        let all = self.cluster.list(STATEFUL_SET, &selector, "").await?;
        let others = all.iter().filter(|other| other["metadata"]["uid"] != live["metadata"]["uid"]);
        if others.filter(|other| !is_stopping(other)).count() == 0 {
            orders::delete_with(&self.cluster, id, live).await?;
        }
        self.cluster.delete(live).await?;
        if id.node_key().is_none()
            && let Err(error) = self.files.remove()
        {
            tracing::warn!(federation = %self.federation, "files with copies of secrets could not be removed: {error}");
        }
        Ok(Outcome::Started)
    }

    async fn create(&self, action: &Action, stored: &StoredOrders) -> Result<Outcome, Failure> {
        let id = action.id();
        if let Some(refused) = stored.orders.gone.get(id).and_then(|gone| action.order.too_late(gone)) {
            return Ok(refused);
        }
        match &action.verb {
            Verb::Create(desired) => {
                let claim = self.needs_claim(desired).await;
                let record = Record::new(desired.clone(), action.order, claim, now_ms());
                match self.manifests(&record, None).await? {
                    Err(why) => Ok(Outcome::Refused { why, retry: false }),
                    Ok(manifests) => {
                        let created = self.cluster.create(&scaled_to_zero(manifests.workload)).await?;
                        self.start(&record, &created).await
                    }
                }
            }
            Verb::Replace(_) | Verb::Restart { .. } => {
                Ok(Outcome::Refused { why: "it does not exist".to_owned(), retry: true })
            }
            Verb::Drain { .. } => Ok(Outcome::Done),
            Verb::Delete { .. } => {
                orders::record_deletion(&self.cluster, id, action.order).await?;
                Ok(Outcome::Done)
            }
        }
    }

    /// Creates or updates the objects that the pod of a part needs, then the pod.
    async fn start(&self, record: &Record, live: &Value) -> Result<Outcome, Failure> {
        let started = self.try_start(record, live).await;
        let failure = started.as_ref().err().filter(|failure| failure.kind != FailureKind::Conflict);
        self.memory.record_failure(record.id(), failure);
        match started {
            // The record is stored, and maintenance tries again.
            Err(Failure { kind: FailureKind::Refused, .. }) if live["spec"]["replicas"] == 0 => Ok(Outcome::Started),
            started => started.map(|()| Outcome::Started),
        }
    }

    async fn try_start(&self, record: &Record, live: &Value) -> Result<(), Failure> {
        let invalid = |why| Failure::new(FailureKind::Invalid, why);
        let Manifests { others, .. } = self.manifests(record, None).await?.map_err(invalid)?;
        // The certificate contains the address of the Service, which must exist before.
        for other in others {
            self.refuse_foreign(&other).await?;
            self.cluster.apply(&owned(other, live)).await?;
        }
        let (trust, key) = self.equip(record, live).await?;
        if let (Spec::Node(spec), Some(key)) = (&record.desired.spec, key) {
            enrolment::enrol(&self.files, record.id(), spec, &key).await?;
        }
        let Manifests { workload, .. } = self.manifests(record, trust).await?.map_err(invalid)?;
        self.cluster.replace(&merged(live, workload)).await.map(drop)
    }

    /// Creates or updates the Secrets of a part. Returns the key of a node too if nodes have keys.
    async fn equip(&self, record: &Record, live: &Value) -> Result<(Option<Trust>, Option<Vec<u8>>), Failure> {
        let id = record.id();
        let owner = Owner { cluster: &self.cluster, files: &self.files, id, workload: live };
        let context = self.context(record, None).await?;
        let invalid = |problems: Vec<String>| Failure::new(FailureKind::Invalid, problems.join("; "));
        let (federation, _) = resource(&record.desired, &context).map_err(invalid)?;
        match &record.desired.spec {
            Spec::Coordinator(spec) => Ok((owner.equip_coordinator(&federation, spec).await?, None)),
            Spec::Node(spec) => owner.equip_node(&federation, spec, (self.trust)(&self.federation)).await,
        }
    }

    /// Objects with a name of ours that the driver did not create are not overwritten.
    async fn refuse_foreign(&self, desired: &Value) -> Result<(), Failure> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind, name) =
            (text(&desired["apiVersion"]), text(&desired["kind"]), text(&desired["metadata"]["name"]));
        let live = self.cluster.get((&api_version, &kind), &name).await?;
        match live {
            Some(live) if live["metadata"]["labels"][names::PART] != desired["metadata"]["labels"][names::PART] => {
                let to_do = "rename the federation, or use another namespace";
                let why = format!("{kind} {name} exists and was not created by this driver (to do: {to_do})");
                Err(Failure::new(FailureKind::Refused, why))
            }
            _ => Ok(()),
        }
    }

    async fn manifests(&self, record: &Record, trust: Option<Trust>) -> Result<Result<Manifests, String>, Failure> {
        let context = self.context(record, trust).await?;
        Ok(manifests(record, &context).map_err(|problems| problems.join("; ")))
    }

    async fn context(&self, record: &Record, trust: Option<Trust>) -> Result<Context<'_>, Failure> {
        let coordinator = match &record.desired.spec {
            Spec::Coordinator(_) => None,
            Spec::Node(spec) => Some(self.coordinator_address(&spec.coordinator).await?),
        };
        Ok(Context { site: &self.cluster.site, claim: record.claim, coordinator, trust })
    }

    /// The address of the coordinator for nodes: its Service if it is at this site.
    async fn coordinator_address(&self, given: &str) -> Result<String, Failure> {
        let Some(service) = self.service().await? else { return Ok(given.to_owned()) };
        let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        let find = |name: &str| ports.iter().find(|port| port["name"] == name)?["port"].as_u64();
        let port = find("fleet").or_else(|| find("http"));
        let host = service_host(&names::coordinator(&self.federation), &self.cluster.site);
        Ok(port.map_or_else(|| given.to_owned(), |port| format!("{host}:{port}")))
    }

    /// Whether the coordinator's state is in a volume claim: if the document asks for one, or if there is a default storage class.
    async fn needs_claim(&self, desired: &Desired) -> bool {
        let Spec::Coordinator(spec) = &desired.spec else { return false };
        match spec.persistence {
            Persistence::Memory => false,
            Persistence::Disk { size_bytes: Some(_), .. } => true,
            Persistence::Disk { .. } if self.cluster.site.storage_class.is_some() => true,
            Persistence::Disk { .. } => {
                let is_default = |class: &Value| class["metadata"]["annotations"][DEFAULT_CLASS] == "true";
                // Without the permission to list classes a default is assumed: a pending pod is better than lost state.
                self.cluster.list(STORAGE_CLASS, "", "").await.map_or(true, |classes| classes.iter().any(is_default))
            }
        }
    }

    /// Completes parts whose creation was interrupted, and renews Secrets that are due.
    pub async fn maintain(&self) {
        if let Err(failure) = self.try_maintain().await {
            tracing::warn!(federation = %self.federation, site = %self.site, "{}", failure.why);
        }
        self.memory.end_maintenance();
    }

    async fn try_maintain(&self) -> Result<(), Failure> {
        let selector = names::selector(&self.federation, &self.site);
        let workloads = self.cluster.list(STATEFUL_SET, &selector, "").await?;
        let has_service = self.service().await?.is_some();
        for workload in workloads.iter().filter(|workload| !is_stopping(workload)) {
            let Some(Ok(record)) = record(workload) else { continue };
            let (is_coordinator, tls) = match &record.desired.spec {
                Spec::Coordinator(spec) => (true, spec.tls != Tls::Off),
                Spec::Node(spec) => (false, spec.tls == Tls::Auto),
            };
            let is_incomplete = workload["spec"]["replicas"] == 0 || is_coordinator && !has_service;
            let result = match is_incomplete {
                true => self.start(&record, workload).await.map(drop),
                false if tls => self.equip(&record, workload).await.map(drop),
                false => Ok(()),
            };
            // After a conflict another process has done the same.
            let failure = result.err().filter(|failure| failure.kind != FailureKind::Conflict);
            self.memory.record_failure(record.id(), failure.as_ref());
        }
        Ok(())
    }
}

fn has_labels(live: &Value, id: &ResourceId) -> bool {
    let labels = &live["metadata"]["labels"];
    names::labels(id).iter().all(|(name, value)| labels[name] == value.as_str())
}
