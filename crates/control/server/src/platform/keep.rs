//! Keeps one federation as its document says, until nothing of it is left: pass after pass of its controller, beside them the
//! one who watches its SuperLink. Decides nothing: the plan does.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use trellis_plan::{Clock, Controller, Pass, Planned, Store};
use trellis_spec::Name;

use super::clock::TokioClock;
use super::fleet::LinkFleet;
use super::shared::Shared;
use super::sites::Remembered;
use super::superlink::Endpoint;
use super::view::{Decided, View};
use super::watcher::Watcher;

/// After something that must not happen, another try.
const AFTER_BREAKDOWN: Duration = Duration::from_secs(5);

/// Keeps a federation whatever happens; what breaks for one does not touch the others.
pub async fn supervise(shared: Arc<Shared>, name: Name, bell: Arc<Notify>) {
    loop {
        let work = tokio::spawn(keep(Arc::clone(&shared), name.clone(), Arc::clone(&bell)));
        let work = AbortedWithUs(work);
        match work.ended().await {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(federation = %name, %error, "its controller broke down, and is started again");
                let trouble = "its controller broke down, and is started again; the server's log says why".to_owned();
                shared.views.note(&name, |view| view.trouble = Some(trouble));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(AFTER_BREAKDOWN) => {}
            () = shared.stopped() => return,
        }
    }
}

/// A task that does not outlive who waits for it.
struct AbortedWithUs(tokio::task::JoinHandle<()>);

impl AbortedWithUs {
    async fn ended(mut self) -> Result<(), tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl Drop for AbortedWithUs {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn keep(shared: Arc<Shared>, name: Name, bell: Arc<Notify>) {
    let (endpoint, endpoints) = watch::channel(None);
    let fleet = Arc::new(LinkFleet::new(Arc::clone(&shared), name.clone()));
    let watcher = Watcher::new(Arc::clone(&shared), name.clone(), Arc::clone(&bell), Arc::clone(&fleet));
    let clock: Arc<dyn Clock> = Arc::new(TokioClock { bell });
    let store = shared.registry.store(&name);
    let keeping = Keeping { shared, name, store, clock, fleet, endpoint };
    tokio::select! {
        () = keeping.passes() => {}
        () = watcher.watch(endpoints) => {}
    }
}

struct Keeping {
    shared: Arc<Shared>,
    name: Name,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    fleet: Arc<LinkFleet>,
    /// Where the SuperLink is, for who watches it.
    endpoint: watch::Sender<Option<Endpoint>>,
}

impl Keeping {
    async fn passes(&self) {
        let mut sites = self.sites().await;
        match self.shared.registry.drained(&self.name).await {
            Ok(drained) => self.shared.views.note(&self.name, |view| view.drained = Arc::new(drained)),
            Err(error) => self.note_trouble(&error.to_string()),
        }
        loop {
            let Some(view) = self.shared.views.get(&self.name) else { return };
            let federation = view.federation.as_deref();
            let remembered = self.shared.remember(&self.name, federation, sites.clone()).await;
            let remembered = remembered.unwrap_or_else(|error| {
                // Without their drivers these sites cannot be seen, and nothing is done there.
                self.note_trouble(&error.to_string());
                Remembered::new()
            });
            let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
            let drivers = self.shared.sites.drivers(federation, &remembered);
            let fleet = Arc::clone(&self.fleet) as _;
            let controller = self.shared.controller(&self.name, drivers, store, clock, fleet);
            let pass = controller.pass().await;
            if let Pass::Acted { planned, .. } = &pass {
                sites = sites_of(planned);
            }
            if self.take_in(&view, &pass).await.is_break() {
                return;
            }
            tokio::select! {
                () = self.clock.sleep_until(controller.next_look_ms(&pass)) => {}
                () = self.clock.woken() => {}
                () = self.shared.stopped() => {}
            }
            if self.shared.is_stopping() {
                return self.hand_over(&controller).await;
            }
        }
    }

    /// Sites where something may be, by what was kept.
    async fn sites(&self) -> BTreeSet<Name> {
        match self.store.read().await {
            Ok(kept) => kept.ledger.applied.into_keys().map(|id| id.site).collect(),
            // The first pass will say the same.
            Err(_) => BTreeSet::new(),
        }
    }

    /// Notes what came of a pass. `Break`: nothing of the federation is left.
    async fn take_in(&self, view: &View, pass: &Pass) -> ControlFlow<()> {
        let views = &self.shared.views;
        match pass {
            Pass::Acted { planned, .. } if planned.status.gone => return self.forget().await,
            Pass::Acted { planned, .. } => {
                let decided = Decided::new(planned.status.clone(), view.revision, sites_of(planned));
                views.note(&self.name, |view| {
                    view.decided = Some(decided);
                    view.trouble = None;
                });
            }
            Pass::Stood { .. } | Pass::Failed { .. } => match self.shared.registry.federation(&self.name).await {
                Ok(None) => {
                    // Another one acted for it, and has forgotten it.
                    views.note(&self.name, |view| view.leaving = true);
                    return self.leave();
                }
                Ok(Some(entry)) => match pass {
                    Pass::Failed { why } => self.note_trouble(why),
                    _ => views.follow(entry),
                },
                Err(error) => self.note_trouble(&error.to_string()),
            },
        }
        let endpoint = views.get(&self.name).and_then(|view| Endpoint::of(&self.shared.sites, &view));
        self.endpoint.send_if_modified(|known| std::mem::replace(known, endpoint.clone()) != endpoint);
        ControlFlow::Continue(())
    }

    fn note_trouble(&self, why: &str) {
        tracing::warn!(federation = %self.name, "nothing was done: {why}");
        self.shared.views.note(&self.name, |view| view.trouble = Some(why.to_owned()));
    }

    async fn forget(&self) -> ControlFlow<()> {
        if let Err(error) = self.shared.registry.forget(&self.name).await {
            self.note_trouble(&error.to_string());
            return ControlFlow::Continue(());
        }
        self.leave()
    }

    /// Ends with the federation, unless there is a new one of the same name.
    fn leave(&self) -> ControlFlow<()> {
        let removed = self.shared.views.remove_left(&self.name);
        if removed && self.shared.dismiss(&self.name) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    async fn hand_over(&self, controller: &Controller) {
        if let Err(error) = controller.hand_over().await {
            tracing::debug!(federation = %self.name, %error, "the lease was not given back");
        }
    }
}

fn sites_of(planned: &Planned) -> BTreeSet<Name> {
    planned.ledger.applied.keys().map(|id| id.site.clone()).collect()
}
