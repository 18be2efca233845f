//! Kinds of sites: the fields of a site for each driver, and the properties that checks of documents need.
//!
//! The kinds that come with the program are in the modules below. The crate of another driver has a type with its own
//! [`SiteFields`] and registers it. No other module of this crate names a kind.

mod kubernetes;
mod local;
mod opennebula;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

use crate::federation::Containers;
use crate::object::Object;
use crate::yaml::Map;

pub use kubernetes::{Exposure, KubeImages, KubeSite};
pub use local::LocalSite;
pub use opennebula::{OneImages, OneSite};

const BUILT_IN: [SiteKind; 3] = [SiteKind::of::<LocalSite>(), SiteKind::of::<OneSite>(), SiteKind::of::<KubeSite>()];

static REGISTERED: RwLock<Vec<SiteKind>> = RwLock::new(Vec::new());

/// The fields of a site of one kind, as its driver uses them.
pub trait SiteFields: Serialize + DeserializeOwned {
    /// The field of a site that selects the kind.
    const NAME: &'static str;
    /// The name of the kind in stored sites.
    const STORED: &'static str = Self::NAME;
    const HELP: &'static str;

    /// `None` if a field is invalid or missing, which is recorded.
    fn read(object: &mut Object<'_>) -> Option<Self>;

    /// The canonical form: all fields including defaults, in a fixed order.
    fn write(&self) -> Map;

    fn traits(&self) -> SiteTraits;

    /// Paths on the machine of the control plane, each with the name of its field.
    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        Vec::new()
    }
}

/// Properties of a site for the checks of documents and the planner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SiteTraits {
    /// Parts run on the machine of the control plane.
    pub on_this_machine: bool,
    /// The driver starts programs of a machine as processes or in containers; `None`: it boots images.
    pub containers: Option<Containers>,
    /// The site starts appliances, which support no environment and no arguments.
    pub starts_appliances: bool,
    /// The driver can create WireGuard gateways.
    pub makes_gateways: bool,
    /// The site evaluates scaling rules and changes the number of nodes.
    pub runs_scaling_rules: bool,
}

impl SiteTraits {
    /// Without containers, the site has no images.
    pub fn starts_processes(&self) -> bool {
        self.containers == Some(Containers::No)
    }
}

/// The description of a kind, without the type of its fields.
#[derive(Clone, Copy)]
pub struct SiteKind {
    pub name: &'static str,
    pub(crate) help: &'static str,
    stored: &'static str,
    pub(crate) read: fn(&mut Object<'_>) -> Option<SiteConfig>,
    write: fn(&Json) -> Map,
    restore: fn(&Json) -> serde_json::Result<SiteConfig>,
    with_paths: fn(&Json, Visit<'_>) -> SiteConfig,
}

type Visit<'a> = &'a mut dyn FnMut(&str, &mut PathBuf);

impl SiteKind {
    pub const fn of<T: SiteFields>() -> SiteKind {
        SiteKind {
            name: T::NAME,
            help: T::HELP,
            stored: T::STORED,
            read: |object| T::read(object).map(SiteConfig::from),
            write: |fields| typed::<T>(fields).write(),
            restore: |fields| T::deserialize(fields).map(SiteConfig::from),
            with_paths: |fields, visit| {
                let mut fields: T = typed(fields);
                fields.paths_mut().into_iter().for_each(|(field, path)| visit(field, path));
                fields.into()
            },
        }
    }

    /// Adds a kind to the documents of this process. Adding it again has no effect.
    pub fn register(self) {
        let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
        if !BUILT_IN.iter().chain(registered.iter()).any(|known| known.name == self.name) {
            registered.push(self);
        }
    }

    /// All kinds, in the order of the reference.
    pub(crate) fn all() -> Vec<SiteKind> {
        let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
        BUILT_IN.iter().chain(registered.iter()).copied().collect()
    }
}

fn typed<T: SiteFields>(fields: &Json) -> T {
    T::deserialize(fields).expect("serialized from these fields")
}

/// The kind of a site, and its fields.
#[derive(Clone)]
pub struct SiteConfig {
    kind: SiteKind,
    /// As stored.
    fields: Json,
    traits: SiteTraits,
}

impl SiteConfig {
    pub fn kind(&self) -> &'static str {
        self.kind.name
    }

    pub fn traits(&self) -> SiteTraits {
        self.traits
    }

    /// `None`: the site is of another kind.
    pub fn get<T: SiteFields>(&self) -> Option<T> {
        (self.kind.name == T::NAME).then(|| typed(&self.fields))
    }

    pub(crate) fn write(&self) -> Map {
        (self.kind.write)(&self.fields)
    }

    pub(crate) fn visit_paths(&mut self, visit: Visit<'_>) {
        *self = (self.kind.with_paths)(&self.fields, visit);
    }
}

impl<T: SiteFields> From<T> for SiteConfig {
    fn from(fields: T) -> SiteConfig {
        let traits = fields.traits();
        let fields = serde_json::to_value(fields).expect("the fields of a site are plain data");
        SiteConfig { kind: SiteKind::of::<T>(), fields, traits }
    }
}

/// The default site: processes of this machine.
impl Default for SiteConfig {
    fn default() -> SiteConfig {
        LocalSite { containers: Containers::No }.into()
    }
}

impl PartialEq for SiteConfig {
    fn eq(&self, other: &SiteConfig) -> bool {
        (self.kind.name, &self.fields) == (other.kind.name, &other.fields)
    }
}

impl fmt::Debug for SiteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name, self.fields)
    }
}

impl Serialize for SiteConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.kind.stored, &self.fields)])
    }
}

impl<'de> Deserialize<'de> for SiteConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SiteConfig, D::Error> {
        let stored = BTreeMap::<String, Json>::deserialize(deserializer)?;
        let (name, fields) = stored.first_key_value().ok_or_else(|| D::Error::custom("the site has no kind"))?;
        let kind = SiteKind::all().into_iter().find(|kind| kind.stored == name);
        let kind = kind.ok_or_else(|| D::Error::custom(format!("{name} is not a kind of site")))?;
        (kind.restore)(fields).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_sites_of_earlier_versions_can_be_read() {
        for stored in [
            r#"{"Local":{"containers":"Podman"}}"#,
            r#"{"OpenNebula":{"allow_plain_http":false,"auth_file":"/a","datastore":null,"endpoint":"https://o/RPC2","flow":null,"images":{"superlink":null,"supernode":null},"network":"n","zone":null}}"#,
        ] {
            let site: SiteConfig = serde_json::from_str(stored).expect("a site");
            assert_eq!(serde_json::to_string(&site).expect("JSON"), stored);
        }
        // The first version of Kubernetes sites had two fields.
        let site: SiteConfig =
            serde_json::from_str(r#"{"Kubernetes":{"context":null,"namespace":"n"}}"#).expect("a site");
        assert_eq!(site, KubeSite::of("n").into());
        assert!(serde_json::from_str::<SiteConfig>(r#"{"Moon":{}}"#).is_err());
    }
}
