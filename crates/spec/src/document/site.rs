//! The fields of a site: a name, and one driver with its own.

use crate::federation::{Containers, Driver, Link, Name, OneImages, OneSite, Site};
use crate::kind::{Choice, Scalar, choice, name, whole, word};
use crate::object::Object;
use crate::problem::Place;

pub(crate) const CONTAINERS: [Choice<Containers>; 3] =
    [("none", Containers::No), ("podman", Containers::Podman), ("docker", Containers::Docker)];
const DRIVERS: [&str; 3] = ["local", "opennebula", "kubernetes"];

pub(crate) struct SiteDraft {
    /// `None`: it cannot be read.
    pub site: Option<Site>,
    pub name: Option<Name>,
    pub name_at: Place,
}

pub(crate) fn read(object: &mut Object<'_>) -> SiteDraft {
    let name = object.required("name", name("cloud"), "Name of the site, by which coordinator and pools refer to it.");
    let help = "Most nodes that the site may hold; as many as the driver can where nothing is said.";
    let max_nodes = object.optional("maxNodes", whole(0..=super::MAX_NODES), help);
    let local = object.optional_object("local", "This machine. The driver of a site that names none.", local);
    let opennebula = object.optional_object("opennebula", "Virtual machines in an OpenNebula cloud.", opennebula);
    let kubernetes = object.optional_object("kubernetes", "Pods in a Kubernetes cluster.", kubernetes);

    let given: Vec<&str> = DRIVERS.into_iter().filter(|driver| object.has(driver)).collect();
    if let [first, second, ..] = given[..] {
        object
            .at(second)
            .refuse(format!("a site has one driver, and {first} is given too"), "make it a site of its own");
    }
    let driver = match (opennebula, kubernetes) {
        (Some(driver), _) => driver,
        (None, Some(driver)) => Some(driver),
        (None, None) => Some(local.unwrap_or(Driver::Local { containers: Containers::No })),
    };
    let site = name.clone().zip(driver).map(|(name, driver)| Site { name, driver, max_nodes, link: Link::Direct });
    SiteDraft { site, name, name_at: object.at("name") }
}

fn local(object: &mut Object<'_>) -> Driver {
    let help = "What runs the programs: processes (none), or containers.";
    Driver::Local { containers: object.or("containers", choice(&CONTAINERS), "none", help) }
}

fn opennebula(object: &mut Object<'_>) -> Option<Driver> {
    let endpoint = object.required("endpoint", url(), "Where its API (XML-RPC) is.");
    let zone = object.optional("zone", id("a zone, by name or number", "edge-1"), "Zone of a federation of clouds.");
    endpoint.map(|endpoint| {
        let (flow, auth_file, network, datastore, images) = (None, None, String::new(), None, OneImages::default());
        Driver::OpenNebula(OneSite { endpoint, flow, zone, auth_file, network, datastore, images })
    })
}

fn kubernetes(object: &mut Object<'_>) -> Driver {
    let help = "Context of the kubeconfig; the current one, or the cluster that we run in, where none is named.";
    let context = object.optional("context", id("the name of a context", "staging"), help);
    let namespace = word("the name of a namespace", "federations", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", |text| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        text.len() <= 63 && text.chars().all(plain) && !text.starts_with('-') && !text.ends_with('-')
    });
    Driver::Kubernetes { context, namespace: object.or("namespace", namespace, "default", "Namespace of everything.") }
}

fn url() -> Scalar<String> {
    word("a URL", "https://one.example.org:2633/RPC2", "^https?://[^\\s/]+", |text| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
    })
}

/// Text, also a number.
fn id(words: &str, example: &'static str) -> Scalar<String> {
    Scalar::new(words, example, serde_json::json!({ "type": ["string", "integer"] }), |text, _| {
        let sound = !text.is_empty() && !text.contains(char::is_control);
        sound.then(|| text.to_owned()).ok_or(crate::kind::Fault::Unfit)
    })
}
