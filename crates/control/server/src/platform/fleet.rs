//! The plan's fleet port: the nodes of a SuperLink as the watcher observed them, and the selection for its runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trellis_plan::{Call, Fleet, LinkNode, Selection};
use trellis_spec::Name;
use trellis_wire::call::AssignShards;

use super::shared::Shared;
use super::superlink::superlink;

/// The SuperLink of a federation with a controller.
pub struct LinkFleet {
    shared: Arc<Shared>,
    name: Name,
    /// The selection that the SuperLink has.
    sent: Mutex<Option<Selection>>,
}

impl LinkFleet {
    pub fn new(shared: Arc<Shared>, name: Name) -> LinkFleet {
        LinkFleet { shared, name, sent: Mutex::default() }
    }

    /// Sends the selection again: the SuperLink may be another one, or have lost it.
    pub fn begin(&self) {
        *self.sent() = None;
    }

    fn sent(&self) -> MutexGuard<'_, Option<Selection>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, selection: &Selection) {
        if self.sent().as_ref() == Some(selection) {
            return;
        }
        let Some(view) = self.shared.views.get(&self.name) else { return };
        let Ok(superlink) = superlink(&self.shared.sites, &view) else { return };
        let Selection { total, shards, left_out, only } = selection.clone();
        match superlink.call(&AssignShards { total, shards, left_out, only }).await {
            Ok(_) => *self.sent() = Some(selection.clone()),
            Err(error) => {
                tracing::debug!(federation = %self.name, %error, "the selection could not be sent to its SuperLink")
            }
        }
    }
}

impl Fleet for LinkFleet {
    fn nodes(&self) -> Option<Arc<[LinkNode]>> {
        self.shared.views.get(&self.name)?.link_nodes()
    }

    fn select<'a>(&'a self, selection: &'a Selection) -> Call<'a, ()> {
        Box::pin(self.send(selection))
    }
}

/// For plans that are not applied.
pub struct PreviewFleet(pub Option<Arc<[LinkNode]>>);

impl Fleet for PreviewFleet {
    fn nodes(&self) -> Option<Arc<[LinkNode]>> {
        self.0.clone()
    }

    fn select<'a>(&'a self, _: &'a Selection) -> Call<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
