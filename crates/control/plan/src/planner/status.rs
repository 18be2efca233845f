//! The status of a federation: desired and observed state, and the conditions that follow from them.

use std::collections::BTreeMap;

use trellis_spec::Name;

use super::view::View;
use super::{Step, joined};
use crate::Millis;
use crate::ledger::Ledger;
use crate::observed::{Observation, Observed, Phase, Presence};
use crate::report::{Weight, Why};
use crate::resource::{Generation, NodeKey, Part, ResourceId};
use crate::status::{Condition, CoordinatorStatus, NodeStatus, PoolStatus, SiteStatus, Status};

pub(super) fn of_federation(view: &View<'_>, step: &Step, ledger: &Ledger) -> Status {
    let federation = view.federation;
    let pools = pools(view);
    let messages = messages(step);
    let shards = ledger.shards.by_node();
    let desired = view.nodes.iter().map(|node| {
        let generation = node.desired.as_ref().map(|desired| desired.generation);
        let status = node_status(&node.id, &node.key, &node.presence, Some(generation), node.shard);
        NodeStatus { drained: view.is_drained(&node.key), ..status }
    });
    let undesired = view.undesired().into_iter().filter_map(|(id, presence)| {
        let key = id.node_key()?;
        Some(node_status(id, key, presence, None, shards.get(key).copied()))
    });
    let coordinator = coordinator_status(&view.coordinator.id, &view.coordinator.presence);
    let total = ledger.shards.total(federation.training.partitions);
    let holders = view.nodes.iter().filter(|node| node.shard.is_some()).count()
        + ledger.joined.values().filter(|joined| joined.shard.is_some()).count();
    let sites: Vec<&Name> = federation.sites.iter().map(|site| &site.name).collect();
    Status {
        federation: federation.name.to_string(),
        ready: ready(view, &pools),
        reconciling: reconciling(step, &messages),
        stalled: stalled(&messages),
        gone: false,
        coordinator: CoordinatorStatus { updated: view.coordinator.is_updated(), ..coordinator },
        pools,
        sites: site_statuses(&sites, view.observed, &view.known),
        nodes: desired.chain(undesired).chain(joined::statuses(view, ledger)).collect(),
        shards: total,
        orphaned_shards: total.saturating_sub(u32::try_from(holders).unwrap_or(u32::MAX)),
        away: u32::try_from(ledger.taken.len()).unwrap_or(u32::MAX),
        max_unavailable: federation.upgrade.max_unavailable,
        at_ms: view.now_ms,
        messages,
    }
}

pub(super) fn of_deletion(
    name: &Name,
    known: &BTreeMap<ResourceId, Presence>,
    observed: &Observed,
    step: &Step,
    now_ms: Millis,
) -> Status {
    let gone = known.is_empty();
    let messages = messages(step);
    let sites: Vec<&Name> = observed.sites.keys().collect();
    let nodes = known.iter().filter_map(|(id, presence)| Some(node_status(id, id.node_key()?, presence, None, None)));
    let coordinator = known.iter().find(|(id, _)| id.part == Part::Coordinator);
    Status {
        federation: name.to_string(),
        ready: Condition::new(false, if gone { "Gone" } else { "Leaving" }, "the federation is deleted"),
        reconciling: reconciling(step, &messages),
        stalled: stalled(&messages),
        gone,
        coordinator: coordinator.map(|(id, presence)| coordinator_status(id, presence)).unwrap_or_default(),
        pools: Vec::new(),
        sites: site_statuses(&sites, observed, known),
        nodes: nodes.collect(),
        shards: 0,
        orphaned_shards: 0,
        away: 0,
        max_unavailable: 0,
        at_ms: now_ms,
        messages,
    }
}

fn messages(step: &Step) -> Vec<Why> {
    let mut messages = step.report.clone();
    messages.sort();
    messages.dedup();
    messages
}

fn pools(view: &View<'_>) -> Vec<PoolStatus> {
    let count = |of: &dyn Fn(&super::view::Node) -> bool, pool: &Name| {
        let nodes = view.nodes.iter().filter(|node| node.key.pool == *pool && of(node)).count();
        u32::try_from(nodes).unwrap_or(u32::MAX)
    };
    let pool = |pool: &trellis_spec::Pool| PoolStatus {
        name: pool.name.to_string(),
        site: view.site(pool.site).to_string(),
        wanted: count(&|_| true, &pool.name),
        present: count(&|node| node.presence.facts().is_some(), &pool.name),
        ready: count(&|node| node.presence.serves(), &pool.name),
        updated: count(&|node| node.is_updated(), &pool.name),
        busy: count(&|node| node.presence.facts().is_some_and(|facts| facts.busy == Some(true)), &pool.name),
    };
    view.federation.pools.iter().map(pool).collect()
}

fn ready(view: &View<'_>, pools: &[PoolStatus]) -> Condition {
    if !view.coordinator.presence.serves() {
        let phase = coordinator_status(&view.coordinator.id, &view.coordinator.presence).phase;
        return Condition::new(false, "CoordinatorNotReady", format!("the coordinator is {phase}"));
    }
    let drained = |pool: &PoolStatus| {
        let is_draining = |node: &&super::view::Node| node.presence.facts().is_some_and(|facts| facts.draining);
        let nodes = view.nodes.iter().filter(|node| node.key.pool.as_str() == pool.name && view.is_drained(&node.key));
        u32::try_from(nodes.filter(is_draining).count()).unwrap_or(u32::MAX)
    };
    match pools.iter().find(|pool| pool.ready + drained(pool) < pool.wanted) {
        Some(pool) => {
            let message = format!("pool {} has {} of {} nodes ready", pool.name, pool.ready, pool.wanted);
            Condition::new(false, "PoolNotReady", message)
        }
        None if pools.iter().any(|pool| drained(pool) > 0) => {
            Condition::new(true, "AllReady", "the coordinator and all nodes that are not drained are ready")
        }
        None => Condition::new(true, "AllReady", "the coordinator and all nodes are ready"),
    }
}

fn reconciling(step: &Step, messages: &[Why]) -> Condition {
    let waits = messages.iter().find(|why| why.weight == Weight::Waits);
    match (step.verbs.len(), waits) {
        (0, None) => Condition::new(false, "Settled", "no actions are due"),
        (0, Some(why)) => Condition::new(true, "Waiting", format!("{}: {}", why.about, why.text)),
        (1, _) => Condition::new(true, "Acting", step.verbs[0].to_string()),
        (actions, _) => Condition::new(true, "Acting", format!("{actions} actions are being applied")),
    }
}

fn stalled(messages: &[Why]) -> Condition {
    match messages.iter().find(|why| why.weight == Weight::Stuck) {
        Some(why) => Condition::new(true, "NeedsAttention", format!("{}: {}", why.about, why.text)),
        None => Condition::new(false, "Free", "no user action is needed"),
    }
}

fn coordinator_status(id: &ResourceId, presence: &Presence) -> CoordinatorStatus {
    let (phase, _) = phase(presence);
    let facts = presence.facts();
    CoordinatorStatus {
        site: id.site.to_string(),
        phase,
        updated: false,
        version: facts.and_then(|facts| facts.version.clone()),
        addresses: facts.map(|facts| facts.addresses.clone()).unwrap_or_default(),
        runs: facts.and_then(|facts| facts.runs),
        since_ms: facts.map(|facts| facts.since_ms),
    }
}

/// `desired`: the desired generation, if it is known; `None`: the node is being removed.
fn node_status(
    id: &ResourceId,
    key: &NodeKey,
    presence: &Presence,
    desired: Option<Option<Generation>>,
    shard: Option<u32>,
) -> NodeStatus {
    let (phase, why) = phase(presence);
    let facts = presence.facts();
    NodeStatus {
        name: key.to_string(),
        pool: key.pool.to_string(),
        site: id.site.to_string(),
        wanted: desired.is_some(),
        shard: shard.or(facts.and_then(|facts| facts.shard)),
        id: facts.and_then(|facts| facts.node_id.clone()),
        phase,
        why,
        updated: presence.generation().is_some() && desired == Some(presence.generation()),
        busy: facts.and_then(|facts| facts.busy),
        draining: facts.is_some_and(|facts| facts.draining),
        drained: false,
        joined: false,
        version: facts.and_then(|facts| facts.version.clone()),
        since_ms: facts.map(|facts| facts.since_ms),
    }
}

fn phase(presence: &Presence) -> (String, Option<String>) {
    let (word, why) = match presence {
        Presence::Absent => ("absent", None),
        Presence::Unknown { why } => ("unknown", Some(why)),
        Presence::Present { facts, .. } => match &facts.phase {
            Phase::Starting => ("starting", facts.waiting_for.as_ref()),
            Phase::Ready => ("ready", None),
            Phase::Failed { why } => ("failed", Some(why)),
            Phase::Stopping => ("stopping", None),
        },
    };
    (word.to_owned(), why.cloned())
}

fn site_statuses(named: &[&Name], observed: &Observed, known: &BTreeMap<ResourceId, Presence>) -> Vec<SiteStatus> {
    let mut names: Vec<&Name> = named.to_vec();
    for id in known.keys().filter(|id| !named.contains(&&id.site)) {
        if !names.contains(&&id.site) {
            names.push(&id.site);
        }
    }
    let status = |site: &Name| {
        let why = match observed.sites.get(site) {
            Some(Observation::Reached(_)) => None,
            Some(Observation::Unreachable { why }) => Some(why.clone()),
            None => Some("it was not observed".to_owned()),
        };
        let nodes = known
            .iter()
            .filter(|(id, presence)| id.site == *site && id.node_key().is_some() && presence.facts().is_some());
        SiteStatus {
            name: site.to_string(),
            reachable: why.is_none(),
            why,
            nodes: u32::try_from(nodes.count()).unwrap_or(u32::MAX),
        }
    };
    names.into_iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::{Addresses, Facts};

    #[test]
    fn a_starting_part_reports_what_it_waits_for() {
        let facts = |waiting_for: Option<&str>| Facts {
            phase: Phase::Starting,
            busy: None,
            draining: false,
            version: None,
            addresses: Addresses::default(),
            runs: None,
            round_ms: None,
            required_nodes: None,
            shard: None,
            shards: None,
            node_id: None,
            since_ms: 0,
            instance: 0,
            waiting_for: waiting_for.map(str::to_owned),
        };
        for waiting_for in [None, Some("VM 4 is PENDING: [HOST] Not enough MEMORY on hosts: 3")] {
            let presence = Presence::Present { generation: None, facts: facts(waiting_for) };
            assert_eq!(phase(&presence), ("starting".to_owned(), waiting_for.map(str::to_owned)));
        }
    }
}
