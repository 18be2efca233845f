//! The Kubernetes operator: watches, compares, applies, tells. What there should be, and whether it is so, is decided in
//! `trellis-kube`.
//!
//! Watches fill a cache; what changes there puts a federation in a queue; workers take it from there and make a pass. A queue and
//! a cache of our own instead of `kube::runtime::Controller`: the controller keeps every object as a tree, several times the room
//! of its text, and a pass could not see the answers to its own writes before the watch tells them.

pub mod cache;
pub mod context;
pub mod events;
mod health;
mod held;
pub mod kinds;
pub mod lease;
pub mod metrics;
mod pass;
mod pods;
mod queue;
pub mod reach;
pub mod runs;
pub mod scaling;
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

/// How long passes that run may go on after the operator was told to stop.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("health and metrics cannot be served: {0}; choose other addresses")]
    Serve(#[source] io::Error),
}

/// Looks after the federations of a cluster until `stop` resolves.
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
    // It is over soon after that, whatever it was about.
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

/// Makes passes until `stop`. A pass that has begun is ended, unless that takes too long.
async fn work(context: &Arc<Context>, stop: CancellationToken) {
    let too_late = async {
        stop.cancelled().await;
        sleep(GRACE).await;
    };
    tokio::select! {
        () = make_passes(context, &stop) => {}
        () = too_late => tracing::warn!("passes that did not end were given up"),
    }
}

async fn make_passes(context: &Arc<Context>, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = context.synced.wait() => {}
    }
    tracing::info!(federations = context.cache.len(), workers = context.settings.workers, "working");
    // Others may have acted while we waited for the lease.
    for key in context.cache.keys() {
        context.queue.push(key);
    }
    let workers = (0..context.settings.workers.max(1)).map(|_| work_alone(context, stop));
    tokio::join!(join_all(workers), look_for_the_old(context, stop), look_after_runs(context, stop));
}

async fn work_alone(context: &Context, stop: &CancellationToken) {
    loop {
        let taken = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            taken = context.queue.take() => taken,
        };
        let again = pass::pass(context, &taken.key).await;
        taken.done(again);
    }
}

async fn look_after_runs(context: &Arc<Context>, stop: &CancellationToken) {
    let teller = Arc::clone(context);
    let tell = move |told: runs::Told| {
        let news = events::News {
            namespace: told.namespace,
            name: told.name,
            uid: told.uid,
            kind: trellis_kube::run::KIND,
            is_warning: told.warning,
            reason: told.reason.to_owned(),
            note: told.note,
        };
        if !teller.events.tell(news) {
            teller.metrics.event_lost();
        }
    };
    let settings = &context.settings;
    let all = runs::Runs::new(context.client.clone(), settings.reach.clone(), tell);
    runs::run(Arc::new(all), settings.scopes(), stop.clone()).await;
}

async fn look_for_the_old(context: &Context, stop: &CancellationToken) {
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
