//! The fields of a site: a name, one driver with its own, and how it is reached.

use std::collections::BTreeMap;

use super::link;
use crate::federation::{Containers, Driver, Exposure, KubeImages, KubeSite, Name, OneImages, OneSite, Site};
use crate::kind::{Choice, ListOf, Scalar, choice, flag, labels, name, path, whole, word};
use crate::object::Object;
use crate::problem::Place;

pub(crate) const CONTAINERS: [Choice<Containers>; 3] =
    [("none", Containers::No), ("podman", Containers::Podman), ("docker", Containers::Docker)];
pub(crate) const EXPOSURES: [Choice<Exposure>; 3] =
    [("ClusterIP", Exposure::Cluster), ("NodePort", Exposure::NodePort), ("LoadBalancer", Exposure::LoadBalancer)];
const DRIVERS: [&str; 3] = ["local", "opennebula", "kubernetes"];

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
    let help = "How the site and the coordinator's reach each other: without wireguard, by the addresses that the coordinator \
                advertises.";
    let (link, idle_timeout) = object.object("link", help, link::read);
    let site = name.clone().zip(driver).zip(link);
    let site = site.map(|((name, driver), link)| Site { name, driver, max_nodes, link, idle_timeout });
    SiteDraft { site, name, name_at: object.at("name"), link_at: object.at("link") }
}

fn local(object: &mut Object<'_>) -> Driver {
    let help = "What runs the programs: processes (none), or containers.";
    Driver::Local { containers: object.or("containers", choice(&CONTAINERS), "none", help) }
}

fn opennebula(object: &mut Object<'_>) -> Option<Driver> {
    let endpoint = object.required("endpoint", url(), "Where its API (XML-RPC) is.");
    let flow = "Where OneFlow is; port 2474 of the same host where nothing is said.";
    let flow = object.optional("flow", url_like("https://one.example.org:2474"), flow);
    let zone = object.optional("zone", id("a zone, by name or number", "edge-1"), "Zone of a federation of clouds.");
    let help = "File with `user:password`, or a token in place of the password; as OpenNebula's own programs where nothing \
                is said (`ONE_AUTH`, `~/.one/one_auth`).";
    let auth_file = object.optional("authFile", path("/etc/trellis/one_auth"), help);
    let help = "Send the credentials over `http://` to another machine too. Everybody on the way can read them.";
    let allow_plain_http = object.or("allowPlainHttp", flag(), "false", help);
    let help = "The virtual network that the machines are in.";
    let network = object.required("network", id("a network, by name or number", "private"), help);
    let help = "Where images are put that are uploaded; the default datastore where none is named.";
    let datastore = object.optional("datastore", id("a datastore, by name or number", "images"), help);
    let images = object.object("images", "What machines boot from.", images);
    let (endpoint, network) = endpoint.zip(network)?;
    Some(Driver::OpenNebula(OneSite { endpoint, flow, zone, auth_file, allow_plain_http, network, datastore, images }))
}

fn images(object: &mut Object<'_>) -> OneImages {
    let image = || id("an image, by name or number, or a file that is uploaded", "trellis-supernode");
    OneImages {
        superlink: object.optional(
            "superlink",
            image(),
            "Of the coordinator; the one that `trellis image build` makes.",
        ),
        supernode: object.optional("supernode", image(), "Of the nodes; the one that `trellis image build` makes."),
    }
}

fn kubernetes(object: &mut Object<'_>) -> Driver {
    let help = "File that says where clusters are and who calls; as kubectl finds it (`KUBECONFIG`, `~/.kube/config`), or the \
                cluster that we run in, where none is named.";
    let kubeconfig = object.optional("kubeconfig", path("/etc/trellis/kubeconfig"), help);
    let help = "Context of the kubeconfig; the current one where none is named.";
    let context = object.optional("context", id("the name of a context", "staging"), help);
    let namespace = dns_label("the name of a namespace", "federations");
    let namespace = object.or("namespace", namespace, "default", "Namespace of everything. It must be there already.");
    let help = "How the coordinator is reached.";
    let (exposure, service_annotations) = object.object("service", help, service);
    let help = "Storage class of what must last; the cluster's default one where none is named.";
    let storage_class = object.optional("storageClass", id("the name of a storage class", "fast-ssd"), help);
    let images = object.object("images", "What pods are made of, where coordinator and pools do not say.", kube_images);
    let help = "Secrets with which images are pulled.";
    let pull_secrets = object.any("imagePullSecrets", ListOf(dns_label("the name of a secret", "registry")), help);
    let help = "Labels of the machines that pods may be on.";
    let node_selector = object.any("nodeSelector", labels("topology.kubernetes.io/zone", "\"zone-a\""), help);
    Driver::Kubernetes(KubeSite {
        kubeconfig,
        context,
        namespace,
        exposure,
        service_annotations,
        storage_class,
        images,
        image_pull_secrets: pull_secrets,
        node_selector,
    })
}

fn service(object: &mut Object<'_>) -> (Exposure, BTreeMap<String, String>) {
    let help =
        "From where: pods of the cluster, machines that reach its nodes, or everybody whom its load balancer serves.";
    let exposure = object.or("type", choice(&EXPOSURES), "ClusterIP", help);
    let help = "Annotations of the Service, for whoever provides load balancers.";
    (exposure, object.any("annotations", labels("metallb.io/address-pool", "\"lab\""), help))
}

fn kube_images(object: &mut Object<'_>) -> KubeImages {
    let image = || id("an image", "trellis-supernode:1.0");
    KubeImages {
        superlink: object.optional("superlink", image(), "Of the coordinator; ours, of this version."),
        supernode: object.optional("supernode", image(), "Of the nodes; ours, of this version."),
    }
}

fn dns_label(words: &str, example: &'static str) -> Scalar<String> {
    word(words, example, "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", |text| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        text.len() <= 63 && text.chars().all(plain) && !text.starts_with('-') && !text.ends_with('-')
    })
}

fn url() -> Scalar<String> {
    url_like("https://one.example.org:2633/RPC2")
}

fn url_like(example: &'static str) -> Scalar<String> {
    word("a URL", example, "^https?://[^\\s/]+", |text| {
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
