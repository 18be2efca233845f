//! Writes objects of the cluster. Every request has a timeout, is counted, and updates the cache with its response.

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::time::timeout;
use trellis_kube::object::{Identity, Object, taken_over};
use trellis_kube::status::Failure;

use crate::cache::Key;
use crate::context::Context;
use crate::kinds::{DEPLOYMENT, FEDERATION, Kind, POD};
use crate::stored::Fresh;

/// Field manager of server-side apply.
pub const FIELD_MANAGER: &str = "trellis-operator";
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Attempts to write a status that others write at the same time.
const CONFLICT_TRIES: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{0}")]
    Answer(#[source] Box<kube::Error>),
    #[error("the API server did not answer within {} s", REQUEST_LIMIT.as_secs())]
    Silence,
    #[error("the operator does not support objects of kind {0}")]
    UnknownKind(String),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        WriteError::Answer(Box::new(error))
    }
}

impl WriteError {
    /// Status code of the response; 0 without a response.
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

    /// As it is reported in the status of a federation.
    pub fn failure(&self, about: &Identity, action: &str) -> Failure {
        let words = self.words();
        let (reason, permanent, hint) = match self.code() {
            403 if words.contains("being terminated") => ("NamespaceTerminating", false, ""),
            403 if words.contains("exceeded quota") => ("QuotaExceeded", true, "; raise the quota or request less"),
            403 => ("Forbidden", true, "; check the operator's role"),
            404 => (
                "KindMissing",
                true,
                "; the cluster does not know this kind of object: install its definition, or disable the feature that needs it",
            ),
            400 | 422 => ("Refused", true, "; change the resource so that the API server accepts it"),
            409 => ("Conflict", false, "; it is retried"),
            429 => ("TooManyRequests", false, "; it is retried"),
            _ => ("ApiError", false, "; it is retried"),
        };
        Failure {
            about: Some(about.clone()),
            reason: reason.to_owned(),
            message: format!("{about} could not be {action}: {words}{hint}"),
            permanent,
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

    /// Server-side apply with force. Returns the live object.
    pub async fn apply(&self, namespace: &str, desired: &Object) -> Result<Object, WriteError> {
        let (identity, kind) = known(desired)?;
        let api: Api<Fresh> = self.api(kind, Some(namespace));
        let how = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&desired.0);
        let mut fresh = self.request("apply", kind, api.patch(&identity.name, &how, &patch)).await?;
        self.cache.put(kind, &mut fresh.object);
        Ok(Object(fresh.object))
    }

    /// Reads an object from the API server, for objects that are not watched.
    pub async fn look_up(&self, namespace: &str, desired: &Object) -> Result<Option<Object>, WriteError> {
        let (identity, kind) = known(desired)?;
        let api: Api<Fresh> = self.api(kind, Some(namespace));
        let found = timeout(REQUEST_LIMIT, api.get_opt(&identity.name)).await.map_err(|_| WriteError::Silence)??;
        Ok(found.map(|fresh| {
            let mut object = fresh.object;
            object["apiVersion"] = identity.api_version.clone().into();
            object["kind"] = identity.kind.clone().into();
            Object(object)
        }))
    }

    /// Makes this operator the manager of fields that another operator wrote, so that the next apply removes those that
    /// are not desired.
    pub async fn take_over(&self, namespace: &str, desired: &Object) -> Result<(), WriteError> {
        let (identity, kind) = known(desired)?;
        let api: Api<DynamicObject> = self.api(kind, Some(namespace));
        let live = timeout(REQUEST_LIMIT, api.get(&identity.name)).await.map_err(|_| WriteError::Silence)??;
        let entries = serde_json::to_value(&live.metadata.managed_fields).unwrap_or_default();
        let Some(entries) = taken_over(&entries, FIELD_MANAGER) else { return Ok(()) };
        let patch = json!({"metadata": {"managedFields": entries, "resourceVersion": live.metadata.resource_version}});
        let how = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.request("patch", kind, api.patch(&identity.name, &how, &Patch::Merge(&patch))).await?;
        Ok(())
    }

    /// Deletes the object with this UID, not another one of the same name. It may be deleted already.
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
            // A finalizer delays the deletion.
            Ok(answer) => drop(answer.map_left(|mut leaving| self.cache.put(kind, &mut leaving.object))),
        }
        if *kind == DEPLOYMENT {
            // The kind is not watched.
            self.cache.remove(kind, &object.0);
        }
        Ok(())
    }

    /// Deletes the pod with this UID, or shortens the grace period of a pod that is being deleted. A missing pod is not
    /// an error.
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

    /// Patches `.status` of a federation. A deleted federation is not an error.
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
