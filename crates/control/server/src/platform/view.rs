//! The views: the known state of each federation, in memory. All reads are answered from here. Changes are published as events, in
//! the order in which they were recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::broadcast;
use trellis_api::{Event, FederationDetail, FederationSummary, Node, NodeCounts, Run, State};
use trellis_plan::{LinkNode, Millis, NodeStatus, Status};
use trellis_registry::Entry;
use trellis_spec::{Federation, Name, to_yaml};

use super::book::RunBook;
use super::mask::mask;

/// Events that a slow receiver can lag behind before it misses some.
const MAX_EVENT_LAG: usize = 1024;

/// One federation. Cheap to clone.
#[derive(Clone)]
pub struct View {
    pub name: Name,
    /// Canonical YAML.
    pub document: Arc<str>,
    /// While it is being deleted: the last document, if it can be parsed.
    pub federation: Option<Arc<Federation>>,
    pub revision: u64,
    pub changed_ms: Millis,
    pub leaving: bool,
    pub decided: Option<Decided>,
    /// Why the last reconcile failed.
    pub failure: Option<String>,
    pub runs: Arc<RunBook>,
    /// Nodes of the SuperLink, as last observed.
    pub link: Option<Arc<[LinkNode]>>,
    /// Joined nodes that users drained, by SuperLink id.
    pub drained: Arc<BTreeSet<String>>,
    pub summary: Arc<FederationSummary>,
}

/// Result of the last reconcile.
#[derive(Clone, PartialEq)]
pub struct Decided {
    /// Without the nodes.
    pub status: Arc<Status>,
    pub nodes: Arc<Vec<Node>>,
    /// Revision of the document, at least.
    pub revision: u64,
    /// Sites where parts may exist.
    pub sites: Arc<BTreeSet<Name>>,
}

impl View {
    pub fn new(entry: Entry) -> View {
        let federation = match entry.desired {
            trellis_plan::DesiredState::Federation(federation) => Some(federation),
            trellis_plan::DesiredState::Deleted(_) => None,
        };
        let leaving = federation.is_none();
        let last = || trellis_spec::read(&entry.document, entry.name.as_str()).ok()?.pop().map(Arc::new);
        let mut view = View {
            federation: federation.or_else(last),
            document: entry.document.into(),
            revision: entry.revision,
            changed_ms: entry.changed_ms,
            leaving,
            decided: None,
            failure: None,
            runs: Arc::default(),
            link: None,
            drained: Arc::default(),
            summary: Arc::new(empty_summary(&entry.name)),
            name: entry.name,
        };
        // The stored status may be of an earlier revision: it is shown, but does not determine the state.
        view.decided = entry.status.map(|status| Decided::new(status, 0, BTreeSet::new()));
        view.summary = Arc::new(view.summarize());
        view
    }

    /// The document. It contains values of `env` only if `reveal` is set.
    pub fn document(&self, reveal: bool) -> String {
        match (&self.federation, reveal) {
            (_, true) => self.document.to_string(),
            (Some(federation), false) => to_yaml(&mask(federation)),
            // A document that cannot be parsed cannot be masked.
            (None, false) => String::new(),
        }
    }

    pub fn detail(&self, reveal: bool) -> FederationDetail {
        FederationDetail {
            summary: FederationSummary::clone(&self.summary),
            document: self.document(reveal),
            status: self.decided.as_ref().map(|decided| Status::clone(&decided.status)),
        }
    }

    /// Nodes of the SuperLink, with the drains of users.
    pub fn link_nodes(&self) -> Option<Arc<[LinkNode]>> {
        let drained = |node: &LinkNode| self.drained.contains(&node.id);
        let nodes = self.link.as_ref()?.iter();
        Some(nodes.map(|node| LinkNode { drained: drained(node), ..node.clone() }).collect())
    }

    /// The joined node with this name or id.
    pub fn joined(&self, node: &str) -> Option<&Node> {
        let matches = |each: &&Node| each.joined && (each.name == node || each.id.as_deref() == Some(node));
        self.decided.as_ref()?.nodes.iter().find(matches)
    }

    /// Status of the coordinator, if known.
    pub fn coordinator(&self) -> Option<&trellis_plan::CoordinatorStatus> {
        self.decided.as_ref().map(|decided| &decided.status.coordinator)
    }

    fn summarize(&self) -> FederationSummary {
        let (state, message) = self.state();
        let federation = self.federation.as_deref();
        let known = self.runs.active();
        let active = known.or_else(|| self.coordinator().and_then(|coordinator| coordinator.runs));
        FederationSummary {
            name: self.name.to_string(),
            state,
            message,
            revision: self.revision,
            runtime: federation.map(|federation| federation.runtime.to_string()).unwrap_or_default(),
            sites: federation.map_or(0, |federation| count(federation.sites.len())),
            nodes: self.node_counts(),
            active_runs: active,
            changed_at: self.changed_ms as f64 / 1000.0,
        }
    }

    fn state(&self) -> (State, String) {
        if let Some(failure) = &self.failure {
            return (State::Stalled, failure.clone());
        }
        let Some(decided) = &self.decided else { return (State::New, "not observed yet".to_owned()) };
        let status = &decided.status;
        let (state, condition) = match status {
            status if status.stalled.met => (State::Stalled, &status.stalled),
            status if status.reconciling.met => (State::Reconciling, &status.reconciling),
            status if status.ready.met => (State::Ready, &status.ready),
            status => (State::Reconciling, &status.ready),
        };
        match state {
            _ if self.leaving => (State::Leaving, condition.message.clone()),
            // The status is about an earlier document.
            _ if decided.revision < self.revision => (State::Reconciling, "the document is new".to_owned()),
            state => (state, condition.message.clone()),
        }
    }

    fn node_counts(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        if let Some(decided) = &self.decided {
            for pool in &decided.status.pools {
                counts.wanted += pool.wanted;
                counts.present += pool.present;
                counts.ready += pool.ready;
                counts.busy += pool.busy;
            }
            let joined = decided.nodes.iter().filter(|node| node.joined && node.phase == "ready");
            counts.joined = count(joined.count());
        }
        match &self.federation {
            Some(federation) if self.decided.is_none() => {
                let wanted = federation.pools.iter().map(|pool| pool.count).sum();
                NodeCounts { wanted, ..counts }
            }
            _ => counts,
        }
    }

    /// Whether a change is worth an event.
    fn differs(&self, other: &View) -> bool {
        let published = |view: &View| {
            let decided = view.decided.as_ref();
            (decided.map(|decided| Arc::clone(&decided.status)), decided.map(|decided| Arc::clone(&decided.nodes)))
        };
        let ((status, nodes), (other_status, other_nodes)) = (published(self), published(other));
        let same_status = match (&status, &other_status) {
            // The time alone is no change.
            (Some(status), Some(other)) => {
                Arc::ptr_eq(status, other) || Status { at_ms: other.at_ms, ..Status::clone(status) } == **other
            }
            (None, None) => true,
            _ => false,
        };
        self.summary != other.summary || !same_status || nodes != other_nodes
    }
}

impl Decided {
    pub fn new(mut status: Status, revision: u64, sites: BTreeSet<Name>) -> Decided {
        let mut nodes: Vec<Node> = std::mem::take(&mut status.nodes).into_iter().map(node).collect();
        nodes.sort_by(|one, other| place(one).cmp(&place(other)));
        Decided { status: Arc::new(status), nodes: Arc::new(nodes), revision, sites: Arc::new(sites) }
    }
}

/// By pool and index: `a-2` comes before `a-10`.
fn place(node: &Node) -> (&str, u32, &str) {
    let index = node.name.rsplit_once('-').and_then(|(_, index)| index.parse().ok());
    (&node.pool, index.unwrap_or(u32::MAX), &node.site)
}

fn node(status: NodeStatus) -> Node {
    Node {
        name: status.name,
        pool: status.pool,
        site: status.site,
        id: status.id,
        shard: status.shard,
        wanted: status.wanted,
        phase: status.phase,
        why: status.why,
        updated: status.updated,
        busy: status.busy,
        draining: status.draining,
        drained: status.drained,
        joined: status.joined,
        version: status.version,
        since_ms: status.since_ms,
    }
}

fn empty_summary(name: &Name) -> FederationSummary {
    FederationSummary {
        name: name.to_string(),
        state: State::New,
        message: String::new(),
        revision: 0,
        runtime: String::new(),
        sites: 0,
        nodes: NodeCounts::default(),
        active_runs: None,
        changed_at: 0.0,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The views of all federations.
pub struct Views {
    views: RwLock<BTreeMap<Name, View>>,
    events: broadcast::Sender<Arc<Event>>,
}

impl Views {
    pub fn new() -> Views {
        Views { views: RwLock::default(), events: broadcast::channel(MAX_EVENT_LAG).0 }
    }

    pub fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    pub fn get(&self, name: &Name) -> Option<View> {
        self.read().get(name).cloned()
    }

    pub fn contains(&self, name: &Name) -> bool {
        self.read().contains_key(name)
    }

    pub fn summaries(&self) -> Vec<Arc<FederationSummary>> {
        self.read().values().map(|view| Arc::clone(&view.summary)).collect()
    }

    /// Replaces a document. The status of the previous one stays visible.
    pub fn put(&self, entry: Entry) {
        let mut view = View::new(entry);
        let mut views = self.write();
        match views.get(&view.name) {
            // Two concurrent changes may be recorded out of order.
            Some(before) if !before.leaving && before.revision > view.revision => return,
            Some(before) if !before.leaving => {
                view.decided = before.decided.clone();
                view.runs = Arc::clone(&before.runs);
                view.link.clone_from(&before.link);
                view.drained = Arc::clone(&before.drained);
                view.summary = Arc::new(view.summarize());
            }
            _ => {}
        }
        if views.get(&view.name).is_none_or(|before| view.differs(before)) {
            self.publish(Event::Federation { federation: FederationSummary::clone(&view.summary) });
        }
        views.insert(view.name.clone(), view);
    }

    /// Records the state that another controller stored.
    pub fn follow(&self, entry: Entry) {
        let followed = View::new(entry);
        self.note(&followed.name.clone(), |view| {
            let (runs, link, drained) = (Arc::clone(&view.runs), view.link.clone(), Arc::clone(&view.drained));
            *view = View { runs, link, drained, ..followed };
            if let Some(decided) = &mut view.decided {
                decided.revision = view.revision;
            }
        });
    }

    /// Changes the view of a federation, if it exists.
    pub fn note(&self, name: &Name, change: impl FnOnce(&mut View)) {
        let mut views = self.write();
        let Some(view) = views.get_mut(name) else { return };
        let before = view.clone();
        change(view);
        view.summary = Arc::new(view.summarize());
        if view.differs(&before) {
            self.publish(Event::Federation { federation: FederationSummary::clone(&view.summary) });
        }
    }

    /// Records a run. If it is new or its state changed, publishes and returns it.
    pub fn note_run(&self, name: &Name, run: Run) -> Option<Run> {
        let mut news = None;
        self.note(name, |view| {
            news = Arc::make_mut(&mut view.runs).note(run);
        });
        if let Some(run) = &news {
            self.publish(Event::Run { run: run.clone() });
        }
        news
    }

    /// Adds stored runs, without events.
    pub fn recall(&self, name: &Name, runs: Vec<Run>) {
        self.note(name, |view| {
            let book = Arc::make_mut(&mut view.runs);
            runs.into_iter().for_each(|run| book.recall(run));
        });
    }

    pub fn publish(&self, event: Event) {
        // Fails without receivers.
        let _ = self.events.send(Arc::new(event));
    }

    /// Removes a deleted federation. `false`: there is a new federation of the same name.
    pub fn remove_left(&self, name: &Name) -> bool {
        let mut views = self.write();
        if views.get(name).is_some_and(|view| !view.leaving) {
            return false;
        }
        if views.remove(name).is_some() {
            self.publish(Event::Gone { federation: name.to_string() });
        }
        true
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Name, View>> {
        self.views.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Name, View>> {
        self.views.write().unwrap_or_else(PoisonError::into_inner)
    }
}
