//! Node keys for federations that admit known nodes only: one for each pod of a pool, created before the pod and
//! deleted after it.

use std::collections::BTreeMap;

use trellis_flower::Release;

use super::secret::ObservedSecret;
use crate::federation::{Federation, Mode};
use crate::flower::Programs;
use trellis_diagnostic::Diagnostic;

/// The first release whose SuperLinks register and remove node keys by the Control API.
const KEYS_BY_CONTROL: Release = Release::of(25);

/// Keys of one pool: to create, to keep, to delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    pub secret: String,
    pub pool: String,
    /// Pods whose keys exist and are needed, or still in use.
    pub kept: Vec<String>,
    pub to_make: Vec<String>,
    /// Keys without a pod. They are deleted once the SuperLink has removed them.
    pub left: Vec<String>,
}

pub fn secret_name(federation: &Federation, pool: &str) -> String {
    format!("{}-node-keys-{pool}", federation.name)
}

/// Secrets by pool.
pub fn secrets(federation: &Federation) -> BTreeMap<String, String> {
    let pools = federation.spec.supernodes.pools.iter().filter(|_| federation.spec.security.node_auth);
    pools.map(|pool| (pool.name.clone(), secret_name(federation, &pool.name))).collect()
}

/// Problems with node keys. Names of pods of a DaemonSet are unknown before the pods exist, so no keys can be created
/// for them; and the SuperLink must register keys while it runs.
pub fn problems(federation: &Federation) -> Vec<Diagnostic> {
    let spec = &federation.spec;
    if !spec.security.node_auth {
        return Vec::new();
    }
    let problem =
        |what: String, to_do: &str| Diagnostic::error("spec.security.nodeAuth".to_owned(), what, to_do.to_owned());
    let mut problems = Vec::new();
    if spec.mode == Mode::DaemonSet {
        let what = "pods of a DaemonSet have no names before they start, so no keys can be created for them";
        let to_do = "use mode StatefulSet (with a topology spread over nodes), or nodeAuth: false";
        problems.push(problem(what.to_owned(), to_do));
    }
    let superlink = Programs::of(federation).superlink;
    if superlink.before(KEYS_BY_CONTROL) {
        let what = format!("a SuperLink of {superlink} cannot register keys of nodes while it runs");
        problems.push(problem(what, "use an image of Flower 1.25 or later, or of Trellis, or nodeAuth: false"));
    }
    problems
}

/// Decides about the keys of each pool. `sizes`: sizes that differ from the resource; `live`: current pods of each
/// pool, including pods that drain.
pub fn keys(
    federation: &Federation,
    sizes: &BTreeMap<String, i32>,
    live: &BTreeMap<String, i32>,
    secrets: &BTreeMap<String, ObservedSecret>,
) -> Vec<Keys> {
    if !federation.spec.security.node_auth || federation.spec.mode == Mode::DaemonSet {
        return Vec::new();
    }
    let pools = federation.spec.supernodes.pools.iter();
    pools
        .map(|pool| {
            let desired = sizes.get(&pool.name).copied().or(pool.replicas).unwrap_or(1).max(0);
            let desired = desired.max(live.get(&pool.name).copied().unwrap_or(0));
            let secret = secret_name(federation, &pool.name);
            let names: Vec<String> =
                (0..desired).map(|index| format!("{}-{index}", federation.pool_name(&pool.name))).collect();
            let present: Vec<String> =
                secrets.get(&secret).map(|seen| seen.entries.keys().cloned().collect()).unwrap_or_default();
            let (kept, left): (Vec<String>, Vec<String>) = present.into_iter().partition(|name| names.contains(name));
            let to_make = names.into_iter().filter(|name| !kept.contains(name)).collect();
            Keys { secret, pool: pool.name.clone(), kept, to_make, left }
        })
        .collect()
}

/// Secrets of removed pools and sites, or that need no keys any more.
pub fn abandoned(federation: &Federation, secrets: &BTreeMap<String, ObservedSecret>) -> Vec<String> {
    let mut desired: Vec<String> = self::secrets(federation).into_values().collect();
    desired.extend(federation.spec.sites.iter().map(|site| super::sites::secret_name(federation, &site.name)));
    let prefixes = ["node-keys", "join"].map(|kind| format!("{}-{kind}-", federation.name));
    let is_ours = |name: &str, secret: &ObservedSecret| {
        prefixes.iter().any(|prefix| name.starts_with(prefix)) && secret.owner.as_deref() == Some(&federation.uid)
    };
    let found = secrets.iter().filter(|(name, secret)| is_ours(name, secret) && !desired.contains(name));
    found.map(|(name, _)| name.clone()).collect()
}
