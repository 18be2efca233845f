//! What only pods of a federation may know, as Secrets: the authority, certificates, the first administrator's token, keys of
//! nodes. Each belongs to the part that needs it, and goes with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use trellis_clock::now_unix;
use trellis_digest::fnv1a;
use trellis_pki::authority::{CA_VALIDITY, LEAF_VALIDITY};
use trellis_pki::{Certificate, Delivery, Endpoint, Keyring, UnixSeconds, Wish, pem, renewal};
use trellis_plan::{CoordinatorSpec, NodeSpec, ResourceId};
use trellis_spec::{Runtime, Tls};

use crate::cluster::{Cluster, SECRET};
use crate::dress::owned;
use crate::home::Home;
use crate::names::{self, Called};
use crate::trouble::{Kind, Trouble};

const TOKEN_BYTES: usize = 32;
const TOKEN: &str = "token";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
pub const AUTHORITIES: &str = "ca.crt";
const CLUSTER_DOMAIN: &str = "cluster.local";

type Entries = BTreeMap<String, Vec<u8>>;

/// The part that they are for, and its workload.
pub struct Owner<'a> {
    pub cluster: &'a Cluster,
    pub home: &'a Home,
    pub id: &'a ResourceId,
    pub workload: &'a Value,
}

impl Owner<'_> {
    /// Sees to it that a coordinator has what it needs. Says what changes with its certificate.
    pub async fn equip_coordinator(&self, spec: &CoordinatorSpec) -> Result<String, Trouble> {
        let served = match &spec.tls {
            Tls::Off => return Ok(String::new()),
            Tls::Auto => self.certificate(spec).await?,
            Tls::Files { certificate, key, trust } => {
                let entries = [(CERTIFICATE, certificate), (KEY, key), (AUTHORITIES, trust)];
                let read = |(name, path): (&str, &PathBuf)| Ok((name.to_owned(), read_file(path)?));
                let entries: Entries = entries.into_iter().map(read).collect::<Result<_, Trouble>>()?;
                self.keep(&Called::of(self.id).secret(), &entries).await?;
                entries
            }
        };
        if spec.runtime == Runtime::Trellis {
            let token = self.admin_token().await?;
            self.copy(&self.home.admin_token(), &token)?;
        }
        let authorities = served.get(AUTHORITIES).cloned().unwrap_or_default();
        self.copy(&self.home.trust(), &authorities)?;
        Ok(revision(&served))
    }

    /// Sees to it that a node has what it needs: whom to trust, and where only known nodes take part, its key.
    pub async fn equip_node(
        &self,
        spec: &NodeSpec,
        elsewhere: Option<PathBuf>,
    ) -> Result<(String, Option<Vec<u8>>), Trouble> {
        let mut entries = Entries::new();
        match &spec.tls {
            Tls::Off => {}
            Tls::Files { trust, .. } => drop(entries.insert(AUTHORITIES.to_owned(), read_file(trust)?)),
            Tls::Auto => {
                let known = [Some(self.home.trust()), elsewhere].into_iter().flatten().find(|path| path.exists());
                let Some(path) = known else {
                    let why = "the coordinator has not said yet whom to trust";
                    return Err(Trouble::new(Kind::Refused, why));
                };
                entries.insert(AUTHORITIES.to_owned(), read_file(&path)?);
            }
        }
        let changes = revision(&entries);
        let called = Called::of(self.id);
        let mut key = None;
        if spec.node_auth {
            let known = self.secret(&called.secret()).await?.and_then(|mut known| known.remove(&called.pod()));
            let made = match known {
                Some(key) => key,
                None => new_node_key(&self.id.part.name())?,
            };
            entries.insert(called.pod(), made.clone());
            key = Some(made);
        }
        if !entries.is_empty() {
            self.keep(&called.secret(), &entries).await?;
        }
        Ok((changes, key))
    }

    async fn certificate(&self, spec: &CoordinatorSpec) -> Result<Entries, Trouble> {
        let (endpoints, now) = (self.endpoints(spec)?, now_unix());
        let authority = self.authority(now).await?;
        let name = Called::of(self.id).secret();
        let known = self.secret(&name).await?.unwrap_or_default();
        let bundle = authority.trust_bundle();
        let due = match leaf(&known) {
            None => Some("there was none".to_owned()),
            Some(leaf) => renewal::due(&leaf, &endpoints, authority.signing(), now).map(|reason| reason.words()),
        };
        let same_bundle = known.get(AUTHORITIES).is_some_and(|text| text == bundle.as_bytes());
        if due.is_none() && same_bundle {
            return Ok(known);
        }
        tracing::info!(federation = %self.id.federation, "a certificate is made: {}", due.unwrap_or_default());
        let wish = Wish { endpoints: &endpoints, name: None, validity: LEAF_VALIDITY };
        let failed = |error: trellis_pki::Error| Trouble::new(Kind::Wrong, format!("no certificate: {error}"));
        let Delivery { chain, key, trust } = authority.issue(wish, now).map_err(failed)?;
        let entry = |name: &str, text: String| (name.to_owned(), text.into_bytes());
        let entries = Entries::from([entry(CERTIFICATE, chain), entry(KEY, key), entry(AUTHORITIES, trust)]);
        self.keep(&name, &entries).await?;
        Ok(entries)
    }

    /// One for each federation, made once.
    async fn authority(&self, now: UnixSeconds) -> Result<Keyring, Trouble> {
        let name = names::authority(&self.id.federation);
        let broken = |error: trellis_pki::Error| Trouble::new(Kind::Wrong, format!("Secret {name}: {error}"));
        if let Some(entries) = self.secret(&name).await? {
            return Keyring::read(&name, &entries).map_err(broken);
        }
        let made = Keyring::new(self.id.federation.as_str(), CA_VALIDITY, now).map_err(broken)?;
        match self.cluster.make(&self.object(&name, &made.entries())).await {
            Err(Trouble { kind: Kind::Conflict, .. }) => {
                let entries = self.secret(&name).await?.unwrap_or_default();
                Keyring::read(&name, &entries).map_err(broken)
            }
            answer => answer.map(|_| made),
        }
    }

    async fn admin_token(&self) -> Result<Vec<u8>, Trouble> {
        let name = names::admin_token(&self.id.federation);
        let known = |entries: Option<Entries>| entries.and_then(|mut entries| entries.remove(TOKEN));
        if let Some(token) = known(self.secret(&name).await?) {
            return Ok(token);
        }
        let mut bytes = [0; TOKEN_BYTES];
        let none = |_| Trouble::new(Kind::Refused, "the system gives no random numbers");
        aws_lc_rs::rand::fill(&mut bytes).map_err(none)?;
        let token = URL_SAFE_NO_PAD.encode(bytes).into_bytes();
        match self.cluster.make(&self.object(&name, &Entries::from([(TOKEN.to_owned(), token.clone())]))).await {
            Err(Trouble { kind: Kind::Conflict, .. }) => Ok(known(self.secret(&name).await?).unwrap_or(token)),
            answer => answer.map(|_| token),
        }
    }

    fn endpoints(&self, spec: &CoordinatorSpec) -> Result<Vec<Endpoint>, Trouble> {
        let service = names::coordinator(&self.id.federation);
        let namespace = &self.cluster.site.namespace;
        let inside = [
            service.clone(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.{CLUSTER_DOMAIN}"),
        ];
        let mut endpoints = Endpoint::localhost().to_vec();
        for name in inside.iter().chain(&spec.endpoints.advertise) {
            let unfit = |why| Trouble::new(Kind::Wrong, format!("{name} cannot be in a certificate: {why}"));
            let endpoint = Endpoint::parse(name).map_err(unfit)?;
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        Ok(endpoints)
    }

    async fn secret(&self, name: &str) -> Result<Option<Entries>, Trouble> {
        let Some(secret) = self.cluster.get(SECRET, name).await? else { return Ok(None) };
        if secret["metadata"]["labels"][names::FEDERATION] != self.id.federation.as_str() {
            let to_do = "call the federation something else, or use another namespace";
            return Err(Trouble::new(Kind::Refused, format!("Secret {name} is somebody else's (to do: {to_do})")));
        }
        Ok(Some(entries(&secret)))
    }

    async fn keep(&self, name: &str, wanted: &Entries) -> Result<(), Trouble> {
        if self.secret(name).await?.as_ref() == Some(wanted) {
            return Ok(());
        }
        self.cluster.apply(&self.object(name, wanted)).await.map(drop)
    }

    fn object(&self, name: &str, entries: &Entries) -> Value {
        let data: Map<String, Value> =
            entries.iter().map(|(key, bytes)| (key.clone(), json!(STANDARD.encode(bytes)))).collect();
        let metadata =
            json!({ "name": name, "namespace": self.cluster.site.namespace, "labels": names::labels(self.id) });
        let secret = json!({ "apiVersion": SECRET.0, "kind": SECRET.1, "metadata": metadata, "data": data });
        owned(secret, self.workload)
    }

    fn copy(&self, path: &Path, content: &[u8]) -> Result<(), Trouble> {
        self.home.write(path, content).map_err(|error| Trouble::new(Kind::Refused, error.to_string()))
    }
}

/// What users of a federation need, from its Secrets: for a disk that has lost it.
pub async fn copies(cluster: &Cluster, home: &Home, id: &ResourceId) -> Result<(), Trouble> {
    let secrets = [
        (names::admin_token(&id.federation), TOKEN, home.admin_token()),
        (Called::of(id).secret(), AUTHORITIES, home.trust()),
    ];
    for (name, key, path) in secrets {
        let Some(secret) = cluster.get(SECRET, &name).await? else { continue };
        if let Some(content) = entries(&secret).remove(key) {
            home.write(&path, &content).map_err(|error| Trouble::new(Kind::Refused, error.to_string()))?;
        }
    }
    Ok(())
}

fn entries(secret: &Value) -> Entries {
    let data = secret["data"].as_object().into_iter().flatten();
    data.filter_map(|(key, value)| Some((key.clone(), STANDARD.decode(value.as_str()?).ok()?))).collect()
}

fn leaf(entries: &Entries) -> Option<Certificate> {
    entries.get(KEY)?;
    let ders = pem::certificates(entries.get(CERTIFICATE)?).ok()?;
    Certificate::read(ders.first()?).ok()
}

fn revision(entries: &Entries) -> String {
    let authorities = entries.get(AUTHORITIES).map_or(&[][..], Vec::as_slice);
    format!("{:016x}", fnv1a(authorities))
}

fn read_file(path: &Path) -> Result<Vec<u8>, Trouble> {
    std::fs::read(path).map_err(|error| Trouble::new(Kind::Refused, format!("{}: {error}", path.display())))
}

/// As a SuperNode reads it.
fn new_node_key(comment: &str) -> Result<Vec<u8>, Trouble> {
    let failed = |why: String| Trouble::new(Kind::Refused, format!("no key can be made: {why}"));
    let directory = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let path = directory.path().join("node.key");
    trellis_client::NodeKey::generate(&path, comment).map_err(|error| failed(error.to_string()))?;
    read_file(&path)
}
