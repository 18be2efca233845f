//! Watches the cluster, updates the cache, and queues federations whose objects changed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::cache::Scope;
use crate::context::Context;
use crate::kinds::{DEPLOYMENT, FEDERATION, Kind, MANAGED, OWNED};
use crate::stored::Fresh;

/// Page size of the initial list: pages are in memory twice for a moment.
const PAGE_OBJECTS: u32 = 100;
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Retry interval for a kind that is missing or forbidden. The watcher's own backoff restarts with every attempt.
const ABSENT_RETRY: Duration = Duration::from_secs(60);

/// Watches that have not completed their initial list.
#[derive(Default)]
pub struct Synced {
    missing: AtomicUsize,
    complete: Notify,
}

impl Synced {
    pub fn is_complete(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    pub async fn wait(&self) {
        loop {
            let complete = self.complete.notified();
            if self.is_complete() {
                self.complete.notify_one();
                return;
            }
            complete.await;
        }
    }

    fn one_more(&self) {
        self.missing.fetch_add(1, Ordering::AcqRel);
    }

    fn one_less(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete.notify_one();
        }
    }
}

/// Counts a watch as synced once, however often it restarts.
struct First<'a>(&'a Synced, bool);

impl First<'_> {
    fn synced(&mut self) {
        if !std::mem::replace(&mut self.1, true) {
            self.0.one_less();
        }
    }
}

/// Starts all watches. They end with the context.
pub fn start(context: &Arc<Context>) {
    for namespace in context.settings.scopes() {
        for kind in OWNED.iter().chain([&FEDERATION]) {
            context.synced.one_more();
            context.spawn(watch_kind(Arc::clone(context), kind, namespace.clone()));
        }
    }
    context.synced.one_more();
    context.spawn(watch_storage(Arc::clone(context)));
}

async fn watch_kind(context: Arc<Context>, kind: &'static Kind, namespace: Option<String>) {
    let api: Api<Fresh> = context.api(kind, namespace.as_deref());
    let mut config = watcher::Config::default().page_size(PAGE_OBJECTS);
    let federations = *kind == FEDERATION;
    if !federations {
        config = config.labels(MANAGED);
    }
    let scope = Scope { kind: kind.kind, namespace };
    let mut first = First(&context.synced, false);
    let mut events = std::pin::pin!(watch(api, config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => take_in(&context, kind, &scope, event, &mut first),
            Err(error) if complain(&context, kind.optional, kind.plural, &error, &mut first) => {
                sleep(ABSENT_RETRY).await
            }
            Err(_) => {}
        }
    }
}

fn take_in(context: &Context, kind: &'static Kind, scope: &Scope, event: Event<Fresh>, first: &mut First<'_>) {
    let cache = &context.cache;
    let federations = *kind == FEDERATION;
    let put = |mut fresh: Fresh| match federations {
        true => cache.put_federation(&fresh.object),
        false => cache.put(kind, &mut fresh.object),
    };
    match event {
        Event::Init => cache.start(scope),
        Event::InitApply(fresh) => {
            cache.told_at_start(scope, kind, &fresh.object);
            if let Some(key) = put(fresh) {
                context.queue.push(key);
            }
        }
        Event::InitDone => {
            for key in cache.started(scope) {
                context.queue.push(key);
            }
            first.synced();
        }
        Event::Apply(fresh) => {
            if let Some(key) = put(fresh) {
                context.queue.push(key);
            }
        }
        Event::Delete(fresh) => {
            let gone = match federations {
                true => cache.remove_federation(&fresh.object),
                false => cache.remove(kind, &fresh.object),
            };
            if let Some(key) = gone {
                context.queue.push(key);
            }
        }
    }
}

/// Logs a failed watch, which restarts by itself. Returns whether an optional kind is missing or forbidden; then the
/// start does not wait for it.
fn complain(context: &Context, optional: bool, plural: &str, error: &watcher::Error, first: &mut First<'_>) -> bool {
    context.metrics.watch_failed(plural);
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code,
        _ => 0,
    };
    if optional && matches!(code, 403 | 404) {
        tracing::debug!(kind = plural, %error, "not watched");
        first.synced();
        return true;
    }
    match code {
        403 => tracing::warn!(kind = plural, %error, "not allowed to watch; check the operator's role"),
        404 => {
            tracing::warn!(kind = plural, %error, "the cluster does not know this kind; `trellis operator crd` prints ours")
        }
        _ => tracing::info!(kind = plural, %error, "watch starts over"),
    }
    false
}

/// Whether the cluster has a default storage class.
async fn watch_storage(context: Arc<Context>) {
    let api: Api<PartialObjectMeta<StorageClass>> = Api::all(context.client.clone());
    let stream = watch(api, watcher::Config::default()).default_backoff();
    follow_storage(&context, stream).await;
}

async fn follow_storage(
    context: &Context,
    events: impl Stream<Item = watcher::Result<Event<PartialObjectMeta<StorageClass>>>>,
) {
    let mut first = First(&context.synced, false);
    let mut defaults: HashSet<String> = HashSet::new();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let name = |class: &PartialObjectMeta<StorageClass>| class.metadata.name.clone().unwrap_or_default();
        match event {
            Ok(Event::Init) => defaults.clear(),
            Ok(Event::InitApply(class) | Event::Apply(class)) => {
                let annotations = class.metadata.annotations.as_ref();
                let says =
                    |key: &&str| annotations.is_some_and(|all| all.get(*key).is_some_and(|value| value == "true"));
                match DEFAULT_CLASS.iter().any(says) {
                    true => drop(defaults.insert(name(&class))),
                    false => drop(defaults.remove(&name(&class))),
                }
            }
            Ok(Event::Delete(class)) => drop(defaults.remove(&name(&class))),
            Ok(Event::InitDone) => {
                context.cache.set_default_storage(!defaults.is_empty());
                first.synced();
                continue;
            }
            Err(error) => {
                if complain(context, true, "storageclasses", &error, &mut first) {
                    sleep(ABSENT_RETRY).await;
                }
                continue;
            }
        }
        if first.1 {
            context.cache.set_default_storage(!defaults.is_empty());
        }
    }
}

/// Deployments of SuperLinks by releases of the other operator before 2026. No release creates them any more, so they
/// are listed at intervals and not watched.
pub async fn find_old_deployments(context: &Context) {
    for namespace in context.settings.scopes() {
        let api: Api<Fresh> = context.api(&DEPLOYMENT, namespace.as_deref());
        match api.list(&ListParams::default().labels(MANAGED)).await {
            Ok(found) => {
                for mut fresh in found {
                    if let Some(key) = context.cache.put(&DEPLOYMENT, &mut fresh.object) {
                        context.queue.push(key);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "old Deployments cannot be listed; retried later"),
        }
    }
}
