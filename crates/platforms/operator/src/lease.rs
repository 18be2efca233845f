//! Leader election with a Lease. Others take over a lease that was not renewed for its duration by their own clock; a
//! leader that cannot renew stops before that.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Default name of the lease. Operators in one namespace that reconcile different federations need one lease each.
pub const LEASE: &str = "trellis-operator";
/// A new leader takes over after this duration and [`RETRY`].
pub const DURATION: Duration = Duration::from_secs(9);
/// A leader that could not renew for this long stops, well before another one starts.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(6);
pub const RETRY: Duration = Duration::from_secs(2);
const REQUEST_LIMIT: Duration = Duration::from_secs(3);

pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// The last observed lease, and since when it is unchanged.
    seen: Option<(Option<String>, Instant)>,
}

impl Election {
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Election {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            seen: None,
        }
    }

    /// Resolves when this operator holds the lease.
    pub async fn won(&mut self) {
        loop {
            match timeout(REQUEST_LIMIT, self.attempt()).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "cannot acquire the lease; retrying"),
                Err(_) => tracing::warn!(lease = self.name, "no answer about the lease; tried again"),
            }
            sleep(RETRY).await;
        }
    }

    /// Renews the lease until that fails for too long.
    pub async fn held(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(RETRY).await;
            match timeout(REQUEST_LIMIT, self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "the lease could not be renewed"),
                Err(_) => tracing::warn!(lease = self.name, "no answer about the lease"),
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return;
            }
        }
    }

    /// Acquires or renews the lease if that is allowed. Returns whether this operator holds it.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let Some(found) = self.api.get_opt(&self.name).await? else {
            let fresh = Lease { metadata: name(&self.name), spec: Some(self.spec(None)) };
            return settled(self.api.create(&PostParams::default(), &fresh).await);
        };
        let spec = found.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        if holder != self.identity && !holder.is_empty() && !self.has_run_out(&found, &spec) {
            return Ok(false);
        }
        // The resource version is included, so only one of several candidates succeeds.
        let next = Lease { spec: Some(self.spec(Some(&spec))), ..found };
        settled(self.api.replace(&self.name, &PostParams::default(), &next).await)
    }

    /// Whether the lease was unchanged for its duration. The clock of the holder does not matter.
    fn has_run_out(&mut self, lease: &Lease, spec: &LeaseSpec) -> bool {
        let version = lease.metadata.resource_version.clone();
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        match &self.seen {
            Some((known, since)) if *known == version => {
                since.elapsed() >= duration.map_or(DURATION, Duration::from_secs)
            }
            _ => {
                self.seen = Some((version, Instant::now()));
                false
            }
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let same = before.is_some_and(|before| before.holder_identity.as_deref() == Some(&self.identity));
        let changes = before.and_then(|before| before.lease_transitions).unwrap_or_default();
        LeaseSpec {
            acquire_time: before.filter(|_| same).and_then(|before| before.acquire_time.clone()).or(Some(now.clone())),
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            lease_transitions: Some(if same || before.is_none() { changes } else { changes + 1 }),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }

    /// Releases the lease.
    pub async fn release(&self) {
        let released = async {
            let Some(mut found) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            let Some(spec) = found.spec.as_mut().filter(|spec| spec.holder_identity.as_deref() == Some(&self.identity))
            else {
                return Ok(());
            };
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            self.api.replace(&self.name, &PostParams::default(), &found).await.map(drop)
        };
        let answer: Result<kube::Result<()>, _> = timeout(REQUEST_LIMIT, released).await;
        if !matches!(answer, Ok(Ok(()))) {
            tracing::info!("the lease could not be given back; it runs out by itself");
        }
    }
}

fn name(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Another candidate was faster, which is not an error.
fn settled(answer: kube::Result<Lease>) -> kube::Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Runs `work` while this operator holds the lease, until `stop`.
pub async fn while_leading<F: Future<Output = ()>>(
    mut election: Election,
    stop: &CancellationToken,
    mut work: impl FnMut(CancellationToken) -> F,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = election.won() => {}
        }
        tracing::info!(identity = election.identity, "leading");
        tokio::select! {
            // `work` ends by itself, then the lease is released.
            () = work(stop.clone()) => {
                election.release().await;
                return;
            }
            // `work` is cancelled at once, because another operator acts soon.
            () = election.held() => tracing::warn!("no longer leading"),
        }
    }
}
