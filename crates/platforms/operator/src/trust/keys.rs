//! Node keys: the Secrets that contain them, and which of them a SuperLink must know.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use trellis_client::NodeKey;
use trellis_kube::federation::Federation;
use trellis_kube::trust::secret::{BUNDLE, Entries, ObservedSecret};
use trellis_kube::trust::{DesiredSecret, Seen, bundle_name, nodes, sites};

use super::enrol::{Keys, Left};
use super::{Error, Input};

/// Secrets with the keys of pools, if nodes have keys.
pub fn pools(
    input: &Input<'_>,
    live: &BTreeMap<String, i32>,
    seen: &Seen,
    keys: &mut Keys,
) -> Result<Vec<DesiredSecret>, Error> {
    let mut desired = Vec::new();
    for pool in nodes::keys(input.federation, input.sizes, live, &seen.secrets) {
        let mut entries = seen.secrets.get(&pool.secret).map(|secret| secret.entries.clone()).unwrap_or_default();
        for pod in &pool.to_make {
            entries.insert(pod.clone(), draw(pod)?.into_bytes());
        }
        for pod in pool.kept.iter().chain(&pool.to_make) {
            known(&pool.secret, pod, &entries, keys);
        }
        for pod in &pool.left {
            left(&pool.secret, pod, &entries, keys);
        }
        if !pool.to_make.is_empty() {
            desired.push(DesiredSecret { name: pool.secret, entries, annotations: BTreeMap::new() });
        }
    }
    Ok(desired)
}

/// Secrets for the machines of each site, and the status of the sites.
pub fn sites(input: &Input<'_>, seen: &Seen, keys: &mut Keys) -> Result<(Vec<DesiredSecret>, Vec<Value>), Error> {
    let federation = input.federation;
    let bundle = seen.secrets.get(&bundle_name(federation)).and_then(|secret| secret.text(BUNDLE));
    let found = sites::address(federation, seen.service.as_ref());
    let (mut desired, mut statuses) = (Vec::new(), Vec::new());
    for site in &federation.spec.sites {
        statuses.push(sites::status(federation, site, &found));
        let Ok(address) = &found else { continue };
        let name = sites::secret_name(federation, &site.name);
        let present = seen.secrets.get(&name);
        let mut of_site = sites::present_keys(present);
        for index in 0..site.nodes {
            let key = sites::key_name(index);
            if federation.spec.security.node_auth && !of_site.contains_key(&key) {
                of_site.insert(key, draw(&format!("{}-{index}", site.name))?);
            }
        }
        let mut entries = sites::bundle(site, address, bundle, &of_site);
        for (key, text) in &of_site {
            let is_wanted = entries.contains_key(key);
            // The key of a deleted node stays until the SuperLink has removed it.
            entries.entry(key.clone()).or_insert_with(|| text.clone().into_bytes());
            match is_wanted {
                true => known(&name, key, &entries, keys),
                false => left(&name, key, &entries, keys),
            }
        }
        if present.is_none_or(|secret| secret.entries != entries) {
            desired.push(DesiredSecret { name, entries, annotations: BTreeMap::new() });
        }
    }
    Ok((desired, statuses))
}

/// Secrets of deleted pools and sites.
pub fn abandoned(federation: &Federation, seen: &Seen, keys: &mut Keys) {
    for name in nodes::abandoned(federation, &seen.secrets) {
        let entries = seen.secrets.get(&name).map(|secret: &ObservedSecret| secret.entries.clone()).unwrap_or_default();
        entries
            .keys()
            .filter(|entry| public(entry, &entries).is_some())
            .for_each(|entry| left(&name, entry, &entries, keys));
        keys.abandoned.push(name);
    }
}

fn draw(owner: &str) -> Result<String, Error> {
    NodeKey::draw(owner).map_err(|_| Error::Key(owner.to_owned()))
}

fn known(secret: &str, entry: &str, entries: &Entries, keys: &mut Keys) {
    match public(entry, entries) {
        Some(public) => drop(keys.known.insert(public, entry.to_owned())),
        None => keys.damaged.push(format!("{entry} in Secret {secret}")),
    }
}

fn left(secret: &str, entry: &str, entries: &Entries, keys: &mut Keys) {
    keys.left.push(Left { secret: secret.to_owned(), entry: entry.to_owned(), public: public(entry, entries) });
}

fn public(entry: &str, entries: &Entries) -> Option<String> {
    Some(NodeKey::from_bytes(Path::new(entry), entries.get(entry)?).ok()?.public_pem())
}
