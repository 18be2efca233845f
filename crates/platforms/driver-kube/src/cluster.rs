//! One namespace of a cluster as its API server has it. It knows kinds and calls, and nothing of federations.

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

use crate::trouble::{Kind, Trouble};

/// Who writes what is ours.
const FIELD_MANAGER: &str = "trellis";
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(20);
/// So many objects of a list come at once.
const PAGE: u32 = 500;

pub const STATEFUL_SET: (&str, &str) = ("apps/v1", "StatefulSet");
pub const POD: (&str, &str) = ("v1", "Pod");
pub const SERVICE: (&str, &str) = ("v1", "Service");
pub const SECRET: (&str, &str) = ("v1", "Secret");
pub const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
pub const EVENT: (&str, &str) = ("v1", "Event");
pub const STORAGE_CLASS: (&str, &str) = ("storage.k8s.io/v1", "StorageClass");

pub struct Cluster {
    pub site: KubeSite,
    /// Made at the first call, and made anew after trouble: tokens and certificates change.
    client: Mutex<Option<Client>>,
}

impl Cluster {
    pub fn new(site: KubeSite) -> Cluster {
        Cluster { site, client: Mutex::new(None) }
    }

    pub async fn get(&self, kind: (&str, &str), name: &str) -> Result<Option<Value>, Trouble> {
        let found = self.api(kind).await?.get_opt(name).await;
        Ok(self.answer("read", kind, name, found).await?.map(|found| plain(kind, found)))
    }

    /// By labels, or by fields.
    pub async fn list(&self, kind: (&str, &str), labels: &str, fields: &str) -> Result<Vec<Value>, Trouble> {
        let api = self.api(kind).await?;
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default().labels(labels).fields(fields) };
        let mut all = Vec::new();
        loop {
            let page = self.answer("list", kind, "", api.list(&params).await).await?;
            let next = page.metadata.continue_.filter(|next| !next.is_empty());
            all.extend(page.items.into_iter().map(|found| plain(kind, found)));
            match next {
                Some(next) => params = params.continue_token(&next),
                None => return Ok(all),
            }
        }
    }

    /// Makes what is not there; a conflict where it is.
    pub async fn make(&self, object: &Value) -> Result<Value, Trouble> {
        let (api_version, kind, name) = identity(object);
        let kind = (api_version, kind);
        let made = self.api(kind).await?.create(&posted(), &dynamic(object)?).await;
        self.answer("make", kind, name, made).await.map(|made| plain(kind, made))
    }

    /// Writes what was read before; a conflict where somebody else wrote since.
    pub async fn write(&self, object: &Value) -> Result<Value, Trouble> {
        let (api_version, kind, name) = identity(object);
        let kind = (api_version, kind);
        let written = self.api(kind).await?.replace(name, &posted(), &dynamic(object)?).await;
        self.answer("change", kind, name, written).await.map(|written| plain(kind, written))
    }

    /// Sees to it that the fields are so, whatever else is in it.
    pub async fn apply(&self, object: &Value) -> Result<Value, Trouble> {
        let (api_version, kind, name) = identity(object);
        let kind = (api_version, kind);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let applied = self.api(kind).await?.patch(name, &params, &Patch::Apply(object)).await;
        self.answer("apply", kind, name, applied).await.map(|applied| plain(kind, applied))
    }

    /// Takes it away, after all that it owns. Not another of the same name.
    pub async fn delete(&self, object: &Value) -> Result<(), Trouble> {
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
            deleted => self.answer("delete", kind, name, deleted).await.map(drop),
        }
    }

    async fn answer<T>(
        &self,
        doing: &str,
        (_, kind): (&str, &str),
        name: &str,
        answer: Result<T, kube::Error>,
    ) -> Result<T, Trouble> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let trouble = Trouble::of(format!("{doing} {kind} {name}").trim_end(), &error);
        if trouble.kind == Kind::Unreachable {
            self.forget().await;
        }
        Err(trouble)
    }

    /// The next call reads anew where the cluster is and who calls.
    pub async fn forget(&self) {
        *self.client.lock().await = None;
    }

    async fn api(&self, (api_version, kind): (&str, &str)) -> Result<Api<DynamicObject>, Trouble> {
        let client = self.client().await?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk(&kind);
        Ok(match kind.kind == STORAGE_CLASS.1 {
            true => Api::all_with(client, &resource),
            false => Api::namespaced_with(client, &self.site.namespace, &resource),
        })
    }

    async fn client(&self) -> Result<Client, Trouble> {
        let mut known = self.client.lock().await;
        if let Some(client) = known.as_ref() {
            return Ok(client.clone());
        }
        // Another library of this process may have chosen already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let unusable = |why: String| Trouble::new(Kind::Unreachable, why);
        let mut config = self.config().await.map_err(unusable)?;
        (config.connect_timeout, config.read_timeout, config.write_timeout) =
            (Some(CONNECT), Some(ANSWER), Some(ANSWER));
        let client = Client::try_from(config).map_err(|error| unusable(format!("no way to the cluster: {error}")))?;
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
                let to_do = "name one in the site's kubernetes.kubeconfig";
                let unusable = |error| format!("there is no kubeconfig, and this is no pod: {error} (to do: {to_do})");
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

fn dynamic(object: &Value) -> Result<DynamicObject, Trouble> {
    let unfit = |error: serde_json::Error| Trouble::new(Kind::Wrong, format!("it is no object of Kubernetes: {error}"));
    serde_json::from_value(object.clone()).map_err(unfit)
}

/// Items of lists do not say what they are.
fn plain((api_version, kind): (&str, &str), object: DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    value
}
