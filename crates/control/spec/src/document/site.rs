//! The fields of a site: a name, one driver with its own, and how it is reached.

use super::link;
use crate::federation::{Name, Site};
use crate::kind::{name, whole};
use crate::object::Object;
use crate::problem::Place;
use crate::site_kind::{SiteConfig, SiteKind};

pub(crate) struct SiteDraft {
    /// `None`: it cannot be read.
    pub site: Option<Site>,
    pub name: Option<Name>,
    pub name_at: Place,
    pub link_at: Place,
}

pub(crate) fn read(object: &mut Object<'_>) -> SiteDraft {
    let name = object.required("name", name("cloud"), "Name of the site, by which coordinator and pools refer to it.");
    let help = "Most nodes that the site may hold; as many as the driver can where nothing is said.";
    let max_nodes = object.optional("maxNodes", whole(0..=super::MAX_NODES), help);
    let mut given: Vec<(&str, Option<SiteConfig>)> = Vec::new();
    for kind in SiteKind::all() {
        let config = object.optional_object(kind.name, kind.help, kind.read);
        given.extend(config.map(|config| (kind.name, config)));
    }
    if let [(first, _), (second, _), ..] = given[..] {
        object
            .at(second)
            .refuse(format!("a site has one driver, and {first} is given too"), "make it a site of its own");
    }
    let config = given.pop().map_or_else(|| Some(SiteConfig::default()), |(_, config)| config);
    let help = "How the site and the coordinator's reach each other: without wireguard, by the addresses that the coordinator \
                advertises.";
    let (link, idle_timeout) = object.object("link", help, link::read);
    let site = name.clone().zip(config).zip(link);
    let site = site.map(|((name, config), link)| Site { name, config, max_nodes, link, idle_timeout });
    SiteDraft { site, name, name_at: object.at("name"), link_at: object.at("link") }
}
