//! Checks across the parts of a document: names are unique, references resolve, settings do not contradict each other.

use std::collections::BTreeSet;

use super::Spec;
use super::coordinator::Fit;
use super::site::SiteDraft;
use crate::federation::{ConfigTemplate, Federation, Name, Pool, Site, Upgrade};
use crate::kind::Unavailable;
use crate::problem::{Place, suggest};

/// Settings of runs that make a run wait for a number of nodes.
const WAITED_FOR: [&str; 3] = ["min-available-nodes", "min-train-nodes", "min-evaluate-nodes"];

impl Spec {
    /// `None` if there are errors, which are recorded.
    pub fn checked(self, name: Option<Name>) -> Option<Federation> {
        refuse_repeated("site", self.sites.iter().map(|draft| (draft.name.as_ref(), &draft.name_at)));
        refuse_repeated("pool", self.pools.iter().map(|draft| (draft.name.as_ref(), &draft.name_at)));
        self.refuse_too_few_nodes();
        self.refuse_small_disk();

        let place_of = |site: Option<&Name>, at: &Place, fit: &Fit| {
            let index = index_of(&self.sites, site, at)?;
            refuse_misfit(&self.sites, index, fit);
            Some(index)
        };
        let draft = &self.coordinator;
        let coordinator_site = place_of(draft.site.as_ref(), &draft.site_at, &draft.fit);
        let pool_sites: Vec<Option<usize>> =
            self.pools.iter().map(|draft| place_of(draft.site.as_ref(), &draft.site_at, &draft.fit)).collect();

        self.check_links(coordinator_site, &pool_sites);
        self.check_scaling(&pool_sites);

        let mut coordinator = self.coordinator.coordinator;
        coordinator.site = coordinator_site?;
        let pools = self.pools.into_iter().zip(pool_sites);
        let pools: Vec<Pool> =
            pools.map(|(draft, site)| Some(Pool { site: site?, ..draft.pool })).collect::<Option<_>>()?;
        let sites: Vec<Site> = match self.sites.is_empty() {
            true => vec![super::only_site()],
            false => self.sites.into_iter().map(|draft| draft.site).collect::<Option<_>>()?,
        };
        Some(Federation {
            name: name?,
            runtime: self.runtime,
            coordinator,
            security: self.security,
            sites,
            upgrade: upgrade(self.upgrade, &pools),
            pools,
            training: self.training.training,
            monitoring: self.monitoring,
        })
    }

    /// Otherwise runs would wait forever, or two nodes would share a partition.
    fn refuse_too_few_nodes(&self) {
        let most = |pool: &Pool| u64::from(pool.scaling.as_ref().map_or(pool.count, |scaling| scaling.max));
        let nodes: u64 = self.pools.iter().map(|draft| most(&draft.pool)).sum();
        let training = &self.training;
        for key in WAITED_FOR {
            if let Some(ConfigTemplate::Int(wanted)) = training.training.defaults.get(key)
                && let Some(place) = training.places.get(key)
                && i128::from(*wanted) > i128::from(nodes)
            {
                let what = format!("runs would wait forever: {key} is {wanted}, and there are at most {nodes} nodes");
                place.refuse(what, "lower it, or add nodes");
            }
        }
        if let Some(partitions) = training.training.partitions
            && u64::from(partitions) < nodes
        {
            let what = format!("{nodes} nodes need {nodes} partitions, but there are only {partitions}");
            training.partitions_at.refuse(what, format!("write at least {nodes}, or leave it out"));
        }
    }

    fn refuse_small_disk(&self) {
        let coordinator = &self.coordinator.coordinator;
        if let crate::federation::Persistence::Disk { size_bytes: Some(kept), .. } = coordinator.persistence
            && coordinator.resources.disk_bytes.is_some_and(|disk| disk < kept)
        {
            let what = "the disk (resources.disk) is smaller than the volume on it (persistence.size)";
            self.coordinator.place.refuse(what, "change one of them");
        }
    }
}

fn refuse_repeated<'a>(what: &str, names: impl Iterator<Item = (Option<&'a Name>, &'a Place)>) {
    let mut seen: Vec<(&Name, &Place)> = Vec::new();
    for (name, place) in names.filter_map(|(name, place)| name.map(|name| (name, place))) {
        match seen.iter().find(|(known, _)| *known == name) {
            Some((_, first)) => {
                let what = format!("the {what} {name} is defined twice, first in line {}", first.mark.line);
                place.refuse(what, "choose different names");
            }
            None => seen.push((name, place)),
        }
    }
}

/// The index of the named site; the first one if `wanted` is `None`.
fn index_of(sites: &[SiteDraft], wanted: Option<&Name>, at: &Place) -> Option<usize> {
    let Some(wanted) = wanted else { return Some(0) };
    let only = super::only_site().name;
    let names: Vec<Option<&Name>> = match sites.is_empty() {
        true => vec![Some(&only)],
        false => sites.iter().map(|draft| draft.name.as_ref()).collect(),
    };
    let found = names.iter().position(|name| *name == Some(wanted));
    // Sites with invalid names may be meant, which are reported already.
    if found.is_none() && names.iter().all(Option::is_some) {
        let known: BTreeSet<&str> = names.iter().flatten().map(|name| name.as_str()).collect();
        at.refuse(format!("there is no site called {wanted}"), suggest(wanted.as_str(), known.iter().copied()));
    }
    found
}

/// Refuses images where the driver starts processes, and a Python interpreter where images contain one.
fn refuse_misfit(sites: &[SiteDraft], site: usize, fit: &Fit) {
    let traits = match sites.get(site).map(|draft| &draft.site) {
        None => super::only_site().config.traits(),
        Some(None) => return,
        Some(Some(site)) => site.config.traits(),
    };
    let processes = traits.starts_processes();
    if processes {
        let advice = "leave it out, or let the site start containers (local.containers: podman)";
        for (what, place) in [("image", &fit.image), ("framework", &fit.framework)] {
            if let Some(place) = place {
                place.refuse(format!("the site starts processes, which do not support {what}"), advice);
            }
        }
    } else if let Some(place) = &fit.python {
        place.refuse("the site starts images, which contain their own Python", "leave it out, or name another image");
    }
    if traits.starts_appliances {
        for (what, place) in [("env", &fit.env), ("extraArgs", &fit.extra_args)] {
            if let Some(place) = place {
                place.refuse(format!("the site starts appliances, which do not support {what}"), "leave it out");
            }
        }
    }
    if let (false, Some(place), Some(_)) = (processes, &fit.framework, &fit.image) {
        place.refuse("the framework selects an image, and an image is set too", "keep one of them");
    }
}

fn upgrade((away, drain_timeout): (Unavailable, std::time::Duration), pools: &[Pool]) -> Upgrade {
    let nodes: u64 = pools.iter().map(|pool| u64::from(pool.count)).sum();
    let max_unavailable = match away {
        Unavailable::Nodes(nodes) => nodes,
        Unavailable::Share(share) => ((nodes as f64 * share) as u32).clamp(1, super::MAX_NODES),
    };
    Upgrade { max_unavailable, drain_timeout }
}
