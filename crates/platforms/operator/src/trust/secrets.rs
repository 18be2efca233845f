//! Reads and writes the Secrets of one federation, and reads the objects that they depend on.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::Value;
use trellis_kube::federation::{Federation, TlsMode};
use trellis_kube::object::Object;
use trellis_kube::trust::given::CERTIFICATE_KIND;
use trellis_kube::trust::names::ObservedService;
use trellis_kube::trust::rotation::{self, Rollout};
use trellis_kube::trust::secret::{ObservedSecret, selector};
use trellis_kube::trust::{self, CertManager, DesiredSecret, Seen};

use super::Error;
use crate::cache;

const FIELD_MANAGER: &str = "trellis-operator";
const POOL: &str = "flower.flwr.ai/pool";

pub struct SecretStore<'a> {
    client: &'a Client,
    federation: &'a Federation,
    secrets: Api<Secret>,
}

pub enum Written {
    Done,
    /// The Secret changed since it was read.
    Contended,
}

impl<'a> SecretStore<'a> {
    pub fn new(client: &'a Client, federation: &'a Federation) -> SecretStore<'a> {
        SecretStore { client, federation, secrets: Api::namespaced(client.clone(), &federation.namespace) }
    }

    pub async fn observe(&self) -> Result<Seen, Error> {
        let federation = self.federation;
        let mut secrets = BTreeMap::new();
        let listed = self.secrets.list(&ListParams::default().labels(&selector(&federation.name))).await;
        for secret in listed.map_err(failed("list the Secrets of the federation"))? {
            secrets.insert(secret.metadata.name.clone().unwrap_or_default(), ObservedSecret::read(&json_of(&secret)));
        }
        if let Some(name) = trust::watched_secret(federation) {
            let found = self.secrets.get_opt(&name).await.map_err(failed(&format!("read Secret {name}")))?;
            secrets.extend(found.map(|secret| (name, ObservedSecret::read(&json_of(&secret)))));
        }
        let services: Api<Service> = Api::namespaced(self.client.clone(), &federation.namespace);
        let service = services.get_opt(&federation.superlink_name()).await.map_err(failed("read the Service"))?;
        let mut seen = Seen {
            secrets,
            service: service.map(|service| ObservedService::read(&json_of(&service))),
            ..Seen::default()
        };
        if trust::mode(federation) == TlsMode::CertManager {
            seen.cert_manager = self.cert_manager().await?;
        }
        let authority = seen.secrets.get(&trust::authority_name(federation));
        if authority.is_some_and(rotation::is_under_way) {
            seen.rollout = self.rollout(&seen).await?;
        }
        Ok(seen)
    }

    async fn cert_manager(&self) -> Result<CertManager, Error> {
        let name = self.federation.superlink_name();
        let only = ListParams::default().fields(&format!("metadata.name={name}"));
        match self.certificates().list(&only).await {
            Ok(found) => Ok(CertManager::Installed(found.items.first().map(json_of))),
            // A list call is never "not found" if the kind exists.
            Err(error) if is_not_found(&error) => Ok(CertManager::NotInstalled),
            Err(error) => Err(failed("list Certificates of cert-manager")(error)),
        }
    }

    fn certificates(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("cert-manager.io", "v1", CERTIFICATE_KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, "certificates");
        Api::namespaced_with(self.client.clone(), &self.federation.namespace, &resource)
    }

    async fn rollout(&self, seen: &Seen) -> Result<Rollout, Error> {
        let superlink: Api<StatefulSet> = self.stateful_sets();
        let found = superlink.get_opt(&self.federation.superlink_name()).await;
        let superlink = found.map_err(failed("read the SuperLink's StatefulSet"))?.map(|found| json_of(&found));
        let mut pools: Vec<Value> = self.pools().await?.iter().map(json_of).collect();
        let daemon_sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), &self.federation.namespace);
        let found = daemon_sets.list(&self.of_nodes()).await.map_err(failed("list the pools"))?;
        pools.extend(found.iter().map(json_of));
        Ok(Rollout::of(superlink.as_ref(), &pools, seen.secrets.get(&trust::bundle_name(self.federation))))
    }

    fn stateful_sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), &self.federation.namespace)
    }

    fn of_nodes(&self) -> ListParams {
        let instance = &self.federation.name;
        ListParams::default().labels(&format!("app.kubernetes.io/instance={instance},app.kubernetes.io/name=supernode"))
    }

    async fn pools(&self) -> Result<Vec<StatefulSet>, Error> {
        let found = self.stateful_sets().list(&self.of_nodes()).await;
        Ok(found.map_err(failed("list the pools"))?.items)
    }

    /// Current pods of each pool. Read only if nodes have keys.
    pub async fn live_sizes(&self) -> Result<BTreeMap<String, i32>, Error> {
        if !self.federation.spec.security.node_auth {
            return Ok(BTreeMap::new());
        }
        let pools = self.pools().await?.into_iter();
        let sizes = pools.filter_map(|pool| {
            let name = pool.metadata.labels?.get(POOL)?.clone();
            Some((name, pool.status?.replicas))
        });
        Ok(sizes.collect())
    }

    /// Creates or replaces a Secret, and updates `seen`.
    pub async fn write(&self, desired: &DesiredSecret, seen: &mut Seen) -> Result<Written, Error> {
        let present = seen.secrets.get(&desired.name);
        if present.is_some_and(|secret| secret.owner.as_deref() != Some(&self.federation.uid)) {
            return Err(Error::Foreign(desired.name.clone()));
        }
        let object = desired.object(self.federation, present).0;
        let secret: Secret = serde_json::from_value(object).expect("a valid Secret");
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let written = match present {
            Some(_) => self.secrets.replace(&desired.name, &params, &secret).await,
            None => self.secrets.create(&params, &secret).await,
        };
        match written {
            Ok(secret) => {
                seen.secrets.insert(desired.name.clone(), ObservedSecret::read(&json_of(&secret)));
                Ok(Written::Done)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Contended),
            Err(error) => Err(failed(&format!("write Secret {}", desired.name))(error)),
        }
    }

    pub async fn apply(&self, object: &Object) -> Result<(), Error> {
        let name = object.identity().name;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let applied = self.certificates().patch(&name, &params, &Patch::Apply(&object.0)).await;
        applied.map(drop).map_err(failed(&format!("apply Certificate {name}")))
    }

    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        match self.secrets.delete(name, &Default::default()).await {
            Err(error) if !is_not_found(&error) => Err(failed(&format!("delete Secret {name}"))(error)),
            _ => Ok(()),
        }
    }

    /// Reads one Secret.
    pub async fn secret(&self, name: &str) -> Result<Option<ObservedSecret>, Error> {
        let found = self.secrets.get_opt(name).await.map_err(failed(&format!("read Secret {name}")))?;
        Ok(found.map(|secret| ObservedSecret::read(&json_of(&secret))))
    }
}

/// The state in the cache.
pub fn observed_in(cache: &cache::Seen, federation: &Federation) -> Seen {
    let mut seen = Seen::default();
    for (identity, object) in &cache.objects {
        match identity.kind.as_str() {
            "Secret" => drop(seen.secrets.insert(identity.name.clone(), ObservedSecret::read(&object.0))),
            "Service" if identity.name == federation.superlink_name() => {
                seen.service = Some(ObservedService::read(&object.0));
            }
            _ => {}
        }
    }
    seen
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn failed(what: &str) -> impl FnOnce(kube::Error) -> Error + use<> {
    let what = what.to_owned();
    move |source| Error::Api { what, source: Box::new(source) }
}

fn json_of(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("objects of the API server can be serialized")
}
