//! Changes objects of the cluster. Every request has an end, is counted, and leaves its answer in the cache.

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::time::timeout;
use trellis_kube::object::{Identity, Object, taken_over};
use trellis_kube::status::Trouble;

use crate::cache::Key;
use crate::context::Context;
use crate::held::Fresh;
use crate::kinds::{DEPLOYMENT, FEDERATION, Kind, POD};

/// Who we are to the API server: fields that we apply belong to this name.
pub const FIELD_MANAGER: &str = "trellis-operator";
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// A status that others write at the same moment.
const CONFLICT_TRIES: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{0}")]
    Answer(#[source] Box<kube::Error>),
    #[error("the API server did not answer within {} s", REQUEST_LIMIT.as_secs())]
    Silence,
    #[error("{0} is no kind of object that the operator knows")]
    UnknownKind(String),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        WriteError::Answer(Box::new(error))
    }
}

impl WriteError {
    /// The code of the API server's answer; 0 where there was none.
    pub fn code(&self) -> u16 {
        match self {
            WriteError::Answer(error) => match error.as_ref() {
                kube::Error::Api(status) => status.code,
                _ => 0,
            },
            _ => 0,
        }
    }

    fn words(&self) -> String {
        match self {
            WriteError::Answer(error) => match error.as_ref() {
                kube::Error::Api(status) => status.message.clone(),
                other => other.to_string(),
            },
            other => other.to_string(),
        }
    }

    /// As it is told in the status of a federation.
    pub fn trouble(&self, about: &Identity, doing: &str) -> Trouble {
        let words = self.words();
        let (reason, lasting, hint) = match self.code() {
            403 if words.contains("being terminated") => ("NamespaceTerminating", false, ""),
            403 if words.contains("exceeded quota") => ("QuotaExceeded", true, "; raise the quota or ask for less"),
            403 => ("Forbidden", true, "; check the operator's role"),
            404 => (
                "KindMissing",
                true,
                "; the cluster does not know this kind of object: install its definition, or do not ask for it",
            ),
            400 | 422 => ("Refused", true, "; change the resource so that the API server accepts it"),
            409 => ("Conflict", false, "; tried again"),
            429 => ("TooManyRequests", false, "; tried again"),
            _ => ("ApiError", false, "; tried again"),
        };
        Trouble {
            about: Some(about.clone()),
            reason: reason.to_owned(),
            message: format!("{about} could not be {doing}: {words}{hint}"),
            lasting,
        }
    }
}

impl Context {
    async fn request<T>(
        &self,
        verb: &'static str,
        kind: &Kind,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        let answer = timeout(REQUEST_LIMIT, request).await;
        self.metrics.wrote(verb, kind.kind, matches!(answer, Ok(Ok(_))));
        Ok(answer.map_err(|_| WriteError::Silence)??)
    }

    /// Server-side apply, which also takes from others what we want to be otherwise. Returns what became of it.
    pub async fn apply(&self, namespace: &str, wanted: &Object) -> Result<Object, WriteError> {
        let (identity, kind) = known(wanted)?;
        let api: Api<Fresh> = self.api(kind, Some(namespace));
        let how = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&wanted.0);
        let mut fresh = self.request("apply", kind, api.patch(&identity.name, &how, &patch)).await?;
        self.cache.put(kind, &mut fresh.object);
        Ok(Object(fresh.object))
    }

    /// The object as it is now. Reads from the API server: for what the watches do not show.
    pub async fn look_up(&self, namespace: &str, wanted: &Object) -> Result<Option<Object>, WriteError> {
        let (identity, kind) = known(wanted)?;
        let api: Api<Fresh> = self.api(kind, Some(namespace));
        let found = timeout(REQUEST_LIMIT, api.get_opt(&identity.name)).await.map_err(|_| WriteError::Silence)??;
        Ok(found.map(|fresh| {
            let mut object = fresh.object;
            object["apiVersion"] = identity.api_version.clone().into();
            object["kind"] = identity.kind.clone().into();
            Object(object)
        }))
    }

    /// What another operator wrote counts as ours from now on, so that what is not wanted of it goes with the next apply.
    pub async fn take_over(&self, namespace: &str, wanted: &Object) -> Result<(), WriteError> {
        let (identity, kind) = known(wanted)?;
        let api: Api<DynamicObject> = self.api(kind, Some(namespace));
        let live = timeout(REQUEST_LIMIT, api.get(&identity.name)).await.map_err(|_| WriteError::Silence)??;
        let entries = serde_json::to_value(&live.metadata.managed_fields).unwrap_or_default();
        let Some(entries) = taken_over(&entries, FIELD_MANAGER) else { return Ok(()) };
        let patch = json!({"metadata": {"managedFields": entries, "resourceVersion": live.metadata.resource_version}});
        let how = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.request("patch", kind, api.patch(&identity.name, &how, &Patch::Merge(&patch))).await?;
        Ok(())
    }

    /// Deletes this very object, not another one that took its name meanwhile. It may be gone already.
    pub async fn delete(&self, namespace: &str, object: &Object, keep_pods: bool) -> Result<(), WriteError> {
        let (identity, kind) = known(object)?;
        let api: Api<Fresh> = self.api(kind, Some(namespace));
        let how = DeleteParams {
            propagation_policy: Some(if keep_pods { PropagationPolicy::Orphan } else { PropagationPolicy::Background }),
            preconditions: Some(Preconditions { uid: Some(object.uid().to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        match self.request("delete", kind, api.delete(&identity.name, &how)).await {
            Err(error) if !matches!(error.code(), 404 | 409) => return Err(error),
            Err(_) => {}
            // It is still there: somebody finishes something first.
            Ok(answer) => drop(answer.map_left(|mut leaving| self.cache.put(kind, &mut leaving.object))),
        }
        if *kind == DEPLOYMENT {
            // Nobody watches it.
            self.cache.remove(kind, &object.0);
        }
        Ok(())
    }

    /// Deletes the pod with this UID, or shortens the grace period of a pod that is being deleted. A missing pod is
    /// no error.
    pub async fn delete_pod(&self, namespace: &str, pod: &Value, grace_s: Option<u32>) -> Result<(), WriteError> {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let api: Api<Fresh> = self.api(&POD, Some(namespace));
        let how = DeleteParams {
            grace_period_seconds: grace_s,
            preconditions: Some(Preconditions { uid: Some(text("uid").to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        match self.request("delete", &POD, api.delete(text("name"), &how)).await {
            Err(error) if !matches!(error.code(), 404 | 409) => Err(error),
            _ => Ok(()),
        }
    }

    /// Changes `.status` of a federation. Who is gone needs none.
    pub async fn write_status(&self, key: &Key, uid: &str, change: &Value) -> Result<(), WriteError> {
        let api: Api<Fresh> = self.api(&FEDERATION, Some(&key.namespace));
        let patch = json!({"metadata": {"uid": uid}, "status": change});
        let how = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let mut tries = 0;
        loop {
            tries += 1;
            match self.request("status", &FEDERATION, api.patch_status(&key.name, &how, &Patch::Merge(&patch))).await {
                Ok(fresh) => {
                    self.cache.put_federation(&fresh.object);
                    return Ok(());
                }
                Err(error) if error.code() == 404 => return Ok(()),
                Err(error) if error.code() == 409 && tries < CONFLICT_TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn known(object: &Object) -> Result<(Identity, &'static Kind), WriteError> {
    let identity = object.identity();
    let kind = Kind::find(&identity.api_version, &identity.kind);
    let kind = kind.ok_or_else(|| WriteError::UnknownKind(format!("{} {}", identity.api_version, identity.kind)))?;
    Ok((identity, kind))
}
