//! The rotation of a federation's authority, step by step: the new one is trusted everywhere before it signs, and the old one is
//! trusted until nothing of it is served. What makes a step safe is seen ([`Rollout`]) or waited for.

use trellis_pki::authority::Step;
use trellis_pki::renewal;
use trellis_pki::rotation::State;
use trellis_pki::{Error, Keyring, UnixSeconds, date};

use serde_json::Value;

use super::secret::{BUNDLE, SecretSeen, SecretWanted};
use super::{BUNDLE_REVISION, Event, REVISION, ROTATE, Seen, bundle_name, server_name};
use crate::federation::Federation;
use crate::render::TRUST_ANNOTATION;

/// On the authority: the value of the annotation that was last heeded.
const HEEDED: &str = "trellis.dev/rotate-heeded";
/// On whatever has a bundle: since when it has this one.
pub const SINCE: &str = "trellis.dev/bundle-since";
/// Until kubelets have brought a changed Secret to all pods, and programs that read it again have: minutes at most.
pub const PROPAGATION_S: i64 = 15 * 60;
/// Sites outside fetch their bundle themselves: for so long they may be away, or their owners.
pub const SITES_S: i64 = 14 * 24 * 3600;
/// How often it is looked at whether pods have what they need.
const LOOK_S: i64 = 60;

/// Whether pods are as they should be by now, with the bundle and the certificate that were last given to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rollout {
    /// All nodes run with the bundle of this revision, or read it again themselves.
    pub nodes: Option<String>,
    /// The SuperLink runs with the certificate of this revision, or reads it again itself.
    pub superlink: bool,
}

impl Rollout {
    /// From the workloads as they are: the SuperLink's, and those of the pools. `bundle` is the Secret with the revisions that
    /// they should have.
    pub fn of(superlink: Option<&Value>, pools: &[Value], bundle: Option<&SecretSeen>) -> Rollout {
        let noted = |name: &str| bundle.and_then(|secret| secret.annotations.get(name)).cloned();
        let (Some(revision), Some(trusted)) = (noted(REVISION), noted(BUNDLE_REVISION)) else {
            return Rollout::default();
        };
        let nodes = pools.iter().all(|pool| has(pool, &[&trusted]) && is_settled(pool));
        let superlink = superlink.is_none_or(|pod| has(pod, &[&revision, &trusted]) && is_settled(pod));
        Rollout { nodes: nodes.then_some(trusted), superlink }
    }
}

/// Whether pods are made for one of these revisions. Without a mark they read certificates again by themselves.
fn has(workload: &Value, revisions: &[&str]) -> bool {
    let marked = &workload["spec"]["template"]["metadata"]["annotations"][TRUST_ANNOTATION];
    marked.is_null() || revisions.iter().any(|revision| marked == revision)
}

/// Whether all pods are those of the present template, and ready. The controller must have seen it.
fn is_settled(workload: &Value) -> bool {
    let (spec, status) = (&workload["spec"], &workload["status"]);
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let (wanted, updated, ready) = match status["desiredNumberScheduled"].as_i64() {
        Some(wanted) => (wanted, number(&status["updatedNumberScheduled"]), number(&status["numberReady"])),
        None => {
            let wanted = spec["replicas"].as_i64().unwrap_or(1);
            (wanted, number(&status["updatedReplicas"]), number(&status["readyReplicas"]))
        }
    };
    number(&status["observedGeneration"]) >= number(&workload["metadata"]["generation"])
        && updated >= wanted
        && ready >= wanted
}

/// Whether one is under way: only then anybody needs to look at pods.
pub fn is_under_way(authority: &SecretSeen) -> bool {
    Keyring::read("", &authority.entries).is_ok_and(|keyring| words(keyring.rotation()).is_some())
}

pub struct Turn {
    pub keyring: Keyring,
    pub begins: bool,
    /// What was done; nothing is written without.
    pub event: Option<Event>,
    pub again_at: Option<UnixSeconds>,
}

/// The authority, one step further if it is time.
pub fn turn(
    federation: &Federation,
    present: &SecretSeen,
    mut keyring: Keyring,
    seen: &Seen,
    now: UnixSeconds,
) -> Result<Turn, Error> {
    let rollout = &seen.rollout;
    let bundle = keyring.trust_bundle();
    let given = [bundle_name(federation), server_name(federation)].map(|name| given_at(seen, &name, &bundle, now));
    // Not when it was decided: whoever died in between may have written the rest much later.
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
                    again_at: Some((since + wait).max(now + LOOK_S)),
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
                    again_at: Some((since + wait).max(now + LOOK_S)),
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
    let again_at = (step != Step::Finish).then_some(now + LOOK_S);
    Ok(Turn { keyring, begins: step == Step::Begin, event: Some(Event::normal(reason, words)), again_at })
}

/// Since when a Secret has this bundle. Whoever writes it now notes that.
pub fn given_at(seen: &Seen, name: &str, bundle: &str, now: UnixSeconds) -> UnixSeconds {
    let present = seen.secrets.get(name).filter(|secret| secret.text(BUNDLE) == Some(bundle));
    present.and_then(|secret| secret.annotations.get(SINCE)?.parse().ok()).unwrap_or(now)
}

/// How long the present state lasts at least.
fn wait(state: &State, federation: &Federation) -> i64 {
    match state {
        State::Announced { .. } if !federation.spec.sites.is_empty() => SITES_S,
        _ => PROPAGATION_S,
    }
}

fn begins(federation: &Federation, present: &SecretSeen, keyring: &Keyring, now: UnixSeconds) -> Option<String> {
    let asked = federation.annotations.get(ROTATE);
    if let Some(asked) = asked.filter(|asked| present.annotations.get(HEEDED) != Some(asked)) {
        return Some(format!("a new authority was made, because {ROTATE} is {asked:?} now; both are trusted"));
    }
    let old = renewal::is_old(keyring.signing(), now);
    old.then(|| format!("a new authority was made, because the old one ends on {}", date(keyring.signing().not_after)))
}

/// The Secret of the authority.
pub fn note(name: String, keyring: &Keyring) -> SecretWanted {
    SecretWanted { name, entries: keyring.entries(), annotations: Default::default() }
}

/// With the wish that this is the answer to. One that comes while a rotation is under way is heeded after it.
pub fn heed(federation: &Federation, wanted: SecretWanted) -> SecretWanted {
    wanted.annotated(HEEDED, federation.annotations.get(ROTATE).cloned().unwrap_or_default())
}

/// For people: what is under way.
pub fn words(state: &State) -> Option<&'static str> {
    match state {
        State::Steady { .. } => None,
        State::Announced { .. } => Some("a new authority is made known to all nodes"),
        State::Switched { .. } => Some("the new authority signs, and the old one is still trusted"),
    }
}
