//! The desired state of the coordinator and of each node: the document, with all values resolved that a driver needs.

use std::collections::BTreeMap;

use trellis_spec::{ConfigValue, Federation, Gpu, Link, Name, Pool, Runtime, render_node_config};

use super::links;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::resource::{CoordinatorSpec, Desired, NodeSpec, PoolRules, ResourceId, Spec, Tunnel};

const PARTITION_ID: &str = "partition-id";
const NUM_PARTITIONS: &str = "num-partitions";

/// Values of a node that depend on its index and its site.
pub(super) struct Place {
    pub shard: u32,
    pub shards: u32,
    pub replicas: u32,
    pub tunnel: Option<Tunnel>,
}

pub(super) fn coordinator(federation: &Federation, inventory: &Inventory, ledger: &Ledger, id: &ResourceId) -> Desired {
    let document = &federation.coordinator;
    let spec = CoordinatorSpec {
        runtime: federation.runtime.clone(),
        program: program(federation, inventory, document.image.as_deref()),
        image: document.image.clone(),
        containers: federation.sites[document.site].config.traits().containers,
        endpoints: document.endpoints.clone(),
        persistence: document.persistence.clone(),
        isolation: document.isolation,
        resources: document.resources.clone(),
        env: document.env.clone(),
        python: document.python.clone(),
        extra_args: document.extra_args.clone(),
        tls: federation.security.tls.clone(),
        node_auth: federation.security.node_auth,
        metrics: federation.monitoring.metrics,
        json_logs: federation.monitoring.json_logs,
        tunnel: links::of_coordinator(federation, ledger),
        keepalive: links::keepalive_of_coordinator(federation),
    };
    Desired::new(id.clone(), Spec::Coordinator(spec))
}

pub(super) fn node(
    federation: &Federation,
    inventory: &Inventory,
    pool: &Pool,
    id: &ResourceId,
    place: &Place,
    address: &str,
    gpu: Option<Gpu>,
) -> Desired {
    let spec = NodeSpec {
        runtime: federation.runtime.clone(),
        program: program(federation, inventory, pool.image.as_deref()),
        image: pool.image.clone(),
        containers: federation.sites[pool.site].config.traits().containers,
        framework: pool.framework,
        client_app: pool.client_app.clone(),
        isolation: pool.isolation,
        resources: pool.resources.clone(),
        gpu,
        shard: place.shard,
        shards: place.shards,
        node_config: node_config(pool, id, place),
        env: pool.env.clone(),
        python: pool.python.clone(),
        extra_args: pool.extra_args.clone(),
        coordinator: coordinator_address(federation, pool, address),
        tls: federation.security.tls.clone(),
        node_auth: federation.security.node_auth,
        metrics: federation.monitoring.metrics,
        json_logs: federation.monitoring.json_logs,
        tunnel: place.tunnel.clone(),
        keepalive: links::keepalive_of_nodes(federation, pool.site),
        rules: rules(federation, pool),
    };
    Desired::new(id.clone(), Spec::Node(spec))
}

/// If the part runs our own program, another version is another generation.
fn program(federation: &Federation, inventory: &Inventory, image: Option<&str>) -> Option<String> {
    (federation.runtime == Runtime::Trellis && image.is_none()).then(|| inventory.program.clone())
}

/// Rules of a pool that its site scales.
fn rules(federation: &Federation, pool: &Pool) -> Option<PoolRules> {
    let scaling = pool.scaling.as_ref().filter(|_| pool.is_sized_by(&federation.sites[pool.site]))?;
    let cooldown_s = u32::try_from(scaling.cooldown.as_secs()).unwrap_or(u32::MAX);
    Some(PoolRules { min: scaling.min, max: scaling.max, cooldown_s, rules: scaling.rules.clone() })
}

/// The address of the coordinator for nodes of a pool: the observed address at its own site and through a tunnel, otherwise the
/// advertised host.
fn coordinator_address(federation: &Federation, pool: &Pool, address: &str) -> String {
    let advertised = federation.coordinator.endpoints.advertise.first();
    let is_tunnelled = matches!(federation.sites[pool.site].link, Link::WireGuard(_));
    let port = address.rsplit_once(':').map(|(_, port)| port);
    match (advertised, port) {
        (Some(host), Some(port)) if pool.site != federation.coordinator.site && !is_tunnelled => {
            let bare_ipv6 = host.contains(':') && !host.starts_with('[');
            if bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        }
        _ => address.to_owned(),
    }
}

/// The pool's node config with placeholders replaced, and the shard. Values of the document take precedence.
fn node_config(pool: &Pool, id: &ResourceId, place: &Place) -> BTreeMap<String, ConfigValue> {
    let index = id.node_key().map_or(0, |key| key.index);
    let given = render_node_config(pool, index, place.replicas, &id.site, &id.part.name());
    let shard = [(PARTITION_ID, place.shard), (NUM_PARTITIONS, place.shards)];
    let shard = shard.into_iter().map(|(key, value)| (key.to_owned(), ConfigValue::Int(value.into())));
    shard.chain(given).collect()
}

/// Whether the document sets the shards of the pool.
pub(super) fn sets_partition_id(pool: &Pool) -> bool {
    pool.node_config.contains_key(PARTITION_ID)
}

/// Assigns GPUs if there are not enough: in the order of the document, lowest index first.
pub(super) struct GpuShares<'a> {
    left: BTreeMap<&'a Name, Option<u32>>,
    federation: &'a Federation,
    without: BTreeMap<&'a Name, u32>,
}

#[derive(Default)]
pub(super) struct Share {
    pub gpu: Option<Gpu>,
    /// Why the node cannot be created.
    pub blocker: Option<String>,
}

impl<'a> GpuShares<'a> {
    pub fn new(federation: &'a Federation, inventory: &Inventory, ledger: &Ledger) -> GpuShares<'a> {
        let available = |site: &Name| match inventory.of(site).gpu {
            true => ledger.gpus.get(site).copied(),
            false => Some(0),
        };
        let left = federation.sites.iter().map(|site| (&site.name, available(&site.name))).collect();
        GpuShares { left, federation, without: BTreeMap::new() }
    }

    pub fn share(&mut self, pool: &'a Pool) -> Share {
        let Some(gpu) = &pool.gpu else { return Share::default() };
        let site = &self.federation.sites[pool.site].name;
        match self.left.get_mut(site) {
            // If the number of GPUs is unknown, the site may refuse.
            Some(None) | None => Share { gpu: Some(gpu.clone()), blocker: None },
            Some(Some(left)) if *left >= gpu.count => {
                *left -= gpu.count;
                Share { gpu: Some(gpu.clone()), blocker: None }
            }
            Some(Some(_)) if gpu.fallback_to_cpu => {
                *self.without.entry(&pool.name).or_default() += 1;
                Share::default()
            }
            Some(Some(left)) => {
                let text = format!(
                    "it needs {} GPUs, but site {site} has {left} left; add GPUs, or allow gpu.fallbackToCpu",
                    gpu.count
                );
                Share { gpu: Some(gpu.clone()), blocker: Some(text) }
            }
        }
    }

    pub fn notes(self) -> Vec<(&'a Name, String)> {
        let text = |nodes: u32| format!("{nodes} of its nodes use the CPU: the site has no GPU for them");
        self.without.into_iter().map(|(pool, nodes)| (pool, text(nodes))).collect()
    }
}
