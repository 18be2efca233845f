//! Events about federations, for `kubectl describe`. The same news is told once in a while, not at every pass; a name made from
//! what is told lets a restarted operator find what it told before.

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
/// News that were not told yet.
const WAITING: usize = 1024;
/// The same is told again after so long.
const SILENCE: Duration = Duration::from_secs(600);
/// Of what was told, remembered at most.
const REMEMBERED: usize = 8192;
/// The API takes no longer ones.
const NOTE_BYTES: usize = 1024;
const NAME_CHARACTERS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The kind of the resource that it is about.
    pub kind: &'static str,
    pub is_warning: bool,
    pub reason: String,
    pub note: String,
}

/// Takes news from everywhere.
pub struct Events {
    sender: mpsc::Sender<News>,
}

impl Events {
    /// And the task that sends them.
    pub fn new(client: Client, identity: &str) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, news) = mpsc::channel(WAITING);
        (Events { sender }, send_all(client, identity.to_owned(), news))
    }

    /// Returns whether it will be told; nobody waits for that.
    pub fn tell(&self, news: News) -> bool {
        self.sender.try_send(news).is_ok()
    }
}

async fn send_all(client: Client, identity: String, mut news: mpsc::Receiver<News>) {
    let mut told: HashMap<String, (Instant, i32)> = HashMap::new();
    while let Some(news) = news.recv().await {
        let name = name_of(&news);
        let (last, count) = told.get(&name).copied().map_or((None, 0), |(last, count)| (Some(last), count));
        if last.is_some_and(|last| last.elapsed() < SILENCE) {
            continue;
        }
        if told.len() >= REMEMBERED {
            told.retain(|_, (last, _)| last.elapsed() < SILENCE);
        }
        told.insert(name.clone(), (Instant::now(), count + 1));
        if let Err(error) = send(&client, &identity, &name, &news, count).await {
            tracing::debug!(%error, reason = news.reason, "an event could not be told");
        }
    }
}

fn name_of(news: &News) -> String {
    let mut hash = digest(&json!([news.uid, news.reason, news.note]));
    hash.truncate(NAME_CHARACTERS);
    format!("{}.{hash}", news.name)
}

async fn send(client: &Client, identity: &str, name: &str, news: &News, count: i32) -> kube::Result<()> {
    let api: Api<Event> = Api::namespaced(client.clone(), &news.namespace);
    let now = MicroTime(Timestamp::now());
    if count == 0 {
        match api.create(&PostParams::default(), &event(identity, name, news, now.clone())).await {
            // Told by whoever acted before us.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => return answer.map(drop),
        }
    }
    let again = json!({"series": {"count": count.max(1) + 1, "lastObservedTime": now}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&again)).await.map(drop)
}

fn event(identity: &str, name: &str, news: &News, now: MicroTime) -> Event {
    let mut note = news.note.clone();
    while note.len() > NOTE_BYTES {
        note.pop();
    }
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(news.namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(now),
        note: Some(note),
        reason: Some(news.reason.clone()),
        regarding: Some(ObjectReference {
            api_version: Some(federation::API_VERSION.to_owned()),
            kind: Some(news.kind.to_owned()),
            name: Some(news.name.clone()),
            namespace: Some(news.namespace.clone()),
            uid: Some(news.uid.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(identity.to_owned()),
        type_: Some(if news.is_warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}
