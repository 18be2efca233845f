//! What the cluster looks like, as the watches and our own writes tell. Passes read from here and ask the API server nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;
use trellis_kube::object::{Identity, Object};

use crate::held::{Held, version_of};
use crate::kinds::{INSTANCE_LABEL, Kind};

/// How many deletions are remembered, so that the answer to an own write that comes late does not undo one.
const REMEMBERED_DELETIONS: usize = 4096;

/// A federation.
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

/// A federation and its objects at one moment.
#[derive(Debug, Clone)]
pub struct Seen {
    pub resource: Value,
    /// All that carry its labels, whoever they belong to.
    pub objects: BTreeMap<Identity, Object>,
}

/// Which objects a watch tells about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    pub kind: &'static str,
    /// `None`: all.
    pub namespace: Option<String>,
}

type Place = (&'static str, Box<str>);

#[derive(Default)]
struct Inside {
    federations: HashMap<Key, Held>,
    objects: HashMap<Key, BTreeMap<Place, Held>>,
    deletions: HashMap<(Key, Place), u64>,
    /// What a watch that starts over has told so far.
    starting: HashMap<Scope, HashSet<(Key, Place)>>,
    default_storage: Option<bool>,
}

#[derive(Default)]
pub struct Cache {
    inside: RwLock<Inside>,
}

impl Cache {
    fn read(&self) -> RwLockReadGuard<'_, Inside> {
        self.inside.read().expect("nobody panics while holding it")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inside> {
        self.inside.write().expect("nobody panics while holding it")
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

    /// The resource of a federation as it is. Returns its key if it is news.
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

    /// An object that carries the labels of a federation. Returns whose it is if it is news.
    pub fn put(&self, kind: &'static Kind, object: &mut Value) -> Option<Key> {
        // Lists do not say it of each item.
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

    /// A watch starts over.
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
        if let Some(told) = self.write().starting.get_mut(scope) {
            told.insert((key, place(kind, object)));
        }
    }

    /// A watch has told all there is. Returns whose objects have gone meanwhile.
    pub fn started(&self, scope: &Scope) -> HashSet<Key> {
        let mut inside = self.write();
        let Some(told) = inside.starting.remove(scope) else { return HashSet::new() };
        let covered = |key: &Key| scope.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace);
        let mut gone = HashSet::new();
        if scope.kind == crate::kinds::FEDERATION.kind {
            let told: HashSet<&Key> = told.iter().map(|(key, _)| key).collect();
            inside.federations.retain(|key, _| {
                let stays = !covered(key) || told.contains(key);
                if !stays {
                    gone.insert(key.clone());
                }
                stays
            });
            return gone;
        }
        for (key, objects) in &mut inside.objects {
            objects.retain(|place, _| {
                let stays = place.0 != scope.kind || !covered(key) || told.contains(&(key.clone(), place.clone()));
                if !stays {
                    gone.insert(key.clone());
                }
                stays
            });
        }
        inside.objects.retain(|_, objects| !objects.is_empty());
        gone
    }

    /// Whether claims without a storage class find one; `None` where nobody may tell us.
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

/// The federation whose labels an object carries.
fn owner(object: &Value) -> Option<Key> {
    let name = object["metadata"]["labels"][INSTANCE_LABEL].as_str()?.to_owned();
    Some(Key { namespace: text(object, "namespace"), name })
}
