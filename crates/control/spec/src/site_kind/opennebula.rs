//! Sites in OpenNebula clouds.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{SiteFields, SiteTraits};
use crate::kind::{Scalar, flag, id, path, word};
use crate::object::Object;
use crate::write::show_path;
use crate::yaml::Map;

/// A zone of an OpenNebula cloud, and the images of its VMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneSite {
    /// URL of the XML-RPC API.
    pub endpoint: String,
    /// URL of OneFlow; `None`: port 2474 of the same host.
    pub flow: Option<String>,
    pub zone: Option<String>,
    /// File with `user:password` or `user:token`; `None`: that of OpenNebula's own programs (`ONE_AUTH`, `~/.one/one_auth`).
    pub auth_file: Option<PathBuf>,
    /// Credentials may be sent over `http://` to another machine.
    #[serde(default)]
    pub allow_plain_http: bool,
    /// The virtual network of the VMs, by name or number.
    pub network: String,
    /// Datastore of images, by name or number; `None`: the default one.
    pub datastore: Option<String>,
    /// Images by name or number, or files to upload; `None`: those of `trellis image build`.
    pub images: OneImages,
}

impl OneSite {
    /// The fields with `http://` URLs of other machines, which would send credentials unencrypted, with these URLs.
    pub fn plain_http(&self) -> Vec<(&'static str, &str)> {
        let urls = [("endpoint", Some(self.endpoint.as_str())), ("flow", self.flow.as_deref())];
        urls.into_iter()
            .filter_map(|(field, url)| Some((field, url?)))
            .filter(|(_, url)| url.strip_prefix("http://").is_some_and(|rest| !is_loopback(rest)))
            .collect()
    }
}

/// Whether the host at the start of `rest`, a URL without its scheme, is this machine.
fn is_loopback(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    // In `localhost@host`, the part before `@` is a user name.
    !authority.contains('@') && (host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()))
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneImages {
    pub superlink: Option<String>,
    pub supernode: Option<String>,
}

impl SiteFields for OneSite {
    const NAME: &'static str = "opennebula";
    const STORED: &'static str = "OpenNebula";
    const HELP: &'static str = "Virtual machines in an OpenNebula cloud.";

    fn read(object: &mut Object<'_>) -> Option<OneSite> {
        let endpoint = object.required("endpoint", url(), "URL of its XML-RPC API.");
        let flow = "URL of OneFlow; port 2474 of the same host by default.";
        let flow = object.optional("flow", url_like("https://one.example.org:2474"), flow);
        let zone =
            object.optional("zone", id("a zone, by name or number", "edge-1"), "Zone of a federation of clouds.");
        let help = "File with `user:password`, or a token in place of the password; the file of OpenNebula's own \
                    programs by default (`ONE_AUTH`, `~/.one/one_auth`).";
        let auth_file = object.optional("authFile", path("/etc/trellis/one_auth"), help);
        let help = "Permit sending credentials over `http://` to another machine, readable on the path.";
        let allow_plain_http = object.or("allowPlainHttp", flag(), "false", help);
        let help = "Virtual network of the machines.";
        let network = object.required("network", id("a network, by name or number", "private"), help);
        let help = "Datastore for uploaded images; the default one by default.";
        let datastore = object.optional("datastore", id("a datastore, by name or number", "images"), help);
        let images = object.object("images", "Images of the machines.", images);
        let (endpoint, network) = endpoint.zip(network)?;
        Some(OneSite { endpoint, flow, zone, auth_file, allow_plain_http, network, datastore, images })
    }

    fn write(&self) -> Map {
        let images = Map::new()
            .maybe("superlink", self.images.superlink.as_deref())
            .maybe("supernode", self.images.supernode.as_deref());
        Map::new()
            .put("endpoint", self.endpoint.as_str())
            .maybe("flow", self.flow.as_deref())
            .maybe("zone", self.zone.as_deref())
            .maybe("authFile", self.auth_file.as_deref().map(show_path))
            .maybe("allowPlainHttp", self.allow_plain_http.then_some(true))
            .put("network", self.network.as_str())
            .maybe("datastore", self.datastore.as_deref())
            .put("images", images)
    }

    fn traits(&self) -> SiteTraits {
        let runs_scaling_rules = true;
        SiteTraits { starts_appliances: true, makes_gateways: true, runs_scaling_rules, ..SiteTraits::default() }
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        self.auth_file.iter_mut().map(|path| ("authFile", path)).collect()
    }
}

fn images(object: &mut Object<'_>) -> OneImages {
    let image = || id("an image, by name or number, or a file that is uploaded", "trellis-supernode");
    OneImages {
        superlink: object.optional(
            "superlink",
            image(),
            "Image of the coordinator; that of `trellis image build` by default.",
        ),
        supernode: object.optional(
            "supernode",
            image(),
            "Image of the nodes; that of `trellis image build` by default.",
        ),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_clear_text_are_found_wherever_they_leave_this_machine() {
        let site = |endpoint: &str, flow: Option<&str>| OneSite {
            endpoint: endpoint.to_owned(),
            flow: flow.map(str::to_owned),
            zone: None,
            auth_file: None,
            allow_plain_http: false,
            network: "private".to_owned(),
            datastore: None,
            images: OneImages::default(),
        };
        for (endpoint, flow, expected) in [
            ("https://one.example.org:2633/RPC2", None, &[][..]),
            ("http://127.0.0.1:2633/RPC2", Some("http://localhost:2474"), &[]),
            ("http://[::1]:2633/RPC2", None, &[]),
            ("http://one.example.org:2633/RPC2", None, &["endpoint"]),
            ("https://one.example.org/RPC2", Some("http://one.example.org:2474"), &["flow"]),
            ("http://127.0.0.1:80@one.example.org/RPC2", None, &["endpoint"]),
            ("http://127.0.0.1.example.org/RPC2", None, &["endpoint"]),
            ("http://localhost.example.org#@localhost", None, &["endpoint"]),
        ] {
            let site = site(endpoint, flow);
            let found: Vec<&str> = site.plain_http().into_iter().map(|(field, _)| field).collect();
            assert_eq!(found, expected, "{endpoint} {flow:?}");
        }
    }
}
