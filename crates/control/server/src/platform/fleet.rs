//! The plan's fleet port: the SuperLink's nodes as the watcher last heard of them, and who of them runs may select.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trellis_plan::{Call, Fleet, LinkNode, Selection};
use trellis_spec::Name;
use trellis_wire::call::AssignShards;

use super::shared::Shared;
use super::superlink::superlink;

/// The SuperLink of a federation that is kept.
pub struct LinkFleet {
    shared: Arc<Shared>,
    name: Name,
    told: Mutex<Option<Selection>>,
}

impl LinkFleet {
    pub fn new(shared: Arc<Shared>, name: Name) -> LinkFleet {
        LinkFleet { shared, name, told: Mutex::default() }
    }

    /// The SuperLink may be another, or have forgotten what it was told.
    pub fn begin(&self) {
        *self.told() = None;
    }

    fn told(&self) -> MutexGuard<'_, Option<Selection>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tell(&self, selection: &Selection) {
        if self.told().as_ref() == Some(selection) {
            return;
        }
        let Some(view) = self.shared.views.get(&self.name) else { return };
        let Ok(superlink) = superlink(&self.shared.sites, &view) else { return };
        let Selection { total, shards, left_out, only } = selection.clone();
        match superlink.call(&AssignShards { total, shards, left_out, only }).await {
            Ok(_) => *self.told() = Some(selection.clone()),
            Err(error) => tracing::debug!(federation = %self.name, %error, "its SuperLink was not told of shards"),
        }
    }
}

impl Fleet for LinkFleet {
    fn nodes(&self) -> Option<Arc<[LinkNode]>> {
        self.shared.views.get(&self.name)?.link_nodes()
    }

    fn select<'a>(&'a self, selection: &'a Selection) -> Call<'a, ()> {
        Box::pin(self.tell(selection))
    }
}

/// For plans that nobody carries out.
pub struct PreviewFleet(pub Option<Arc<[LinkNode]>>);

impl Fleet for PreviewFleet {
    fn nodes(&self) -> Option<Arc<[LinkNode]>> {
        self.0.clone()
    }

    fn select<'a>(&'a self, _: &'a Selection) -> Call<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
