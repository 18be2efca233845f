//! The observed state of the cluster, from watches and from responses to own writes. Reconciles read it instead of the
//! API server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;
use trellis_kube::object::{Identity, Object};

use crate::kinds::{INSTANCE_LABEL, Kind};
use crate::stored::{Held, version_of};

/// Deletions to remember, so that a late response to an own write does not restore a deleted object.
const REMEMBERED_DELETIONS: usize = 4096;

/// Namespace and name of a federation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A federation and its objects at one time.
#[derive(Debug, Clone)]
pub struct Seen {
    pub resource: Value,
    /// All objects with the labels of the federation, whatever their owner.
    pub objects: BTreeMap<Identity, Object>,
}

/// The objects that a watch covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    pub kind: &'static str,
    /// `None`: all namespaces.
    pub namespace: Option<String>,
}

type Place = (&'static str, Box<str>);

#[derive(Default)]
struct Inside {
    federations: HashMap<Key, Held>,
    objects: HashMap<Key, BTreeMap<Place, Held>>,
    deletions: HashMap<(Key, Place), u64>,
    /// Objects that a restarted watch has listed so far.
    starting: HashMap<Scope, HashSet<(Key, Place)>>,
    default_storage: Option<bool>,
}

#[derive(Default)]
pub struct Cache {
    inside: RwLock<Inside>,
}

impl Cache {
    fn read(&self) -> RwLockReadGuard<'_, Inside> {
        self.inside.read().expect("the lock is never poisoned")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inside> {
        self.inside.write().expect("the lock is never poisoned")
    }

    pub fn seen(&self, key: &Key) -> Option<Seen> {
        let inside = self.read();
        let resource = inside.federations.get(key)?.clone();
        let objects: Vec<(Place, Held)> =
            inside.objects.get(key).into_iter().flatten().map(|(place, held)| (place.clone(), held.clone())).collect();
        drop(inside);
        let objects = objects.into_iter().map(|(_, held)| Object(held.object()));
        Some(Seen { resource: resource.object(), objects: objects.map(|object| (object.identity(), object)).collect() })
    }

    pub fn keys(&self) -> Vec<Key> {
        self.read().federations.keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.read().federations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores the resource of a federation. Returns its key if the resource changed.
    pub fn put_federation(&self, object: &Value) -> Option<Key> {
        let key = Key { namespace: text(object, "namespace"), name: text(object, "name") };
        let held = Held::new(object);
        let mut inside = self.write();
        if let Some(known) = inside.federations.get(&key)
            && known.uid == held.uid
            && known.version >= held.version
        {
            return None;
        }
        inside.federations.insert(key.clone(), held);
        Some(key)
    }

    pub fn remove_federation(&self, object: &Value) -> Option<Key> {
        let key = Key { namespace: text(object, "namespace"), name: text(object, "name") };
        let mut inside = self.write();
        let known = inside.federations.get(&key)?;
        if *known.uid != *text(object, "uid") {
            return None;
        }
        inside.federations.remove(&key);
        Some(key)
    }

    /// Stores an object with the labels of a federation. Returns the federation if the object changed.
    pub fn put(&self, kind: &'static Kind, object: &mut Value) -> Option<Key> {
        // Items of lists have no type.
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.into();
        let (key, place) = (owner(object)?, place(kind, object));
        let mut inside = self.write();
        if inside.deletions.get(&(key.clone(), place.clone())).is_some_and(|version| *version >= version_of(object)) {
            return None;
        }
        let held = Held::new(object);
        let objects = inside.objects.entry(key.clone()).or_default();
        if let Some(known) = objects.get(&place)
            && known.version >= held.version
        {
            return None;
        }
        objects.insert(place, held);
        Some(key)
    }

    pub fn remove(&self, kind: &'static Kind, object: &Value) -> Option<Key> {
        let (key, place) = (owner(object)?, place(kind, object));
        let mut inside = self.write();
        let objects = inside.objects.get_mut(&key)?;
        if objects.get(&place).is_some_and(|known| known.version > version_of(object)) {
            return None;
        }
        objects.remove(&place);
        if objects.is_empty() {
            inside.objects.remove(&key);
        }
        if inside.deletions.len() >= REMEMBERED_DELETIONS {
            inside.deletions.clear();
        }
        inside.deletions.insert((key.clone(), place), version_of(object));
        Some(key)
    }

    /// A watch starts again.
    pub fn start(&self, scope: &Scope) {
        self.write().starting.insert(scope.clone(), HashSet::new());
    }

    pub fn told_at_start(&self, scope: &Scope, kind: &'static Kind, object: &Value) {
        let federation = scope.kind == crate::kinds::FEDERATION.kind;
        let key = match federation {
            true => Some(Key { namespace: text(object, "namespace"), name: text(object, "name") }),
            false => owner(object),
        };
        let Some(key) = key else { return };
        if let Some(listed) = self.write().starting.get_mut(scope) {
            listed.insert((key, place(kind, object)));
        }
    }

    /// A watch has listed all objects. Returns the federations of objects that disappeared meanwhile.
    pub fn started(&self, scope: &Scope) -> HashSet<Key> {
        let mut inside = self.write();
        let Some(listed) = inside.starting.remove(scope) else { return HashSet::new() };
        let covered = |key: &Key| scope.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace);
        let mut gone = HashSet::new();
        if scope.kind == crate::kinds::FEDERATION.kind {
            let listed: HashSet<&Key> = listed.iter().map(|(key, _)| key).collect();
            inside.federations.retain(|key, _| {
                let stays = !covered(key) || listed.contains(key);
                if !stays {
                    gone.insert(key.clone());
                }
                stays
            });
            return gone;
        }
        for (key, objects) in &mut inside.objects {
            objects.retain(|place, _| {
                let stays = place.0 != scope.kind || !covered(key) || listed.contains(&(key.clone(), place.clone()));
                if !stays {
                    gone.insert(key.clone());
                }
                stays
            });
        }
        inside.objects.retain(|_, objects| !objects.is_empty());
        gone
    }

    /// Whether there is a default storage class; `None` without the permission to list classes.
    pub fn default_storage(&self) -> Option<bool> {
        self.read().default_storage
    }

    pub fn set_default_storage(&self, present: bool) {
        self.write().default_storage = Some(present);
    }
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

fn place(kind: &'static Kind, object: &Value) -> Place {
    (kind.kind, text(object, "name").into())
}

/// The federation in the labels of an object.
fn owner(object: &Value) -> Option<Key> {
    let name = object["metadata"]["labels"][INSTANCE_LABEL].as_str()?.to_owned();
    Some(Key { namespace: text(object, "namespace"), name })
}
