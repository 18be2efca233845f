//! Checks of the links between sites.

use super::Spec;
use super::coordinator::CoordinatorDraft;
use super::site::SiteDraft;
use crate::cidr::Cidr;
use crate::federation::{Link, Site, Tls, WireGuardLink};
use crate::problem::Place;

/// The default subnet of the gateways.
pub const USUAL_SUBNET: &str = "10.66.0.0/24";

impl Spec {
    /// `hub`: the coordinator's site; `pool_sites`: the site of each pool; `None`: unknown.
    pub(super) fn check_links(&self, hub: Option<usize>, pool_sites: &[Option<usize>]) {
        let Some((hub_index, hub)) = hub.and_then(|index| Some((index, self.sites.get(index)?))) else { return };
        let Some(hub_site) = &hub.site else { return };
        for (index, draft) in self.sites.iter().enumerate().filter(|(index, _)| *index != hub_index) {
            let Some(site) = &draft.site else { continue };
            if pool_sites.contains(&Some(index)) {
                check_reach(&self.coordinator, hub_site, site, draft);
                self.check_secrecy(hub_site, site, draft);
            }
            if let Link::WireGuard(tunnel) = &site.link {
                check_tunnel(hub_site, tunnel, draft);
            }
        }
        check_gateways(&self.sites);
        check_networks(&self.sites, hub_index);
        warn_of_lonely_hub(&self.sites, hub_index);
    }

    /// Models must not travel between sites unencrypted.
    fn check_secrecy(&self, hub: &Site, site: &Site, draft: &SiteDraft) {
        if self.security.tls != Tls::Off || share_a_machine(hub, site) {
            return;
        }
        match site.link {
            Link::Direct => draft.link_at.refuse(
                "models would travel between sites unencrypted (security.tls.mode is none)",
                "write security.tls.mode: auto, or link the sites by wireguard",
            ),
            Link::WireGuard(_) => draft.link_at.warn(
                "only the tunnel between the sites is encrypted, not the networks within them (security.tls.mode is none)",
                "write security.tls.mode: auto, unless the networks of both sites are trusted",
            ),
        }
    }
}

/// Whether both sites are the same machine.
fn share_a_machine(one: &Site, other: &Site) -> bool {
    one.config.traits().on_this_machine && other.config.traits().on_this_machine
}

fn check_reach(coordinator: &CoordinatorDraft, hub: &Site, site: &Site, draft: &SiteDraft) {
    let advertised = !coordinator.coordinator.endpoints.advertise.is_empty();
    if site.link == Link::Direct && !advertised && !share_a_machine(hub, site) {
        let what =
            format!("nodes at {} cannot reach the coordinator at {}, which advertises no address", site.name, hub.name);
        draft.link_at.refuse(what, "write coordinator.endpoints.advertise, or link the sites by wireguard");
    }
}

fn check_tunnel(hub: &Site, tunnel: &WireGuardLink, draft: &SiteDraft) {
    match &hub.link {
        Link::Direct => draft.link_at.refuse(
            format!("the coordinator's site {} has no gateway: its link is not wireguard", hub.name),
            "give both sites link.wireguard",
        ),
        Link::WireGuard(other) if tunnel.endpoint.is_none() && other.endpoint.is_none() => draft.link_at.refuse(
            format!("neither this gateway nor that of the coordinator's site {} has an endpoint", hub.name),
            "write link.wireguard.endpoint at one of the two sites",
        ),
        Link::WireGuard(_) => {}
    }
    if tunnel.subnet.is_some() {
        draft.link_at.refuse("the subnet of the tunnel belongs to the coordinator's site", "leave it out here");
    }
}

/// Refuses gateways at sites whose driver does not support them.
fn check_gateways(sites: &[SiteDraft]) {
    for (draft, site) in sites.iter().filter_map(|draft| Some((draft, draft.site.as_ref()?))) {
        if matches!(site.link, Link::WireGuard(_)) && !site.config.traits().makes_gateways {
            draft.link_at.refuse(
                "gateways are supported at OpenNebula sites only",
                "set up the tunnel yourself, and advertise the coordinator's address in it (coordinator.endpoints.advertise)",
            );
        }
    }
}

fn check_networks(sites: &[SiteDraft], hub: usize) {
    let mut seen: Vec<(Cidr, String)> = Vec::new();
    let mut take = |text: &str, owner: String, place: &Place| {
        let Ok(network) = Cidr::parse(text) else { return };
        if let Some((other, owner)) = seen.iter().find(|(other, _)| other.overlaps(&network)) {
            place.refuse(
                format!("{network} overlaps {other}, {owner}: routes would be ambiguous"),
                "use different networks at each site",
            );
        }
        seen.push((network, owner));
    };
    for (index, draft) in sites.iter().enumerate() {
        let Some(Site { link: Link::WireGuard(tunnel), name, .. }) = &draft.site else { continue };
        if index == hub {
            let subnet = tunnel.subnet.as_deref().unwrap_or(USUAL_SUBNET);
            check_subnet(subnet, sites.len(), &draft.link_at);
            take(subnet, "the subnet of the gateways".to_owned(), &draft.link_at);
        }
        for network in &tunnel.networks {
            take(network, format!("a network of site {name}"), &draft.link_at);
        }
    }
}

/// The subnet needs an address for every gateway, including those of sites that are added later.
fn check_subnet(subnet: &str, sites: usize, place: &Place) {
    let most = u32::try_from(sites).unwrap_or(u32::MAX).saturating_mul(2);
    if Cidr::parse(subnet).is_ok_and(|subnet| subnet.host(most).is_none()) {
        place.refuse(
            format!("{subnet} has too few addresses for the gateways of {sites} sites"),
            "use a larger network",
        );
    }
}

fn warn_of_lonely_hub(sites: &[SiteDraft], hub: usize) {
    let tunnels: Vec<usize> = sites
        .iter()
        .enumerate()
        .filter(|(_, draft)| draft.site.as_ref().is_some_and(|site| matches!(site.link, Link::WireGuard(_))))
        .map(|(index, _)| index)
        .collect();
    if tunnels == [hub] {
        sites[hub].link_at.warn("this gateway has no peer: no other site has a wireguard link", "leave it out");
    }
}
