//! Does for a federation at a site what its records ask for: looks, decides by [`crate::next`], carries out, and looks again.
//! Each pass begins with what is there, so that it does not matter where the one before it stopped.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trellis_clock::now_ms;
use trellis_files::private;
use trellis_plan::{Phase, ResourceId, Sighting};
use trellis_spec::OneSite;

use crate::cloud::{Cloud, Trouble};
use crate::coordinator::Coordinator;
use crate::fleet::{Fleet, State};
use crate::next::{Ground, Next, Step, lacks_token, next, settle};
use crate::record::Record;
use crate::secrets::{self, Secrets};
use crate::view::View;

/// How often the cloud is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Poll interval while something changes; without progress it doubles up to `resting`.
    pub turning: Duration,
    /// While all is as it should be.
    pub resting: Duration,
    /// After trouble, at first; then twice as long each time.
    pub trouble: Duration,
    pub longest: Duration,
    /// In a steady state only VMs and services are read; a full observation follows after this time.
    pub whole: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            turning: Duration::from_secs(1),
            resting: Duration::from_secs(10),
            trouble: Duration::from_secs(2),
            longest: Duration::from_secs(60),
            whole: Duration::from_secs(300),
        }
    }
}

/// Polling stays at `Pace::turning` for this long after a change. A VM boots in less time.
const BRISK: Duration = Duration::from_secs(120);
/// While parts wait, a full observation is due after this many intervals of `Pace::turning`. The observations before
/// it read VMs and services only.
const GLANCES: u32 = 5;

/// Outcome of one reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// A step was executed, or a part changed.
    Moved,
    /// A part is not ready yet, and did not change.
    Waits,
    Rests,
    /// No records are left.
    Over,
}

/// Reconcile loop of one federation at one site; runs as long as the driver. If no records are left, it sends no
/// requests until it is woken.
pub async fn keep(fleet: Arc<Fleet>) {
    let pace = fleet.pace;
    let mut keeper = Keeper { fleet: &fleet, told: Phases::new(), whole: None, whole_after: pace.whole };
    let (mut pause, mut wait) = (pace.trouble, pace.turning);
    let (mut settled, mut moved_at) = (false, Instant::now());
    loop {
        let passed = keeper.pass(fleet.take_change() || !settled).await;
        if matches!(passed, Ok(Passed::Moved)) {
            moved_at = Instant::now();
        }
        let next = match &passed {
            Ok(Passed::Moved) => Some(pace.turning),
            Ok(Passed::Waits) if moved_at.elapsed() < BRISK => Some(pace.turning),
            Ok(Passed::Waits) => Some((wait * 2).min(pace.resting)),
            Ok(Passed::Rests) => Some(pace.resting),
            Ok(Passed::Over) => None,
            Err(trouble) => {
                tracing::warn!(federation = %fleet.federation, site = %fleet.site, "{}", trouble.why);
                fleet.cloud().forget().await;
                Some(pause)
            }
        };
        settled = matches!(passed, Ok(Passed::Waits | Passed::Rests | Passed::Over));
        keeper.whole_after = match passed {
            Ok(Passed::Waits) => pace.turning * GLANCES,
            _ => pace.whole,
        };
        pause = if passed.is_err() { (pause * 2).min(pace.longest) } else { pace.trouble };
        wait = next.unwrap_or(pace.turning);
        fleet.looked();
        match next {
            Some(wait) => drop(tokio::time::timeout(wait, fleet.woken.notified()).await),
            None => fleet.woken.notified().await,
        }
    }
}

type Phases = BTreeMap<ResourceId, String>;

struct Keeper<'a> {
    fleet: &'a Fleet,
    /// Phases of the parts at the last wake-up of the controller.
    told: Phases,
    /// Time of the last full observation, and the delay until the next one.
    whole: Option<Instant>,
    whole_after: Duration,
}

impl Keeper<'_> {
    /// One reconcile. `whole`: with a full observation, which steps require.
    async fn pass(&mut self, whole: bool) -> Result<Passed, Trouble> {
        let fleet = self.fleet;
        let cloud = fleet.cloud();
        let whole = whole || self.whole.is_none_or(|at| at.elapsed() >= self.whole_after);
        let looked = match whole {
            true => cloud.look(&fleet.federation, &fleet.site).await,
            false => self.glance(&cloud).await,
        };
        fleet.lock().await.failure = looked.as_ref().err().cloned();
        let view = looked?;
        if whole {
            self.whole = Some(Instant::now());
        }
        let lacking = {
            let mut state = fleet.lock().await;
            state.answered = Some(Instant::now());
            follow(fleet, &mut state, &view).map_err(broken)?;
            state.records.values().filter(|record| lacks_token(record)).cloned().collect::<Vec<Record>>()
        };
        let waits = enrol(fleet, lacking).await;
        let (steps, moved) = {
            let mut state = fleet.lock().await;
            let decided = decide(fleet, &cloud.one, &state, &view).map_err(broken)?;
            state.take_in(&decided, &waits, &view);
            let moved = self.tell(&state, &view);
            state.view = Some(view);
            state.viewed = Some(Instant::now());
            (decided.steps, moved)
        };
        if !whole && !steps.is_empty() {
            // The steps may be based on outdated data: they need a full observation first.
            return Ok(Passed::Moved);
        }
        carry_out(fleet, &cloud, &steps).await?;
        let over = fleet.lock().await.records.is_empty();
        Ok(match () {
            () if !steps.is_empty() || moved => Passed::Moved,
            () if over => Passed::Over,
            () if self.told.values().any(|word| word != "ready") => Passed::Waits,
            () => Passed::Rests,
        })
    }

    /// Reads VMs and services, and keeps the rest of the last view.
    async fn glance(&self, cloud: &Cloud) -> Result<View, Trouble> {
        let View { vms, services, .. } = cloud.glance(&self.fleet.federation, &self.fleet.site).await?;
        let before = self.fleet.lock().await.view.clone().unwrap_or_default();
        Ok(View { vms, services, ..before })
    }

    /// Wakes the controller if the phase of a part changed. Returns whether it did.
    fn tell(&mut self, state: &State, view: &View) -> bool {
        let heard = self.fleet.heard();
        let sightings = state.sightings(view, heard.as_ref(), &self.fleet.limits, now_ms());
        let word = |sighting: &Sighting| match sighting.facts().map(|facts| (&facts.phase, &facts.hindrance)) {
            Some((Phase::Ready, _)) => "ready".to_owned(),
            Some((Phase::Starting, hindrance)) => format!("starting {hindrance:?}"),
            Some((Phase::Failed { .. }, _)) => "failed".to_owned(),
            Some((Phase::Stopping, _)) => "stopping".to_owned(),
            None => "unknown".to_owned(),
        };
        let phases: Phases = sightings.iter().map(|(id, sighting)| (id.clone(), word(sighting))).collect();
        let moved = phases != self.told;
        if moved {
            self.told = phases;
            (self.fleet.wake)(&self.fleet.federation);
        }
        moved
    }
}

/// What the look shows of parts goes into their records.
fn follow(fleet: &Fleet, state: &mut State, view: &View) -> io::Result<()> {
    let now_ms = now_ms();
    state.memory.look(view, &fleet.limits, now_ms);
    let settled = settle(&state.records, view, fleet.heard().as_ref(), now_ms);
    for record in settled.changed {
        if !state.unreadable.contains_key(&record.id) {
            fleet.note(state, record)?;
        }
    }
    for id in &settled.gone {
        if id.node_key().is_none() {
            Coordinator::remove(&fleet.home)?;
        }
        fleet.note_over(state, id)?;
    }
    recover_secrets(fleet, view)?;
    let coordinator = state.records.values().find(|record| record.id.node_key().is_none() && record.is_wanted());
    let said = coordinator.and_then(|record| Coordinator::of(view.vm(record.vm?)?));
    match said {
        Some(said) if Coordinator::read(&fleet.home)?.as_ref() != Some(&said) => said.write(&fleet.home),
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

/// Gets what nodes join with, where only known nodes take part. What stands in the way is told.
async fn enrol(fleet: &Fleet, lacking: Vec<Record>) -> Vec<String> {
    if lacking.is_empty() {
        return Vec::new();
    }
    let coordinator = match Coordinator::read(&fleet.home) {
        Ok(Some(coordinator)) => coordinator,
        Ok(None) => return vec!["nodes cannot join: the coordinator has not said where it is".to_owned()],
        Err(error) => return vec![error.to_string()],
    };
    for record in lacking {
        match coordinator.join_token(&fleet.home, &record.id).await {
            Err(why) => return vec![why],
            Ok(token) => {
                let mut state = fleet.lock().await;
                // It may have been turned meanwhile: then what it is now counts.
                let Some(now) = state.records.get(&record.id).filter(|now| now.join_token.is_none()).cloned() else {
                    continue;
                };
                if let Err(error) = fleet.note(&mut state, Record { join_token: Some(token), ..now }) {
                    return vec![error.to_string()];
                }
            }
        }
    }
    Vec::new()
}

fn decide(fleet: &Fleet, one: &OneSite, state: &State, view: &View) -> io::Result<Next> {
    let (rules, heard) = (fleet.rules(), fleet.heard());
    let wanted = state.records.values().filter(|record| record.is_wanted());
    let specs = wanted.filter_map(|record| {
        let heard = || heard.as_ref().and_then(|heard| heard.get(&record.id));
        record.desired.as_ref().or_else(heard).map(|desired| &desired.spec)
    });
    let secrets = Secrets::load(&fleet.home, &fleet.site, specs)?;
    let trust = trust(fleet)?;
    Ok(next(&Ground {
        federation: &fleet.federation,
        site: &fleet.site,
        one,
        records: &state.records,
        view,
        memory: &state.memory,
        limits: &fleet.limits,
        secrets: &secrets,
        trust: trust.as_deref(),
        elastic: &rules,
        heard: heard.as_ref(),
        now_ms: now_ms(),
    }))
}

/// The authorities that nodes trust: of a coordinator of this driver's kind, or of one that another driver made.
fn trust(fleet: &Fleet) -> io::Result<Option<String>> {
    use base64::Engine;
    if let Some(coordinator) = Coordinator::read(&fleet.home)? {
        return Ok(coordinator.trust);
    }
    let pem = fleet.trust.as_ref().map(|path| private::read(path)).transpose()?.flatten();
    Ok(pem.map(|pem| base64::engine::general_purpose::STANDARD.encode(pem)))
}

async fn carry_out(fleet: &Fleet, cloud: &Cloud, steps: &[Step]) -> Result<(), Trouble> {
    for step in steps {
        tracing::debug!(federation = %fleet.federation, site = %fleet.site, "{}", step.word());
        let done = cloud.carry_out(step).await;
        let mut state = fleet.lock().await;
        state.memory.tried(step, done.as_ref().err().map(|trouble| trouble.why.as_str()), now_ms());
        match done {
            Ok(()) => {
                state.answered = Some(Instant::now());
                state.refused = state.refused.take().filter(|_| !step.makes());
            }
            Err(trouble) => {
                if step.makes() {
                    state.refused = Some(trouble.clone());
                }
                drop(state);
                (fleet.wake)(&fleet.federation);
                return Err(trouble);
            }
        }
    }
    Ok(())
}

fn broken(error: io::Error) -> Trouble {
    Trouble { why: error.to_string(), passes: false }
}
