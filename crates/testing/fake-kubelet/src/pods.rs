//! Writes the status of each pod on our nodes, and removes deleted pods.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::node::{Nodes, State};
use crate::pretend::say;
use crate::processes::Engine;
use crate::rules::Rules;
use crate::{POD_WORKERS, changes_of};

const RETRY_AFTER: Duration = Duration::from_millis(500);
/// The first pod address; each pod gets the next one.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 244, 0, 1]);
/// Replaces times when statuses are compared.
const NO_TIME: &str = "";

struct Serving {
    client: Client,
    says: Says,
    nodes: Arc<Nodes>,
    known: Mutex<HashMap<String, Known>>,
    next_address: AtomicU32,
}

/// Source of statuses: the rules of the test, or the processes.
pub(crate) enum Says {
    Test(Arc<Rules>),
    Engine(Arc<Engine>),
}

/// A pod by its UID.
struct Known {
    since: Instant,
    address: String,
    said: Value,
}

/// Never returns.
pub(crate) async fn serve(client: Client, says: Says, nodes: Arc<Nodes>) {
    let pods = Controller::new(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .with_config(Config::default().concurrency(POD_WORKERS))
        .reconcile_all_on(changes_of(nodes.changes()));
    // Each change triggers a check of all pods: processes are few, and rules change rarely.
    let pods = match &says {
        Says::Test(rules) => pods.reconcile_all_on(changes_of(rules.changes())),
        Says::Engine(engine) => pods.reconcile_all_on(changes_of(engine.changes())),
    };
    let next_address = AtomicU32::new(FIRST_ADDRESS);
    let serving = Serving { client, says, nodes, known: Mutex::default(), next_address };
    let look_after = |pod: Arc<Pod>, serving: Arc<Serving>| async move { serving.look_after(&pod).await };
    let retry = |_: Arc<Pod>, error: &kube::Error, _: Arc<Serving>| {
        tracing::debug!(%error, "a pod is tried again");
        Action::requeue(RETRY_AFTER)
    };
    pods.run(look_after, retry, Arc::new(serving)).for_each(|_| async {}).await;
}

impl Serving {
    async fn look_after(&self, pod: &Pod) -> kube::Result<Action> {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        match node.and_then(|node| self.nodes.state_of(node)) {
            None => return Ok(Action::await_change()),
            Some(State::Lost) => return self.give_up(pod).await,
            Some(State::Alive) => {}
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return self.end(pod).await;
        }
        let has_ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(has_ended, Some("Succeeded" | "Failed")) {
            return Ok(Action::await_change());
        }
        match &self.says {
            Says::Test(rules) => self.pretend(pod, rules).await,
            Says::Engine(engine) => {
                self.say(pod, engine.status_of(pod)).await?;
                Ok(Action::await_change())
            }
        }
    }

    async fn end(&self, pod: &Pod) -> kube::Result<Action> {
        if let Says::Engine(engine) = &self.says
            && !engine.end(pod)
        {
            if let Some(status) = engine.last_status_of(pod) {
                self.say(pod, status).await?;
            }
            return Ok(Action::await_change());
        }
        self.let_go(pod).await?;
        Ok(Action::await_change())
    }

    async fn say(&self, pod: &Pod, status: Value) -> kube::Result<()> {
        let uid = pod.uid().unwrap_or_default();
        if status != self.known(&uid).2 {
            self.write(pod, &status).await?;
            self.remember(uid, status);
        }
        Ok(())
    }

    /// Marks pods of a lost node as the controllers do. Nothing terminates them.
    async fn give_up(&self, pod: &Pod) -> kube::Result<Action> {
        let uid = pod.uid().unwrap_or_default();
        let not_ready = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "NodeLost"}]});
        let (_, _, said_before) = self.known(&uid);
        if said_before != not_ready {
            self.write(pod, &not_ready).await?;
            self.remember(uid, not_ready);
        }
        Ok(Action::await_change())
    }

    async fn pretend(&self, pod: &Pod, rules: &Rules) -> kube::Result<Action> {
        let behaviour = rules.behaviour_of(pod);
        let uid = pod.uid().unwrap_or_default();
        let (seen_for, address, said_before) = self.known(&uid);
        let said = say(pod, &behaviour, seen_for, &address, NO_TIME);
        if said.status != said_before {
            let now = jiff::Timestamp::now();
            let status = say(pod, &behaviour, seen_for, &address, &format!("{now:.0}")).status;
            self.write(pod, &status).await?;
            self.remember(uid, said.status);
        }
        Ok(said.again.map_or_else(Action::await_change, Action::requeue))
    }

    /// With the UID, so that a later pod of the same name is not affected.
    async fn write(&self, pod: &Pod, status: &Value) -> kube::Result<()> {
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        self.pods(pod).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }

    fn remember(&self, uid: String, said: Value) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(uid).and_modify(|known| known.said = said);
    }

    fn known(&self, uid: &str) -> (Duration, String, Value) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(uid.to_owned()).or_insert_with(|| {
            let address = std::net::Ipv4Addr::from(self.next_address.fetch_add(1, Ordering::Relaxed));
            Known { since: Instant::now(), address: address.to_string(), said: Value::Null }
        });
        (known.since.elapsed(), known.address.clone(), known.said.clone())
    }

    async fn let_go(&self, pod: &Pod) -> kube::Result<()> {
        let this_one = Preconditions { uid: pod.uid(), resource_version: None };
        let at_once = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default().grace_period(0) };
        match self.pods(pod).delete(&pod.name_any(), &at_once).await {
            // Another client was faster.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            other => drop(other?),
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&pod.uid().unwrap_or_default());
        Ok(())
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }
}
