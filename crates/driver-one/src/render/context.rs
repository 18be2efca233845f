//! The context of a role's VMs, and the assignment of each. What every VM of the role may know is in the context; what is one
//! VM's own is in its assignment. Secrets are in contexts only, and only in those of the role that needs them: attributes
//! of a VM are shown by OneGate to all VMs of its service, contexts are not.

use trellis_one::keys::Assignment;
use trellis_plan::{Spec, Tunnel};
use trellis_spec::{Name, Tls};

use super::settings::{Settings, set, settings};
use super::{GATEWAY, RoleOf, SUPERLINK, SUPERNODE, digest};
use crate::secrets::{OwnCertificate, Secrets};

/// Variables that differ between nodes of a pool, or follow from where the coordinator is.
const OF_ONE_VM: [&str; 2] = ["FL_NODE_CONFIG", "FL_SUPERLINK_ADDRESS"];

/// What is known of the rest of the federation when an assignment is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Base64 of the PEM of all authorities to trust.
    pub trust: Option<String>,
    /// Where the site's gateway is, as its neighbours see it.
    pub gateway: Option<String>,
}

/// The CONTEXT of a role's VMs.
pub fn context(role: &RoleOf, spec: Option<&Spec>, secrets: &Secrets) -> Vec<(String, String)> {
    let mut values = spec.map(settings).unwrap_or_default();
    values.retain(|name, _| !OF_ONE_VM.contains(&name.as_str()));
    let word = match role {
        RoleOf::SuperLink => SUPERLINK,
        RoleOf::Pool(_) => SUPERNODE,
        RoleOf::Gateway => GATEWAY,
    };
    set(&mut values, "FL_ROLE", word);
    match spec {
        Some(Spec::Coordinator(spec)) => {
            set(&mut values, "FL_ADMIN_TOKEN", secrets.admin_token.clone());
            if let (Tls::Files { .. }, Some(own)) = (&spec.tls, &secrets.certificate) {
                let OwnCertificate { trust, certificate, key } = own;
                set(&mut values, "FL_SSL_CA_CERTFILE", trust.clone());
                set(&mut values, "FL_SSL_CERTFILE", certificate.clone());
                set(&mut values, "FL_SSL_KEYFILE", key.clone());
            }
        }
        Some(Spec::Node(_)) => {}
        None => {
            if let Some(keys) = &secrets.tunnel {
                set(&mut values, "WG_PRIVATE_KEY", keys.private.clone());
            }
        }
    }
    let infrastructure =
        [("NETWORK", "YES"), ("REPORT_READY", "YES"), ("SSH_PUBLIC_KEY", "$USER[SSH_PUBLIC_KEY]"), ("TOKEN", "YES")];
    let ours = values.into_iter().map(|(name, value)| (format!("ONEAPP_{name}"), value));
    let theirs = infrastructure.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ours.chain(theirs).collect()
}

/// What the VM of a part is told.
pub fn assignment(
    part: String,
    generation: String,
    spec: &Spec,
    surroundings: &Surroundings,
    join_token: Option<&str>,
) -> Assignment {
    let mut values = settings(spec);
    if let Spec::Node(spec) = spec {
        if let (true, Some(trust)) = (spec.tls != Tls::Off, &surroundings.trust) {
            set(&mut values, "FL_SSL_CA_CERTFILE", trust.clone());
        }
        if let Some(token) = join_token {
            set(&mut values, "FL_JOIN_TOKEN", token);
        }
    }
    if let (Some(tunnel), Some(gateway)) = (tunnel(spec), &surroundings.gateway) {
        set(&mut values, "FL_ROUTES", routes(tunnel, gateway));
    }
    if let (Spec::Coordinator(_), Some(tunnel)) = (spec, tunnel(spec)) {
        let networks: Vec<&str> = allowed(tunnel).collect();
        set(&mut values, "FL_ALLOWED_NETWORKS", networks.join(","));
    }
    Assignment { part, generation, settings: values }
}

/// What the gateway of a site is told.
pub fn gateway_assignment(federation: &Name, site: &Name, tunnel: &Tunnel, secrets: &Secrets) -> Assignment {
    let mut values = Settings::new();
    set(&mut values, "WG_LOCAL_ADDRESS", tunnel.address.clone());
    set(&mut values, "WG_LISTEN_PORT", tunnel.listen_port.to_string());
    set(&mut values, "WG_MTU", tunnel.mtu.to_string());
    for (number, peer) in (1..).zip(&tunnel.peers) {
        let Some(public) = secrets.tunnel.as_ref().and_then(|keys| keys.public.get(&peer.site)) else { continue };
        let name = |rest: &str| format!("WG_PEER_{number}_{rest}");
        set(&mut values, &name("PUBLIC_KEY"), public.clone());
        set(&mut values, &name("ALLOWED_IPS"), peer.allowed.join(","));
        if let Some(endpoint) = &peer.endpoint {
            set(&mut values, &name("ENDPOINT"), endpoint.clone());
        }
        set(&mut values, &name("KEEPALIVE"), peer.keepalive_s.unwrap_or(0).to_string());
    }
    let generation = digest(format!("{values:?}").as_bytes());
    Assignment { part: gateway_part(federation, site), generation: format!("{generation:016x}"), settings: values }
}

/// The mark of a gateway. It is no part of the plan: it comes and goes with those that need it.
pub fn gateway_part(federation: &Name, site: &Name) -> String {
    format!("{federation}/{site}/{GATEWAY}")
}

pub fn tunnel(spec: &Spec) -> Option<&Tunnel> {
    match spec {
        Spec::Coordinator(spec) => spec.tunnel.as_ref(),
        Spec::Node(spec) => spec.tunnel.as_ref(),
    }
}

fn allowed(tunnel: &Tunnel) -> impl Iterator<Item = &str> {
    tunnel.peers.iter().flat_map(|peer| &peer.allowed).map(String::as_str)
}

fn routes(tunnel: &Tunnel, gateway: &str) -> String {
    let routes: Vec<String> = allowed(tunnel).map(|network| format!("{network} via {gateway}")).collect();
    routes.join(", ")
}
