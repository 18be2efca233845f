//! Objects of the cluster that pods need, updated by watches.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::{self, Lookup, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::expand::Cluster;

pub(super) struct World {
    secrets: Store<Secret>,
    config_maps: Store<ConfigMap>,
    pub claims: Store<PersistentVolumeClaim>,
    pub services: Store<Service>,
    pub slices: Store<EndpointSlice>,
    pub pods: Store<Pod>,
    changed: watch::Receiver<()>,
    // Ends when the value is dropped.
    _watches: JoinSet<()>,
}

impl World {
    /// Has listed all objects when it returns.
    pub async fn watch(client: &Client) -> World {
        let (sender, changed) = watch::channel(());
        let (sender, mut watches) = (Arc::new(sender), JoinSet::new());
        let world = World {
            secrets: watched(client, &sender, &mut watches),
            config_maps: watched(client, &sender, &mut watches),
            claims: watched(client, &sender, &mut watches),
            services: watched(client, &sender, &mut watches),
            slices: watched(client, &sender, &mut watches),
            pods: watched(client, &sender, &mut watches),
            changed,
            _watches: watches,
        };
        let _ = tokio::join!(
            world.secrets.wait_until_ready(),
            world.config_maps.wait_until_ready(),
            world.claims.wait_until_ready(),
            world.services.wait_until_ready(),
            world.slices.wait_until_ready(),
            world.pods.wait_until_ready(),
        );
        world
    }

    /// Subscribes to changes.
    pub fn changes(&self) -> watch::Receiver<()> {
        let mut changes = self.changed.clone();
        changes.mark_unchanged();
        changes
    }
}

fn watched<K>(client: &Client, changed: &Arc<watch::Sender<()>>, watches: &mut JoinSet<()>) -> Store<K>
where
    K: kube::Resource + Lookup + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    <K as kube::Resource>::DynamicType: Default,
    <K as Lookup>::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    let (store, writer) = reflector::store();
    let stream = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    let (stream, changed) = (reflector::reflector(writer, stream), Arc::clone(changed));
    watches.spawn(async move { stream.for_each(|_| async { changed.send_modify(|()| ()) }).await });
    store
}

impl Cluster for World {
    fn secret(&self, namespace: &str, name: &str) -> Option<Secret> {
        self.secrets.get(&ObjectRef::new(name).within(namespace)).map(|secret| Secret::clone(&secret))
    }

    fn config_map(&self, namespace: &str, name: &str) -> Option<ConfigMap> {
        self.config_maps.get(&ObjectRef::new(name).within(namespace)).map(|map| ConfigMap::clone(&map))
    }
}
