//! Volumes for claims of our storage class: each gets one of the size that it asks for, and when it is gone, so is the volume.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::Storage;

const FIELD_MANAGER: &str = "fake-kubelet";
const PROVISIONER: &str = "trellis.dev/fake-kubelet";
const RETRY_AFTER: Duration = Duration::from_millis(500);

pub(crate) async fn register(client: &Client, storage: &Storage) -> kube::Result<()> {
    let Storage::Class { name, is_default } = storage else { return Ok(()) };
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": is_default.to_string()}},
        "provisioner": PROVISIONER,
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": true,
    });
    let classes: Api<StorageClass> = Api::all(client.clone());
    classes.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(class)).await.map(drop)
}

/// Ends never.
pub(crate) async fn serve(client: Client, storage: Storage) {
    let Storage::Class { name, .. } = storage else { return std::future::pending().await };
    let class: Arc<str> = name.into();
    let claims = Controller::new(Api::<PersistentVolumeClaim>::all(client.clone()), watcher::Config::default());
    let volumes = Controller::new(Api::<PersistentVolume>::all(client.clone()), watcher::Config::default());
    let context = Arc::new((client, class));
    let provide = |claim: Arc<PersistentVolumeClaim>, context: Arc<(Client, Arc<str>)>| async move {
        provide(&context.0, &context.1, &claim).await
    };
    let remove = |volume: Arc<PersistentVolume>, context: Arc<(Client, Arc<str>)>| async move {
        remove(&context.0, &context.1, &volume).await
    };
    let claims = claims.run(provide, |_, _, _| Action::requeue(RETRY_AFTER), Arc::clone(&context));
    let volumes = volumes.run(remove, |_, _, _| Action::requeue(RETRY_AFTER), context);
    tokio::join!(claims.for_each(|_| async {}), volumes.for_each(|_| async {}));
}

async fn provide(client: &Client, class: &str, claim: &PersistentVolumeClaim) -> kube::Result<Action> {
    let spec = claim.spec.clone().unwrap_or_default();
    let is_ours = spec.storage_class_name.as_deref() == Some(class) && spec.volume_name.is_none();
    if is_ours && claim.metadata.deletion_timestamp.is_none() {
        let volume = volume_for(class, claim);
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let name = volume["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        volumes.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(volume)).await?;
    }
    Ok(Action::await_change())
}

/// Named after the claim, so that the same claim never gets two.
fn volume_for(class: &str, claim: &PersistentVolumeClaim) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    let uid = claim.uid().unwrap_or_default();
    let size =
        spec.resources.and_then(|resources| resources.requests).and_then(|mut requests| requests.remove("storage"));
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("pvc-{uid}"), "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.access_modes,
            "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Delete",
            "volumeMode": "Filesystem",
            "hostPath": {"path": format!("/nonexistent/{uid}")},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "name": claim.name_any(), "namespace": claim.namespace(), "uid": uid,
            },
        },
    })
}

async fn remove(client: &Client, class: &str, volume: &PersistentVolume) -> kube::Result<Action> {
    let is_ours = volume.spec.as_ref().is_some_and(|spec| spec.storage_class_name.as_deref() == Some(class));
    let is_released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
    if is_ours && is_released && volume.metadata.deletion_timestamp.is_none() {
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        match volumes.delete(&volume.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
    }
    Ok(Action::await_change())
}
