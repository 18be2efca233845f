//! The Kubernetes operator: watches, compares, applies and reports. The desired state and the status are decided in
//! `trellis-kube`.
//!
//! Watches fill a cache. A change queues its federation, and workers reconcile queued federations.
//! `kube::runtime::Controller` is not used, because it stores objects as trees, which take several times the memory of
//! their text, and because a reconcile could not read its own writes before the watch reports them.
//!
//! # Invariants
//! - The operator writes only differences, only to objects that its Federation owns, and by server-side apply. A
//!   second reconcile writes nothing.
//! - A field of `.status` that the definition does not have is never written: it would be written at every reconcile.

pub mod cache;
pub mod context;
pub mod events;
mod health;
pub mod kinds;
pub mod lease;
pub mod metrics;
mod pods;
mod queue;
pub mod reach;
mod reconcile;
pub mod runs;
pub mod scaling;
mod stored;
pub mod trust;
mod watch;
pub mod write;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kube::Client;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use context::{Context, Findings, Settings};

/// Time limit for running reconciles after a stop.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("health and metrics cannot be served: {0}; choose other addresses")]
    Serve(#[source] io::Error),
}

/// Reconciles the federations of a cluster until `stop` resolves.
pub async fn run(client: Client, settings: Settings, stop: impl Future<Output = ()>) -> Result<(), OperatorError> {
    let context = Context::new(client, settings);
    health::serve(&context).await.map_err(OperatorError::Serve)?;
    watch::start(&context);
    let stopping = CancellationToken::new();
    let working = lead(&context, &stopping);
    let mut working = std::pin::pin!(working);
    tokio::select! {
        () = &mut working => {}
        () = stop => stopping.cancel(),
    }
    // Workers stop within `GRACE`.
    if stopping.is_cancelled() {
        working.await;
    }
    context.stop.cancel();
    context.ended().await;
    Ok(())
}

async fn lead(context: &Arc<Context>, stopping: &CancellationToken) {
    let settings = &context.settings;
    if !settings.leader_election {
        let _leading = context.metrics.leading();
        return work(context, stopping.clone()).await;
    }
    let election =
        lease::Election::new(context.client.clone(), &settings.own_namespace, &settings.lease_name, &settings.identity);
    lease::while_leading(election, stopping, |stop| async move {
        let _leading = context.metrics.leading();
        work(context, stop).await;
    })
    .await;
}

/// Reconciles until `stop`. Running reconciles complete unless that takes too long.
async fn work(context: &Arc<Context>, stop: CancellationToken) {
    let too_late = async {
        stop.cancelled().await;
        sleep(GRACE).await;
    };
    tokio::select! {
        () = run_workers(context, &stop) => {}
        () = too_late => tracing::warn!("reconciles that did not end in time were cancelled"),
    }
}

async fn run_workers(context: &Arc<Context>, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = context.synced.wait() => {}
    }
    tracing::info!(federations = context.cache.len(), workers = context.settings.workers, "working");
    // Another operator may have acted before this one got the lease.
    for key in context.cache.keys() {
        context.queue.push(key);
    }
    let workers = (0..context.settings.workers.max(1)).map(|_| run_worker(context, stop));
    tokio::join!(join_all(workers), delete_old_deployments(context, stop), reconcile_runs(context, stop));
}

async fn run_worker(context: &Context, stop: &CancellationToken) {
    loop {
        let taken = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            taken = context.queue.take() => taken,
        };
        let requeue_after = reconcile::reconcile(context, &taken.key).await;
        taken.done(requeue_after);
    }
}

async fn reconcile_runs(context: &Arc<Context>, stop: &CancellationToken) {
    let teller = Arc::clone(context);
    let publish = move |event: runs::RunEvent| {
        let news = events::EventDraft {
            namespace: event.namespace,
            name: event.name,
            uid: event.uid,
            kind: trellis_kube::run::KIND,
            is_warning: event.warning,
            reason: event.reason.to_owned(),
            note: event.note,
        };
        if !teller.events.publish(news) {
            teller.metrics.event_lost();
        }
    };
    let settings = &context.settings;
    let all = runs::Runs::new(context.client.clone(), settings.reach.clone(), publish);
    runs::run(Arc::new(all), settings.scopes(), stop.clone()).await;
}

async fn delete_old_deployments(context: &Context, stop: &CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = async {
                watch::find_old_deployments(context).await;
                sleep(context.settings.resync).await;
            } => {}
        }
    }
}
