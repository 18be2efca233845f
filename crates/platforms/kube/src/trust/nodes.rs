//! Keys of nodes, where only known ones may join: one for each pod of a pool, made before the pod and gone after it.

use std::collections::BTreeMap;

use trellis_flower::Release;

use super::secret::SecretSeen;
use crate::federation::{Federation, Mode};
use crate::flower::Programs;
use crate::render::Problem;

/// The first release whose SuperLinks are known to be told keys of nodes, and to forget them, by the Control API.
const KEYS_BY_CONTROL: Release = Release::of(25);

/// The keys of one pool: which are to be made, and which belong to nodes that left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    pub secret: String,
    pub pool: String,
    /// Pods whose keys are there and are wanted, or are still in use.
    pub kept: Vec<String>,
    pub to_make: Vec<String>,
    /// No pod has them, and none will: they go as soon as the SuperLink no longer takes them.
    pub left: Vec<String>,
}

pub fn secret_name(federation: &Federation, pool: &str) -> String {
    format!("{}-node-keys-{pool}", federation.name)
}

/// By pool.
pub fn secrets(federation: &Federation) -> BTreeMap<String, String> {
    let pools = federation.spec.supernodes.pools.iter().filter(|_| federation.spec.security.node_auth);
    pools.map(|pool| (pool.name.clone(), secret_name(federation, &pool.name))).collect()
}

/// Why keys of nodes cannot be what is asked for. Pods of a DaemonSet have names that nobody knows before they are there, so no
/// key can be made for them before; and a SuperLink must take keys while it runs.
pub fn problems(federation: &Federation) -> Vec<Problem> {
    let spec = &federation.spec;
    if !spec.security.node_auth {
        return Vec::new();
    }
    let problem = |what: String, to_do: &str| Problem {
        place: "spec.security.nodeAuth".to_owned(),
        what,
        to_do: to_do.to_owned(),
    };
    let mut problems = Vec::new();
    if spec.mode == Mode::DaemonSet {
        let what = "pods of a DaemonSet have no names that a key could be made for before they start";
        let to_do = "use mode StatefulSet (with a topology spread over nodes), or nodeAuth: false";
        problems.push(problem(what.to_owned(), to_do));
    }
    let superlink = Programs::of(federation).superlink;
    if superlink.before(KEYS_BY_CONTROL) {
        let what = format!("a SuperLink of {superlink} takes no keys of nodes while it runs");
        problems.push(problem(what, "use an image of Flower 1.25 or later, or of Trellis, or nodeAuth: false"));
    }
    problems
}

/// What is to be done about the keys of each pool. `sizes` are pools whose size is not what the resource says, `live` how many
/// pods a pool has now: a node that leaves is one until its pod is gone.
pub fn keys(
    federation: &Federation,
    sizes: &BTreeMap<String, i32>,
    live: &BTreeMap<String, i32>,
    secrets: &BTreeMap<String, SecretSeen>,
) -> Vec<Keys> {
    if !federation.spec.security.node_auth || federation.spec.mode == Mode::DaemonSet {
        return Vec::new();
    }
    let pools = federation.spec.supernodes.pools.iter();
    pools
        .map(|pool| {
            let wanted = sizes.get(&pool.name).copied().or(pool.replicas).unwrap_or(1).max(0);
            let wanted = wanted.max(live.get(&pool.name).copied().unwrap_or(0));
            let secret = secret_name(federation, &pool.name);
            let names: Vec<String> =
                (0..wanted).map(|index| format!("{}-{index}", federation.pool_name(&pool.name))).collect();
            let present: Vec<String> =
                secrets.get(&secret).map(|seen| seen.entries.keys().cloned().collect()).unwrap_or_default();
            let (kept, left): (Vec<String>, Vec<String>) = present.into_iter().partition(|name| names.contains(name));
            let to_make = names.into_iter().filter(|name| !kept.contains(name)).collect();
            Keys { secret, pool: pool.name.clone(), kept, to_make, left }
        })
        .collect()
}

/// Secrets of pools and sites that the federation no longer has, or that need no keys any more.
pub fn abandoned(federation: &Federation, secrets: &BTreeMap<String, SecretSeen>) -> Vec<String> {
    let mut wanted: Vec<String> = self::secrets(federation).into_values().collect();
    wanted.extend(federation.spec.sites.iter().map(|site| super::sites::secret_name(federation, &site.name)));
    let prefixes = ["node-keys", "join"].map(|kind| format!("{}-{kind}-", federation.name));
    let is_ours = |name: &str, secret: &SecretSeen| {
        prefixes.iter().any(|prefix| name.starts_with(prefix)) && secret.owner.as_deref() == Some(&federation.uid)
    };
    let found = secrets.iter().filter(|(name, secret)| is_ours(name, secret) && !wanted.contains(name));
    found.map(|(name, _)| name.clone()).collect()
}
