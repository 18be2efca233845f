//! Secrets of the parts of a federation: authority, certificates, the token of the first administrator, keys of nodes. What they
//! must contain is decided in [`trellis_kube::trust`], as for the operator. Each Secret is owned by the part that needs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use trellis_clock::now_unix;
use trellis_digest::fnv1a;
use trellis_kube::federation::Federation;
use trellis_kube::flower::Programs;
use trellis_kube::render::Trust;
use trellis_kube::trust::secret::{BUNDLE, CERTIFICATE, DesiredSecret, Entries, KEY, ObservedSecret, TOKEN};
use trellis_kube::trust::{self as rules, Decision, ObservedService, Rollout, Seen};
use trellis_plan::{CoordinatorSpec, NodeSpec, ResourceId, Spec};
use trellis_spec::Tls;

use crate::client_files::ClientFiles;
use crate::cluster::{Cluster, SECRET, SERVICE, STATEFUL_SET};
use crate::failure::{Failure, FailureKind};
use crate::manifests::owned;
use crate::names::{self, ObjectNames};
use crate::resource::trust_names;

/// Attempts to write the Secrets of a coordinator while another process writes them too.
const MAX_ATTEMPTS: u32 = 3;

/// The part that owns the Secrets, and its StatefulSet.
pub struct Owner<'a> {
    pub cluster: &'a Cluster,
    pub files: &'a ClientFiles,
    pub id: &'a ResourceId,
    pub workload: &'a Value,
}

/// Live Secrets by name, as the API server returned them.
type Live = BTreeMap<String, Value>;

impl Owner<'_> {
    /// Creates or updates the Secrets of a coordinator. `federation`: the resource that stands for it.
    pub async fn equip_coordinator(
        &self,
        federation: &Federation,
        spec: &CoordinatorSpec,
    ) -> Result<Option<Trust>, Failure> {
        if spec.tls == Tls::Off {
            return Ok(None);
        }
        let uid = self.workload["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let federation = &Federation { uid, ..federation.clone() };
        for _ in 0..MAX_ATTEMPTS {
            let (mut seen, live) = self.observe(federation).await?;
            let mut decision = match &spec.tls {
                Tls::Files { certificate, key, trust } => self.given(federation, &seen, [certificate, key, trust])?,
                Tls::Auto | Tls::Off => rules::decide(federation, &seen, now_unix()),
            };
            let Some(trust) = decision.trust.take() else {
                let why = decision.condition.map(|condition| condition.message).unwrap_or_default();
                return Err(Failure::new(FailureKind::Refused, why));
            };
            self.keep_former_token(federation, &mut decision).await?;
            match self.write(federation, &decision.secrets, &mut seen, &live).await {
                Err(Failure { kind: FailureKind::Conflict, .. }) => continue,
                written => written?,
            }
            for event in &decision.events {
                tracing::info!(federation = %self.id.federation, reason = event.reason, "{}", event.message);
            }
            self.copy(&self.files.trust(), entry(&seen, &trust.server_secret, BUNDLE))?;
            if let Some(secret) = &trust.admin_secret {
                self.copy(&self.files.admin_token(), entry(&seen, secret, TOKEN))?;
            }
            return Ok(Some(trust));
        }
        Err(Failure::new(FailureKind::Refused, "another process writes the Secrets of the federation at the same time"))
    }

    /// Creates or updates the Secret of a node. Returns its key too if nodes have keys.
    pub async fn equip_node(
        &self,
        federation: &Federation,
        spec: &NodeSpec,
        elsewhere: Option<PathBuf>,
    ) -> Result<(Option<Trust>, Option<Vec<u8>>), Failure> {
        let names = ObjectNames::of(self.id);
        let mut trust = trust_names(&Spec::Node(spec.clone()), federation, &names);
        let mut entries = Entries::new();
        if let Some((authorities, revision)) = self.authorities(spec, elsewhere).await? {
            entries.insert(BUNDLE.to_owned(), authorities);
            trust.iter_mut().for_each(|trust| trust.bundle_revision.clone_from(&revision));
        }
        let live = self.secret(&names.node_secret()).await?.map(|secret| ObservedSecret::read(&secret));
        let mut key = None;
        if spec.node_auth {
            let node_key = match live.as_ref().and_then(|secret| secret.entries.get(&names.pod())) {
                Some(key) => key.clone(),
                None => new_node_key(&self.id.part.name())?,
            };
            entries.insert(names.pod(), node_key.clone());
            key = Some(node_key);
        }
        if !entries.is_empty() && live.is_none_or(|live| live.entries != entries) {
            let desired = DesiredSecret { name: names.node_secret(), entries, annotations: BTreeMap::new() };
            self.cluster.apply(&self.manifest(federation, &desired, None, None)).await?;
        }
        Ok((trust, key))
    }

    /// The authorities that a node trusts, and their revision.
    async fn authorities(
        &self,
        spec: &NodeSpec,
        elsewhere: Option<PathBuf>,
    ) -> Result<Option<(Vec<u8>, String)>, Failure> {
        let path = match &spec.tls {
            Tls::Off => return Ok(None),
            Tls::Files { trust, .. } => trust.clone(),
            Tls::Auto => {
                if let Some(bundle) = self.secret(&names::bundle(&self.id.federation)).await? {
                    let bundle = ObservedSecret::read(&bundle);
                    let revision = bundle.annotations.get(rules::BUNDLE_REVISION).cloned();
                    if let Some(found) = bundle.entries.get(BUNDLE).cloned().zip(revision) {
                        return Ok(Some(found));
                    }
                }
                let known = [Some(self.files.trust()), elsewhere].into_iter().flatten().find(|path| path.exists());
                let missing =
                    || Failure::new(FailureKind::Refused, "the authority of the coordinator is not known yet");
                known.ok_or_else(missing)?
            }
        };
        let authorities = read_file(&path)?;
        let revision = format!("{:016x}", fnv1a(&authorities));
        Ok(Some((authorities, revision)))
    }

    async fn observe(&self, federation: &Federation) -> Result<(Seen, Live), Failure> {
        let mut live = Live::new();
        for name in [
            rules::authority_name(federation),
            rules::server_name(federation),
            rules::bundle_name(federation),
            rules::admin_name(federation),
        ] {
            live.extend(self.secret(&name).await?.map(|secret| (name, secret)));
        }
        let service = self.cluster.get(SERVICE, &federation.superlink_name()).await?;
        let mut seen = Seen {
            secrets: live.iter().map(|(name, secret)| (name.clone(), ObservedSecret::read(secret))).collect(),
            service: service.as_ref().map(ObservedService::read),
            trellis: Programs::of(federation).superlink.is_trellis(),
            ..Seen::default()
        };
        let authority = seen.secrets.get(&rules::authority_name(federation));
        if authority.is_some_and(rules::rotation::is_under_way) {
            let selector = names::selector(&self.id.federation, &self.id.site);
            let workloads = self.cluster.list(STATEFUL_SET, &selector, "").await?;
            let name = federation.superlink_name();
            let (superlink, nodes): (Vec<Value>, Vec<Value>) =
                workloads.into_iter().partition(|workload| workload["metadata"]["name"] == name);
            let bundle = seen.secrets.get(&rules::bundle_name(federation));
            seen.rollout = Rollout::of(superlink.first(), &nodes, bundle);
        }
        Ok((seen, live))
    }

    /// Certificates that the user maintains as files.
    fn given(&self, federation: &Federation, seen: &Seen, files: [&PathBuf; 3]) -> Result<Decision, Failure> {
        let name = rules::server_name(federation);
        let mut entries = Entries::new();
        for (entry, path) in [CERTIFICATE, KEY, BUNDLE].into_iter().zip(files) {
            entries.insert(entry.to_owned(), read_file(path)?);
        }
        let revision = format!("{:016x}", fnv1a(&entries[CERTIFICATE]));
        let trust = Trust {
            server_secret: name.clone(),
            authority_secret: name.clone(),
            bundle_revision: revision.clone(),
            revision,
            ..Trust::default()
        };
        let desired = DesiredSecret { name, entries, annotations: BTreeMap::new() };
        let is_current = seen.secrets.get(&desired.name).is_some_and(|secret| desired.is(secret));
        let secrets = if is_current { Vec::new() } else { vec![desired] };
        let mut decision = Decision { secrets, trust: Some(trust), ..Decision::default() };
        rules::admin(federation, seen, &mut decision);
        Ok(decision)
    }

    /// A token that an earlier version stored under another name stays valid.
    async fn keep_former_token(&self, federation: &Federation, decision: &mut Decision) -> Result<(), Failure> {
        let admin = rules::admin_name(federation);
        let Some(desired) = decision.secrets.iter_mut().find(|secret| secret.name == admin) else { return Ok(()) };
        if let Some(former) = self.secret(&names::former_admin_token(&self.id.federation)).await?
            && let Some(token) = ObservedSecret::read(&former).entries.remove(TOKEN)
        {
            desired.entries.insert(TOKEN.to_owned(), token);
        }
        Ok(())
    }

    async fn write(
        &self,
        federation: &Federation,
        secrets: &[DesiredSecret],
        seen: &mut Seen,
        live: &Live,
    ) -> Result<(), Failure> {
        for desired in secrets {
            let manifest = self.manifest(federation, desired, seen.secrets.get(&desired.name), live.get(&desired.name));
            let written = match live.contains_key(&desired.name) {
                true => self.cluster.apply(&manifest).await?,
                false => self.cluster.create(&manifest).await?,
            };
            seen.secrets.insert(desired.name.clone(), ObservedSecret::read(&written));
        }
        Ok(())
    }

    /// As the operator writes it, but owned by the part.
    fn manifest(
        &self,
        federation: &Federation,
        desired: &DesiredSecret,
        seen: Option<&ObservedSecret>,
        live: Option<&Value>,
    ) -> Value {
        let mut secret = owned(desired.object(federation, seen).0, self.workload);
        for (label, value) in names::labels(self.id) {
            secret["metadata"]["labels"][label] = json!(value);
        }
        // The type is immutable, and earlier versions created all Secrets as Opaque.
        if let Some(live) = live {
            secret["type"] = live["type"].clone();
        }
        secret
    }

    /// A Secret of this federation.
    async fn secret(&self, name: &str) -> Result<Option<Value>, Failure> {
        let Some(secret) = self.cluster.get(SECRET, name).await? else { return Ok(None) };
        if secret["metadata"]["labels"][names::FEDERATION] != self.id.federation.as_str() {
            let advice = "rename the federation, or use another namespace";
            let why = format!("Secret {name} exists and does not belong to this federation (to do: {advice})");
            return Err(Failure::new(FailureKind::Refused, why));
        }
        Ok(Some(secret))
    }

    fn copy(&self, path: &Path, content: Option<&Vec<u8>>) -> Result<(), Failure> {
        let content = content.map(Vec::as_slice).unwrap_or_default();
        self.files.write(path, content).map_err(|error| Failure::new(FailureKind::Refused, error.to_string()))
    }
}

/// Writes the files for clients again from the Secrets.
pub async fn restore_client_files(cluster: &Cluster, files: &ClientFiles, id: &ResourceId) -> Result<(), Failure> {
    let coordinator = names::coordinator(&id.federation);
    let secrets = [
        (names::former_admin_token(&id.federation), TOKEN, files.admin_token()),
        (format!("{}-admin", id.federation), TOKEN, files.admin_token()),
        (format!("{coordinator}-tls"), BUNDLE, files.trust()),
    ];
    for (name, key, path) in secrets {
        let Some(secret) = cluster.get(SECRET, &name).await? else { continue };
        if let Some(content) = ObservedSecret::read(&secret).entries.remove(key) {
            files.write(&path, &content).map_err(|error| Failure::new(FailureKind::Refused, error.to_string()))?;
        }
    }
    Ok(())
}

fn entry<'s>(seen: &'s Seen, secret: &str, key: &str) -> Option<&'s Vec<u8>> {
    seen.secrets.get(secret)?.entries.get(key)
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::new(FailureKind::Refused, format!("{}: {error}", path.display())))
}

/// A key in the format of SuperNodes.
fn new_node_key(comment: &str) -> Result<Vec<u8>, Failure> {
    let key = trellis_client::NodeKey::draw(comment).map(String::into_bytes);
    key.map_err(|error| Failure::new(FailureKind::Refused, format!("a node key cannot be created: {error}")))
}
