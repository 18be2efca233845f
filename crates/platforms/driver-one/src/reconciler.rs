//! Reconciler of a federation at a site: observes the cloud, decides by [`crate::next`], and executes the steps. Each
//! reconcile starts from an observation, so an interrupted one needs no recovery.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trellis_clock::now_ms;
use trellis_files::private;
use trellis_plan::{Phase, Presence, ResourceId};
use trellis_spec::OneSite;

use crate::cloud::{Cloud, CloudError};
use crate::coordinator::Coordinator;
use crate::fleet::{Fleet, State};
use crate::next::{Next, Situation, Step, lacks_token, next, update_records};
use crate::record::Record;
use crate::secrets::{self, Secrets};
use crate::view::View;

/// Poll intervals of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollIntervals {
    /// Poll interval while something changes; without progress it doubles up to `idle`.
    pub busy: Duration,
    /// Poll interval in a steady state.
    pub idle: Duration,
    /// In a steady state only VMs and services are read; a full observation follows after this time.
    pub full: Duration,
}

impl Default for PollIntervals {
    fn default() -> PollIntervals {
        PollIntervals { busy: Duration::from_secs(1), idle: Duration::from_secs(10), full: Duration::from_secs(300) }
    }
}

/// Polling stays at `PollIntervals::busy` for this long after a change. A VM boots in less time.
const BUSY_PERIOD: Duration = Duration::from_secs(120);
/// While parts wait, a full observation is due after this many intervals of `PollIntervals::busy`. The observations before
/// it read VMs and services only.
const PARTIAL_OBSERVATIONS: u32 = 5;

/// Outcome of one reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// A step was executed, or a part changed.
    Changed,
    /// A part is not ready yet, and did not change.
    Waiting,
    Settled,
    /// No records are left.
    Over,
}

/// Reconcile loop of one federation at one site; runs as long as the driver. If no records are left, it sends no
/// requests until it is woken.
pub async fn run(fleet: Arc<Fleet>) {
    let intervals = fleet.intervals;
    let mut reconciler = Reconciler { fleet: &fleet, notified: Phases::new(), full: None, full_after: intervals.full };
    let (mut failures, mut interval) = (0, intervals.busy);
    let (mut settled, mut changed_at) = (false, Instant::now());
    loop {
        let progress = reconciler.reconcile(fleet.take_changed() || !settled).await;
        failures = if progress.is_err() { failures + 1 } else { 0 };
        if matches!(progress, Ok(Progress::Changed)) {
            changed_at = Instant::now();
        }
        let next = match &progress {
            Ok(Progress::Changed) => Some(intervals.busy),
            Ok(Progress::Waiting) if changed_at.elapsed() < BUSY_PERIOD => Some(intervals.busy),
            Ok(Progress::Waiting) => Some((interval * 2).min(intervals.idle)),
            Ok(Progress::Settled) => Some(intervals.idle),
            Ok(Progress::Over) => None,
            Err(error) => {
                tracing::warn!(federation = %fleet.federation, site = %fleet.site, "{}", error.why);
                fleet.cloud().forget().await;
                Some(Duration::from_millis(fleet.retries.observation.delay_ms(failures)))
            }
        };
        settled = matches!(progress, Ok(Progress::Waiting | Progress::Settled | Progress::Over));
        reconciler.full_after = match progress {
            Ok(Progress::Waiting) => intervals.busy * PARTIAL_OBSERVATIONS,
            _ => intervals.full,
        };
        interval = next.unwrap_or(intervals.busy);
        fleet.observed();
        match next {
            Some(interval) => drop(tokio::time::timeout(interval, fleet.wakeup.notified()).await),
            None => fleet.wakeup.notified().await,
        }
    }
}

type Phases = BTreeMap<ResourceId, String>;

struct Reconciler<'a> {
    fleet: &'a Fleet,
    /// Phases of the parts at the last wake-up of the controller.
    notified: Phases,
    /// Time of the last full observation, and the delay until the next one.
    full: Option<Instant>,
    full_after: Duration,
}

impl Reconciler<'_> {
    /// One reconcile. `whole`: with a full observation, which steps require.
    async fn reconcile(&mut self, full: bool) -> Result<Progress, CloudError> {
        let fleet = self.fleet;
        let cloud = fleet.cloud();
        let full = full || self.full.is_none_or(|at| at.elapsed() >= self.full_after);
        let observed = match full {
            true => cloud.observe(&fleet.federation, &fleet.site).await,
            false => self.observe_partial(&cloud).await,
        };
        fleet.lock().await.failure = observed.as_ref().err().cloned();
        let view = observed?;
        if full {
            self.full = Some(Instant::now());
        }
        let without_token = {
            let mut state = fleet.lock().await;
            state.answered_at = Some(Instant::now());
            store_observation(fleet, &mut state, &view).map_err(local_error)?;
            state.records.values().filter(|record| lacks_token(record)).cloned().collect::<Vec<Record>>()
        };
        let join_errors = enrol(fleet, without_token).await;
        let (steps, changed) = {
            let mut state = fleet.lock().await;
            let decided = decide(fleet, &cloud.one, &state, &view).map_err(local_error)?;
            state.store_decision(&decided, &join_errors, &view);
            let changed = self.notify_changes(&state, &view);
            state.view = Some(view);
            state.viewed_at = Some(Instant::now());
            (decided.steps, changed)
        };
        if !full && !steps.is_empty() {
            // The steps may be based on outdated data: they need a full observation first.
            return Ok(Progress::Changed);
        }
        execute(fleet, &cloud, &steps).await?;
        let over = fleet.lock().await.records.is_empty();
        Ok(match () {
            () if !steps.is_empty() || changed => Progress::Changed,
            () if over => Progress::Over,
            () if self.notified.values().any(|describe| describe != "ready") => Progress::Waiting,
            () => Progress::Settled,
        })
    }

    /// Reads VMs and services, and keeps the rest of the last view.
    async fn observe_partial(&self, cloud: &Cloud) -> Result<View, CloudError> {
        let View { vms, services, .. } = cloud.observe_partial(&self.fleet.federation, &self.fleet.site).await?;
        let before = self.fleet.lock().await.view.clone().unwrap_or_default();
        Ok(View { vms, services, ..before })
    }

    /// Wakes the controller if the phase of a part changed. Returns whether it did.
    fn notify_changes(&mut self, state: &State, view: &View) -> bool {
        let document = self.fleet.document();
        let presences = state.statuses(view, document.as_ref(), &self.fleet.limits, now_ms());
        let describe = |presence: &Presence| match presence.facts().map(|facts| (&facts.phase, &facts.waiting_for)) {
            Some((Phase::Ready, _)) => "ready".to_owned(),
            Some((Phase::Starting, waiting_for)) => format!("starting {waiting_for:?}"),
            Some((Phase::Failed { .. }, _)) => "failed".to_owned(),
            Some((Phase::Stopping, _)) => "stopping".to_owned(),
            None => "unknown".to_owned(),
        };
        let phases: Phases = presences.iter().map(|(id, presence)| (id.clone(), describe(presence))).collect();
        let changed = phases != self.notified;
        if changed {
            self.notified = phases;
            (self.fleet.wake)(&self.fleet.federation);
        }
        changed
    }
}

/// Updates the records from an observation.
fn store_observation(fleet: &Fleet, state: &mut State, view: &View) -> io::Result<()> {
    let now_ms = now_ms();
    state.history.observe(view, &fleet.limits, now_ms);
    let settled = update_records(&state.records, view, fleet.document().as_ref(), now_ms);
    for record in settled.changed {
        if !state.unreadable.contains_key(&record.id) {
            fleet.save(state, record)?;
        }
    }
    for id in &settled.gone {
        if id.node_key().is_none() {
            Coordinator::remove(&fleet.home)?;
        }
        fleet.delete_record(state, id)?;
    }
    recover_secrets(fleet, view)?;
    let coordinator = state.records.values().find(|record| record.id.node_key().is_none() && record.is_wanted());
    let published = coordinator.and_then(|record| Coordinator::of(view.vm(record.vm?)?));
    match published {
        Some(published) if Coordinator::read(&fleet.home)?.as_ref() != Some(&published) => published.write(&fleet.home),
        _ => Ok(()),
    }
}

/// Restores secrets that were lost here, from the contexts of VMs or of their templates.
fn recover_secrets(fleet: &Fleet, view: &View) -> io::Result<()> {
    let all = || view.vms.iter().map(|vm| &vm.secrets).chain(view.templates.iter().map(|template| &template.secrets));
    secrets::restore(&fleet.home.admin_token(), all().find_map(|found| found.admin_token.as_deref()))?;
    let tunnel_key = all().find_map(|found| found.tunnel_key.as_deref());
    if tunnel_key.is_some() {
        private::make_directory(&fleet.home.tunnels())?;
    }
    secrets::restore(&fleet.home.tunnel_key(&fleet.site), tunnel_key)
}

/// Requests join tokens for nodes if the federation requires enrolment. Returns the errors.
async fn enrol(fleet: &Fleet, without_token: Vec<Record>) -> Vec<String> {
    if without_token.is_empty() {
        return Vec::new();
    }
    let coordinator = match Coordinator::read(&fleet.home) {
        Ok(Some(coordinator)) => coordinator,
        Ok(None) => return vec!["nodes cannot join: the coordinator has not published its address".to_owned()],
        Err(error) => return vec![error.to_string()],
    };
    for record in without_token {
        match coordinator.join_token(&fleet.home, &record.id).await {
            Err(why) => return vec![why],
            Ok(token) => {
                let mut state = fleet.lock().await;
                // An order may have changed the record meanwhile.
                let Some(now) = state.records.get(&record.id).filter(|now| now.join_token.is_none()).cloned() else {
                    continue;
                };
                if let Err(error) = fleet.save(&mut state, Record { join_token: Some(token), ..now }) {
                    return vec![error.to_string()];
                }
            }
        }
    }
    Vec::new()
}

fn decide(fleet: &Fleet, one: &OneSite, state: &State, view: &View) -> io::Result<Next> {
    let (rules, document) = (fleet.rules(), fleet.document());
    let wanted = state.records.values().filter(|record| record.is_wanted());
    let specs = wanted.filter_map(|record| {
        let document = || document.as_ref().and_then(|document| document.get(&record.id));
        record.desired.as_ref().or_else(document).map(|desired| &desired.spec)
    });
    let secrets = Secrets::load(&fleet.home, &fleet.site, specs)?;
    let trust = trust(fleet)?;
    Ok(next(&Situation {
        federation: &fleet.federation,
        site: &fleet.site,
        one,
        records: &state.records,
        view,
        history: &state.history,
        limits: &fleet.limits,
        recovery: &fleet.retries.recovery,
        secrets: &secrets,
        trust: trust.as_deref(),
        elastic: &rules,
        document: document.as_ref(),
        now_ms: now_ms(),
    }))
}

/// The authorities that nodes trust: of a coordinator of this driver, or of another driver.
fn trust(fleet: &Fleet) -> io::Result<Option<String>> {
    use base64::Engine;
    if let Some(coordinator) = Coordinator::read(&fleet.home)? {
        return Ok(coordinator.trust);
    }
    let pem = fleet.trust.as_ref().map(|path| private::read(path)).transpose()?.flatten();
    Ok(pem.map(|pem| base64::engine::general_purpose::STANDARD.encode(pem)))
}

async fn execute(fleet: &Fleet, cloud: &Cloud, steps: &[Step]) -> Result<(), CloudError> {
    for step in steps {
        tracing::debug!(federation = %fleet.federation, site = %fleet.site, "{}", step.describe());
        let done = cloud.execute(step).await;
        let mut state = fleet.lock().await;
        state.history.executed(step, done.as_ref().err().map(|error| error.why.as_str()), now_ms());
        match done {
            Ok(()) => {
                state.answered_at = Some(Instant::now());
                state.refused = state.refused.take().filter(|_| !step.creates());
            }
            Err(error) => {
                if step.creates() {
                    state.refused = Some(error.clone());
                }
                drop(state);
                (fleet.wake)(&fleet.federation);
                return Err(error);
            }
        }
    }
    Ok(())
}

fn local_error(error: io::Error) -> CloudError {
    CloudError { why: error.to_string(), transient: false }
}
