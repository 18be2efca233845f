//! Connections of sites to the coordinator: tunnels between gateways, and keepalive pings for firewalls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trellis_flower::launch::Keepalive;
use trellis_spec::{Cidr, Federation, Link, Name, Site, USUAL_SUBNET, WireGuardLink};

use crate::ledger::Ledger;
use crate::observed::Presence;
use crate::resource::{ResourceId, Tunnel, TunnelPeer};

/// Short enough for firewalls with an idle timeout of at least twice this.
const MAX_KEEPALIVE_INTERVAL_S: u32 = 60;
const MAX_KEEPALIVE_TIMEOUT_S: u32 = 20;

/// Assigns every gateway its number in the tunnel. A gateway keeps its number as long as the document has its site or parts exist there.
pub(super) fn number_gateways(federation: &Federation, known: &BTreeMap<ResourceId, Presence>, ledger: &mut Ledger) {
    let linked = federation.sites.iter().filter(|site| wireguard(site).is_some());
    let named: Vec<&Name> = linked.map(|site| &site.name).collect();
    let there: BTreeSet<&Name> = known.keys().map(|id| &id.site).collect();
    ledger.gateways.retain(|site, _| named.contains(&site) || there.contains(site));
    for site in named {
        if !ledger.gateways.contains_key(site) {
            let taken: BTreeSet<u32> = ledger.gateways.values().copied().collect();
            let free = (1..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
            ledger.gateways.insert(site.clone(), free);
        }
    }
}

/// The tunnel of the coordinator's site, with a peer for each site with nodes and a WireGuard link.
pub(super) fn of_coordinator(federation: &Federation, ledger: &Ledger) -> Option<Tunnel> {
    let hub = &federation.sites[federation.coordinator.site];
    let own = wireguard(hub)?;
    let spokes = federation.sites.iter().enumerate().filter(|(index, _)| is_remote_with_nodes(federation, *index));
    let spokes: Vec<(&Site, &WireGuardLink)> = spokes.filter_map(|(_, site)| Some((site, wireguard(site)?))).collect();
    let mtu = spokes.iter().map(|(_, link)| link.mtu).chain([own.mtu]).min().unwrap_or(own.mtu);
    let peers = spokes.iter().filter_map(|(site, link)| peer(federation, ledger, site, link, own));
    tunnel(federation, ledger, hub, own, mtu, peers.collect())
}

/// The tunnel of a site with nodes, with the coordinator's site as peer.
pub(super) fn of_nodes(federation: &Federation, ledger: &Ledger, site: usize) -> Option<Tunnel> {
    if site == federation.coordinator.site {
        return None;
    }
    let (hub, spoke) = (&federation.sites[federation.coordinator.site], &federation.sites[site]);
    let (other, own) = (wireguard(hub)?, wireguard(spoke)?);
    let peer = peer(federation, ledger, hub, other, own)?;
    tunnel(federation, ledger, spoke, own, own.mtu.min(other.mtu), vec![peer])
}

fn wireguard(site: &Site) -> Option<&WireGuardLink> {
    match &site.link {
        Link::WireGuard(link) => Some(link),
        Link::Direct => None,
    }
}

fn is_remote_with_nodes(federation: &Federation, site: usize) -> bool {
    site != federation.coordinator.site && federation.pools.iter().any(|pool| pool.site == site)
}

fn tunnel(
    federation: &Federation,
    ledger: &Ledger,
    site: &Site,
    own: &WireGuardLink,
    mtu: u16,
    peers: Vec<TunnelPeer>,
) -> Option<Tunnel> {
    let subnet = subnet(federation)?;
    let address = subnet.host(*ledger.gateways.get(&site.name)?)?;
    Some(Tunnel { address: format!("{address}/{}", subnet.prefix()), listen_port: own.listen_port, mtu, peers })
}

/// `site` as a peer of the gateway with the link `own`.
fn peer(
    federation: &Federation,
    ledger: &Ledger,
    site: &Site,
    link: &WireGuardLink,
    own: &WireGuardLink,
) -> Option<TunnelPeer> {
    let subnet = subnet(federation)?;
    let address = subnet.host(*ledger.gateways.get(&site.name)?)?;
    let host_prefix = if subnet.is_ipv4() { 32 } else { 128 };
    let allowed = [format!("{address}/{host_prefix}")].into_iter().chain(link.networks.iter().cloned());
    Some(TunnelPeer {
        site: site.name.clone(),
        endpoint: link.endpoint.clone(),
        allowed: allowed.collect(),
        keepalive_s: Some(own.keepalive_s).filter(|seconds| *seconds > 0),
    })
}

fn subnet(federation: &Federation) -> Option<Cidr> {
    let hub = wireguard(&federation.sites[federation.coordinator.site])?;
    Cidr::parse(hub.subnet.as_deref().unwrap_or(USUAL_SUBNET)).ok()
}

/// The keepalive of the coordinator: the shortest interval of its nodes.
pub(super) fn keepalive_of_coordinator(federation: &Federation) -> Option<Keepalive> {
    let sites = (0..federation.sites.len()).filter(|site| is_remote_with_nodes(federation, *site));
    sites.filter_map(|site| keepalive_of_nodes(federation, site)).min_by_key(|keepalive| keepalive.interval_s)
}

/// Nodes at the coordinator's site need no keepalive.
pub(super) fn keepalive_of_nodes(federation: &Federation, site: usize) -> Option<Keepalive> {
    let hub = federation.coordinator.site;
    let timeouts = [federation.sites[hub].idle_timeout, federation.sites[site].idle_timeout];
    timeouts.into_iter().flatten().min().filter(|_| site != hub).map(keepalive)
}

/// The interval is at most half the idle timeout, and interval and timeout together are shorter than it.
fn keepalive(idle: Duration) -> Keepalive {
    let idle_s = u32::try_from(idle.as_secs()).unwrap_or(u32::MAX);
    let interval_s = (idle_s / 2).clamp(2, MAX_KEEPALIVE_INTERVAL_S);
    Keepalive { interval_s, timeout_s: (interval_s / 2).clamp(1, MAX_KEEPALIVE_TIMEOUT_S) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_arrive_before_the_idle_timeout() {
        for idle_s in 4..2_000 {
            let Keepalive { interval_s, timeout_s } = keepalive(Duration::from_secs(idle_s));
            assert!(u64::from(interval_s) * 2 <= idle_s, "{idle_s}");
            assert!(timeout_s < interval_s && u64::from(interval_s + timeout_s) < idle_s, "{idle_s}");
        }
        assert_eq!(keepalive(Duration::from_secs(240)), Keepalive { interval_s: 60, timeout_s: 20 });
        assert_eq!(keepalive(Duration::from_secs(60)), Keepalive { interval_s: 30, timeout_s: 15 });
    }
}
