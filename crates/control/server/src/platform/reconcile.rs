//! Reconciles one federation until it is deleted: the reconcile loop of its controller, and beside it the watcher of its SuperLink.
//! Decides nothing: the plan does.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use trellis_plan::{Call, Controller, Host, Planned, Reconciled};
use trellis_spec::Name;

use super::clock::TokioClock;
use super::fleet::LinkFleet;
use super::shared::Shared;
use super::sites::Remembered;
use super::superlink::Endpoint;
use super::view::Decided;
use super::watcher::Watcher;

/// Delay before a controller that panicked is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// Restarts the controller of a federation if it panics. A panic does not affect other federations.
pub async fn supervise(shared: Arc<Shared>, name: Name, wake: Arc<Notify>) {
    loop {
        // Aborts the task when dropped.
        let mut task = JoinSet::new();
        task.spawn(run(Arc::clone(&shared), name.clone(), Arc::clone(&wake)));
        let Some(Err(error)) = task.join_next().await else { return };
        tracing::error!(federation = %name, %error, "the controller panicked and is restarted");
        let failure = "its controller panicked and is restarted; the server's log has the cause".to_owned();
        shared.views.note(&name, |view| view.failure = Some(failure));
        tokio::select! {
            () = tokio::time::sleep(RESTART_DELAY) => {}
            () = shared.stopped() => return,
        }
    }
}

async fn run(shared: Arc<Shared>, name: Name, wake: Arc<Notify>) {
    let (endpoint, endpoints) = watch::channel(None);
    let fleet = Arc::new(LinkFleet::new(Arc::clone(&shared), name.clone()));
    let watcher = Watcher::new(Arc::clone(&shared), name.clone(), Arc::clone(&wake), Arc::clone(&fleet), endpoints);
    let store = shared.registry.store(&name);
    let mut controller = shared.controller(&name, store, Arc::new(TokioClock { wake }), fleet);
    let mut host = FederationHost::new(Arc::clone(&shared), name.clone(), &controller, endpoint).await;
    tokio::select! {
        released = controller.run(&mut host, shared.stopped()) => {
            if let Err(error) = released {
                tracing::debug!(federation = %name, %error, "the lease could not be released");
            }
        }
        () = watcher.run() => {}
    }
}

/// Gives the controller its drivers, and its results to the view of the federation.
struct FederationHost {
    shared: Arc<Shared>,
    name: Name,
    /// Sites where parts may exist.
    sites: BTreeSet<Name>,
    /// Revision of the document when the reconcile began.
    revision: u64,
    /// Address of the SuperLink, for the watcher.
    endpoint: watch::Sender<Option<Endpoint>>,
}

impl Host for FederationHost {
    fn prepare<'a>(&'a mut self, controller: &'a mut Controller) -> Call<'a, ControlFlow<()>> {
        Box::pin(async move {
            let Some(view) = self.shared.views.get(&self.name) else { return ControlFlow::Break(()) };
            let federation = view.federation.as_deref();
            let remembered = self.shared.remember(&self.name, federation, self.sites.clone()).await;
            let remembered = remembered.unwrap_or_else(|error| {
                // Without their drivers these sites count as unreachable, so that no action is planned for them.
                self.report_failure(&error.to_string());
                Remembered::new()
            });
            controller.drivers = self.shared.sites.drivers(federation, &remembered);
            controller.settings.run_metrics = view.runs.run_metrics();
            self.revision = view.revision;
            ControlFlow::Continue(())
        })
    }

    fn report<'a>(&'a mut self, result: &'a Reconciled) -> Call<'a, ControlFlow<()>> {
        Box::pin(async move {
            match result {
                Reconciled::Acted { planned, .. } if planned.status.gone => return self.forget().await,
                Reconciled::Acted { planned, .. } => self.report_plan(planned),
                Reconciled::Standby { .. } => self.report_idle(None).await?,
                Reconciled::Failed { why } => self.report_idle(Some(why)).await?,
            }
            let view = self.shared.views.get(&self.name);
            let endpoint = view.and_then(|view| Endpoint::of(&self.shared.sites, &view));
            self.endpoint.send_if_modified(|known| std::mem::replace(known, endpoint.clone()) != endpoint);
            ControlFlow::Continue(())
        })
    }
}

impl FederationHost {
    async fn new(
        shared: Arc<Shared>,
        name: Name,
        controller: &Controller,
        endpoint: watch::Sender<Option<Endpoint>>,
    ) -> FederationHost {
        // If the store cannot be read, the first reconcile reports it.
        let stored = controller.store.read().await.ok();
        let sites = stored.into_iter().flat_map(|stored| stored.ledger.applied.into_keys()).map(|id| id.site).collect();
        let host = FederationHost { shared, name, sites, revision: 0, endpoint };
        match host.shared.registry.drained(&host.name).await {
            Ok(drained) => host.shared.views.note(&host.name, |view| view.drained = Arc::new(drained)),
            Err(error) => host.report_failure(&error.to_string()),
        }
        host
    }

    fn report_plan(&mut self, planned: &Planned) {
        self.sites = planned.ledger.applied.keys().map(|id| id.site.clone()).collect();
        let decided = Decided::new(planned.status.clone(), self.revision, self.sites.clone());
        self.shared.views.note(&self.name, |view| {
            view.decided = Some(decided);
            view.failure = None;
        });
    }

    /// This controller did not act. `failure`: the store failed; otherwise another controller holds the lease.
    async fn report_idle(&self, failure: Option<&str>) -> ControlFlow<()> {
        let views = &self.shared.views;
        match (self.shared.registry.federation(&self.name).await, failure) {
            (Ok(None), _) => {
                // Another controller deleted the federation.
                views.note(&self.name, |view| view.leaving = true);
                return self.leave();
            }
            (Ok(Some(_)), Some(failure)) => self.report_failure(failure),
            (Ok(Some(entry)), None) => views.follow(entry),
            (Err(error), _) => self.report_failure(&error.to_string()),
        }
        ControlFlow::Continue(())
    }

    fn report_failure(&self, why: &str) {
        tracing::warn!(federation = %self.name, "the reconcile failed: {why}");
        self.shared.views.note(&self.name, |view| view.failure = Some(why.to_owned()));
    }

    async fn forget(&self) -> ControlFlow<()> {
        if let Err(error) = self.shared.registry.forget(&self.name).await {
            self.report_failure(&error.to_string());
            return ControlFlow::Continue(());
        }
        self.leave()
    }

    /// Ends the loop with the federation, unless there is a new federation of the same name.
    fn leave(&self) -> ControlFlow<()> {
        let removed = self.shared.views.remove_left(&self.name);
        if removed && self.shared.release(&self.name) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
