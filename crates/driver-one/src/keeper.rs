//! Does for a federation at a site what its records ask for: looks, decides by [`crate::next`], carries out, and looks again.
//! Each pass begins with what is there, so that it does not matter where the one before it stopped.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use trellis_plan::{Phase, ResourceId, Sighting};
use trellis_spec::OneSite;

use crate::cloud::{Cloud, Trouble};
use crate::coordinator::Coordinator;
use crate::disk;
use crate::fleet::{Fleet, State, now_ms};
use crate::next::{Ground, Next, Step, lacks_token, next, settle};
use crate::record::Record;
use crate::secrets::Secrets;
use crate::view::View;

/// How often the cloud is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// While something is on its way.
    pub turning: Duration,
    /// While all is as it should be.
    pub resting: Duration,
    /// After trouble, at first; then twice as long each time.
    pub trouble: Duration,
    pub longest: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            turning: Duration::from_secs(1),
            resting: Duration::from_secs(10),
            trouble: Duration::from_secs(2),
            longest: Duration::from_secs(60),
        }
    }
}

/// Goes on as long as the driver is there.
pub async fn keep(fleet: Arc<Fleet>, pace: Pace) {
    let mut told = BTreeMap::new();
    let mut pause = pace.trouble;
    loop {
        let wait = match pass(&fleet, &mut told).await {
            Ok(true) => pace.turning,
            Ok(false) => pace.resting,
            Err(trouble) => {
                tracing::warn!(federation = %fleet.federation, site = %fleet.site, "{}", trouble.why);
                fleet.cloud().forget().await;
                let wait = pause;
                pause = (pause * 2).min(pace.longest);
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = fleet.changed.notified() => {}
                }
                continue;
            }
        };
        pause = pace.trouble;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = fleet.changed.notified() => {}
        }
    }
}

type Phases = BTreeMap<ResourceId, String>;

/// One look, and what follows from it. `true`: something is on its way.
async fn pass(fleet: &Fleet, told: &mut Phases) -> Result<bool, Trouble> {
    let cloud = fleet.cloud();
    let view = cloud.look(&fleet.federation, &fleet.site).await?;
    let lacking = {
        let mut state = fleet.lock().await;
        follow(fleet, &mut state, &view).map_err(broken)?;
        state.records.values().filter(|record| lacks_token(record)).cloned().collect::<Vec<Record>>()
    };
    let waits = enrol(fleet, lacking).await;
    let decided = {
        let mut state = fleet.lock().await;
        let mut decided = decide(fleet, &cloud.one, &state, &view).map_err(broken)?;
        decided.troubles.extend(waits);
        state.trouble = (!decided.troubles.is_empty()).then(|| decided.troubles.join("; "));
        tell(fleet, &state, &view, told);
        state.view = Some(view);
        decided
    };
    let busy = !decided.steps.is_empty() || told.values().any(|word| word != "ready");
    carry_out(fleet, &cloud, &decided.steps).await?;
    Ok(busy)
}

/// What the look shows of parts goes into their records.
fn follow(fleet: &Fleet, state: &mut State, view: &View) -> io::Result<()> {
    let now_ms = now_ms();
    state.memory.look(view, &fleet.limits, now_ms);
    let settled = settle(&state.records, view, now_ms);
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
    let coordinator = state.records.values().find(|record| record.id.node_key().is_none() && record.is_wanted());
    let said = coordinator.and_then(|record| Coordinator::of(view.vm(record.vm?)?));
    match said {
        Some(said) if Coordinator::read(&fleet.home)?.as_ref() != Some(&said) => said.write(&fleet.home),
        _ => Ok(()),
    }
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
    let wanted = state.records.values().filter(|record| record.is_wanted());
    let specs = wanted.filter_map(|record| record.desired.as_ref().map(|desired| &desired.spec));
    let secrets = Secrets::load(&fleet.home, &fleet.site, specs)?;
    let trust = trust(fleet)?;
    let rules = fleet.rules();
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
        now_ms: now_ms(),
    }))
}

/// The authorities that nodes trust: of a coordinator of this driver's kind, or of one that another driver made.
fn trust(fleet: &Fleet) -> io::Result<Option<String>> {
    use base64::Engine;
    if let Some(coordinator) = Coordinator::read(&fleet.home)? {
        return Ok(coordinator.trust);
    }
    let pem = fleet.trust.as_ref().map(|path| disk::read(path)).transpose()?.flatten();
    Ok(pem.map(|pem| base64::engine::general_purpose::STANDARD.encode(pem)))
}

async fn carry_out(fleet: &Fleet, cloud: &Cloud, steps: &[Step]) -> Result<(), Trouble> {
    for step in steps {
        tracing::debug!(federation = %fleet.federation, site = %fleet.site, "{}", step.word());
        let done = cloud.carry_out(step).await;
        let mut state = fleet.lock().await;
        state.memory.tried(step, now_ms());
        if let Err(trouble) = done {
            if !trouble.passes {
                state.trouble = Some(trouble.why.clone());
            }
            drop(state);
            (fleet.wake)(&fleet.federation);
            return Err(trouble);
        }
    }
    Ok(())
}

/// Wakes who waits when a part is not what it was.
fn tell(fleet: &Fleet, state: &State, view: &View, told: &mut Phases) {
    let sightings = state.sightings(view, &fleet.limits, now_ms());
    let word = |sighting: &Sighting| match sighting.facts().map(|facts| &facts.phase) {
        Some(Phase::Ready) => "ready",
        Some(Phase::Starting) => "starting",
        Some(Phase::Failed { .. }) => "failed",
        Some(Phase::Stopping) => "stopping",
        None => "unknown",
    };
    let phases: Phases = sightings.iter().map(|(id, sighting)| (id.clone(), word(sighting).to_owned())).collect();
    if phases != *told {
        *told = phases;
        (fleet.wake)(&fleet.federation);
    }
}

fn broken(error: io::Error) -> Trouble {
    Trouble { why: error.to_string(), passes: false }
}
