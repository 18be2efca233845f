//! Events about federations, for `kubectl describe`. Equal events are sent once in an interval. The name of an event is
//! a digest of its content, so that a restarted operator finds events that it has sent.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use trellis_kube::federation;
use trellis_kube::object::digest;

const CONTROLLER: &str = "trellis-operator";
/// Capacity of the queue.
const MAX_QUEUED: usize = 1024;
/// Interval between equal events.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);
/// Sent events to remember.
const MAX_REMEMBERED: usize = 8192;
/// Limit of the API.
const NOTE_BYTES: usize = 1024;
const NAME_CHARACTERS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
/// An event to send.
pub struct EventDraft {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The kind of the resource that the event is about.
    pub kind: &'static str,
    pub is_warning: bool,
    pub reason: String,
    pub note: String,
}

/// Queue of events from all parts of the operator.
pub struct Events {
    sender: mpsc::Sender<EventDraft>,
}

impl Events {
    /// Also returns the task that sends them.
    pub fn new(client: Client, identity: &str) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, events) = mpsc::channel(MAX_QUEUED);
        (Events { sender }, send_all(client, identity.to_owned(), events))
    }

    /// Returns whether the event was queued. Does not wait.
    pub fn publish(&self, event: EventDraft) -> bool {
        self.sender.try_send(event).is_ok()
    }
}

async fn send_all(client: Client, identity: String, mut events: mpsc::Receiver<EventDraft>) {
    let mut sent: HashMap<String, (Instant, i32)> = HashMap::new();
    while let Some(draft) = events.recv().await {
        let name = name_of(&draft);
        let (last, count) = sent.get(&name).copied().map_or((None, 0), |(last, count)| (Some(last), count));
        if last.is_some_and(|last| last.elapsed() < REPEAT_INTERVAL) {
            continue;
        }
        if sent.len() >= MAX_REMEMBERED {
            sent.retain(|_, (last, _)| last.elapsed() < REPEAT_INTERVAL);
        }
        sent.insert(name.clone(), (Instant::now(), count + 1));
        if let Err(error) = send(&client, &identity, &name, &draft, count).await {
            tracing::debug!(%error, reason = draft.reason, "an event could not be sent");
        }
    }
}

fn name_of(draft: &EventDraft) -> String {
    let mut hash = digest(&json!([draft.uid, draft.reason, draft.note]));
    hash.truncate(NAME_CHARACTERS);
    format!("{}.{hash}", draft.name)
}

async fn send(client: &Client, identity: &str, name: &str, draft: &EventDraft, count: i32) -> kube::Result<()> {
    let api: Api<Event> = Api::namespaced(client.clone(), &draft.namespace);
    let now = MicroTime(Timestamp::now());
    if count == 0 {
        match api.create(&PostParams::default(), &event(identity, name, draft, now.clone())).await {
            // Sent by an earlier leader.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            response => return response.map(drop),
        }
    }
    let repeated = json!({"series": {"count": count.max(1) + 1, "lastObservedTime": now}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&repeated)).await.map(drop)
}

fn event(identity: &str, name: &str, draft: &EventDraft, now: MicroTime) -> Event {
    let mut note = draft.note.clone();
    while note.len() > NOTE_BYTES {
        note.pop();
    }
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(draft.namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(now),
        note: Some(note),
        reason: Some(draft.reason.clone()),
        regarding: Some(ObjectReference {
            api_version: Some(federation::API_VERSION.to_owned()),
            kind: Some(draft.kind.to_owned()),
            name: Some(draft.name.clone()),
            namespace: Some(draft.namespace.clone()),
            uid: Some(draft.uid.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(identity.to_owned()),
        type_: Some(if draft.is_warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}
