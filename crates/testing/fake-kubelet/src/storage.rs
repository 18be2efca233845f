//! Provisions volumes for claims of our storage class: each gets a volume of the requested size, which is deleted with
//! the claim.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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

struct Context {
    client: Client,
    class: String,
    places: Option<Places>,
}

/// Directories of volumes by name.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub directory: PathBuf,
    /// The volume is deleted with its claim.
    pub are_made: bool,
}

/// Never returns.
pub(crate) async fn serve(client: Client, storage: Storage, places: Option<Places>) {
    let Storage::Class { name, .. } = storage else { return std::future::pending().await };
    let claims = Controller::new(Api::<PersistentVolumeClaim>::all(client.clone()), watcher::Config::default());
    let volumes = Controller::new(Api::<PersistentVolume>::all(client.clone()), watcher::Config::default());
    let context = Arc::new(Context { client, class: name, places });
    let provide =
        |claim: Arc<PersistentVolumeClaim>, context: Arc<Context>| async move { provide(&context, &claim).await };
    let remove = |volume: Arc<PersistentVolume>, context: Arc<Context>| async move { remove(&context, &volume).await };
    let claims = claims.run(provide, |_, _, _| Action::requeue(RETRY_AFTER), Arc::clone(&context));
    let volumes = volumes.run(remove, |_, _, _| Action::requeue(RETRY_AFTER), context);
    tokio::join!(claims.for_each(|_| async {}), volumes.for_each(|_| async {}));
}

async fn provide(context: &Context, claim: &PersistentVolumeClaim) -> kube::Result<Action> {
    let spec = claim.spec.clone().unwrap_or_default();
    let is_ours = spec.storage_class_name.as_deref() == Some(context.class.as_str()) && spec.volume_name.is_none();
    if is_ours && claim.metadata.deletion_timestamp.is_none() {
        let volume = volume_for(context, claim);
        make_place(context, &volume["spec"]["hostPath"]["path"]);
        let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
        let name = volume["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        volumes.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(volume)).await?;
    }
    Ok(Action::await_change())
}

/// Writable for all users: a kubelet does not change the owner of directories of the machine.
fn make_place(context: &Context, path: &Value) {
    let Some(path) = path.as_str().filter(|_| context.places.as_ref().is_some_and(|places| places.are_made)) else {
        return;
    };
    let made = fs::create_dir_all(path).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o777)));
    if let Err(why) = made {
        tracing::warn!(path, %why, "no place for a volume");
    }
}

/// The name depends on the claim, so that a claim never gets two volumes.
fn volume_for(context: &Context, claim: &PersistentVolumeClaim) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    let uid = claim.uid().unwrap_or_default();
    let name = format!("pvc-{uid}");
    let directory = context.places.as_ref().map_or(Path::new("/nonexistent"), |places| &places.directory);
    let place = directory.join(&name);
    let size =
        spec.resources.and_then(|resources| resources.requests).and_then(|mut requests| requests.remove("storage"));
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.access_modes,
            "storageClassName": context.class,
            "persistentVolumeReclaimPolicy": "Delete",
            "volumeMode": "Filesystem",
            "hostPath": {"path": place},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "name": claim.name_any(), "namespace": claim.namespace(), "uid": uid,
            },
        },
    })
}

async fn remove(context: &Context, volume: &PersistentVolume) -> kube::Result<Action> {
    let is_ours =
        volume.spec.as_ref().is_some_and(|spec| spec.storage_class_name.as_deref() == Some(context.class.as_str()));
    let is_released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
    if is_ours && is_released && volume.metadata.deletion_timestamp.is_none() {
        let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
        match volumes.delete(&volume.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
        if let Some(places) = &context.places {
            // A missing directory was never used.
            let _ = tokio::fs::remove_dir_all(places.directory.join(volume.name_any())).await;
        }
    }
    Ok(Action::await_change())
}
