//! The rotation of the authority of a federation in steps: the new authority is trusted by all before it signs, and the
//! old one is trusted until no certificate of it is served. A step waits for the workloads ([`Rollout`]) or for time.

use trellis_pki::authority::Step;
use trellis_pki::renewal;
use trellis_pki::rotation::State;
use trellis_pki::{Error, Keyring, UnixSeconds, date};

use serde_json::Value;

use super::secret::{BUNDLE, DesiredSecret, ObservedSecret};
use super::{BUNDLE_REVISION, Event, REVISION, ROTATE, Seen, bundle_name, server_name};
use crate::federation::Federation;
use crate::progress::Progress;
use crate::render::TRUST_ANNOTATION;

/// Annotation of the authority: the last value of [`ROTATE`] that was executed.
const HEEDED: &str = "trellis.dev/rotate-heeded";
/// Annotation of Secrets with a bundle: since when they have it.
pub const SINCE: &str = "trellis.dev/bundle-since";
/// Time until kubelets have updated mounted Secrets and programs have reloaded them.
pub const PROPAGATION_S: i64 = 15 * 60;
/// Time for sites outside of the cluster to fetch the bundle themselves.
pub const SITES_S: i64 = 14 * 24 * 3600;
/// Interval of checks of the workloads.
const RECHECK_INTERVAL_S: i64 = 60;

/// Whether pods have the current bundle and certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rollout {
    /// Revision of the bundle that all nodes have, or reload by themselves.
    pub nodes: Option<String>,
    /// The SuperLink has the current certificate, or reloads it by itself.
    pub superlink: bool,
}

impl Rollout {
    /// From the live workloads. `bundle`: the Secret with the current revisions.
    pub fn of(superlink: Option<&Value>, pools: &[Value], bundle: Option<&ObservedSecret>) -> Rollout {
        let noted = |name: &str| bundle.and_then(|secret| secret.annotations.get(name)).cloned();
        let (Some(revision), Some(trusted)) = (noted(REVISION), noted(BUNDLE_REVISION)) else {
            return Rollout::default();
        };
        let nodes = pools.iter().all(|pool| has(pool, &[&trusted]) && Progress::of(pool).is_rolled_out());
        let superlink =
            superlink.is_none_or(|pod| has(pod, &[&revision, &trusted]) && Progress::of(pod).is_rolled_out());
        Rollout { nodes: nodes.then_some(trusted), superlink }
    }
}

/// Whether the pod template has one of these revisions. Programs that reload certificates have no annotation.
fn has(workload: &Value, revisions: &[&str]) -> bool {
    let marked = &workload["spec"]["template"]["metadata"]["annotations"][TRUST_ANNOTATION];
    marked.is_null() || revisions.iter().any(|revision| marked == revision)
}

/// Whether a rotation is in progress.
pub fn is_under_way(authority: &ObservedSecret) -> bool {
    Keyring::read("", &authority.entries).is_ok_and(|keyring| words(keyring.rotation()).is_some())
}

pub struct Turn {
    pub keyring: Keyring,
    pub begins: bool,
    /// The executed step; `None`: nothing is written.
    pub event: Option<Event>,
    pub again_at: Option<UnixSeconds>,
}

/// The authority, after the next step if it is due.
pub fn turn(
    federation: &Federation,
    present: &ObservedSecret,
    mut keyring: Keyring,
    seen: &Seen,
    now: UnixSeconds,
) -> Result<Turn, Error> {
    let rollout = &seen.rollout;
    let bundle = keyring.trust_bundle();
    let given = [bundle_name(federation), server_name(federation)].map(|name| given_at(seen, &name, &bundle, now));
    // The time of the write and not of the decision: after an interruption the rest is written much later.
    let since = given[0].max(given[1]);
    let wait = wait(keyring.rotation(), federation);
    let (step, words) = match keyring.rotation() {
        State::Steady { .. } => match begins(federation, present, &keyring, now) {
            Some(why) => (Step::Begin, why),
            None => return Ok(Turn { keyring, begins: false, event: None, again_at: None }),
        },
        State::Announced { .. } => {
            let everywhere = rollout.nodes.as_deref() == Some(keyring.newest().as_str());
            if now < since + wait || !everywhere {
                return Ok(Turn {
                    keyring,
                    begins: false,
                    event: None,
                    again_at: Some((since + wait).max(now + RECHECK_INTERVAL_S)),
                });
            }
            (Step::Switch, "every node trusts the new authority: it signs from now on".to_owned())
        }
        State::Switched { .. } => {
            if now < since + wait || !rollout.superlink {
                return Ok(Turn {
                    keyring,
                    begins: false,
                    event: None,
                    again_at: Some((since + wait).max(now + RECHECK_INTERVAL_S)),
                });
            }
            (Step::Finish, "nothing of the old authority is served: it is trusted no longer".to_owned())
        }
    };
    keyring.rotate(step, now)?;
    let reason = match step {
        Step::Begin => "AuthorityRotationBegun",
        Step::Switch => "AuthoritySwitched",
        _ => "AuthorityRotated",
    };
    let again_at = (step != Step::Finish).then_some(now + RECHECK_INTERVAL_S);
    Ok(Turn { keyring, begins: step == Step::Begin, event: Some(Event::normal(reason, words)), again_at })
}

/// Since when a Secret has this bundle. A write sets the time.
pub fn given_at(seen: &Seen, name: &str, bundle: &str, now: UnixSeconds) -> UnixSeconds {
    let present = seen.secrets.get(name).filter(|secret| secret.text(BUNDLE) == Some(bundle));
    present.and_then(|secret| secret.annotations.get(SINCE)?.parse().ok()).unwrap_or(now)
}

/// Minimum duration of the present state.
fn wait(state: &State, federation: &Federation) -> i64 {
    match state {
        State::Announced { .. } if !federation.spec.sites.is_empty() => SITES_S,
        _ => PROPAGATION_S,
    }
}

fn begins(federation: &Federation, present: &ObservedSecret, keyring: &Keyring, now: UnixSeconds) -> Option<String> {
    let asked = federation.annotations.get(ROTATE);
    if let Some(asked) = asked.filter(|asked| present.annotations.get(HEEDED) != Some(asked)) {
        return Some(format!("created a new authority, because {ROTATE} is {asked:?} now; both are trusted"));
    }
    let old = renewal::is_old(keyring.signing(), now);
    old.then(|| format!("created a new authority, because the old one ends on {}", date(keyring.signing().not_after)))
}

/// The Secret of the authority.
pub fn note(name: String, keyring: &Keyring) -> DesiredSecret {
    DesiredSecret { name, entries: keyring.entries(), annotations: Default::default() }
}

/// Adds the value of the annotation that this rotation executes. A value that arrives during a rotation is executed
/// after it.
pub fn heed(federation: &Federation, desired: DesiredSecret) -> DesiredSecret {
    desired.annotated(HEEDED, federation.annotations.get(ROTATE).cloned().unwrap_or_default())
}

/// Description of the step in progress.
pub fn words(state: &State) -> Option<&'static str> {
    match state {
        State::Steady { .. } => None,
        State::Announced { .. } => Some("a new authority is distributed to all nodes"),
        State::Switched { .. } => Some("the new authority signs, and the old one is still trusted"),
    }
}
