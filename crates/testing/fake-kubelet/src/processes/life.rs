//! Runs one pod: network, volumes, init containers in order, containers in parallel, termination.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::process::Child;
use tokio::sync::watch;

use super::Shared;
use super::container::{Running, exit_code};
use super::expand::variables;
use super::plan::{Mount, Plan, host_name};
use super::probe::{self, Pace};
use super::sandbox::{GATEWAY, Sandbox};
use super::status::{ContainerReport, PodReport, SharedReport, State, now};
use super::volumes::Volumes;

/// Retry interval for missing objects; a change in the cluster ends the wait.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const FIRST_RESTART_DELAY: Duration = Duration::from_secs(1);
const LONGEST_RESTART_DELAY: Duration = Duration::from_secs(30);
/// A container that ran this long restarts without delay.
const GOOD_RUN: Duration = Duration::from_secs(60);

/// `None` until the pod is deleted, then its grace period.
pub(super) type Stop = watch::Receiver<Option<Duration>>;

pub(super) struct Life {
    pub shared: Arc<Shared>,
    pub pod: Pod,
    pub report: Arc<SharedReport>,
    pub stop: Stop,
}

/// Position of a container in the status of the pod.
#[derive(Clone, Copy)]
struct Slot {
    is_init: bool,
    index: usize,
}

enum End {
    Exit(i32),
    Stopped(i32),
}

/// State that all containers of a pod share.
struct Home {
    network: u32,
    directory: PathBuf,
    volumes: BTreeMap<String, PathBuf>,
}

impl Life {
    pub fn first_report(pod: &Pod) -> PodReport {
        let spec = pod.spec.clone().unwrap_or_default();
        let report = |containers: &[Container], reason: &str| {
            let image = |container: &Container| container.image.clone().unwrap_or_default();
            containers
                .iter()
                .map(|container| ContainerReport::new(&container.name, &image(container), reason))
                .collect()
        };
        let init_containers = spec.init_containers.unwrap_or_default();
        let reason = if init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        PodReport {
            address: None,
            since: now(),
            containers: report(&spec.containers, reason),
            init_containers: report(&init_containers, "PodInitializing"),
            is_gone: false,
            restarts: spec.restart_policy.as_deref().unwrap_or("Always") == "Always",
        }
    }

    pub async fn live(mut self) {
        let directory = self.shared.directory_of(&self.pod);
        if let Some(sandbox) = self.sandbox().await {
            self.run_in(&sandbox, &directory).await;
            self.stopped().await;
            sandbox.end().await;
        }
        self.shared.forget_hosts(&directory);
        let _ = tokio::fs::remove_dir_all(&directory).await;
        self.report.change(|report| report.is_gone = true);
    }

    async fn sandbox(&mut self) -> Option<Sandbox> {
        while self.stop.borrow().is_none() {
            let (address, interface) = self.shared.next_address();
            match Sandbox::make(address, &interface, &host_name(&self.pod)).await {
                Ok(sandbox) => {
                    self.report.change(|report| report.address = Some(address));
                    let status = self.pod.status.get_or_insert_default();
                    (status.pod_ip, status.host_ip) = (Some(address.to_string()), Some(GATEWAY.to_string()));
                    return Some(sandbox);
                }
                Err(why) => self.wait_with(&why).await,
            }
        }
        None
    }

    async fn run_in(&mut self, sandbox: &Sandbox, directory: &Path) {
        // Subscribed before the objects are read, so that no change is missed.
        let changed = self.shared.world.changes();
        let mut volumes = Volumes::of(&self.pod, &directory.join("volumes"));
        let Some(places) = self.volumes(&mut volumes).await else { return };
        if let Err(why) = self.shared.write_names(&self.pod, directory, sandbox.address) {
            tracing::error!(%why, "a pod without names");
        }
        let home = Home { network: sandbox.pid(), directory: directory.to_owned(), volumes: places };
        tokio::select! {
            () = self.run_containers(&home) => {}
            () = self.refresh(&mut volumes, changed) => {}
        }
    }

    async fn volumes(&self, volumes: &mut Volumes) -> Option<BTreeMap<String, PathBuf>> {
        let shared = &self.shared;
        while self.stop.borrow().is_none() {
            match volumes.prepare(&self.pod, &shared.world, &shared.client, &shared.claims()).await {
                Ok(places) => return Some(places),
                Err(why) => self.wait_with(&why).await,
            }
        }
        None
    }

    /// Updates changed Secrets and ConfigMaps in the pod. Never returns.
    async fn refresh(&self, volumes: &mut Volumes, mut changed: watch::Receiver<()>) {
        let shared = &self.shared;
        loop {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if let Err(why) = volumes.prepare(&self.pod, &shared.world, &shared.client, &shared.claims()).await {
                tracing::debug!(pod = self.pod.metadata.name, %why, "volumes stay as they were");
            }
        }
    }

    async fn run_containers(&self, home: &Home) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let init_containers = spec.init_containers.unwrap_or_default();
        let mut beside = Vec::new();
        for (index, container) in init_containers.iter().enumerate() {
            let slot = Slot { is_init: true, index };
            if container.restart_policy.as_deref() == Some("Always") {
                beside.push(self.keep(container, slot, home, "Always"));
            } else {
                self.keep(container, slot, home, "OnFailure").await;
            }
        }
        let policy = spec.restart_policy.as_deref().unwrap_or("Always");
        let slots =
            spec.containers.iter().enumerate().map(|(index, container)| (container, Slot { is_init: false, index }));
        beside.extend(slots.map(|(container, slot)| self.keep(container, slot, home, policy)));
        join_all(beside).await;
    }

    /// Runs a container until it ends for good or the pod is deleted.
    async fn keep(&self, container: &Container, slot: Slot, home: &Home, policy: &str) {
        let mut delay = FIRST_RESTART_DELAY;
        for attempt in 0.. {
            if self.stop.borrow().is_some() {
                return;
            }
            let (child, running) = match self.start(container, home, attempt) {
                Ok(started) => started,
                Err((reason, why)) => {
                    self.update(slot, |report| report.state = State::waits(reason, &why));
                    self.look_again().await;
                    continue;
                }
            };
            let (since, started) = (now(), Instant::now());
            self.update(slot, |report| report.state = State::Runs { since: since.clone() });
            let end = self.attend(child, &running, container, slot).await;
            let (End::Exit(code) | End::Stopped(code)) = end;
            let ended = State::Ended { code, since, at: now() };
            self.update(slot, |report| {
                report.state = ended.clone();
                report.is_started = false;
                report.is_ready = slot.is_init && code == 0;
            });
            let is_over = policy == "Never" || policy == "OnFailure" && code == 0;
            if is_over || matches!(end, End::Stopped(_)) {
                return;
            }
            delay = if started.elapsed() > GOOD_RUN { FIRST_RESTART_DELAY } else { delay };
            self.update(slot, |report| {
                report.before = Some(ended);
                report.restarts += 1;
                report.state =
                    State::waits("CrashLoopBackOff", &format!("back-off {delay:?} restarting failed container"));
            });
            let _ = tokio::time::timeout(delay, self.stopped()).await;
            delay = (delay * 2).min(LONGEST_RESTART_DELAY);
        }
    }

    fn start(
        &self,
        container: &Container,
        home: &Home,
        attempt: usize,
    ) -> Result<(Child, Running), (&'static str, String)> {
        let name = container.image.as_deref().unwrap_or_default();
        let image = self.shared.images.find(name).ok_or_else(|| ("ErrImagePull", format!("no image {name}")))?;
        let misconfigured = |why| ("CreateContainerConfigError", why);
        let known = variables(&self.pod, container, &*self.shared.world).map_err(misconfigured)?;
        let mut plan = Plan::of(&self.pod, container, image, known, &home.volumes).map_err(misconfigured)?;
        for (file, target) in [("hosts", "/etc/hosts"), ("resolv.conf", "/etc/resolv.conf")] {
            plan.mounts.push(Mount::read_only(&home.directory.join(file), Path::new(target)));
        }
        for (name, value) in self.shared.service_variables() {
            plan.env.entry(name).or_insert(value);
        }
        let scratch = home.directory.join(format!("{}-{attempt}", container.name));
        let log = self.shared.log_of(&self.pod, &container.name).map_err(misconfigured)?;
        Running::start(plan, home.network, &scratch, &log).map_err(|why| ("RunContainerError", why))
    }

    async fn attend(&self, mut child: Child, running: &Running, container: &Container, slot: Slot) -> End {
        let usual = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
        let usual = Duration::from_secs(usual.max(1).unsigned_abs());
        tokio::select! {
            status = child.wait() => End::Exit(exit_code(status)),
            why = self.probe(container, running, slot) => {
                tracing::info!(pod = self.pod.metadata.name, container = container.name, %why, "a container is restarted");
                End::Exit(end(&mut child, running, None, usual).await)
            }
            grace = self.stopped() => {
                self.update(slot, |report| report.is_ready = false);
                let before = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
                End::Stopped(end(&mut child, running, before, grace).await)
            }
        }
    }

    /// Returns when the container must restart, with the reason.
    async fn probe(&self, container: &Container, running: &Running, slot: Slot) -> String {
        if let Some(startup) = &container.startup_probe
            && let Err(why) = self.settle(startup, container, running).await
        {
            return format!("startup: {why}");
        }
        self.update(slot, |report| report.is_started = true);
        let readiness = async {
            match &container.readiness_probe {
                Some(readiness) => self.follow(readiness, container, running, slot).await,
                None => self.update(slot, |report| report.is_ready = true),
            }
            std::future::pending::<()>().await;
        };
        let liveness = async {
            match &container.liveness_probe {
                Some(liveness) => self.fail(liveness, container, running).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = readiness => String::new(),
            why = liveness => format!("liveness: {why}"),
        }
    }

    /// Probes until it succeeds once; an error if it fails too often.
    async fn settle(&self, probe: &Probe, container: &Container, running: &Running) -> Result<(), String> {
        let pace = Pace::of(probe);
        tokio::time::sleep(pace.initial_delay).await;
        let mut failures = 0;
        loop {
            match self.check(probe, container, running).await {
                Ok(()) => return Ok(()),
                Err(why) if failures + 1 >= pace.failures => return Err(why),
                Err(_) => failures += 1,
            }
            tokio::time::sleep(pace.period).await;
        }
    }

    /// Updates readiness by the probe. Never returns.
    async fn follow(&self, probe: &Probe, container: &Container, running: &Running, slot: Slot) {
        let pace = Pace::of(probe);
        tokio::time::sleep(pace.initial_delay).await;
        // Consecutive successes count up, failures down.
        let mut row = 0_i32;
        loop {
            let passed = self.check(probe, container, running).await;
            row = if passed.is_ok() { row.max(0) + 1 } else { row.min(0) - 1 };
            let is_ready = self.report.read(|report| slot.of(report).is_ready);
            if row >= pace.successes && !is_ready {
                self.update(slot, |report| report.is_ready = true);
            }
            if -row >= pace.failures && is_ready {
                tracing::info!(
                    pod = self.pod.metadata.name,
                    container = container.name,
                    ?passed,
                    "a container is not ready"
                );
                self.update(slot, |report| report.is_ready = false);
            }
            tokio::time::sleep(pace.period).await;
        }
    }

    /// Returns after too many consecutive failures, with the reason.
    async fn fail(&self, probe: &Probe, container: &Container, running: &Running) -> String {
        let pace = Pace::of(probe);
        tokio::time::sleep(pace.initial_delay).await;
        let mut failures = 0;
        loop {
            match self.check(probe, container, running).await {
                Ok(()) => failures = 0,
                Err(why) if failures + 1 >= pace.failures => return why,
                Err(_) => failures += 1,
            }
            tokio::time::sleep(pace.period).await;
        }
    }

    async fn check(&self, probe: &Probe, container: &Container, running: &Running) -> Result<(), String> {
        let address = self.report.read(|report| report.address).unwrap_or(GATEWAY);
        probe::check(probe, container, address, running).await
    }

    fn update(&self, slot: Slot, change: impl FnOnce(&mut ContainerReport)) {
        self.report.change(|report| change(slot.of_mut(report)));
    }

    /// Reports why the containers do not start, and waits for a change.
    async fn wait_with(&self, why: &str) {
        self.report.change(|report| {
            for container in &mut report.containers {
                container.state = State::waits("ContainerCreating", why);
            }
        });
        self.look_again().await;
    }

    async fn look_again(&self) {
        let mut changed = self.shared.world.changes();
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            _ = self.stopped() => {}
            _ = changed.changed() => {}
        }
    }

    /// Waits until the pod is deleted. Returns the grace period.
    async fn stopped(&self) -> Duration {
        let mut stop = self.stop.clone();
        // The sender is gone: there is no time left.
        stop.wait_for(Option::is_some).await.map(|grace| *grace).ok().flatten().unwrap_or_default()
    }
}

impl Slot {
    fn of(self, report: &PodReport) -> &ContainerReport {
        if self.is_init { &report.init_containers[self.index] } else { &report.containers[self.index] }
    }

    fn of_mut(self, report: &mut PodReport) -> &mut ContainerReport {
        if self.is_init { &mut report.init_containers[self.index] } else { &mut report.containers[self.index] }
    }
}

/// Runs the preStop hook, sends SIGTERM, and kills the container after the grace period.
async fn end(
    child: &mut Child,
    running: &Running,
    before: Option<&k8s_openapi::api::core::v1::LifecycleHandler>,
    grace: Duration,
) -> i32 {
    let politely = async {
        if let Some(exec) = before.and_then(|before| before.exec.as_ref()) {
            let _ = running.execute(exec.command.as_deref().unwrap_or_default()).await;
        }
        if let Some(sleep) = before.and_then(|before| before.sleep.as_ref()) {
            tokio::time::sleep(Duration::from_secs(sleep.seconds.max(0).unsigned_abs())).await;
        }
        running.terminate().await;
        exit_code(child.wait().await)
    };
    match tokio::time::timeout(grace, politely).await {
        Ok(code) => code,
        Err(_) => {
            let _ = child.kill().await;
            exit_code(child.wait().await)
        }
    }
}
