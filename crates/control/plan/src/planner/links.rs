//! How sites reach the coordinator: addresses, tunnels between gateways, pings that firewalls need.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trellis_flower::launch::Keepalive;
use trellis_spec::{Cidr, Federation, Link, Name, Site, USUAL_SUBNET, WireGuardLink};

use crate::ledger::Ledger;
use crate::observed::Sighting;
use crate::resource::{ResourceId, Tunnel, TunnelPeer};

/// Often enough for every firewall that is slower than twice this.
const SLOWEST_PING_S: u32 = 60;
const LONGEST_ANSWER_S: u32 = 20;

/// Gives every gateway its number in the tunnel. It keeps it as long as its site is named, or something is there.
pub(super) fn number_gateways(federation: &Federation, known: &BTreeMap<ResourceId, Sighting>, ledger: &mut Ledger) {
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

/// The tunnel of the coordinator's site: a peer for each site with nodes that is linked so.
pub(super) fn of_coordinator(federation: &Federation, ledger: &Ledger) -> Option<Tunnel> {
    let hub = &federation.sites[federation.coordinator.site];
    let own = wireguard(hub)?;
    let spokes = federation.sites.iter().enumerate().filter(|(index, _)| has_nodes_afar(federation, *index));
    let spokes: Vec<(&Site, &WireGuardLink)> = spokes.filter_map(|(_, site)| Some((site, wireguard(site)?))).collect();
    let mtu = spokes.iter().map(|(_, link)| link.mtu).chain([own.mtu]).min().unwrap_or(own.mtu);
    let peers = spokes.iter().filter_map(|(site, link)| peer(federation, ledger, site, link, own));
    tunnel(federation, ledger, hub, own, mtu, peers.collect())
}

/// The tunnel of a site with nodes, to the coordinator's.
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

fn has_nodes_afar(federation: &Federation, site: usize) -> bool {
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

/// `site` as the gateway with the link `own` sees it.
fn peer(
    federation: &Federation,
    ledger: &Ledger,
    site: &Site,
    link: &WireGuardLink,
    own: &WireGuardLink,
) -> Option<TunnelPeer> {
    let subnet = subnet(federation)?;
    let address = subnet.host(*ledger.gateways.get(&site.name)?)?;
    let alone = if subnet.is_ipv4() { 32 } else { 128 };
    let allowed = [format!("{address}/{alone}")].into_iter().chain(link.networks.iter().cloned());
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

/// What the coordinator must answer, and do itself: the most frequent of what its nodes do.
pub(super) fn keepalive_of_coordinator(federation: &Federation) -> Option<Keepalive> {
    let sites = (0..federation.sites.len()).filter(|site| has_nodes_afar(federation, *site));
    sites.filter_map(|site| keepalive_of_nodes(federation, site)).min_by_key(|keepalive| keepalive.interval_s)
}

/// Nodes beside the coordinator have no firewall between.
pub(super) fn keepalive_of_nodes(federation: &Federation, site: usize) -> Option<Keepalive> {
    let hub = federation.coordinator.site;
    let timeouts = [federation.sites[hub].idle_timeout, federation.sites[site].idle_timeout];
    timeouts.into_iter().flatten().min().filter(|_| site != hub).map(keepalive)
}

/// At most half the time that silence is borne, and ping and answer together fit into it.
fn keepalive(idle: Duration) -> Keepalive {
    let idle_s = u32::try_from(idle.as_secs()).unwrap_or(u32::MAX);
    let interval_s = (idle_s / 2).clamp(2, SLOWEST_PING_S);
    Keepalive { interval_s, timeout_s: (interval_s / 2).clamp(1, LONGEST_ANSWER_S) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_outrun_every_firewall() {
        for idle_s in 4..2_000 {
            let Keepalive { interval_s, timeout_s } = keepalive(Duration::from_secs(idle_s));
            assert!(u64::from(interval_s) * 2 <= idle_s, "{idle_s}");
            assert!(timeout_s < interval_s && u64::from(interval_s + timeout_s) < idle_s, "{idle_s}");
        }
        assert_eq!(keepalive(Duration::from_secs(240)), Keepalive { interval_s: 60, timeout_s: 20 });
        assert_eq!(keepalive(Duration::from_secs(60)), Keepalive { interval_s: 30, timeout_s: 15 });
    }
}
