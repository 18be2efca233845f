//! The life of one pod: its network, its volumes, its containers one after the other and then side by side, and its end.

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
use super::told::{ContainerTold, PodTold, State, Told, now};
use super::volumes::Volumes;

/// Before something that is missing is looked for again; a change in the cluster ends the wait.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const FIRST_RESTART_DELAY: Duration = Duration::from_secs(1);
const LONGEST_RESTART_DELAY: Duration = Duration::from_secs(30);
/// One that ran this long starts anew without delay.
const GOOD_RUN: Duration = Duration::from_secs(60);

/// `None` until the pod is to end, then how long it may take.
pub(super) type Stop = watch::Receiver<Option<Duration>>;

pub(super) struct Life {
    pub shared: Arc<Shared>,
    pub pod: Pod,
    pub told: Arc<Told>,
    pub stop: Stop,
}

/// Where a container is in what the pod tells.
#[derive(Clone, Copy)]
struct Slot {
    is_init: bool,
    index: usize,
}

enum End {
    Exit(i32),
    Stopped(i32),
}

/// What all containers of a pod share while it runs.
struct Home {
    network: u32,
    directory: PathBuf,
    volumes: BTreeMap<String, PathBuf>,
}

impl Life {
    pub fn first_told(pod: &Pod) -> PodTold {
        let spec = pod.spec.clone().unwrap_or_default();
        let told = |containers: &[Container], reason: &str| {
            let image = |container: &Container| container.image.clone().unwrap_or_default();
            containers.iter().map(|container| ContainerTold::new(&container.name, &image(container), reason)).collect()
        };
        let init_containers = spec.init_containers.unwrap_or_default();
        let reason = if init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        PodTold {
            address: None,
            since: now(),
            containers: told(&spec.containers, reason),
            init_containers: told(&init_containers, "PodInitializing"),
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
        self.told.change(|told| told.is_gone = true);
    }

    async fn sandbox(&mut self) -> Option<Sandbox> {
        while self.stop.borrow().is_none() {
            let (address, interface) = self.shared.next_address();
            match Sandbox::make(address, &interface, &host_name(&self.pod)).await {
                Ok(sandbox) => {
                    self.told.change(|told| told.address = Some(address));
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
        // From before they are read: what changes in between is not missed.
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

    /// Secrets and maps that change are changed in the pod too. Ends never.
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

    /// Until it ended for good, or the pod is to end.
    async fn keep(&self, container: &Container, slot: Slot, home: &Home, policy: &str) {
        let mut delay = FIRST_RESTART_DELAY;
        for attempt in 0.. {
            if self.stop.borrow().is_some() {
                return;
            }
            let (child, running) = match self.start(container, home, attempt) {
                Ok(started) => started,
                Err((reason, why)) => {
                    self.tell(slot, |told| told.state = State::waits(reason, &why));
                    self.look_again().await;
                    continue;
                }
            };
            let (since, started) = (now(), Instant::now());
            self.tell(slot, |told| told.state = State::Runs { since: since.clone() });
            let end = self.attend(child, &running, container, slot).await;
            let (End::Exit(code) | End::Stopped(code)) = end;
            let ended = State::Ended { code, since, at: now() };
            self.tell(slot, |told| {
                told.state = ended.clone();
                told.is_started = false;
                told.is_ready = slot.is_init && code == 0;
            });
            let is_over = policy == "Never" || policy == "OnFailure" && code == 0;
            if is_over || matches!(end, End::Stopped(_)) {
                return;
            }
            delay = if started.elapsed() > GOOD_RUN { FIRST_RESTART_DELAY } else { delay };
            self.tell(slot, |told| {
                told.before = Some(ended);
                told.restarts += 1;
                told.state =
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
                tracing::info!(pod = self.pod.metadata.name, container = container.name, %why, "a container is started anew");
                End::Exit(end(&mut child, running, None, usual).await)
            }
            grace = self.stopped() => {
                self.tell(slot, |told| told.is_ready = false);
                let before = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
                End::Stopped(end(&mut child, running, before, grace).await)
            }
        }
    }

    /// Ends when the container must be started anew, and says why.
    async fn probe(&self, container: &Container, running: &Running, slot: Slot) -> String {
        if let Some(startup) = &container.startup_probe
            && let Err(why) = self.settle(startup, container, running).await
        {
            return format!("startup: {why}");
        }
        self.tell(slot, |told| told.is_started = true);
        let readiness = async {
            match &container.readiness_probe {
                Some(readiness) => self.follow(readiness, container, running, slot).await,
                None => self.tell(slot, |told| told.is_ready = true),
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

    /// Until it passes once; an error if it fails too often.
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

    /// Ready or not, as the probe says. Ends never.
    async fn follow(&self, probe: &Probe, container: &Container, running: &Running, slot: Slot) {
        let pace = Pace::of(probe);
        tokio::time::sleep(pace.initial_delay).await;
        // As many of the same in a row, as numbers above and below zero.
        let mut row = 0_i32;
        loop {
            let passed = self.check(probe, container, running).await;
            row = if passed.is_ok() { row.max(0) + 1 } else { row.min(0) - 1 };
            let is_ready = self.told.read(|told| slot.of(told).is_ready);
            if row >= pace.successes && !is_ready {
                self.tell(slot, |told| told.is_ready = true);
            }
            if -row >= pace.failures && is_ready {
                tracing::info!(
                    pod = self.pod.metadata.name,
                    container = container.name,
                    ?passed,
                    "a container is not ready"
                );
                self.tell(slot, |told| told.is_ready = false);
            }
            tokio::time::sleep(pace.period).await;
        }
    }

    /// Ends when it failed too often in a row, and says why.
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
        let address = self.told.read(|told| told.address).unwrap_or(GATEWAY);
        probe::check(probe, container, address, running).await
    }

    fn tell(&self, slot: Slot, change: impl FnOnce(&mut ContainerTold)) {
        self.told.change(|told| change(slot.of_mut(told)));
    }

    /// Says of all containers why they do not start yet, and waits until it may be different.
    async fn wait_with(&self, why: &str) {
        self.told.change(|told| {
            for container in &mut told.containers {
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

    /// When the pod is to end, and how long it may take.
    async fn stopped(&self) -> Duration {
        let mut stop = self.stop.clone();
        // Whoever could say it is gone: there is no time left.
        stop.wait_for(Option::is_some).await.map(|grace| *grace).ok().flatten().unwrap_or_default()
    }
}

impl Slot {
    fn of(self, told: &PodTold) -> &ContainerTold {
        if self.is_init { &told.init_containers[self.index] } else { &told.containers[self.index] }
    }

    fn of_mut(self, told: &mut PodTold) -> &mut ContainerTold {
        if self.is_init { &mut told.init_containers[self.index] } else { &mut told.containers[self.index] }
    }
}

/// What is to be done before, then a signal, then, when the time is over, the end.
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
