//! All parts of one federation at one site: takes orders, tells what is there, and brings to an end what was begun.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trellis_clock::now_ms;
use trellis_plan::{Action, Desired, Observation, Offer, Outcome, ResourceId, Seen, Spec, TrustElsewhere, Verb};
use trellis_spec::{Name, Persistence, Runtime, Tls};

use crate::ask::{Told, ask};
use crate::cluster::{Cluster, EVENT, POD, SERVICE, STATEFUL_SET, STORAGE_CLASS};
use crate::dress::{Dressed, asleep, dress, onto, owned, same_claims};
use crate::enrolment;
use crate::home::Home;
use crate::names::{self, Called};
use crate::orders::{self, Book};
use crate::record::{Record, Turn};
use crate::sight::{addresses, inside, sightings};
use crate::trouble::{Kind, Trouble};
use crate::trust::{self, Owner};
use crate::view::{View, is_ready, is_stopping, record};
use crate::wish::Place;

/// Others who write the same workload, the controller of StatefulSets among them, are done after a few.
const TRIES: u32 = 8;
/// How often it is looked whether certificates are due.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);
/// A SuperLink that did not answer is not asked for so long.
const ASK_AGAIN: Duration = Duration::from_secs(30);
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub struct Fleet {
    pub federation: Name,
    pub site: Name,
    pub cluster: Arc<Cluster>,
    pub home: Home,
    pub trust: TrustElsewhere,
    pub memory: Arc<Memory>,
}

/// May be lost without harm: then it is looked for once more.
#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Why parts have no pod yet.
    troubles: BTreeMap<ResourceId, String>,
    /// Something that was begun was seen unfinished.
    unfinished: bool,
    tends: bool,
    renewed: Option<Instant>,
    copied: bool,
    /// The SuperLink did not answer then.
    deaf_since: Option<Instant>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody should look after what was begun. Who is told so ends with [`Memory::tended`].
    pub fn begin_tending(&self) -> bool {
        let mut state = self.lock();
        let due = state.renewed.is_none_or(|at| at.elapsed() >= RENEWAL_INTERVAL);
        let begins = !state.tends && (state.unfinished || due);
        state.tends |= begins;
        begins
    }

    fn tended(&self) {
        let mut state = self.lock();
        state.tends = false;
        state.renewed = Some(Instant::now());
    }

    fn note(&self, id: &ResourceId, trouble: Option<&Trouble>) {
        let mut state = self.lock();
        match trouble {
            Some(trouble) => drop(state.troubles.insert(id.clone(), trouble.why.clone())),
            None => drop(state.troubles.remove(id)),
        }
    }
}

impl Fleet {
    pub async fn observe(&self) -> Observation {
        match self.look().await {
            Err(Trouble { why, .. }) => Observation::Unreachable { why },
            Ok(view) => {
                self.follow(&view).await;
                let mut resources: BTreeMap<_, _> =
                    sightings(&view, &self.cluster.site, now_ms()).into_iter().collect();
                if let Some(told) = self.ask(&view).await {
                    resources.iter_mut().for_each(|(id, sighting)| told.add_to(id, sighting));
                }
                let seen = Seen { resources, complete: true, offer: Offer::default(), sizes: BTreeMap::new() };
                Observation::Seen(seen)
            }
        }
    }

    /// What the SuperLink says, where it is one of ours and can be reached.
    async fn ask(&self, view: &View) -> Option<Told> {
        let records = view.workloads.values().filter_map(|workload| record(workload)?.ok());
        let specs = records.map(|record| match record.desired.spec {
            Spec::Coordinator(spec) => (spec.runtime, spec.tls),
            Spec::Node(spec) => (spec.runtime, spec.tls),
        });
        let (_, tls) = specs.into_iter().find(|(runtime, _)| *runtime == Runtime::Trellis)?;
        if self.memory.lock().deaf_since.is_some_and(|at| at.elapsed() < ASK_AGAIN) {
            return None;
        }
        let told = ask(&self.home, tls != Tls::Off).await;
        self.memory.lock().deaf_since = told.is_none().then(Instant::now);
        told
    }

    async fn look(&self) -> Result<View, Trouble> {
        let (cluster, ours) = (&self.cluster, names::selector(&self.federation, &self.site));
        let (workloads, pods, service) = futures_util::try_join!(
            cluster.list(STATEFUL_SET, &ours, ""),
            cluster.list(POD, &ours, ""),
            self.service(),
        )?;
        let mut view = View::new(&self.federation, &self.site, workloads, pods, service);
        let waits = |(id, workload): (&ResourceId, &Value)| {
            let pods = view.pods.get(id).map_or(&[][..], Vec::as_slice);
            !is_stopping(workload) && !pods.iter().any(is_ready)
        };
        if view.workloads.iter().any(waits) {
            view.warnings = self.warnings().await;
        }
        let state = self.memory.lock();
        let troubles = state.troubles.iter().map(|(id, why)| (Called::of(id).workload(), why.clone()));
        view.warnings.extend(troubles);
        Ok(view)
    }

    /// Of the coordinator, if it is here.
    async fn service(&self) -> Result<Option<Value>, Trouble> {
        let service = self.cluster.get(SERVICE, &names::coordinator(&self.federation)).await?;
        Ok(service.filter(|service| {
            let labels = &service["metadata"]["labels"];
            labels[names::FEDERATION] == self.federation.as_str() && labels[names::SITE] == self.site.as_str()
        }))
    }

    /// The latest of each object. Who may not read events goes without.
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

    /// What the look says to others than the planner.
    async fn follow(&self, view: &View) {
        let coordinator = ResourceId::coordinator(&self.federation, &self.site);
        let workload = view.workloads.get(&coordinator).filter(|workload| !is_stopping(workload));
        let unfinished =
            view.workloads.values().any(|workload| !is_stopping(workload) && workload["spec"]["replicas"] == 0);
        let lacks_service = workload.is_some() && view.service.is_none();
        let copied = {
            let mut state = self.memory.lock();
            state.unfinished = unfinished || lacks_service;
            state.copied
        };
        let Some((_, service)) = workload.zip(view.service.as_ref()) else { return };
        if let Some(address) = addresses(service, &self.cluster.site, None).http {
            let _ = self.home.write(&self.home.coordinator(), address.as_bytes());
        }
        if !copied && trust::copies(&self.cluster, &self.home, &coordinator).await.is_ok() {
            self.memory.lock().copied = true;
        }
    }

    /// Takes an order. It is written down in the cluster before anything is done.
    pub async fn apply(&self, action: &Action) -> Result<Outcome, Trouble> {
        for _ in 0..TRIES {
            let book = match orders::admit(&self.cluster, action).await? {
                Ok(book) => book,
                Err(refused) => return Ok(refused),
            };
            let id = action.id();
            let live = self.cluster.get(STATEFUL_SET, &Called::of(id).workload()).await?;
            let done = match live {
                Some(live) if !is_marked(&live, id) => self.foreign(action, &live),
                Some(live) => self.turn(action, live).await,
                None => self.begin(action, &book).await,
            };
            match done {
                Err(Trouble { kind: Kind::Conflict, .. }) => {}
                done => return done,
            }
        }
        Ok(Outcome::Refused { why: "others write it all the time".to_owned(), retry: true })
    }

    /// Somebody else's is left alone, whatever is wanted.
    fn foreign(&self, action: &Action, live: &Value) -> Result<Outcome, Trouble> {
        match action.verb {
            Verb::Delete { .. } | Verb::Drain { .. } => Ok(Outcome::Done),
            _ => {
                let name = live["metadata"]["name"].as_str().unwrap_or_default();
                let to_do = "call the federation something else, or use another namespace";
                let why = format!("StatefulSet {name} is there, and somebody else made it (to do: {to_do})");
                Ok(Outcome::Refused { why, retry: true })
            }
        }
    }

    async fn turn(&self, action: &Action, live: Value) -> Result<Outcome, Trouble> {
        let known = match record(&live) {
            Some(Ok(record)) => record,
            Some(Err(why)) => return Ok(Outcome::Failed { why: format!("nobody knows what it is: {why}") }),
            None => return self.foreign(action, &live),
        };
        match known.apply(action, is_stopping(&live), now_ms()) {
            Err(refused) => Ok(refused),
            Ok(Turn::Ends) => self.end(action, &live).await,
            Ok(Turn::Noted(record)) => {
                let mut noted = live.clone();
                noted["metadata"]["annotations"][names::RECORD] = json!(record.text());
                let live = if record == known { live } else { self.cluster.write(&noted).await? };
                match live["spec"]["replicas"] == 0 {
                    true => self.raise(&record, &live).await,
                    false => Ok(Outcome::Done),
                }
            }
            Ok(Turn::Renewed(record)) => self.renew(&record, &live).await,
        }
    }

    async fn renew(&self, record: &Record, live: &Value) -> Result<Outcome, Trouble> {
        let Dressed { workload, .. } = match self.dress(record, String::new()).await? {
            Ok(dressed) => dressed,
            Err(why) => return Ok(Outcome::Refused { why, retry: false }),
        };
        if same_claims(live, &workload) {
            return self.raise(record, live).await;
        }
        // It is made again by whoever sees that it is gone.
        orders::note_gone(&self.cluster, record.id(), record.order).await?;
        self.cluster.delete(live).await?;
        Ok(Outcome::Started)
    }

    async fn end(&self, action: &Action, live: &Value) -> Result<Outcome, Trouble> {
        let id = action.id();
        orders::note_gone(&self.cluster, id, action.order).await?;
        self.memory.note(id, None);
        if is_stopping(live) {
            return Ok(Outcome::Started);
        }
        let ours = names::selector(&self.federation, &self.site);
        let all = self.cluster.list(STATEFUL_SET, &ours, "").await?;
        let others = all.iter().filter(|other| other["metadata"]["uid"] != live["metadata"]["uid"]);
        if others.filter(|other| !is_stopping(other)).count() == 0 {
            orders::go_with(&self.cluster, id, live).await?;
        }
        self.cluster.delete(live).await?;
        if id.node_key().is_none()
            && let Err(error) = self.home.remove()
        {
            tracing::warn!(federation = %self.federation, "copies of secrets are left: {error}");
        }
        Ok(Outcome::Started)
    }

    async fn begin(&self, action: &Action, book: &Book) -> Result<Outcome, Trouble> {
        let id = action.id();
        if let Some(refused) = book.orders.gone.get(id).and_then(|gone| action.order.too_late(gone)) {
            return Ok(refused);
        }
        match &action.verb {
            Verb::Create(desired) => {
                let claim = self.keeps_in_a_claim(desired).await;
                let record = Record::new(desired.clone(), action.order, claim, now_ms());
                match self.dress(&record, String::new()).await? {
                    Err(why) => Ok(Outcome::Refused { why, retry: false }),
                    Ok(dressed) => {
                        let made = self.cluster.make(&asleep(dressed.workload)).await?;
                        self.raise(&record, &made).await
                    }
                }
            }
            Verb::Replace(_) | Verb::Restart { .. } => {
                Ok(Outcome::Refused { why: "there is none".to_owned(), retry: true })
            }
            Verb::Drain { .. } => Ok(Outcome::Done),
            Verb::Delete { .. } => {
                orders::note_gone(&self.cluster, id, action.order).await?;
                Ok(Outcome::Done)
            }
        }
    }

    /// Gives a part what its pod needs, and then the pod.
    async fn raise(&self, record: &Record, live: &Value) -> Result<Outcome, Trouble> {
        let raised = self.try_raise(record, live).await;
        self.memory.note(record.id(), raised.as_ref().err().filter(|trouble| trouble.kind != Kind::Conflict));
        match raised {
            // It is written down, and whoever hears next what is wanted goes on with it.
            Err(Trouble { kind: Kind::Refused, .. }) if live["spec"]["replicas"] == 0 => Ok(Outcome::Started),
            raised => raised.map(|()| Outcome::Started),
        }
    }

    async fn try_raise(&self, record: &Record, live: &Value) -> Result<(), Trouble> {
        let id = record.id();
        let owner = Owner { cluster: &self.cluster, home: &self.home, id, workload: live };
        let revision = match &record.desired.spec {
            Spec::Coordinator(spec) => owner.equip_coordinator(spec).await?,
            Spec::Node(spec) => {
                let (revision, key) = owner.equip_node(spec, (self.trust)(&self.federation)).await?;
                if let Some(key) = key {
                    enrolment::enrol(&self.home, id, spec, &key).await?;
                }
                revision
            }
        };
        let wrong = |why| Trouble::new(Kind::Wrong, why);
        let Dressed { workload, others } = self.dress(record, revision).await?.map_err(wrong)?;
        for other in others {
            self.refuse_foreign(&other).await?;
            self.cluster.apply(&owned(other, live)).await?;
        }
        self.cluster.write(&onto(live, workload)).await.map(drop)
    }

    /// What has the name of ours and is not ours is not taken over.
    async fn refuse_foreign(&self, wanted: &Value) -> Result<(), Trouble> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind, name) =
            (text(&wanted["apiVersion"]), text(&wanted["kind"]), text(&wanted["metadata"]["name"]));
        let live = self.cluster.get((&api_version, &kind), &name).await?;
        match live {
            Some(live) if live["metadata"]["labels"][names::PART] != wanted["metadata"]["labels"][names::PART] => {
                let to_do = "call the federation something else, or use another namespace";
                let why = format!("{kind} {name} is there, and somebody else made it (to do: {to_do})");
                Err(Trouble::new(Kind::Refused, why))
            }
            _ => Ok(()),
        }
    }

    async fn dress(&self, record: &Record, revision: String) -> Result<Result<Dressed, String>, Trouble> {
        let coordinator = match &record.desired.spec {
            Spec::Coordinator(_) => None,
            Spec::Node(spec) => Some(self.way_to_the_coordinator(&spec.coordinator).await?),
        };
        let place = Place { site: &self.cluster.site, claim: record.claim, coordinator, revision };
        Ok(dress(record, &place).map_err(|problems| problems.join("; ")))
    }

    /// Beside it, by the name of its Service: however it is reached from outside.
    async fn way_to_the_coordinator(&self, given: &str) -> Result<String, Trouble> {
        let Some(service) = self.service().await? else { return Ok(given.to_owned()) };
        let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        let find = |name: &str| ports.iter().find(|port| port["name"] == name)?["port"].as_u64();
        let port = find("fleet").or_else(|| find("http"));
        let inside = inside(&names::coordinator(&self.federation), &self.cluster.site);
        Ok(port.map_or_else(|| given.to_owned(), |port| format!("{inside}:{port}")))
    }

    /// Whether the coordinator's state is in a claim: where one is asked for, or the cluster gives one without being told how.
    async fn keeps_in_a_claim(&self, desired: &Desired) -> bool {
        let Spec::Coordinator(spec) = &desired.spec else { return false };
        match spec.persistence {
            Persistence::Memory => false,
            Persistence::Disk { size_bytes: Some(_), .. } => true,
            Persistence::Disk { .. } if self.cluster.site.storage_class.is_some() => true,
            Persistence::Disk { .. } => {
                let is_default = |class: &Value| class["metadata"]["annotations"][DEFAULT_CLASS] == "true";
                // Who may not see classes is believed to have one: state that is lost is worse than a pod that waits.
                self.cluster.list(STORAGE_CLASS, "", "").await.map_or(true, |classes| classes.iter().any(is_default))
            }
        }
    }

    /// Brings to an end what was begun, and renews certificates that are due.
    pub async fn tend(&self) {
        if let Err(trouble) = self.try_tend().await {
            tracing::warn!(federation = %self.federation, site = %self.site, "{}", trouble.why);
        }
        self.memory.tended();
    }

    async fn try_tend(&self) -> Result<(), Trouble> {
        let ours = names::selector(&self.federation, &self.site);
        let workloads = self.cluster.list(STATEFUL_SET, &ours, "").await?;
        let has_service = self.service().await?.is_some();
        for workload in workloads.iter().filter(|workload| !is_stopping(workload)) {
            let Some(Ok(record)) = record(workload) else { continue };
            let is_unfinished = workload["spec"]["replicas"] == 0;
            let served = match &record.desired.spec {
                Spec::Coordinator(spec) => has_service && spec.tls == Tls::Off,
                Spec::Node(_) => true,
            };
            if is_unfinished || !served {
                match self.tend_one(&record, workload, is_unfinished || !has_service).await {
                    // Whoever wrote it meanwhile has done it.
                    Err(Trouble { kind: Kind::Conflict, .. }) => {}
                    Err(trouble) => self.memory.note(record.id(), Some(&trouble)),
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    async fn tend_one(&self, record: &Record, workload: &Value, raises: bool) -> Result<(), Trouble> {
        if raises {
            return self.raise(record, workload).await.map(drop);
        }
        let Spec::Coordinator(spec) = &record.desired.spec else { return Ok(()) };
        let owner = Owner { cluster: &self.cluster, home: &self.home, id: record.id(), workload };
        owner.equip_coordinator(spec).await.map(drop)
    }
}

fn is_marked(live: &Value, id: &ResourceId) -> bool {
    let labels = &live["metadata"]["labels"];
    names::labels(id).iter().all(|(name, value)| labels[name] == value.as_str())
}
