//! The fields of a site: its name, the fields of one driver, and its link.

use super::link;
use crate::federation::{Name, Site};
use crate::kind::{name, whole};
use crate::object::Object;
use crate::problem::Place;
use crate::site_kind::{SiteConfig, SiteKind};

pub(crate) struct SiteDraft {
    /// `None` if it is invalid.
    pub site: Option<Site>,
    pub name: Option<Name>,
    pub name_at: Place,
    pub link_at: Place,
}

pub(crate) fn read(object: &mut Object<'_>) -> SiteDraft {
    let name = object.required("name", name("cloud"), "Name of the site, to which coordinator and pools refer.");
    let help = "Maximum number of nodes at the site; unlimited by default.";
    let max_nodes = object.optional("maxNodes", whole(0..=super::MAX_NODES), help);
    let mut given: Vec<(&str, Option<SiteConfig>)> = Vec::new();
    for kind in SiteKind::all() {
        let config = object.optional_object(kind.name, kind.help, kind.read);
        given.extend(config.map(|config| (kind.name, config)));
    }
    if let [(first, _), (second, _), ..] = given[..] {
        object.at(second).refuse(format!("a site has one driver, and {first} is set too"), "make it a site of its own");
    }
    let config = given.pop().map_or_else(|| Some(SiteConfig::default()), |(_, config)| config);
    let help = "Connection between the site and the coordinator's site: without wireguard, by the addresses that the coordinator \
                advertises.";
    let (link, idle_timeout) = object.object("link", help, link::read);
    let site = name.clone().zip(config).zip(link);
    let site = site.map(|((name, config), link)| Site { name, config, max_nodes, link, idle_timeout });
    SiteDraft { site, name, name_at: object.at("name"), link_at: object.at("link") }
}
