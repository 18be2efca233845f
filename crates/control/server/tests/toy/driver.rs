//! The toy: parts are entries of a map, and ready at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use trellis_plan::{
    Action, Addresses, Call, Capabilities, Driver, DriverContext, DriverKind, Facts, Generation, Observation,
    ObservedSite, OpenDriver, OpenError, Outcome, Part, Phase, Presence, RejectedField, ResourceId, Verb,
};
use trellis_spec::fields::{Map, Object, path, text};
use trellis_spec::{Name, Site, SiteConfig, SiteFields, SiteKind, SiteTraits};

/// They outlive a control plane, as real parts do.
static PARTS: Mutex<BTreeMap<ResourceId, Generation>> = Mutex::new(BTreeMap::new());

fn locked() -> MutexGuard<'static, BTreeMap<ResourceId, Generation>> {
    PARTS.lock().expect("no test panics while it holds the lock")
}

pub fn parts() -> usize {
    locked().len()
}

#[derive(Serialize, Deserialize)]
struct ToySite {
    colour: String,
    file: Option<PathBuf>,
}

impl SiteFields for ToySite {
    const NAME: &'static str = "toy";
    const HELP: &'static str = "A toy.";

    fn read(object: &mut Object<'_>) -> Option<ToySite> {
        let colour = object.required("colour", text("a colour", "red"), "The colour of the toy.");
        let file = object.optional("file", path("/etc/hosts"), "A file of the toy.");
        Some(ToySite { colour: colour?, file })
    }

    fn write(&self) -> Map {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        Map::new().put("colour", self.colour.as_str()).maybe("file", file)
    }

    fn traits(&self) -> SiteTraits {
        SiteTraits { on_this_machine: true, ..SiteTraits::default() }
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        self.file.iter_mut().map(|file| ("file", file)).collect()
    }
}

#[derive(Debug)]
pub struct Toy;

impl DriverKind for Toy {
    fn site_kind(&self) -> SiteKind {
        SiteKind::of::<ToySite>()
    }

    fn open(&self, _context: DriverContext) -> Result<Arc<dyn OpenDriver>, OpenError> {
        Ok(Arc::new(Toy))
    }

    fn reject(&self, site: &SiteConfig) -> Vec<RejectedField> {
        let colour = site.get::<ToySite>().expect("a toy").colour;
        let is_bad = colour == "green";
        let field = RejectedField { field: "colour", what: format!("{colour} hurts the eyes"), advice: "write red" };
        is_bad.then_some(field).into_iter().collect()
    }
}

impl OpenDriver for Toy {
    fn site(self: Arc<Self>, _site: &Site) -> Arc<dyn Driver> {
        self
    }

    fn has_parts(&self, federation: &Name, site: &Name) -> bool {
        locked().keys().any(|id| id.federation == *federation && id.site == *site)
    }
}

impl Driver for Toy {
    fn capabilities(&self) -> Capabilities {
        Capabilities { drain: false, ..Capabilities::ALL }
    }

    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation> {
        let parts = locked();
        let here = parts.iter().filter(|(id, _)| id.federation == *federation && id.site == *site);
        let resources = here.map(|(id, generation)| (id.clone(), ready(id, *generation))).collect();
        let seen = ObservedSite { resources, complete: true, ..ObservedSite::default() };
        Box::pin(std::future::ready(Observation::Reached(seen)))
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        match &action.verb {
            Verb::Create(desired) | Verb::Replace(desired) => {
                locked().insert(desired.id.clone(), desired.generation);
            }
            Verb::Delete { id } => drop(locked().remove(id)),
            Verb::Restart { .. } | Verb::Drain { .. } => {}
        }
        Box::pin(std::future::ready(Outcome::Done))
    }
}

fn ready(id: &ResourceId, generation: Generation) -> Presence {
    let fleet = (id.part == Part::Coordinator).then(|| "127.0.0.1:1".to_owned());
    let facts = Facts {
        phase: Phase::Ready,
        busy: Some(false),
        draining: false,
        version: None,
        addresses: Addresses { fleet, ..Addresses::default() },
        runs: Some(0),
        round_ms: None,
        required_nodes: None,
        shard: None,
        shards: None,
        node_id: None,
        since_ms: 0,
        instance: 1,
        waiting_for: None,
    };
    Presence::Present { generation: Some(generation), facts }
}
