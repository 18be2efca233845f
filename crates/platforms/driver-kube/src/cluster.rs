//! Calls to the API server for one namespace of a cluster. Knows nothing about federations.

use std::time::Duration;

use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config};
use serde_json::Value;
use tokio::sync::Mutex;
use trellis_spec::KubeSite;

use crate::failure::{Failure, FailureKind};

const FIELD_MANAGER: &str = "trellis";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
const PAGE_LIMIT: u32 = 500;

pub const STATEFUL_SET: (&str, &str) = ("apps/v1", "StatefulSet");
pub const POD: (&str, &str) = ("v1", "Pod");
pub const SERVICE: (&str, &str) = ("v1", "Service");
pub const SECRET: (&str, &str) = ("v1", "Secret");
pub const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
pub const EVENT: (&str, &str) = ("v1", "Event");
pub const STORAGE_CLASS: (&str, &str) = ("storage.k8s.io/v1", "StorageClass");

pub struct Cluster {
    pub site: KubeSite,
    /// Created at the first call, and again after a failure, because tokens and certificates change.
    client: Mutex<Option<Client>>,
}

impl Cluster {
    pub fn new(site: KubeSite) -> Cluster {
        Cluster { site, client: Mutex::new(None) }
    }

    pub async fn get(&self, kind: (&str, &str), name: &str) -> Result<Option<Value>, Failure> {
        let found = self.api(kind).await?.get_opt(name).await;
        Ok(self.response("read", kind, name, found).await?.map(|found| with_type(kind, found)))
    }

    /// All objects that match the label selector and the field selector.
    pub async fn list(&self, kind: (&str, &str), labels: &str, fields: &str) -> Result<Vec<Value>, Failure> {
        let api = self.api(kind).await?;
        let mut params = ListParams { limit: Some(PAGE_LIMIT), ..ListParams::default().labels(labels).fields(fields) };
        let mut all = Vec::new();
        loop {
            let page = self.response("list", kind, "", api.list(&params).await).await?;
            let next = page.metadata.continue_.filter(|next| !next.is_empty());
            all.extend(page.items.into_iter().map(|found| with_type(kind, found)));
            match next {
                Some(next) => params = params.continue_token(&next),
                None => return Ok(all),
            }
        }
    }

    /// A conflict if the object exists.
    pub async fn create(&self, object: &Value) -> Result<Value, Failure> {
        let (api_version, kind, name) = identity(object);
        let kind = (api_version, kind);
        let created = self.api(kind).await?.create(&posted(), &dynamic(object)?).await;
        self.response("create", kind, name, created).await.map(|created| with_type(kind, created))
    }

    /// A conflict if the object changed since it was read.
    pub async fn replace(&self, object: &Value) -> Result<Value, Failure> {
        let (api_version, kind, name) = identity(object);
        let kind = (api_version, kind);
        let replaced = self.api(kind).await?.replace(name, &posted(), &dynamic(object)?).await;
        self.response("replace", kind, name, replaced).await.map(|replaced| with_type(kind, replaced))
    }

    /// Server-side apply. A conflict if the manifest has a resource version and the object changed since.
    pub async fn apply(&self, object: &Value) -> Result<Value, Failure> {
        let (api_version, kind, name) = identity(object);
        let kind = (api_version, kind);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let applied = self.api(kind).await?.patch(name, &params, &Patch::Apply(object)).await;
        self.response("apply", kind, name, applied).await.map(|applied| with_type(kind, applied))
    }

    /// Deletes the object after all objects that it owns. Another object with the same name stays.
    pub async fn delete(&self, object: &Value) -> Result<(), Failure> {
        let (api_version, kind, name) = identity(object);
        let kind = (api_version, kind);
        let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        match self.api(kind).await?.delete(name, &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => self.response("delete", kind, name, deleted).await.map(drop),
        }
    }

    async fn response<T>(
        &self,
        call: &str,
        (_, kind): (&str, &str),
        name: &str,
        response: Result<T, kube::Error>,
    ) -> Result<T, Failure> {
        let error = match response {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let failure = Failure::of(format!("{call} {kind} {name}").trim_end(), &error);
        if failure.kind == FailureKind::Unreachable {
            self.forget_client().await;
        }
        Err(failure)
    }

    /// The next call reads the kubeconfig again.
    async fn forget_client(&self) {
        *self.client.lock().await = None;
    }

    async fn api(&self, (api_version, kind): (&str, &str)) -> Result<Api<DynamicObject>, Failure> {
        let client = self.client().await?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk(&kind);
        Ok(match kind.kind == STORAGE_CLASS.1 {
            true => Api::all_with(client, &resource),
            false => Api::namespaced_with(client, &self.site.namespace, &resource),
        })
    }

    async fn client(&self) -> Result<Client, Failure> {
        let mut known = self.client.lock().await;
        if let Some(client) = known.as_ref() {
            return Ok(client.clone());
        }
        // Another library of this process may have installed a provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let unusable = |why: String| Failure::new(FailureKind::Unreachable, why);
        let mut config = self.config().await.map_err(unusable)?;
        (config.connect_timeout, config.read_timeout, config.write_timeout) =
            (Some(CONNECT_TIMEOUT), Some(RESPONSE_TIMEOUT), Some(RESPONSE_TIMEOUT));
        let client = Client::try_from(config)
            .map_err(|error| unusable(format!("no client for the cluster can be created: {error}")))?;
        *known = Some(client.clone());
        Ok(client)
    }

    async fn config(&self) -> Result<Config, String> {
        let options = KubeConfigOptions { context: self.site.context.clone(), ..KubeConfigOptions::default() };
        match (&self.site.kubeconfig, &self.site.context) {
            (Some(path), _) => {
                let unreadable = |error: kube::config::KubeconfigError| format!("{}: {error}", path.display());
                let read = Kubeconfig::read_from(path).map_err(unreadable)?;
                Config::from_custom_kubeconfig(read, &options).await.map_err(unreadable)
            }
            (None, Some(context)) => {
                let unusable = |error| format!("no context {context} in the kubeconfig: {error}");
                Config::from_kubeconfig(&options).await.map_err(unusable)
            }
            (None, None) => {
                let to_do = "set kubernetes.kubeconfig of the site";
                let unusable = |error| {
                    format!("no kubeconfig was found, and this process does not run in a pod: {error} (to do: {to_do})")
                };
                Config::infer().await.map_err(unusable)
            }
        }
    }
}

fn identity(object: &Value) -> (&str, &str, &str) {
    (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn posted() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn dynamic(object: &Value) -> Result<DynamicObject, Failure> {
    let unfit = |error: serde_json::Error| {
        Failure::new(FailureKind::Invalid, format!("it is not a Kubernetes object: {error}"))
    };
    serde_json::from_value(object.clone()).map_err(unfit)
}

/// Items of lists have no type.
fn with_type((api_version, kind): (&str, &str), object: DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    value
}
